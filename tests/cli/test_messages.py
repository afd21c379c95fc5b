"""What a mistake is answered with: the next command, not only what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsagent import cli
from opsagent.checked import checked_runbook
from opsagent.config import read_layer
from opsagent.data import find_runbook
from opsagent.places import real_places
from opsagent_tools.errors import InputError


def test_a_host_without_its_role_is_told_the_roles(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        real_places(checked_runbook(find_runbook("launch")), ["gpu9"], "", tmp_path)
    assert "--host ROLE=NAME" in caught.value.hint
    assert "target" in caught.value.hint


def test_a_runbook_that_is_not_there_names_the_one_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "launch.md").write_text("x")
    with pytest.raises(InputError) as near:
        checked_runbook(tmp_path / "lanch.md")
    assert str(tmp_path / "launch.md") in near.value.hint
    assert "Errno" not in near.value.what
    with pytest.raises(InputError) as far:
        checked_runbook(Path("nothing-like-it"))
    assert "migrate" in far.value.hint


def test_a_file_that_is_no_text_or_no_toml_has_a_hint(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        checked_runbook(tmp_path / "a.md")
    (tmp_path / "opsagent.toml").write_text("a = = 1")
    with pytest.raises(InputError) as caught:
        read_layer("project", tmp_path / "opsagent.toml")
    assert caught.value.hint


def test_a_folder_that_may_not_be_read_is_a_message_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(**_given: object) -> int:
        raise PermissionError(13, "Permission denied", "/somebody/elses")

    monkeypatch.setattr(cli.cli, "main", main)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "/somebody/elses" in capsys.readouterr().err
