"""A user's folder with a small lab, and a runbook that looks at its machine: for tests of what watches runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab_core_small import SMALL

from opsagent.cli import cli
from opsagent.verify import verify

LOOK = """\
---
opsagent: 1
name: look
hosts: {target: {count: 1}}
allow: {tools: [ssh_exec, write_file]}
---
# Look

## Look {#look}

```call
tool: ssh_exec
host: target
args: {argv: [uname, -r]}
as: kernel
```
```check
- kernel.exit_code == 0
```
"""
WRITE = """
## Write {#write}

```call
tool: write_file
host: target
args: {path: /etc/motd, content: hello}
as: written
```
```check
- written.changed
```
"""


def make_home(folder: Path) -> None:
    """A user's folder: the scenario, and an empty configuration."""
    (folder / "config" / "opsagent").mkdir(parents=True)
    (folder / "small.toml").write_text(SMALL)


def run(home: Path, text: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and events of a run on the small lab, whose machine is the runbook's target."""
    (home / "look.md").write_text(text)
    out = home / f"run{len(list(home.glob('run*')))}"
    args = ["run", str(home / "look.md"), "--lab", str(home / "small.toml"), "--json", "--out", str(out), *words]
    code = cli.main(args, standalone_mode=False)
    assert verify(out).findings == []
    return code, [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


def notes(events: list[dict[str, Any]]) -> list[str]:
    return [e["data"]["what"] for e in events if e["type"] == "note" and e["data"].get("kind") == "observer"]
