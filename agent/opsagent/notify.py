"""Tells a webhook when a run waits for a person, and when it has ended: what, where, and what to do now.

It watches events like the live view does. Deliveries are made by a thread of their own: they never hold up the run, and
one that fails becomes a note in the journal when the run is closed.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsagent.call import Call
from opsagent.fence import neutral
from opsagent.journal.state import RunState
from opsagent.mcp_server.book import is_session
from opsagent.protocols import Event
from opsagent.webhook import Webhook, deliver
from opsagent_tools.errors import OpsError
from opsagent_tools.tool import Progress

LONGEST = 500
"""Characters of a text from elsewhere in a notification."""


def _short(text: object) -> str:
    flat = " ".join(neutral(str(text or "")).split())
    return flat if len(flat) <= LONGEST else flat[:LONGEST] + "…"


_MARKUP = str.maketrans({"<": "\u2039", ">": "\u203a", "`": "'", "[": "(", "]": ")"})


def _said(text: str) -> str:
    """What chat programs show as it is: no link with another name on it, and nobody is called (`<!channel>`, `@all`)."""
    return re.sub(r"(?<!\w)@(?=\w)", "\uff20", text.translate(_MARKUP))


def waits(state: RunState, call_id: str) -> dict[str, Any]:
    """The body for a call that waits for an approval. `text` alone is what Slack and its like show."""
    known = state.calls.get(call_id)
    call = known.call if known else None
    tier = str((known.verdict if known else {}).get("tier") or "")
    named = f"{call.tool} on {call.host or 'the run'}" if call else call_id
    do = f"opsagent approve {state.run} {call_id}"
    body = _body(state, "waits", "waiting-approval", f"{named} is {tier} and waits for a person", do)
    body["host"] = call.host if call else body["host"]
    body["call"] = {"id": call_id, "tool": call.tool if call else "", "host": call.host if call else "", "tier": tier}
    return body


def ends(state: RunState, data: Mapping[str, Any]) -> dict[str, Any]:
    """The body for a run that has ended (data of run.finished)."""
    status, code = str(data.get("status") or ""), data.get("exit_code")
    failed = data.get("failed")
    what = failed.get("text") if isinstance(failed, dict) else "every step was left through its checks"
    waiting = state.waiting
    if waiting:
        do = f"opsagent approve {state.run} {waiting[0].call.id}"
    elif status in ("transient", "budget", "unknown-outcome", "interrupted", "model-unusable"):
        do = f"opsagent resume {state.run}"
    else:
        do = f"opsagent show {state.run}"
    return {**_body(state, "ends", status, _short(what), do), "exit_code": code}


def _body(state: RunState, kind: str, status: str, what: str, do: str) -> dict[str, Any]:
    started = state.started
    hosts = {role: name for role, name in (started.get("hosts") or {}).items() if name}
    book = str((started.get("runbook") or {}).get("name", ""))
    mark = " (SIMULATED)" if started.get("simulated") else ""
    where = ", ".join(dict.fromkeys(hosts.values()))
    host = hosts.get("target") or next(iter(hosts.values()), "")
    return {
        "opsagent": 1, "event": kind, "run": state.run, "status": status, "runbook": book, "host": host, "hosts": hosts,
        "simulated": bool(started.get("simulated")), "step": state.step, "what": _short(what), "do": do,
        "text": _said(_short(f"opsagent {book} on {where}{mark}: {status}: {what}. {do}")),
    }  # fmt: skip


@dataclass
class Notifier:
    """A watcher. `close` returns what could not be delivered, in words."""

    hook: Webhook
    state: Callable[[], RunState]
    clean: Callable[[str], str]
    """Takes secrets out of a text."""
    answers_itself: bool = False
    """Nobody is waited for: a simulated approver answers at once."""
    grace_s: float = 0.0
    """How long a person at the terminal has before the webhook is told that the run waits."""
    send: Callable[[Webhook, Mapping[str, Any]], None] = deliver
    _queue: queue.Queue[dict[str, Any] | None] = field(default_factory=queue.Queue)
    _failures: list[str] = field(default_factory=list)
    _timers: dict[str, threading.Timer] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    """Calls that the webhook was told of."""
    _thread: threading.Thread | None = None

    def on_event(self, event: Event) -> None:
        call = str(event.data.get("call") or "")
        if event.type == "approval.requested" and "waits" in self.hook.on and not self.answers_itself:
            self._soon(call)
        elif event.type == "approval.decided":
            timer = self._timers.pop(call, None)
            if timer is not None:
                timer.cancel()
        elif event.type == "run.finished":
            self._finished(event)

    def on_progress(self, call: Call, progress: Progress) -> None:
        return

    def _soon(self, call: str) -> None:
        body = waits(self.state(), call)
        if self.grace_s <= 0:
            self._tell(call, body)
            return
        timer = threading.Timer(self.grace_s, self._tell, (call, body))
        timer.daemon = True
        self._timers[call] = timer
        timer.start()

    def _tell(self, call: str, body: dict[str, Any]) -> None:
        self._told.add(call)
        self._put(body)

    def _finished(self, event: Event) -> None:
        """The end of a run that waits is told as that, and only once."""
        waiting = [each.call.id for each in self.state().waiting]
        if waiting:
            for call in waiting:
                if call not in self._told and "waits" in self.hook.on:
                    self._tell(call, waits(self.state(), call))
            return
        talk = self.state().started.get("kind") == "chat" or is_session(self.state().started)
        if "ends" in self.hook.on and not talk:  # that somebody closed a chat is no news
            self._put(ends(self.state(), event.data))

    def _put(self, body: dict[str, Any]) -> None:
        safe = {key: self.clean(value) if isinstance(value, str) else value for key, value in body.items()}
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
            self._thread.start()
        self._queue.put(safe)

    def _work(self) -> None:
        while (body := self._queue.get()) is not None:
            try:
                self.send(self.hook, body)
            except OpsError as error:
                self._failures.append(f"{body['event']} was not delivered to {self.hook.host}: {error.what}")
            except Exception as error:  # whatever it is, it must not end the thread silently
                self._failures.append(f"{body['event']} was not delivered: {type(error).__name__}")

    def close(self) -> list[str]:
        """Wait for what is under way, not longer than one delivery may take. Returns the failures."""
        for timer in self._timers.values():
            timer.cancel()
        if self._thread is not None:
            began = time.monotonic()
            self._queue.put(None)
            self._thread.join(self.hook.patience_s)
            if self._thread.is_alive():
                took = time.monotonic() - began
                self._failures.append(f"a notification to {self.hook.host} was still under way after {took:.0f} s")
            self._thread = None
        found, self._failures = self._failures, []
        return found
