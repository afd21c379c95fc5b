"""The runbook of a session: no steps to follow, only the hosts that an assistant may name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml

from opsagent.places import Places, lab_places, real_places
from opsagent.runbook.model import Runbook
from opsagent.runbook.params import parse_assignments
from opsagent.runbook.parse import parse
from opsagent_tools.errors import InputError
from opsagent_tools.hosts.inventory import Inventory, load_inventory

NAME = "assistant-session"
"""Name of a session's runbook: by it a run is known to be one."""
STEP = "session"
TEXT = """\
# Calls of an assistant

An assistant chooses the calls. Each goes through the gate and into the journal; what is not a read waits for a person.

## Session {#session}
"""


def session_book(roles: Iterable[str]) -> Runbook:
    """A runbook with these host roles and one step that is never left: a session has no checks, so it proves nothing."""
    hosts = {role: {"count": 1} for role in roles}
    front = {"opsagent": 1, "name": NAME, "hosts": hosts, "budget": {"wall": "0", "calls": 0, "turns": 0}}
    text = f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---\n{TEXT}"
    runbook, faults = parse(text, NAME)
    if runbook is None or faults:
        raise InputError(f"no session with these hosts: {faults[0] if faults else roles}", where="--host")
    return runbook


def is_session(started: dict[str, object]) -> bool:
    """Whether a run (data of its run.started) is the session of an assistant."""
    named = started.get("runbook")
    return isinstance(named, dict) and named.get("name") == NAME


def session_places(hosts: tuple[str, ...], hosts_file: str, lab: str, folder: Path) -> tuple[Runbook, Places]:
    """The hosts of a session: those named (`NAME` or `ROLE=NAME`), else all of the hosts file, else none.

    With `lab`, the roles of a scenario. Raises InputError for a name that is nowhere.
    """
    if lab:
        from opsagent_lab.scenario import load

        book = session_book(load(lab).roles)
        return book, lab_places(book, lab)
    words = [word if "=" in word else f"{word}={word}" for word in hosts] or _all(hosts_file)
    book = session_book(parse_assignments(words))
    if not words:
        return book, Places({}, Inventory())
    return book, real_places(book, words, hosts_file, folder)


def _all(hosts_file: str) -> list[str]:
    """An assistant gets the hosts that it was given, never all that happen to be configured on this machine."""
    return [f"{name}={name}" for name in load_inventory(Path(hosts_file)).entries] if hosts_file else []
