"""docs/why-one-request.md and its picture: every number from a recorded launch (tests/data/planner) or from the planner."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests"))

from bench.reference.markdown import table  # noqa: E402
from planner.records import Record, records  # noqa: E402

from opsagent_tools.sglang.bars import TERMS, Bar, bars_picture, keys  # noqa: E402
from opsagent_tools.sglang.drawing import standalone  # noqa: E402
from opsagent_tools.sglang.plan import PerGpu, Plan  # noqa: E402
from opsagent_tools.sglang.planner import plan  # noqa: E402

ASKED, CAPPED, STRANGER = "t-seed2-exact", "tp2-seed2-mrr4", "tp2-seed1-fixed"
"""The flags as asked; the same with --max-running-requests 4; others with 4 draft tokens, which did not start."""
CAP = ("--max-running-requests", "4")
TEXT = """# Why one request at a time

A 27B hybrid model with speculative decoding (Qwen3.6-27B, NEXTN with {drafts} draft tokens) on two cards, each with as much
free memory as an idle 48 GB card has, came up with **one** running request and {tokens_asked} tokens. The log does not
say why, nothing is wrong with the cards, and the usual advice (raise `--mem-fraction-static`, or give speculation up) takes
memory that graphs and long prompts need, or costs speed. One flag gives **{running_capped} requests and {tokens_capped}
tokens** on the same cards, with speculation: `--max-running-requests 4`.

![Memory of one GPU, twice: with the flags as asked {reserve_asked} GiB are set aside for requests that never run; with
--max-running-requests 4 that memory holds state and KV cache](why-one-request.svg)

{legend}

## The arithmetic

A hybrid model keeps two kinds of memory for requests: KV cache, which grows with the tokens, and a **recurrent state** of
fixed size for each slot. Here a slot takes {state_mib:.1f} MiB on each card (`{capped}` logged {slots_capped} slots and one
spare in {state_capped:.2f} GiB).

With speculation a draft of {drafts} tokens is verified at once, and each draft token needs a copy of the state. SGLang
0.5.11 sets memory for these copies aside *before* it knows how many requests will run, and without
`--max-running-requests` it counts on **48**:

    48 requests x {drafts} draft tokens x {state_mib:.1f} MiB = {reserve_asked} GiB      as asked
     4 requests x {drafts} draft tokens x {state_mib:.1f} MiB = {reserve_capped} GiB      with --max-running-requests 4

What the pools may use is what is free after the weights, less the share that `--mem-fraction-static` keeps for graphs and
long prompts. GiB on each card, with the free memory of `{asked}`:

{sums}

The rest is split between state and KV ({ratio} to 1). Then the state's share decides how many requests run: the radix cache
wants to keep states of finished prefixes too, so a request costs {per_request} slots.

    as asked        {slots_asked} slots / {per_request} = {running_asked} request
    with the cap   {slots_capped_plan} slots / {per_request} = {by_slots}, asked for 4: {running_capped} requests

The copies for the {idle} requests that can never run stay set aside: neither state nor KV may use them.

## Predicted, and logged by real servers

Both launches were made with SGLang 0.5.11 on H200s, where another process held so much that as much was free as on 48 GB
cards; weights were random, which changes no size. GiB on each card. The records are in `tests/data/planner/recorded.jsonl`.

{compared}

`{asked}` and `{capped}` differ in free memory ({free_asked} and {free_capped} GiB); each prediction uses its own. With
{stranger_drafts} draft tokens (`{stranger}`) the same reserve is {reserve_stranger} GiB: there the pools went below zero and
the server did not start, although {stranger_free} GiB were free after the weights.

## What to do

    opsagent plan --model DIR --gpu "RTX A6000:49140" --num-gpus 2 --sglang 0.5.11 \\
        --want-context 32768 --want-concurrency 4 -- --tp 2 --speculative-algorithm NEXTN …

says so before anything is loaded, and lists the other ways with what they cost: no radix cache (states of finished prefixes
are not kept), fewer draft tokens, no speculation. SGLang 0.5.23 solves for slots and copies together and does not have the
trap; [the planner](planner.md) knows both.
"""


def _record(name: str) -> Record:
    return next(record for record in records("recorded") if record.id == name)


def _plan(record: Record, *more: str) -> Plan:
    return plan(
        record.config, gpus=record.gpu, flags=(*record.flags, *more), sglang=record.version, free_gib=record.free_gib,
        advise=False,
    )  # fmt: skip


def _gib(found: Plan) -> PerGpu:
    assert found.per_gpu_gib is not None
    return found.per_gpu_gib


def _bar(label: str, found: Plan) -> Bar:
    gib = _gib(found)
    aside = gib.spec_reserve - gib.mamba_intermediate
    parts = [
        ("weights", gib.weights), ("recurrent_state", gib.mamba_state), ("verification", gib.mamba_intermediate),
        ("kv_cache", gib.kv_cache), ("draft", gib.draft_weights + gib.draft_kv), ("graphs", gib.graphs),
        ("set_aside", aside),
    ]  # fmt: skip
    rest = gib.free - sum(size for _slug, size in parts)
    return Bar(label, gib.free, [*((slug, size) for slug, size in parts if size > 0.005), ("free", rest)])


def _bars() -> list[Bar]:
    asked = _record(ASKED)
    return [_bar("as asked: 1 request", _plan(asked)), _bar("with --max-running-requests 4", _plan(asked, *CAP))]


def picture() -> str:
    """docs/why-one-request.svg."""
    return standalone(bars_picture(_bars(), ident="why"), width=860)


def _sums(*plans: tuple[str, Plan]) -> str:
    rows = []
    for name, found in plans:
        gib, share = _gib(found), found.mem_fraction_static or 0.0
        kept = gib.free * (1 - share)
        after = gib.free - gib.weights - kept - gib.parts.get("rope", 0.0)
        left = gib.usable - gib.spec_reserve
        rows.append([name, *(f"{value:.2f}" for value in (gib.free, gib.weights, kept, after, gib.spec_reserve, left))])
    head = [
        "",
        "free",
        "weights",
        "kept by the fraction",
        "for the pools",
        "set aside for 48 or 4",
        "left for state and KV",
    ]
    return table(head, rows)


def _compared() -> str:
    rows = []
    for name in (ASKED, CAPPED):
        record = _record(name)
        found, logged = _plan(record), record.logged
        gib, limits = _gib(found), found.limits
        assert limits is not None
        state = logged["conv_state_gib"] + logged["ssm_state_gib"]
        values = [
            ("weights", gib.weights, logged["weights_gib"]), ("state", gib.mamba_state, state),
            ("KV", gib.kv_cache, logged["kv_gib"]),
            ("left after the pools", gib.pool_end_avail, logged["pool_end_avail_gib"]),
        ]  # fmt: skip
        rows += [[f"`{name}`", what, f"{ours:.2f}", f"{theirs:.2f}"] for what, ours, theirs in values]
        rows += [
            [f"`{name}`", "slots", str(found.slots), str(logged["mamba_slots"])],
            [f"`{name}`", "tokens", f"{limits.max_total_num_tokens:,}", f"{logged['max_total_num_tokens']:,}"],
            [
                f"`{name}`",
                "**requests at once**",
                str(limits.max_running_requests),
                str(logged["max_running_requests"]),
            ],
        ]
    return table(["launch", "", "predicted", "logged"], rows)


def page() -> str:
    """docs/why-one-request.md."""
    asked, capped, stranger = _record(ASKED), _record(CAPPED), _record(STRANGER)
    plain, better, other = _plan(asked), _plan(asked, *CAP), _plan(stranger)
    numbers = keys(_bars())
    state_capped = capped.logged["conv_state_gib"] + capped.logged["ssm_state_gib"]
    per_request = 5
    assert better.slots is not None
    assert plain.slots is not None
    assert plain.slots // per_request == asked.logged["max_running_requests"]
    return TEXT.format(
        drafts=2, tokens_asked=f"{asked.logged['max_total_num_tokens']:,}",
        running_capped=capped.logged["max_running_requests"],
        tokens_capped=f"{capped.logged['max_total_num_tokens']:,}", reserve_asked=f"{_gib(plain).spec_reserve:.2f}",
        reserve_capped=f"{_gib(better).spec_reserve:.2f}",
        legend=" · ".join(f"{number} {TERMS[slug][0]}" for slug, number in numbers.items()),
        state_mib=_gib(plain).spec_reserve * 1024 / 96, capped=CAPPED, asked=ASKED, stranger=STRANGER,
        slots_capped=capped.logged["mamba_slots"], state_capped=state_capped,
        sums=_sums(("as asked", plain), ("with the cap", better)), ratio="0.9", per_request=per_request,
        slots_asked=plain.slots, running_asked=asked.logged["max_running_requests"], slots_capped_plan=better.slots,
        by_slots=better.slots // per_request, idle=48 - asked.logged["max_running_requests"], compared=_compared(),
        free_asked=asked.free_gib, free_capped=capped.free_gib, stranger_drafts=4,
        reserve_stranger=f"{_gib(other).spec_reserve:.2f}", stranger_free=stranger.logged["load_end_avail_gib"],
    )  # fmt: skip
