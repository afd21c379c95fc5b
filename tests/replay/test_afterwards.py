"""What came after the first process replays strictly too: resume, rollback, stop, a changed runbook, another prompt."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from gate.world import Person
from kill.small import hosts_file, small_lab
from loop.world import CounterHost
from replay.record import record

from opsagent import conversation
from opsagent.again import reopened, roll_back, stop_server
from opsagent.call import Decision
from opsagent.cli import cli
from opsagent.data import find_runbook
from opsagent.gate import Gate
from opsagent.journal import read_log
from opsagent.journal.format import digest, encode
from opsagent.models.scripted import ScriptedModel, calls, says
from opsagent.places import lab_places, real_places
from opsagent.replay.recording import Recording
from opsagent.replay.run import Outcome, replay
from opsagent.run import Silent
from opsagent.runbook.model import Runbook
from opsagent.runbook.parse import parse
from opsagent.session import Session, Wish, begin, conduct
from opsagent.verify import verify
from opsagent_lab.lab import Lab

BOOK = """\
---
opsagent: 1
name: small
hosts: {target: {count: 1}}
allow: {tools: [ssh_exec, write_file], roots: [/srv/models]}
---
# Small

## Write {#write}

```call
tool: write_file
host: target
args: {path: /srv/models/a, content: "one\\n", sha256: ""}
as: written
```
```check
- written.changed
```
```rollback
tool: write_file
host: target
args: {path: /srv/models/a, restore: "${written}"}
```

## Append {#append}

```call
tool: ssh_exec
host: target
args: {argv: [tee, -a, /srv/models/ledger], stdin: "two\\n"}
```
"""


def book(folder: Path) -> Runbook:
    path = folder / "small.md"
    path.write_text(BOOK)
    found, faults = parse(BOOK, str(path))
    assert found is not None, faults
    return found


def run(folder: Path, lab: Lab) -> str:
    """To the append, which nobody may approve: exit 4."""
    small = book(folder.parent)
    places = real_places(small, ["target=box"], hosts_file(lab, folder.parent), folder.parent)
    with begin(Wish(small, places, folder=folder, approve="declared")) as session:
        return conduct(session).status


def strictly(folder: Path) -> Outcome:
    assert verify(folder).ok
    return replay(Recording.open(folder))


def asking(session: Session, answer: Decision) -> None:
    assert isinstance(session.run.gate, Gate)
    session.run.gate.mode, session.run.gate.approver = "ask", Person([answer])


def modes(folder: Path) -> list[str]:
    return [event.data["mode"] for event in read_log(folder).events if event.type == "run.resumed"]


@pytest.mark.parametrize("answers", [["--yes"], ["--reject", "no"], ["--stop", "not tonight"]])
def test_resume_and_rollback(tmp_path: Path, answers: list[str]) -> None:
    folder = tmp_path / "run"
    with small_lab(tmp_path) as lab:
        assert run(folder, lab) == "waiting-approval"
        assert cli.main(["approve", str(folder), *answers], standalone_mode=False) == 0
        code = cli.main(["resume", str(folder), "--json"], standalone_mode=False)
        assert code == (0 if answers == ["--yes"] else 6)
        assert strictly(folder).ok, strictly(folder).divergence
        with reopened(str(folder), mode="rollback", watcher=lambda _wish: Silent(), approve="ask") as session:
            asking(session, Decision("approve", "operator"))
            roll_back(session)
        assert not lab.world.files(lab.world.host("box")).exists("/srv/models/a")
    assert modes(folder) == ["resume", "rollback"]
    found = strictly(folder)
    assert found.ok, found.divergence
    assert found.events == found.recorded


def test_stop(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small = parse(find_runbook("runbooks/launch.md").read_text(), "launch.md")[0]
    assert small is not None
    with begin(Wish(small, lab_places(small, "dense"), folder=folder)) as session:
        assert conduct(session).status == "verified"
    with reopened(str(folder), mode="stop", watcher=lambda _wish: Silent()) as session:
        code, _report = stop_server(session)
        assert code == 0
    found = strictly(folder)
    assert found.ok, found.divergence
    assert found.events == found.recorded


def test_the_runbook_that_a_run_went_on_with_is_a_part_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with small_lab(tmp_path) as lab:
        run(folder, lab)
        (tmp_path / "small.md").write_text(BOOK.replace("two\\n", "three\\n"))
        assert cli.main(["resume", str(folder)], standalone_mode=False) == 2
        with reopened(
            str(folder), mode="resume", watcher=lambda _wish: Silent(), accept_drift=True, approve="ask"
        ) as session:
            asking(session, Decision("approve", "operator"))
            assert conduct(session).status == "verified"
        (tmp_path / "small.md").unlink()
        text = lab.world.files(lab.world.host("box")).text("/srv/models/ledger")
    assert text == "first\nthree\n"
    found = strictly(folder)
    assert found.ok, found.divergence


def test_an_approval_is_for_the_machine_and_not_for_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with small_lab(tmp_path) as lab:
        assert run(folder, lab) == "waiting-approval"
        assert cli.main(["approve", str(folder), "--yes"], standalone_mode=False) == 0
        hosts = tmp_path / "hosts.toml"
        hosts.write_text(hosts.read_text().replace("label = ", "label = 'another one' # "))
        assert cli.main(["resume", str(folder), "--accept-drift", "--json"], standalone_mode=False) == 4
        assert lab.world.files(lab.world.host("box")).text("/srv/models/ledger") == "first\n"
        assert cli.main(["approve", str(folder), "--yes"], standalone_mode=False) == 0  # for the new one
        assert cli.main(["resume", str(folder), "--accept-drift", "--json"], standalone_mode=False) == 0
        assert lab.world.files(lab.world.host("box")).text("/srv/models/ledger") == "first\ntwo\n"
    found = strictly(folder)
    assert found.ok, found.divergence


def test_an_approval_from_another_terminal_replays_long_after_it_expired(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with small_lab(tmp_path) as lab:
        assert run(folder, lab) == "waiting-approval"
        assert cli.main(["approve", str(folder), "--yes"], standalone_mode=False) == 0
        assert cli.main(["resume", str(folder), "--json"], standalone_mode=False) == 0
    two_days_older(folder)
    assert any(event.data.get("expires") for event in read_log(folder).events if event.type == "approval.decided")
    found = replay(Recording.open(folder))
    assert found.ok, found.divergence


def two_days_older(folder: Path) -> None:
    """The same journal as if it had been written two days before, with a chain of its own."""

    def earlier(moment: str) -> str:
        at = datetime.fromisoformat(moment) - timedelta(days=2)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    lines, prev = [], ""
    for event in read_log(folder).events:
        data = dict(event.data)
        if isinstance(data.get("expires"), str):
            data["expires"] = earlier(data["expires"])
        line = encode(replace(event, ts=earlier(event.ts), data=data, prev=prev))
        lines.append(line)
        prev = digest(line)
    (folder / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")


@pytest.mark.parametrize("prompt", [True, False])
def test_the_prompt_of_a_run_is_a_part_of_it(tmp_path: Path, prompt: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings with a blob of the prompt, and older ones that have it only in their first request."""
    script = [calls(("add", {"by": 2, "as": "added"})), says("Done."), calls(("read", {"least": 2, "as": "seen"})),
              says("Done."), says("Nothing to add."), says("No.")]  # fmt: skip
    record(tmp_path / "run", host=CounterHost(), model=ScriptedModel(script), prompt=prompt)
    recording = Recording.open(tmp_path / "run")
    assert recording.system() == conversation.SYSTEM
    monkeypatch.setattr(conversation, "SYSTEM", "Something else altogether.")
    from loop.world import TOOLS

    found = replay(recording, tools=TOOLS)
    assert found.ok, found.divergence


def test_a_run_with_an_llm_keeps_its_prompt(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with small_lab(tmp_path) as lab:
        small = book(tmp_path)
        places = real_places(small, ["target=box"], hosts_file(lab, tmp_path), tmp_path)
        record(tmp_path / "other", host=CounterHost(), model=ScriptedModel([says("Done."), says("Done.")], name="m"))
        wish = Wish(small, places, folder=folder, llm=f"replay:{tmp_path / 'other'}")
        with begin(wish) as session:
            conduct(session)
    sha256 = read_log(folder).events[0].data["system"]
    assert (folder / "blobs" / sha256).read_text() == conversation.SYSTEM
    (folder / "blobs" / sha256).unlink()
    assert not verify(folder).ok
