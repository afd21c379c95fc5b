"""Events folded into spans and metrics with the GenAI names, seen through the SDK's own in-memory exporters."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from loop.world import TWO_STEPS, CounterHost, ScriptedGate, make_run
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from opsagent.autopilot import Autopilot
from opsagent.call import Decision
from opsagent.data import data_dir
from opsagent.journal.fold import apply
from opsagent.journal.reader import read_log
from opsagent.journal.state import RunState
from opsagent.loop import drive
from opsagent.protocols import Event
from opsagent.signals import NeedApproval
from opsagent.telemetry.spans import Instruments, SpanFold, nanoseconds
from opsagent_tools.errors import ToolFailed

STORY = data_dir("transcripts") / "story-llm"
SECRET = "cAnArY-0011223344556677"


@dataclass
class Memory:
    """Providers that keep everything, and a fold onto them."""

    content: bool = False
    state: RunState = field(default_factory=RunState)
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    def fold(self) -> SpanFold:
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        meter = MeterProvider([self.reader]).get_meter("test")
        return SpanFold(tracers.get_tracer("test"), Instruments.of(meter), lambda: self.state, self.content)

    def spans(self) -> dict[str, list[ReadableSpan]]:
        found: dict[str, list[ReadableSpan]] = {}
        for span in self.exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        every = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        return {metric.name: list(metric.data.data_points) for metric in every}


def replayed(folder: Path, *, content: bool = False) -> Memory:
    """A recorded run through the fold, event by event, as it happened."""
    memory = Memory(content)
    fold = memory.fold()
    for event in read_log(folder).events:
        apply(memory.state, event)
        fold.on_event(event)
    assert fold.close() == []
    return memory


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_recorded_llm_run_has_the_conventions_names() -> None:
    memory = replayed(STORY)
    spans, state = memory.spans(), memory.state
    (root,) = spans["invoke_agent opsagent"]
    assert root.parent is None
    assert attributes(root)["gen_ai.operation.name"] == "invoke_agent"
    assert attributes(root)["gen_ai.conversation.id"] == state.run
    assert attributes(root)["opsagent.status"] == state.status
    steps = [span for name, found in spans.items() if name.startswith("step ") for span in found]
    assert len(steps) == sum(step.entered for step in state.steps.values())
    assert all(span.parent is not None and span.parent.span_id == root.context.span_id for span in steps)
    chats = [span for name, found in spans.items() if name.startswith("chat ") for span in found]
    assert len(chats) == state.usage.turns
    for span in chats:
        assert span.kind is SpanKind.CLIENT
        assert attributes(span)["gen_ai.operation.name"] == "chat"
        assert attributes(span)["gen_ai.provider.name"] == "openai"
        assert span.name == f"chat {attributes(span)['gen_ai.request.model']}"
        assert isinstance(attributes(span)["gen_ai.response.finish_reasons"], tuple)
    made = [call for call in state.calls.values() if "call.started" in call.events]
    tools = [span for name, found in spans.items() if name.startswith("execute_tool ") for span in found]
    assert {attributes(span)["gen_ai.tool.call.id"] for span in tools} == {call.call.id for call in made}
    assert len(tools) == len(made)
    known = {span.context.span_id for span in (*steps, root)}
    assert all(span.parent is not None and span.parent.span_id in known for span in tools)


def test_times_are_the_journals_and_sums_are_the_states() -> None:
    memory = replayed(STORY)
    events = read_log(STORY).events
    (root,) = memory.spans()["invoke_agent opsagent"]
    ended = next(event for event in reversed(events) if event.type == "run.finished")
    assert (root.start_time, root.end_time) == (nanoseconds(events[0].ts), nanoseconds(ended.ts))
    metrics, usage = memory.metrics(), memory.state.usage
    tokens = {
        point.attributes["gen_ai.token.type"]: point.sum for point in metrics.get("gen_ai.client.token.usage", [])
    }
    assert tokens.get("input", 0) == (usage.tokens_in or 0)
    assert tokens.get("output", 0) == (usage.tokens_out or 0)
    assert sum(point.count for point in metrics["gen_ai.client.operation.duration"]) == usage.turns
    assert sum(point.count for point in metrics["gen_ai.execute_tool.duration"]) == usage.calls
    assert sum(point.count for point in metrics["gen_ai.invoke_agent.duration"]) == 1


@pytest.mark.parametrize("content", [False, True])
def test_words_go_nowhere_unless_somebody_opted_in(content: bool) -> None:
    memory = replayed(STORY, content=content)
    keys = {key for found in memory.spans().values() for span in found for key in attributes(span)}
    words = {
        "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
    }  # fmt: skip
    assert (keys & words) == (words if content else set())


def test_the_autopilot_is_no_model_and_has_no_chat_span() -> None:
    memory = replayed(data_dir("transcripts") / "story")
    assert not [name for name in memory.spans() if name.startswith("chat")]
    assert "gen_ai.client.operation.duration" not in memory.metrics()


def test_failures_and_waits_are_seen() -> None:
    memory = Memory()
    made = make_run(TWO_STEPS, host=CounterHost(faults=[ToolFailed("it broke")]))
    fold = memory.fold()
    memory.state = made.journal.state
    for event in made.journal.events():
        fold.on_event(event)
    made.watcher = fold
    drive(made, Autopilot(made))
    made.emit("run.finished", status="failed", exit_code=1, failed=None)
    fold.close()
    spans = memory.spans()
    assert spans["execute_tool add"][0].status.status_code is StatusCode.ERROR
    assert attributes(spans["execute_tool add"][0])["error.type"] == "failed"
    assert attributes(spans["invoke_agent opsagent"][0])["error.type"] == "failed"


def test_a_run_that_waits_ends_its_spans_without_an_error() -> None:
    memory = Memory()
    made = make_run(TWO_STEPS, gate=ScriptedGate(answers={"add": Decision("wait", "nobody")}))
    fold = memory.fold()
    memory.state = made.journal.state
    for event in made.journal.events():
        fold.on_event(event)
    made.watcher = fold
    with pytest.raises(NeedApproval):
        drive(made, Autopilot(made))
    made.emit("run.finished", status="waiting-approval", exit_code=4, failed=None)
    fold.close()
    (step,) = memory.spans()["step raise"]
    assert [event.name for event in step.events] == ["opsagent.approval.requested"]
    assert memory.spans()["invoke_agent opsagent"][0].status.status_code is not StatusCode.ERROR


def test_a_run_that_breaks_off_still_ends_every_span() -> None:
    memory = Memory()
    fold = memory.fold()
    for event in read_log(STORY).events[:40]:
        apply(memory.state, event)
        fold.on_event(event)
    fold.close()
    assert "invoke_agent opsagent" in memory.spans()


def test_events_out_of_place_change_nothing() -> None:
    memory = Memory()
    fold = memory.fold()
    for number, kind in enumerate(
        ("call.finished", "model.response", "step.left", "run.finished", "call.started", "error")
    ):
        fold.on_event(Event(number + 1, "no time", kind, {"call": "c9", "ok": True}, ""))
    assert fold.close() == []
    assert memory.spans() == {}


def test_a_secret_that_was_redacted_is_in_no_span_even_with_content() -> None:
    memory = Memory(content=True)
    made = make_run(TWO_STEPS)
    made.journal.redactor.add(SECRET, "token")
    fold = memory.fold()
    memory.state = made.journal.state
    made.watcher = fold
    made.emit("run.resumed", mode="resume")
    made.emit("model.request", model="m", keep=0, new=[{"role": "user", "content": f"the token is {SECRET}"}])
    made.emit("model.response", model="m", message={"role": "assistant", "content": SECRET}, finish="stop", usage={})
    fold.close()
    text = "".join(span.to_json() for found in memory.spans().values() for span in found)
    assert "[redacted:token]" in text
    assert SECRET not in text
