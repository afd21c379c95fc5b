"""Events of a run folded into spans and measurements.

A run is `invoke_agent opsagent`, a step is `step ID` (the conventions have no word for it), a call is `execute_tool NAME`, a
request to an LLM is `chat MODEL`; the autopilot is no model and has no span. Names: OpenTelemetry's GenAI semantic
conventions (github.com/open-telemetry/semantic-conventions-genai, status Development, read at v1.41). Times are the
journal's. Texts of prompts, arguments and results are left out unless `content` is set; what is taken is already redacted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from opsagent import __version__
from opsagent.call import Call
from opsagent.journal.fold import seconds_between
from opsagent.journal.state import RunState
from opsagent.protocols import Event
from opsagent_tools.tool import Progress

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter
    from opentelemetry.trace import Span, Tracer

PROVIDER = "openai"
"""The client speaks the OpenAI-compatible API, whoever answers."""
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""Bucket boundaries that the conventions advise."""
BAD = ("failed", "invalid", "denied", "unknown-outcome", "model-unusable", "replay-mismatch", "budget", "transient")


def nanoseconds(ts: str) -> int | None:
    """An event's time as the SDK takes it; None (now) when it cannot be read."""
    try:
        return int(datetime.fromisoformat(ts).timestamp() * 1e9)
    except ValueError:
        return None


@dataclass
class Instruments:
    """The histograms of a run."""

    tokens: Histogram
    chat: Histogram
    tool: Histogram
    agent: Histogram

    @classmethod
    def of(cls, meter: Meter) -> Instruments:
        def histogram(name: str, unit: str, text: str, edges: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=edges)

        return cls(
            histogram("gen_ai.client.token.usage", "{token}", "Number of input and output tokens used.", TOKENS),
            histogram("gen_ai.client.operation.duration", "s", "GenAI operation duration.", SECONDS),
            histogram("gen_ai.execute_tool.duration", "s", "Duration of a tool's execution.", SECONDS),
            histogram("gen_ai.invoke_agent.duration", "s", "Duration of an agent's invocation.", SECONDS),
        )


@dataclass
class SpanFold:
    """A watcher; `close` ends what is still open."""

    tracer: Tracer
    instruments: Instruments
    state: Callable[[], RunState]
    content: bool = False
    flush: Callable[[], list[str]] = lambda: []
    """Sends what is left; returns what was lost."""
    _root: Span | None = None
    _step: Span | None = None
    _chat: Span | None = None
    _calls: dict[str, Span] = field(default_factory=dict)
    _since: dict[str, str] = field(default_factory=dict)
    """Name of an open span → time of its first event."""

    def on_event(self, event: Event) -> None:
        handler = getattr(self, "_on_" + event.type.replace(".", "_"), None)
        if handler is not None:
            handler(event, event.data)

    def on_progress(self, call: Call, progress: Progress) -> None:
        return

    def close(self) -> list[str]:
        self._end_all(None)
        if self._root is not None:
            self._root.end()
            self._root = None
        return self.flush()

    # --- spans ---------------------------------------------------------------------------------------------------

    def _start(self, name: str, event: Event, kind: str, parent: Span | None, attributes: dict[str, Any]) -> Span:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        context = set_span_in_context(parent, Context()) if parent is not None else Context()
        given = {key: value for key, value in attributes.items() if value not in (None, "")}
        given["gen_ai.conversation.id"] = self.state().run
        return self.tracer.start_span(name, context, SpanKind[kind], given, start_time=nanoseconds(event.ts))

    def _end(self, span: Span, event: Event | None, error: str = "", why: str = "") -> None:
        from opentelemetry.trace import StatusCode

        if error:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR, why or error)
        span.end(nanoseconds(event.ts) if event is not None else None)

    def _here(self) -> Span | None:
        return self._step or self._root

    def _mark(self, event: Event, name: str, attributes: dict[str, Any]) -> None:
        here = self._here()
        if here is not None:
            given = {key: value for key, value in attributes.items() if value not in (None, "")}
            here.add_event(name, given, nanoseconds(event.ts))

    def _end_all(self, event: Event | None, error: str = "") -> None:
        for span in self._calls.values():
            self._end(span, event, "unfinished")
        self._calls.clear()
        if self._chat is not None:
            self._end(self._chat, event, error or "unfinished")
            self._chat = None
        if self._step is not None:
            self._end(self._step, event, error)
            self._step = None

    # --- one method per event type that matters, named after it --------------------------------------------------

    def _on_run_started(self, event: Event, data: dict[str, Any]) -> None:
        started = self.state().started
        hosts = [name for name in (started.get("hosts") or {}).values() if name]
        attributes = {
            "gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": PROVIDER, "gen_ai.agent.name": "opsagent",
            "gen_ai.agent.version": __version__, "gen_ai.request.model": str(started.get("model") or ""),
            "opsagent.runbook": str((started.get("runbook") or {}).get("name") or ""), "opsagent.hosts": hosts,
            "opsagent.simulated": bool(started.get("simulated")), "opsagent.resumed": event.type == "run.resumed",
        }  # fmt: skip
        self._root = self._start("invoke_agent opsagent", event, "INTERNAL", None, attributes)
        self._since["run"] = event.ts

    _on_run_resumed = _on_run_started

    def _on_run_finished(self, event: Event, data: dict[str, Any]) -> None:
        status = str(data.get("status") or "")
        bad = status if status in BAD else ""
        self._end_all(event, bad)
        if self._root is None:
            return
        self._root.set_attribute("opsagent.status", status)
        self._root.set_attribute("opsagent.exit_code", int(data.get("exit_code") or 0))
        self._end(self._root, event, bad)
        self._root = None
        self._record(self.instruments.agent, "run", event, {"gen_ai.operation.name": "invoke_agent",
                     "gen_ai.provider.name": PROVIDER, "gen_ai.agent.name": "opsagent"}, bad)  # fmt: skip

    def _on_step_entered(self, event: Event, data: dict[str, Any]) -> None:
        if self._step is not None:
            self._end(self._step, event)
        attributes = {"opsagent.step": data.get("step"), "opsagent.step.again": bool(data.get("again"))}
        self._step = self._start(f"step {data.get('step')}", event, "INTERNAL", self._root, attributes)

    def _on_step_left(self, event: Event, data: dict[str, Any]) -> None:
        if self._step is not None:
            self._end(self._step, event)
            self._step = None

    def _on_model_request(self, event: Event, data: dict[str, Any]) -> None:
        model = str(data.get("model") or "")
        if model in ("", "autopilot"):
            return
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": PROVIDER, "gen_ai.request.model": model}
        self._chat = self._start(f"chat {model}", event, "CLIENT", self._here(), attributes)
        if self.content and data.get("new"):
            self._chat.set_attribute("gen_ai.input.messages", _json(data["new"]))
        self._since["chat"] = event.ts

    def _on_model_retry(self, event: Event, data: dict[str, Any]) -> None:
        if self._chat is not None:
            self._chat.add_event(
                "opsagent.retry", {"opsagent.status": str(data.get("status") or "")}, nanoseconds(event.ts)
            )

    def _on_model_response(self, event: Event, data: dict[str, Any]) -> None:
        if self._chat is None:
            return
        span, self._chat = self._chat, None
        model, usage = str(data.get("model") or ""), data.get("usage") or {}
        span.set_attribute("gen_ai.response.finish_reasons", [str(data.get("finish") or "")])
        about = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": PROVIDER, "gen_ai.request.model": model}
        for kind, key in (("input", "prompt_tokens"), ("output", "completion_tokens")):
            if isinstance(usage.get(key), int):
                span.set_attribute(f"gen_ai.usage.{kind}_tokens", usage[key])
                self.instruments.tokens.record(usage[key], {**about, "gen_ai.token.type": kind})
        if self.content:
            span.set_attribute("gen_ai.output.messages", _json([data.get("message")]))
        self._end(span, event)
        self._record(self.instruments.chat, "chat", event, about)

    def _on_error(self, event: Event, data: dict[str, Any]) -> None:
        if self._chat is not None:
            self._end(self._chat, event, "model-error")
            self._chat = None

    def _on_call_started(self, event: Event, data: dict[str, Any]) -> None:
        known = self.state().calls.get(str(data.get("call")))
        if known is None:
            return
        call = known.call
        attributes = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.tool, "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.id, "opsagent.host": call.host, "opsagent.tier": known.verdict.get("tier"),
            "opsagent.approved_by": known.decision.get("by"),
        }  # fmt: skip
        if self.content:
            attributes["gen_ai.tool.call.arguments"] = _json(call.args)
        self._calls[call.id] = self._start(f"execute_tool {call.tool}", event, "INTERNAL", self._here(), attributes)
        self._since[call.id] = event.ts

    def _on_call_finished(self, event: Event, data: dict[str, Any]) -> None:
        result = data.get("result") or {}
        bad = "" if data.get("ok") else str(result.get("cause") or "failed")
        self._call_over(event, str(data.get("call")), bad, result)

    def _on_call_failed(self, event: Event, data: dict[str, Any]) -> None:
        self._call_over(event, str(data.get("call")), str(data.get("cause") or "failed"), None)

    def _on_call_reconciled(self, event: Event, data: dict[str, Any]) -> None:
        if data.get("happened") in ("no", "unclear", False):
            self._call_over(event, str(data.get("call")), "unknown-outcome", None)

    def _call_over(self, event: Event, call: str, bad: str, result: Any) -> None:
        span = self._calls.pop(call, None)
        if span is None:
            return
        known = self.state().calls.get(call)
        name = known.call.tool if known else ""
        if self.content and result is not None:
            span.set_attribute("gen_ai.tool.call.result", _json(result))
        self._end(span, event, bad)
        about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.type": "function"}
        self._record(self.instruments.tool, call, event, about, bad)

    def _on_approval_requested(self, event: Event, data: dict[str, Any]) -> None:
        self._mark(
            event, "opsagent.approval.requested", {"opsagent.call": data.get("call"), "opsagent.tier": data.get("tier")}
        )

    def _on_approval_decided(self, event: Event, data: dict[str, Any]) -> None:
        if data.get("by") != "policy":
            about = {
                "opsagent.call": data.get("call"),
                "opsagent.answer": data.get("answer"),
                "opsagent.by": data.get("by"),
            }
            self._mark(event, "opsagent.approval.decided", about)

    def _record(self, into: Histogram, name: str, event: Event, about: dict[str, Any], bad: str = "") -> None:
        since = self._since.pop(name, "")
        if since:
            into.record(seconds_between(since, event.ts), {**about, **({"error.type": bad} if bad else {})})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
