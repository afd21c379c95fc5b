"""The parser: heads, tracebacks, facts; cut and endless lines."""

from __future__ import annotations

from diagnosis.examples import real
from hypothesis import given, settings
from hypothesis import strategies as st

from opsagent_tools.sglang.log import events, facts
from opsagent_tools.sglang.log.head import parse_head
from opsagent_tools.sglang.log.lines import LONGEST_LINE, numbered, segments
from opsagent_tools.sglang.log.server_args import parse_server_args


def test_heads_under_every_wrapper() -> None:
    for text, rank, level, body in (
        ("[2026-11-30 21:22:41 DP1 TP0] hello", "DP1 TP0", "", "hello"),
        ("sglang-1  | [2025-10-29 11:25:58 TP3] Watchdog", "TP3", "", "Watchdog"),
        ("2025-07-02 16:41:31 | ERROR | stderr | boom", "", "ERROR", "boom"),
        ("2025-07-02T16:41:31.123Z [2025-07-02 16:41:31] x", "", "", "x"),
        ("[2026-03-01 08:00:00] WARNING server_args.py:1750: careful", "", "WARNING", "careful"),
        ("Nov 30 21:22:41 gpu python3[12]: [2026-11-30 21:22:41 TP1] y", "TP1", "", "y"),
        ("[188549.976351] NVRM: z", "", "", "NVRM: z"),
        ("2025-03-26 17:10:21 TP5] cut", "TP5", "", "cut"),
        ("    indented", "", "", "    indented"),
    ):
        head = parse_head(text)
        assert (head.rank, head.level, text[head.body :]) == (rank, level, body)


def test_a_chain_in_one_block_even_when_another_process_writes_between() -> None:
    lines = [
        "[2026-05-01 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/a/x.py", line 3, in load',
        "[2026-05-01 10:00:00 TP1] Load weight begin. avail mem=1.00 GB",
        "    go()",
        "KeyError: 'k'",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "/a/y.py", line 9, in run',
        "RuntimeError: no",
    ]
    found = [e for e in events(lines) if e.role == "exception"]
    assert [e.line for e in found] == [5, 11]
    block = found[0].block
    assert block is found[1].block
    assert block is not None
    assert [(r.type, r.frames[-1].function) for r in block.raised] == [("KeyError", "load"), ("RuntimeError", "run")]


def test_facts_of_a_real_start() -> None:
    found = facts(real("tp2-mrr8-msf82").encode())
    assert found.sglang == "0.5.11"
    assert found.args["tp_size"] == 2
    assert found.limits.max_total_num_tokens == 190215
    assert found.limits.max_running_requests == 8
    assert [p.name for p in found.phases][:4] == ["processes", "distributed", "weights", "pools"]
    assert found.phases[-1].name == "serving"
    assert found.avail("weights begin") == 45.98  # not the 4.09 before the draft model
    assert found.mamba_slots == 71


def test_a_cut_arguments_line_gives_what_is_there() -> None:
    assert parse_server_args("server_args=ServerArgs(a=1, b='x, y', api_key='k', c=[1, 2], d=") == {
        "a": 1, "b": "x, y", "api_key": "***", "c": [1, 2], "d": "",
    }  # fmt: skip


def test_a_record_behind_a_progress_bar() -> None:
    raw = b"  0%|          | 0/58 [00:00<?, ?it/s][2026-11-30 21:28:28] Compiling a graph"
    assert segments(raw) == ["[2026-11-30 21:28:28] Compiling a graph"]


def test_an_endless_line_is_clipped_and_keeps_its_number() -> None:
    source = (b"x" * 100_000 for _ in range(30))
    assert [(n, len(line) <= LONGEST_LINE + 8) for n, line in numbered(source)] == [(1, True)]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=12), st.integers(1, 7))
def test_line_numbers_are_those_of_newlines(parts: list[bytes], size: int) -> None:
    data = b"\n".join(p.replace(b"\n", b"") for p in parts)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data:
        return
    whole = [line for _n, line in numbered(data)]
    expected = data.split(b"\n")
    assert whole == (expected[:-1] if expected[-1] == b"" else expected)
    chunked = list(numbered(data[i : i + size] for i in range(0, len(data), size)))
    assert [line for _n, line in chunked] == whole
    assert [n for n, _line in chunked] == list(range(1, len(whole) + 1))
