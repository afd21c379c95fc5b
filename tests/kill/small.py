"""One lab host that outlives the runs on it, and a runbook with one call of every recovery class.

The lab runs in the test's process, the run in a child that really dies. What happened is read from the host: a ledger to
which one call appends, a folder that can be made only once, a file, a process that is ended.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from gate.world import Person

import opsagent_lab
from opsagent.again import reopened
from opsagent.cli.approve import command as approve
from opsagent.gate import Gate
from opsagent.journal.disk import Disk
from opsagent.journal.runs import open_run
from opsagent.places import real_places
from opsagent.report.model import StatusReport
from opsagent.run import Silent
from opsagent.runbook.model import Runbook
from opsagent.runbook.parse import parse
from opsagent.session import Session, Wish, begin, conduct
from opsagent_lab.lab import Lab
from opsagent_tools.clock import FastClock

SPEED = 100.0
SCENARIO = """
title = "one machine, one ledger"
runbook = "none"
goal = "none"
speed = 100.0
[roles]
target = "box"
[hosts.box]
addresses = ["10.9.0.1"]
os = "ubuntu-24.04"
files = { "/srv/models/ledger" = "first\\n", "/var/log/sglang/old.log" = "[2026-01-01 00:00:00] server_args=ServerArgs(model_path='x')\\n" }
[[hosts.box.processes]]
argv = ["/usr/bin/old-server", "--port", "8999"]
ports = [8999]
"""  # noqa: E501

BOOK = """\
---
opsagent: 1
name: every
hosts: {target: {count: 1}}
allow: {tools: [tail_log, ssh_exec, write_file, run_job, stop_server], roots: [/srv/models, /var/log/sglang], ports: [8999]}
---
# One call of every recovery class

## Read {#read}

```call
tool: tail_log
host: target
args: {path: /var/log/sglang/old.log}
as: seen
```
```check
- seen.bytes_total > 0
```

## Change {#change}

```call
tool: stop_server
host: target
args: {port: 8999}
as: stopped
```
```call
tool: write_file
host: target
args: {path: /srv/models/note, content: "written\\n", sha256: ""}
as: written
```
```call
tool: run_job
host: target
args: {argv: [mkdir, /srv/models/once], wait_s: 600}
as: made
```
```check
- stopped.stopped
- written.path == "/srv/models/note"
- made.ok
```

## Append {#append}

```call
tool: ssh_exec
host: target
args: {argv: [tee, -a, /srv/models/ledger], stdin: "second\\n"}
```
```call
tool: ssh_exec
host: target
args: {argv: [cat, /srv/models/ledger]}
as: ledger
```
```check
- ledger.stdout == "first\\nsecond\\n"
```
"""


def book() -> Runbook:
    found, faults = parse(BOOK, "every.md")
    assert found is not None, faults
    return found


@contextmanager
def small_lab(folder: Path, more: str = "") -> Iterator[Lab]:
    path = folder / "every.toml"
    path.write_text(SCENARIO + more)
    with opsagent_lab.open(str(path)) as lab:
        yield lab
        assert lab.world.bugs == []


def hosts_file(lab: Lab, folder: Path) -> str:
    """The lab's host as a real one: a run knows nothing of the lab, and does not take it along when it dies."""
    lines = ["[hosts.box]", *(f"{key} = {json.dumps(value)}" for key, value in lab.hosts()["box"].items())]
    path = folder / "hosts.toml"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def _approving(session: Session) -> Session:
    """A person answers yes, and waits are as short as the lab's."""
    assert isinstance(session.run.gate, Gate)
    session.run.clock = FastClock(SPEED)
    session.run.gate.mode, session.run.gate.approver = "ask", Person()
    return session


def opened(folder: Path, hosts: str) -> Session:
    """A new run."""
    wish = Wish(book(), real_places(book(), ["target=box"], hosts, folder.parent), folder=folder, approve="ask")
    return _approving(begin(wish))


def start(folder: Path, hosts: str, disk: Disk | None = None) -> StatusReport:
    """The first process of a run."""
    with opened(folder, hosts) as session:
        if disk is not None:
            session.journal._disk = disk
        return conduct(session)


def go_on(folder: Path) -> StatusReport:
    """The next one."""
    with reopened(str(folder), mode="resume", watcher=lambda _wish: Silent(), approve="ask") as session:
        return conduct(_approving(session))


def to_the_end(folder: Path, lab: Lab, report: StatusReport | None = None) -> Counter[str]:
    """Resume until it is verified; where a person must look at the host, look. Returns what was needed."""
    needed: Counter[str] = Counter()
    for _ in range(6):
        if report is not None and report.exit_code == 0:
            return needed
        if report is not None and report.exit_code == 7:
            needed["looks at the host"] += 1
            _look(folder, lab)
        needed["resumes"] += 1
        report = go_on(folder)
    raise AssertionError(f"not verified after {dict(needed)}: {report.status if report else '?'}")


def _look(folder: Path, lab: Lab) -> None:
    (unknown,) = open_run(folder).state.unsettled
    assert unknown.call.tool == "ssh_exec"
    happened = "yes" if ledger(lab).count("second") else "no"
    result = CliRunner().invoke(approve, [str(folder), unknown.call.id, "--happened", happened], standalone_mode=False)
    assert result.return_value == 0, result.output


def ledger(lab: Lab) -> str:
    return lab.world.files(lab.world.host("box")).text("/srv/models/ledger")


def effects(lab: Lab) -> dict[str, Any]:
    """What every run must have done exactly once, from the host's own state."""
    host = lab.world.host("box")
    files = lab.world.files(host)
    return {
        "ledger": ledger(lab),
        "note": files.text("/srv/models/note") if files.exists("/srv/models/note") else "",
        "once": host.nodes["/srv/models/once"].kind if "/srv/models/once" in host.nodes else "",
        "old server": any(process.argv[:1] == ["/usr/bin/old-server"] for process in host.processes.values()),
        "jobs": sum(name.startswith("opsagent-") for name in host.units),
        "writes": host.counters.get("writes", 0),
    }
