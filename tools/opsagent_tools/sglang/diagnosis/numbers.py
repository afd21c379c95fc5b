"""The numbers of a remedy, read from the failing line, the arguments and the memory figures of the log."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from opsagent_tools.errors import meant
from opsagent_tools.sglang.diagnosis.model import Fix, FlagValue

if TYPE_CHECKING:
    from opsagent_tools.sglang.diagnosis.fix import Hints

FOREIGN: dict[str, tuple[str, FlagValue] | None] = {
    # another engine's (or another version's) option: SGLang's option and a value (None: keep the value given)
    "--max-model-len": ("--context-length", None),
    "--gpu-memory-utilization": ("--mem-fraction-static", None),
    "--max-num-seqs": ("--max-running-requests", None),
    "--max-num-batched-tokens": ("--chunked-prefill-size", None),
    "--enforce-eager": ("--disable-cuda-graph", True),
    "--enable-reasoning": ("--reasoning-parser", "deepseek-r1"),
    "--enable-auto-tool-choice": None,
    "--swap-space": None,
    "--disable-log-requests": None,
    "--mamba-scheduler-strategy": ("--mamba-radix-cache-strategy", None),
    "--mamba-radix-cache-strategy": ("--mamba-scheduler-strategy", None),
    "--cuda-graph-max-bs": ("--cuda-graph-max-bs-decode", None),
    "--cuda-graph-max-bs-decode": ("--cuda-graph-max-bs", None),
}
LEAST_FRACTION, MOST_FRACTION = 0.3, 0.95


def _unknown_flag(fix: Fix, hints: Hints) -> None:
    words = hints.text.partition("arguments:")[2].split()
    for number, word in enumerate(words):
        flag, _, value = word.partition("=")
        if not flag.startswith("--"):
            continue
        given = value or (
            words[number + 1] if number + 1 < len(words) and not words[number + 1].startswith("-") else True
        )
        fix.flags[flag] = None
        if flag in FOREIGN:
            if known := FOREIGN[flag]:
                fix.flags[known[0]] = given if known[1] is None else known[1]
        elif "_" in flag:
            fix.flags[flag.replace("_", "-")] = given


def _invalid_value(fix: Fix, hints: Hints) -> None:
    found = re.search(
        r"argument (?P<names>-[\w/, -]+): invalid choice: '?(?P<got>[^'\s]+)'? \(choose from (?P<list>.*)", hints.text
    )
    if not found:
        return
    choices = [c.strip(" '\")") for c in found["list"].split(",")]
    choice = meant(found["got"], choices, 0.4)
    if choice:
        names = [n.strip() for n in re.split(r"[/,]", found["names"]) if n.strip().startswith("--")]
        fix.flags[names[0]] = choice
        fix.summary = f"{found['got']!r} is not a choice; the nearest is {choice!r}."


def _context(fix: Fix, hints: Hints) -> None:
    if found := re.search(r"derived \w+ \(?(?:[a-z_]*=)?(\d+)", hints.text):
        fix.flags["--context-length"] = int(found[1])


def _raise_fraction(fix: Fix, hints: Hints) -> None:
    """Above what the weights leave; not at all when the weights simply fill the card."""
    facts = hints.launch.reader.facts
    now = hints.args.get("mem_fraction_static")
    begin, end = facts.avail("weights begin"), facts.avail("weights end")
    used = next((m.used_gib for m in facts.memory if m.at == "weights end" and m.used_gib), None)
    begin = begin if begin is not None else (end + used if end is not None and used is not None else None)
    least = None
    if found := re.search(r"above ([\d.]+\d)", hints.text):
        least = float(found[1])
    elif begin and end is not None:
        least = 1 - end / begin
    if least is None:
        return
    wanted = min(MOST_FRACTION, math.ceil(round((least + 0.06) * 100, 6)) / 100)
    if wanted <= least + 0.01 or (isinstance(now, int | float) and wanted <= now):
        fix.flags.pop("--mem-fraction-static", None)
        fix.flags["--tp-size"] = 2 * int(hints.args.get("tp_size") or 1)
        fix.summary = "The weights leave no room at any fraction: smaller (quantised) weights, or more GPUs."
    else:
        fix.flags["--mem-fraction-static"] = wanted


def _lower_fraction(fix: Fix, hints: Hints) -> None:
    now = hints.args.get("mem_fraction_static")
    value = float(now) if isinstance(now, int | float) else 0.85
    fix.flags["--mem-fraction-static"] = round(max(LEAST_FRACTION, value - 0.05), 3)


def _more_cards(fix: Fix, hints: Hints) -> None:
    fix.flags["--tp-size"] = 2 * int(hints.args.get("tp_size") or 1)


def _fewer_cards(fix: Fix, hints: Hints) -> None:
    """The largest power of two below the size that divides what did not divide."""
    size = int(hints.args.get("tp_size") or 0)
    number = 0
    if found := re.search(r"(\d+) is not divisible by (\d+)", hints.text):
        number, size = int(found[1]), int(found[2])
    tried = 1
    while tried * 2 < size and (not number or number % (tried * 2) == 0):
        tried *= 2
    fix.flags["--tp-size"] = tried


def _half_cards(fix: Fix, hints: Hints) -> None:
    fix.flags["--tp-size"] = max(1, int(hints.args.get("tp_size") or 2) // 2)


def _next_port(fix: Fix, hints: Hints) -> None:
    found = re.search(r"\(.[^']*., (\d{2,5})|[Pp]ort (?:at )?(\d{2,5})", hints.text)
    port = int(next(g for g in found.groups() if g)) if found else hints.args.get("port")
    fix.flags["--port"] = int(port) + 1 if port else 30001


def _chain(fix: Fix, hints: Hints) -> None:
    steps = hints.args.get("speculative_num_steps")
    if found := re.search(r"Expected size (\d+)", hints.text):
        steps = int(found[1]) - 1
    if isinstance(steps, int):
        fix.flags["--speculative-num-draft-tokens"] = steps + 1


def _all_three(fix: Fix, hints: Hints) -> None:
    steps = hints.args.get("speculative_num_steps")
    if isinstance(steps, int) and steps > 0:
        fix.flags["--speculative-num-steps"], fix.flags["--speculative-num-draft-tokens"] = steps, steps + 1


def _backend(fix: Fix, hints: Hints) -> None:
    """The backend that the message itself offers, else another one than the one that failed."""
    if found := re.search(r"--attention-backend[ =](\w+)", hints.text):
        fix.flags["--attention-backend"] = found[1]
    elif found := re.search(r"one of \[?'?(\w+)|^\W*(?:\w+: )?(\w+), \w+.{0,80} (?:is|are) required for", hints.text):
        fix.flags["--attention-backend"] = found[1] or found[2]
    elif "torch_sdpa" in hints.text or "multimodal_gen" in hints.text:
        fix.flags["--attention-backend"] = "torch_sdpa"


def _page(fix: Fix, hints: Hints) -> None:
    if "token_to_kv_pool_allocator" in hints.text or "page_size=1" in hints.text or "page_size ?= ?1" in hints.text:
        fix.flags.update({"--page-size": 1, "--attention-backend": "triton"})
    elif "track_interval" in hints.text and "draft_tokens" in hints.text:
        fix.flags = {"--mamba-track-interval": 256}


def _base_gpu(fix: Fix, hints: Hints) -> None:
    if not hints.args.get("base_gpu_id"):
        fix.flags.pop("--base-gpu-id", None)
        fix.flags["--tp-size"] = max(1, int(hints.args.get("tp_size") or 2) // 2)
    if "base_gpu_id" not in hints.args:
        fix.flags["--base-gpu-id"] = 0


NUMBERS: dict[str, Callable[[Fix, Hints], None]] = {
    "unknown-flag": _unknown_flag,
    "invalid-flag-value": _invalid_value,
    "context-length-exceeds-model": _context,
    "kv-pool-no-room": _raise_fraction,
    "oom-pool-alloc": _lower_fraction,
    "oom-graph-capture": _lower_fraction,
    "oom-runtime-forward": _lower_fraction,
    "oom-weight-load": _more_cards,
    "tp-size-not-divisible": _fewer_cards,
    "tp-quant-shard-not-divisible": _half_cards,
    "port-in-use": _next_port,
    "spec-topk-unsupported": _chain,
    "spec-args-incomplete": _all_three,
    "attn-backend-model-unsupported": _backend,
    "attn-backend-gpu-unsupported": _backend,
    "hybrid-cache-args-invalid": _page,
    "gpu-index-out-of-range": _base_gpu,
}
