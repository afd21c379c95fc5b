"""A run that died between its last event and its report: resume writes the report, and it is the one that verify expects."""

from __future__ import annotations

from pathlib import Path

import pytest
from loop.world import CounterHost
from replay.record import record

from opsagent.again import missing_report
from opsagent.cli import cli
from opsagent.verify import verify


@pytest.mark.parametrize("gone", [("report.json",), ("report.md",), ("report.json", "report.md")])
def test_resume_writes_a_missing_report(tmp_path: Path, gone: tuple[str, ...]) -> None:
    folder = tmp_path / "run"
    record(folder, host=CounterHost())
    whole = {name: (folder / name).read_bytes() for name in ("report.json", "report.md")}
    for name in gone:
        (folder / name).unlink()
    assert not verify(folder).ok
    assert cli.main(["resume", str(folder)], standalone_mode=False) == 0
    assert {name: (folder / name).read_bytes() for name in whole} == whole
    assert verify(folder).ok
    assert missing_report(str(folder)) is None
