"""Named facts that a signature can ask for where a pattern cannot say it: numbers, relations between lines, time."""

from __future__ import annotations

import re
from collections.abc import Callable

from opsagent_tools.sglang.diagnosis.degenerate import answers_of, degenerate
from opsagent_tools.sglang.diagnosis.scan import Hit, Launch, Scan

Condition = Callable[[Scan, Hit, Launch], bool]


def _hybrid(_scan: Scan, _hit: Hit, launch: Launch) -> bool:
    facts = launch.reader.facts
    return facts.hybrid or ("mamba_ssm_dtype" in facts.args and facts.request_cap_reset is not None and facts.hybrid)


def _speculative(_scan: Scan, _hit: Hit, launch: Launch) -> bool:
    return launch.reader.facts.speculative


def _no_batch_after(scan: Scan, hit: Hit, _launch: Launch) -> bool:
    return scan.skimmed.batch_line < hit.line


def _room_left(_scan: Scan, _hit: Hit, launch: Launch) -> bool:
    """Much is free after the weights, so that they cannot be what leaves no room for the pool."""
    begin, end = launch.reader.facts.avail("weights begin"), launch.reader.facts.avail("weights end")
    if end is None:
        return False
    fraction = launch.reader.facts.args.get("mem_fraction_static")
    if begin is not None and isinstance(fraction, int | float):
        return end > begin * (1 - fraction) + 0.5
    return end > 8.0 if begin is None else end > max(4.0, 0.2 * begin)


def _small_pool(_scan: Scan, hit: Hit, launch: Launch) -> bool:
    """The allowed length is that of the pool, not of the model."""
    numbers = [int(n) for n in re.findall(r"\d+", hit.match[0])]
    pool = launch.reader.facts.pool_tokens or launch.reader.facts.limits.max_total_num_tokens
    context = launch.reader.facts.limits.context_len
    if not numbers:
        return False
    allowed = min(numbers)
    if pool is not None and abs(pool - allowed) <= max(64, 0.02 * pool):
        return context is None or allowed < context - 64
    return pool is None and context is not None and allowed < context - 64


def _degenerate_text(scan: Scan, hit: Hit, _launch: Launch) -> bool:
    """An answer that a line quotes is garbage, or the pieces of a streamed one are, put together.

    Of a stream the hit is the piece with which the text so far became garbage (so that the evidence is enough), and
    only if what came after did not make it sense: an answer may well begin with a row of dashes.
    """
    if any(map(degenerate, answers_of(hit.match.string))):
        return True
    if "delta" not in hit.match.string:
        return False
    pieces = [h for h in scan.of(hit.source) if "delta" in h.match.string and abs(h.line - hit.line) <= STREAM_WINDOW]
    so_far = [h for h in pieces if h.line <= hit.line]
    return degenerate(_joined(so_far)) and degenerate(_joined(pieces))


STREAM_WINDOW = 400
"""Lines around a streamed piece that are put together with it: a long stream is not joined anew for each."""


def _joined(pieces: list[Hit]) -> str:
    return "".join(text for piece in pieces for text in answers_of(piece.match.string))


def _module_of_architecture(scan: Scan, hit: Hit, _launch: Launch) -> bool:
    """An import error names the module of the very architecture that is then called unsupported."""
    architectures = re.findall(r"\b(\w+(?:For[A-Z]|Model)\w*)", hit.match[0])
    modules = [n.match[1].lower() for n in scan.of(IMPORT_ERROR)]
    return any(_defines(m, a) for a in architectures for m in modules)


def _defines(module: str, architecture: str) -> bool:
    """`deepseek_v2` and `DeepseekV3ForCausalLM`, `gemma4_mm` and `Gemma4ForConditionalGeneration`: module and class agree
    in their stems, or the module is one of those that SGLang 0.5.23 named after another model."""
    plain = re.sub(r"[^a-z0-9]", "", module)
    whole, stem = architecture.lower().replace("_", ""), re.split(r"For[A-Z]|Model\b", architecture)[0].lower()
    stem = re.sub(r"[^a-z0-9]", "", stem)
    if len(plain) < 3 or len(stem) < 3:
        return False
    if whole.startswith(plain) or re.sub(r"_(?:mm|vl|text|causal|moe|mla|model)$", "", module).replace("_", "") == stem:
        return True
    return any(stem.startswith(name) for name in NAMED_AFTER_OTHERS.get(module, ()))


def _foreign_process(_scan: Scan, hit: Hit, launch: Launch) -> bool:
    """Most of a big card was taken before the weights came."""
    begin = launch.reader.facts.avail("weights begin")
    total = re.search(r"total capacity of ([\d.]+) GiB", hit.match.string)
    return bool(begin is not None and total and begin < 0.5 * float(total[1]))


def _others_big(_scan: Scan, hit: Hit, _launch: Launch) -> bool:
    """The out-of-memory text lists another process with a large share."""
    total = re.search(r"total capacity of ([\d.]+) GiB", hit.match.string)
    others = [float(g) for g in re.findall(r"Process \d+ has ([\d.]+) GiB memory in use", hit.match.string)]
    mine = re.search(r"this process has ([\d.]+) GiB memory in use", hit.match.string)
    held = re.search(r"([\d.]+) GiB is allocated by PyTorch", hit.match.string)
    own = float(mine[1]) if mine else 0.0
    if held and not mine and (me := [g for g in others if 0 <= g - float(held[1]) < 3.0]):
        others.remove(me[0])  # in a container torch does not know its own number and lists itself as one of them
        own = me[0]
    limit = 0.3 * float(total[1]) if total else 8.0
    return bool(others) and sum(others) > limit and sum(others) > 0.5 * own


def _little_at_begin(_scan: Scan, hit: Hit, launch: Launch) -> bool:
    """Before the weights came, less was free than the weights themselves take, or next to nothing of any modern card."""
    begin = launch.reader.facts.avail("weights begin")
    used = next((m.used_gib for m in launch.reader.facts.memory if m.at == "weights end" and m.used_gib), None)
    return (
        begin is not None and (begin < 6.0 and (used is None or used < begin)) and not launch.reader.facts.speculative
    )


def _error_follows(scan: Scan, hit: Hit, launch: Launch) -> bool:
    return any(t.launch == hit.launch and t.line > hit.line and "memory" in t.quote.lower() for t in scan.trouble)


def _alone(scan: Scan, hit: Hit, launch: Launch) -> bool:
    """No other error came before the line."""
    return not any(t.line < hit.line and t.launch == hit.launch for t in scan.trouble)


NAMED_AFTER_OTHERS = {
    "commandr": ("cohere",), "deepseek_v2": ("deepseekv3",), "deepseek_janus_pro": ("multimodality",),
    "glm4_moe": ("glmmoedsa",), "hunyuan_v3": ("hyv3",), "hunyuan_v4": ("hyv4",), "llama": ("phi3", "internlm3"),
    "mllama4": ("llama4",), "nemotron_nas": ("decilm",), "nano_nemotron_vl": ("nemotronh",), "roberta": ("xlmroberta",),
}  # fmt: skip
"""Modules of SGLang 0.5.23 (srt/models) whose classes have another stem."""

IMPORT_ERROR = r"Ignore import error when loading (?:sglang\.srt\.models\.)(\w+)"

CONDITIONS: dict[str, Condition] = {
    "hybrid": _hybrid,
    "not-hybrid": lambda s, h, n: not _hybrid(s, h, n),
    "speculative": _speculative,
    "not-speculative": lambda s, h, n: not _speculative(s, h, n),
    "no-batch-after": _no_batch_after,
    "room-left": _room_left,
    "no-room-left": lambda s, h, n: not _room_left(s, h, n),
    "small-pool": _small_pool,
    "module-of-architecture": _module_of_architecture,
    "card-was-taken": _foreign_process,
    "others-hold-memory": _others_big,
    "first-error": _alone,
    "was-ready": lambda _s, h, _n: h.ready,
    "degenerate-text": _degenerate_text,
    "little-at-begin": _little_at_begin,
    "error-follows": _error_follows,
    "hybrid-or-room-left": lambda s, h, n: _hybrid(s, h, n) or _room_left(s, h, n),
}
