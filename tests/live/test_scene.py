"""The fold from events and progress to what a run looks like."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from live.events import Story

from opsagent.live_scene import Scene
from opsagent.live_work import words


def test_a_step_that_is_left_is_one_line_with_what_was_found_and_how_long_it_took() -> None:
    story = Story()
    story.enter("look")
    story.made("ssh_exec", "exit 0", id="c1")
    story.made("inspect_host", "2 of 2 GPUs usable; driver 580", id="c2")
    story.made("run_job", "job ended with exit 0", id="c3")
    story.after(61)
    assert story.kept == []
    story.event("step.left", step="look")
    (line,) = story.kept
    assert (line.name, line.mark, line.text, line.took_s) == ("look", "✔", "2 of 2 GPUs usable; driver 580", 61.0)
    assert [step.state for step in story.scene.steps] == ["done", "ahead", "ahead"]


def test_several_hosts_have_their_say_and_a_silent_one_does_not() -> None:
    story = Story()
    story.enter("look")
    story.made("inspect_host", "1 of 1 GPUs usable; driver 570", "old", id="c1")
    story.made("inspect_host", "nothing of note", "box", id="c2")
    story.made("inspect_host", "0 of 2 GPUs usable; held by vfio-pci", "new", id="c3")
    story.event("step.left", step="look")
    assert story.kept[0].text == "old: 1 of 1 GPUs usable · new: 0 of 2 GPUs usable"


def test_a_remedy_ends_the_step_for_now_and_says_what_it_changes() -> None:
    story = Story()
    story.enter("fetch")
    call = story.call("preflight")
    story.start(call)
    story.finish(call, "SGLang refuses: ValueError", cause="spec-needs-extra-buffer")
    story.event("step.check", step="fetch", expr="pre.accepted", ok=False, values={}, what="", cause=None)
    story.event("remedy.applied", step="fetch", cause="spec-needs-extra-buffer", change={"--x": "y"}, next="look")
    story.enter("look", again=True)
    head, *notes = story.kept
    assert (head.mark, head.name) == ("⟲", "fetch")
    assert all(word in head.text for word in ("spec-needs-extra-buffer", "--x y", "look"))
    assert any("ValueError" in note.text for note in notes)
    assert [step.state for step in story.scene.steps] == ["running", "ahead", "ahead"]


def test_a_finding_that_needs_no_remedy_is_the_outcome_and_nothing_more() -> None:
    story = Story()
    story.enter("look")
    call = story.call("inspect_host")
    story.start(call)
    story.finish(call, "0 of 2 GPUs usable", cause="gpu-bound-to-other-driver")
    story.event("step.left", step="look")
    assert [(line.mark, line.text) for line in story.kept] == [("✔", "0 of 2 GPUs usable")]


def test_what_was_asked_is_kept_with_its_answer() -> None:
    story = Story()
    story.enter("fetch")
    call = story.call("reboot_host", tier="R3")
    story.event("approval.requested", call=call.id, tier="R3", binding="")
    assert story.scene.asking
    story.event("approval.decided", call=call.id, answer="approve", by="operator", reason="", scope="once")
    assert not story.scene.asking
    call = story.call("stop_server", tier="R2", id="c2")
    story.event("approval.decided", call=call.id, answer="reject", by="operator", reason="not today", scope="once")
    story.event("step.left", step="fetch")
    head, note = story.kept
    assert "not today" in head.text
    assert "R3 reboot_host on gpu1" in note.text


def test_before_a_question_everything_said_so_far_is_printed_in_order() -> None:
    story = Story()
    story.enter("fetch")
    story.event("call.failed", call="c0", what="no route", hint="")
    call = story.call("reboot_host", tier="R3")
    story.event("approval.requested", call=call.id, tier="R3", binding="")
    story.scene.flush()
    lines = story.scene.take()
    assert [line.mark for line in lines] == ["▶", ""]
    assert "no route" in lines[1].text
    story.event("approval.decided", call=call.id, answer="approve", by="operator", reason="")
    story.event("step.left", step="fetch")
    assert [line.mark for line in story.kept] == ["", "✔"]  # the heading stands already: not twice


def test_a_download_has_a_rate_and_a_time_left_and_a_stall_has_neither() -> None:
    story = Story()
    story.enter("fetch")
    call = story.call("download_model", tier="R1")
    story.start(call)
    for second in range(0, 101, 10):
        story.after(10)
        story.tell(call, f"org/name over xet, {second} MiB/s", second * 0.1, 50.0, "GiB")
    work = story.scene.work
    assert work is not None
    rate, left = work.rate(story.now), work.left_s(story.now)
    assert rate is not None
    assert left is not None
    assert math.isclose(rate, 0.1, rel_tol=0.05)
    assert math.isclose(left, 400, rel_tol=0.05)
    assert "MiB/s" not in work.text  # ours is the rate of the last minute, not of all time
    for _ in range(10):
        story.after(10)
        story.tell(call, "org/name over xet, 3 MiB/s", 10.0, 50.0, "GiB")
    assert not work.rate(story.now)
    assert work.left_s(story.now) is None
    assert story.now - work.grew == 100
    story.after(10)
    story.tell(call, "org/name over http, 0 MiB/s", 8.0, 50.0, "GiB")  # began again below: no negative rate
    story.after(10)
    story.tell(call, "org/name over http, 1 MiB/s", 9.0, 50.0, "GiB")
    assert (work.rate(story.now) or 0) > 0


def test_a_launch_has_its_phase_its_shards_and_the_last_line_of_its_log() -> None:
    story = Story()
    story.enter("launch")
    call = story.call("launch_sglang", tier="R1")
    story.start(call)
    story.tell(call, "distributed: [2026-01-01 00:00:01 TP0] Init torch distributed ends.", 3, None, "s", 5)
    story.after(4)
    story.tell(call, "weights: [2026-01-01 00:00:05 TP0] Load weight begin. avail mem=46.80 GB", 11, 15, "shards", 55.0)
    work = story.scene.work
    assert work is not None
    assert (work.done, work.total, work.unit, work.label_expected_s) == (11, 15, "shards", 55.0)
    assert work.label_began == story.now
    assert story.scene.log_line == "[TP0] Load weight begin. avail mem=46.80 GB"


def test_a_limit_of_patience_is_no_total() -> None:
    story = Story()
    call = story.call("reboot_host", tier="R3")
    story.start(call)
    story.tell(call, "gpu1 is down", 30, 900, "s")
    assert story.scene.work is not None
    assert story.scene.work.total is None


def test_a_resumed_run_shows_the_step_it_is_in_and_a_call_that_another_process_announced() -> None:
    story = Story()
    story.scene.went_on(["look"], "fetch", 0.0)
    assert [step.state for step in story.scene.steps] == ["done", "running", "ahead"]
    other = Story().call("install_env", id="c7")
    story.tell(other, "Resolved 196 packages")
    assert story.scene.work is not None
    assert story.scene.work.tool == "install_env"
    story.event("call.finished", call="c7", ok=True, result={"summary": "SGLang is there"}, duration_s=0.0, output={})
    story.event("step.left", step="fetch")
    assert story.kept[-1].text == "SGLang is there"


def test_red_checks_that_come_again_are_said_once() -> None:
    story = Story()
    story.enter("look")
    for _round in range(3):
        story.event("step.check", step="look", expr="a == b", ok=False, values={"a": 1}, what="", cause=None)
    story.event("run.finished", status="failed", exit_code=1, failed={"text": "red"})
    assert [line.mark for line in story.kept] == ["✘", ""]
    assert story.scene.over


def test_an_interrupted_step_is_not_shown_as_failed() -> None:
    story = Story()
    story.enter("launch")
    call = story.call("launch_sglang", tier="R1")
    story.start(call)
    story.event("call.unknown", call=call.id, what="the run was stopped", stopped=True)
    story.event("run.finished", status="interrupted", exit_code=130, failed={"text": "stopped"})
    assert [(line.mark, line.style) for line in story.kept] == [("▶", "step"), ("", "ask")]


TYPES = ["run.started", "run.resumed", "step.entered", "step.left", "step.check", "call.intent", "call.started",
         "call.finished", "call.failed", "call.unknown", "approval.requested", "approval.decided", "remedy.applied",
         "model.request", "model.response", "error", "note", "run.finished"]  # fmt: skip
CALL = st.sampled_from(["c1", "c2", "c3"])
TEXT = st.one_of(st.text(max_size=80), st.sampled_from(["look", "\x1b[2J", "\u202eabc", "y" * 3000]))
DATA = st.fixed_dictionaries({
    "step": st.sampled_from(["look", "fetch", "launch", "other"]), "title": TEXT, "ok": st.booleans(), "expr": TEXT,
    "what": TEXT, "cause": TEXT, "by": st.sampled_from(["operator", "policy", "scenario"]), "reason": TEXT,
    "answer": st.sampled_from(["approve", "reject", "change", "stop"]), "model": TEXT, "duration_s": st.floats(0, 9),
    "result": st.fixed_dictionaries({"summary": TEXT, "cause": st.none() | TEXT}), "values": st.just({}),
    "change": st.dictionaries(TEXT, TEXT, max_size=2), "next": TEXT, "status": TEXT, "message": st.none(),
    "failed": st.none() | st.fixed_dictionaries({"text": TEXT}),
})  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(TYPES), CALL, DATA), max_size=40))
def test_any_order_of_events_gives_some_picture_and_prints_nothing_twice(
    events: list[tuple[str, str, dict[str, object]]],
) -> None:
    story = Story()
    for type, id, data in events:
        call = {"id": id, "tool": data["title"], "role": "r", "host": data["what"], "args": {"argv": [data["expr"]]}}
        story.event(type, **{**data, "call": call if type == "call.intent" else id})
        story.after(1)
    assert story.scene.take() == []
    assert sum(step.state == "running" for step in story.scene.steps) <= 1
    for line in story.kept:
        assert line.text.isprintable()


@given(st.text() | st.text(alphabet="\u202e\u200b\x1b\x07 \n\ta", min_size=1).map(lambda text: text * 5000))
def test_clipped_text_is_one_printable_line_of_bounded_length(text: str) -> None:
    shown = words(text, 100)
    assert len(shown) <= 101
    assert shown.isprintable()


def test_a_scene_without_steps_or_events_can_be_asked() -> None:
    scene = Scene.of([])
    scene.flush()
    assert scene.take() == []
