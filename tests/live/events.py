"""Events and progress of a run, made by hand: what the scene folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsagent.call import Call
from opsagent.live_scene import Line, Scene
from opsagent.protocols import Event
from opsagent_tools.tool import Progress

STEPS = (("look", "Look around"), ("fetch", "Fetch the model"), ("launch", "Launch"))


class Story:
    """A scene and its clock. Each method is one event, or one word of the tool at work; `kept` is what was printed."""

    def __init__(self, steps: Sequence[tuple[str, str]] = STEPS) -> None:
        self.scene = Scene.of(steps)
        self.now = 0.0
        self.kept: list[Line] = []
        self._seq = 0

    def event(self, type: str, /, **data: Any) -> None:
        self._seq += 1
        self.scene.apply(Event(self._seq, "", type, data, ""), self.now)
        self.kept += self.scene.take()

    def enter(self, step: str, **more: Any) -> None:
        self.event("step.entered", step=step, title=dict(STEPS).get(step, step), **more)

    def call(self, tool: str, host: str = "gpu1", *, id: str = "c1", tier: str = "R0", **args: Any) -> Call:
        call = Call(id=id, tool=tool, role="target", host=host, args=args)
        self.event("call.intent", call=call.model_dump(), verdict={"tier": tier, "reasons": []})
        return call

    def start(self, call: Call) -> None:
        self.event("call.started", call=call.id)

    def finish(self, call: Call, summary: str = "", *, ok: bool = True, cause: str | None = None) -> None:
        result = {"summary": summary, "cause": cause}
        self.event("call.finished", call=call.id, ok=ok, result=result, duration_s=1.0, output={})

    def made(self, tool: str, summary: str, host: str = "gpu1", **more: Any) -> None:
        call = self.call(tool, host, **more)
        self.start(call)
        self.finish(call, summary)

    def tell(self, call: Call, text: str, done: float | None = None, total: float | None = None, unit: str = "",
             expected_s: float | None = None) -> None:  # fmt: skip
        self.scene.progress(call, Progress(text, done, total, unit, expected_s), self.now)

    def after(self, seconds: float) -> None:
        self.now += seconds
