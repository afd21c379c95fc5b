"""State is a fold: the same live, on resume, at every prefix; truncation at any byte resumes or names the torn line."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsagent.journal import FileJournal, MemoryJournal, RunState, apply, fold, read_log
from opsagent.journal.reader import parse_log
from opsagent.protocols import Event
from opsagent_tools.errors import TranscriptDamaged

TS = "2026-01-01T00:00:{:02d}.000Z"
texts = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=True) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
call_ids = st.sampled_from(["c1", "c2", "c3"])
steps = st.sampled_from(["plan", "launch"])


def call(call_id: str, step: str = "plan") -> dict[str, Any]:
    return {"id": call_id, "tool": "read_config", "args": {}, "step": step}


events = st.one_of(
    st.tuples(st.just("run.started"), st.fixed_dictionaries({"run": texts, "params": st.dictionaries(texts, values)})),
    st.tuples(st.sampled_from(["step.entered", "step.left"]), st.fixed_dictionaries({"step": steps})),
    st.tuples(st.just("step.check"), st.fixed_dictionaries({"step": steps, "expr": texts, "ok": st.booleans()})),
    st.tuples(st.just("call.intent"), st.fixed_dictionaries({"call": st.builds(call, call_ids, steps), "bind": texts})),
    st.tuples(
        st.sampled_from(["approval.requested", "call.started", "call.progress", "call.unknown", "call.failed"]),
        st.fixed_dictionaries({"call": call_ids}),
    ),
    st.tuples(
        st.just("approval.decided"),
        st.fixed_dictionaries({"call": call_ids, "answer": st.sampled_from(["approve", "reject", "stop"])}),
    ),
    st.tuples(
        st.just("call.finished"),
        st.fixed_dictionaries({"call": call_ids, "ok": st.booleans(), "result": st.dictionaries(texts, values)}),
    ),
    st.tuples(
        st.just("call.reconciled"),
        st.fixed_dictionaries({"call": call_ids, "happened": st.sampled_from(["yes", "no"])}),
    ),
    st.tuples(st.just("param.changed"), st.fixed_dictionaries({"name": texts, "value": values})),
    st.tuples(st.just("remedy.applied"), st.fixed_dictionaries({"step": steps, "cause": texts})),
    st.tuples(
        st.just("model.request"),
        st.fixed_dictionaries({"keep": st.integers(0, 3), "new": st.lists(st.just({"role": "user"}), max_size=2)}),
    ),
    st.tuples(
        st.just("model.response"),
        st.fixed_dictionaries({"usage": st.sampled_from([{}, {"prompt_tokens": 3, "completion_tokens": 4}])}),
    ),
    st.tuples(st.just("note"), st.dictionaries(st.sampled_from(["text", "bind", "value"]), values)),
    st.tuples(st.sampled_from(["run.resumed", "run.finished", "error"]), st.just({})),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=25))
def test_fold_at_every_prefix_is_the_live_state(script: list[tuple[str, dict[str, Any]]]) -> None:
    clock = iter(range(10_000))
    journal = MemoryJournal(now=lambda: TS.format(next(clock) % 60))
    again = RunState()
    for kind, data in script:
        journal.append(kind, **data)
        for event in list(journal.events())[again.seq :]:
            apply(again, event)
        assert again == journal.state
    assert fold(journal.events()) == journal.state


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(events, min_size=1, max_size=6), st.data())
def test_what_was_written_is_what_is_read(script: list[tuple[str, dict[str, Any]]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with FileJournal.create(folder) as journal:
            for kind, content in script:
                journal.append(kind, **content)
            written, live = list(journal.events()), journal.state
        assert list(read_log(folder).events) == written
        with FileJournal.resume(folder) as again:
            assert again.state == live
        whole = (folder / "events.jsonl").read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        log = parse_log(whole[:cut], "x")
        assert list(log.events) == written[: whole[:cut].count(b"\n")]
        assert (log.torn_line is None) == (cut == 0 or whole[cut - 1 : cut] == b"\n")
        (folder / "events.jsonl").write_bytes(whole[:cut])
        with FileJournal.resume(folder) as third:
            extra = [e for e in third.events() if e.data.get("kind") == "torn-line"]
            assert [e.data["line"] for e in extra[-1:]] == ([log.torn_line] if log.torn else [])
            assert third.append("note").seq == len(log.events) + bool(log.torn) + 1
        read_log(folder)


def test_truncation_at_every_byte_of_a_run(tmp_path: Path) -> None:
    with FileJournal.create(tmp_path) as journal:
        journal.append("run.started", run="7f3a", params={"a": "é"})
        journal.append("call.intent", call=call("c1"), bind="model")
        journal.append("call.finished", call="c1", ok=True, result={"complete": True})
        written = list(journal.events())
    whole = (tmp_path / "events.jsonl").read_bytes()
    for cut in range(len(whole) + 1):
        log = parse_log(whole[:cut], "x")
        assert list(log.events) == written[: len(log.events)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_changed_byte_is_never_a_wrong_state(data: st.DataObject) -> None:
    journal = MemoryJournal(now=lambda: TS.format(0))
    for number in range(4):
        journal.append("note", text=f"line {number}")
    from opsagent.journal.format import encode

    whole = b"".join(encode(event) + b"\n" for event in journal.events())
    place = data.draw(st.integers(0, len(whole) - 2))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    last = whole[:-1].rindex(b"\n")
    if place > last:
        return  # the last line has no successor that vouches for it: `verify` says which hash to compare
    try:
        log = parse_log(bytes(changed), "x")
    except TranscriptDamaged:
        return
    assert log.torn or list(log.events) == list(journal.events())


def test_a_call_binds_its_result_by_name() -> None:
    journal = MemoryJournal()
    journal.append("call.intent", call=call("c1"), bind="model")
    done = journal.append("call.finished", call="c1", ok=True, result={"complete": True})
    journal.append("note", bind="gone", value=None)
    assert journal.state.bindings == {"model": {"complete": True}, "gone": None}
    assert journal.state.bound_by["model"] == done.id


def test_waiting_is_not_working_and_away_is_neither() -> None:
    times = iter([0, 10, 40, 41, 45, 50, 55, 59])
    journal = MemoryJournal(now=lambda: TS.format(next(times)))
    journal.append("call.intent", call=call("c1"))
    journal.append("approval.requested", call="c1")
    journal.append("approval.decided", call="c1", answer="approve")
    journal.append("approval.requested", call="c1")
    journal.append("run.finished", status="waiting-approval", exit_code=4)
    journal.append("approval.decided", call="c1", answer="approve")
    journal.append("run.resumed")
    journal.append("note")
    usage = journal.state.usage
    assert (usage.wall_s, usage.waiting_s, usage.away_s, usage.working_s) == (49.0, 34.0, 10.0, 15.0)


def test_missing_token_counts_are_unknown_not_zero() -> None:
    journal = MemoryJournal()
    journal.append("model.response", usage={"prompt_tokens": 5, "completion_tokens": 2})
    assert (journal.state.usage.tokens_in, journal.state.usage.tokens_out) == (5, 2)
    journal.append("model.response", usage={})
    journal.append("model.response", usage={"prompt_tokens": 5, "completion_tokens": 2})
    assert (journal.state.usage.tokens_in, journal.state.usage.tokens_out) == (None, None)


def test_an_unknown_type_keeps_its_place() -> None:
    assert fold([Event(1, TS.format(0), "future.event", {"x": 1}, "")]).seq == 1
