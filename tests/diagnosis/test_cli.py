"""`opsagent diagnose`: exit codes, JSON, learning; and what it must not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from diagnosis.examples import DATA, real

from opsagent.cli.diagnose import command, learned_folder

ZORG = (
    "[2026-05-01 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    "ZorgError: the zorgulator of layer 17 refused '/models/m'\n"
)


def _run(*words: str, text: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(words), input=text, standalone_mode=False)
    assert result.exception is None
    return int(result.return_value), result.stdout


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(("name", "code"), [("tp1-plain", 0), ("f-truncated", 1), ("t-seed2-exact", 3)])
def test_exit_codes(name: str, code: int) -> None:
    exit_code, out = _run("--json", str(DATA / "logs" / f"{name}.log"))
    assert exit_code == code
    assert json.loads(out)["verdict"] == {0: "healthy", 1: "failed", 3: "unknown"}[code]


def test_an_unreadable_log_is_2_with_an_error_object() -> None:
    code, out = _run("--json", "/nowhere/x.log")
    assert code == 2
    assert set(json.loads(out)["error"]) == {"what", "where", "hint"}


def test_stdin() -> None:
    assert _run("-", text=real("f-ctx-too-long"))[0] == 1


def test_learning_a_cause_from_a_log_and_naming_it_then(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(ZORG)
    assert _run(str(log))[0] == 3
    assert _run("--learn", str(log), "--cause", "draft-arch-mismatch")[0] == 0
    other = ZORG.replace("17", "4").replace("/models/m", "/srv/other")
    code, out = _run("--json", "-", text=other)
    assert (code, json.loads(out)["cause"]) == (1, "draft-arch-mismatch")
    assert (learned_folder() / "examples.txt").read_text().startswith("=== draft-arch-mismatch")


def test_a_signature_that_fires_on_a_healthy_server_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("[2026-05-01 10:00:00] The server is fired up and ready to roll!\n" + ZORG)
    assert _run("--learn", str(log), "--cause", "draft-arch-mismatch", "--line", "1")[0] == 2
    assert not (learned_folder() / "signatures.toml").exists()


def test_an_unknown_cause_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(ZORG)
    assert _run("--learn", str(log), "--cause", "zorg")[0] == 2


def test_neither_openai_nor_paramiko_are_imported() -> None:
    code = (
        "import sys\n"
        "from opsagent.cli.diagnose import command\n"
        f"command(['--json', {str(DATA / 'logs' / 'f-truncated.log')!r}], standalone_mode=False)\n"
        "print(sorted(m for m in ('openai', 'paramiko', 'fabric', 'asyncssh', 'rich') if m in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip().endswith("[]")
