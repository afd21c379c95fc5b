"""/stop, /rollback and /resume: a run of this chat opened again, on the chat's own hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsagent import again as runs
from opsagent.chat.conduct import deferred, ended, noted
from opsagent.chat.record import lab_goes_to
from opsagent.chat.talk import Chat
from opsagent.places import Places
from opsagent.report.model import StatusReport
from opsagent.runbook.model import Runbook
from opsagent.session import conduct
from opsagent_tools.errors import InputError


def again(chat: Chat, ref: str, verb: str, *, accept_drift: bool = False) -> StatusReport:
    """Do `verb` (stop, rollback, resume) with a run. Raises InputError: no such run, in use, over, or drifted."""
    work = {"stop": runs.stop_server, "rollback": runs.roll_back}.get(verb)
    try:
        with deferred() as interrupt, runs.reopened(
            ref, mode=verb, watcher=chat.watcher, llm="" if verb == "resume" else "autopilot", approve=chat.approve,
            accept_drift=accept_drift, interactive=chat.interactive, notice=chat.view.say,
            places_of=lambda book, started: _places(chat, book, started),
        ) as session:  # fmt: skip
            noted(chat, session.run.id, session.folder, "begun")
            session.interrupted = bool(interrupt)
            if work is None:
                report, code = conduct(session), None
            else:
                code, report = work(session)
            folder = session.folder
    finally:
        lab_goes_to(chat.ground, chat.session.folder)
    ended(chat, report, folder, after="" if work is None else "/report has all of it")
    if code is not None:  # a report of a stopped run says `interrupted`; what counts here is whether it was stopped
        chat.last_code = int(code)
    return report


def _places(chat: Chat, book: Runbook, started: Mapping[str, Any]) -> Places | None:
    """The chat's lab for a run that was made in it; a run on real hosts opens its own (None)."""
    lab = chat.ground.places.lab
    if not started.get("lab"):
        return None
    if lab is None or started["lab"] != lab.name or started.get("run") not in chat.runs:
        raise InputError("this run was not made in this chat's lab", hint="opsagent resume, in a shell, opens its lab")
    return chat.ground.lab_places(book, {role: str(name) for role, name in started["hosts"].items()})
