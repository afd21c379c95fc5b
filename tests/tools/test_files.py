"""write_file and write_sysfs, with their script on this machine's own files."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest
from pydantic import ValidationError

from opsagent_tools import probes, write_file, write_sysfs
from opsagent_tools.errors import ToolFailed
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.tool import Context
from opsagent_tools.write_file import WriteFileArgs, WriteFileResult
from opsagent_tools.write_sysfs import WriteSysfsArgs


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(autouse=True)
def _backups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_file, "BACKUPS", str(tmp_path / "backups"))


def write(path: Path, **args: object) -> WriteFileResult:
    return write_file.run(LocalHost(), WriteFileArgs.model_validate({"path": str(path), **args}), Context("r1"))


def test_new_file_and_its_undo(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "a.conf"
    made = write(path, content="x\n", parents=True)
    assert (made.created, made.changed, made.before, made.after, made.backup) == (True, True, None, sha("x\n"), None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    undone = write(path, restore=made.model_dump())
    assert (path.exists(), undone.after) == (False, None)


def test_change_keeps_mode_and_backup_and_can_be_undone(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("one\ntwo\n")
    path.chmod(0o600)
    done = write(path, content="one\nthree\n", sha256=sha("one\ntwo\n"))
    assert "-two\n+three" in done.diff
    assert (done.before, done.after) == (sha("one\ntwo\n"), sha("one\nthree\n"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert done.backup
    assert Path(done.backup).read_text() == "one\ntwo\n"
    assert Path(done.backup).parent == tmp_path / "backups" / "r1"
    assert [p.name for p in tmp_path.iterdir() if "a.conf" in p.name] == ["a.conf"]
    write(path, restore=done.model_dump(mode="json"))
    assert path.read_text() == "one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_changed_in_between_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("somebody else's\n")
    for expected in (sha("mine"), ""):
        with pytest.raises(ToolFailed):
            write(path, content="x", sha256=expected)
    with pytest.raises(ToolFailed):
        write(tmp_path / "none", content="x", sha256=sha("mine"))
    done = write(path, content="new\n")
    path.write_text("changed after us\n")
    with pytest.raises(ToolFailed):
        write(path, restore=done.model_dump())
    assert path.read_text() == "changed after us\n"


def test_same_text_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("x\n")
    before = path.stat().st_ino
    done = write(path, content="x\n")
    assert (done.changed, done.backup, path.stat().st_ino) == (False, None, before)
    assert write(path, restore=done.model_dump()).changed is False


def test_links_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("link", "."):
        with pytest.raises(ToolFailed):
            write(tmp_path / name, content="y")
    assert (tmp_path / "real").read_text() == "x"


def test_restore_of_another_path_is_refused(tmp_path: Path) -> None:
    done = write(tmp_path / "a", content="x")
    with pytest.raises(ToolFailed):
        write(tmp_path / "b", restore=done.model_dump())


@pytest.mark.parametrize(
    "args", [{"path": "a", "content": ""}, {"path": "/a"}, {"path": "/a", "content": "", "restore": {}}]
)
def test_bad_arguments(args: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        WriteFileArgs.model_validate(args)


def test_unknown_outcome_is_settled_by_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    args = WriteFileArgs(path=str(path), content="x\n")
    assert write_file.probe(LocalHost(), args, Context("r1")) is None
    path.write_text("x\n")
    found = write_file.probe(LocalHost(), args, Context("r1"))
    assert found is not None
    assert found.after == sha("x\n")


def test_preview_is_the_diff(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("one\n")
    assert "+two" in write_file.preview(LocalHost(), WriteFileArgs(path=str(path), content="one\ntwo\n"))
    assert path.read_text() == "one\n"


def test_attributes_record_what_they_were(tmp_path: Path) -> None:
    """On a plain file: the script does not care, and the tests may not touch the kernel."""
    path = tmp_path / "driver_override"
    path.write_text("vfio-pci\n")
    got = probes.ask(LocalHost(), "file", {"op": "attribute", "path": str(path), "value": ""})
    assert (got["before"], got["driver_before"]) == ("vfio-pci", None)
    missing = probes.ask(LocalHost(), "file", {"op": "attribute", "path": str(tmp_path / "x" / "bind"), "value": "1"})
    assert "No such file" in missing["error"]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/sys/../etc/passwd", "sys/x", "/proc/1/mem"]
)  # fmt: skip
def test_only_kernel_attributes(path: str) -> None:
    with pytest.raises(ValidationError):
        WriteSysfsArgs(path=path, value="1")


def test_write_only_attributes_cannot_be_restored() -> None:
    args = WriteSysfsArgs(
        path="/sys/bus/pci/drivers/vfio-pci/unbind", restore={"path": "/sys/bus/pci/drivers/vfio-pci/unbind"}
    )
    with pytest.raises(ToolFailed):
        write_sysfs.run(LocalHost(), args)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_folder_is_an_error() -> None:
    with pytest.raises(ToolFailed):
        write(Path("/etc/opsagent-test"), content="x")
