"""Rules of speculative decoding: which numbers must be given together, what is adjusted, what is refused."""

from __future__ import annotations

from collections.abc import Mapping

from opsagent_lab.engine.settings import Refusal, Settings, Value
from opsagent_lab.engine.typed import Note, integer

_RESET_48 = (
    "Max running requests is reset to 48 for speculative decoding. You can override this by explicitly setting "
    "--max-running-requests."
)


def speculation(s: Settings, values: Mapping[str, Value], say: Note) -> None:
    if s.spec is None:
        return
    steps, topk, tokens = (
        integer(values, n) for n in ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    )
    if s.max_running is None:
        s.max_running = 48
        say(_RESET_48)
    if s.spec == "NGRAM":
        s.overlap = False
        s.spec_steps, s.spec_topk, s.spec_tokens = steps or 0, topk or 1, tokens or 12
        return
    _spec_generation(s, topk, say)
    if steps is None:
        if topk is not None or tokens is not None:
            raise Refusal("AssertionError", "", "args-spec-empty")
        steps, topk, tokens = (5, 4, 8) if "Llama" in s.model_path else (3, 1, 4)
    if topk is None:
        raise Refusal("TypeError", "'>' not supported between instances of 'NoneType' and 'int'", "args-spec-none")
    if topk == 1 and tokens != steps + 1:
        say("speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1")
        tokens = steps + 1
    if topk > 1 and s.page_size > 1 and s.attention_backend not in ("flashinfer", "fa3"):
        raise Refusal(
            "ValueError",
            "speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect results for paged attention "
            "backends. This combination is only supported for the 'flashinfer' backend.",
            "args-spec",
        )
    s.spec_steps, s.spec_topk, s.spec_tokens = steps, topk, tokens or steps + 1


def _spec_generation(s: Settings, topk: int | None, say: Note) -> None:
    """Spec v1 or v2: whether the overlap scheduler survives speculation."""
    if s.modern:
        return
    default = "true" if s.version == "0.5.11" else "false"
    second = s.env.get("SGLANG_ENABLE_SPEC_V2", default).lower() in ("1", "true", "yes", "y")
    if s.version != "0.5.11":
        s.overlap = second
        if not second:
            say(
                "Overlap scheduler is disabled when spec v2 is off or using unsupported speculative algorithm. "
                "You can set env SGLANG_ENABLE_SPEC_V2=True to enable the experimental overlap scheduler. "
            )
            return
        say("Spec v2 is enabled for eagle/eagle3 speculative decoding and overlap schedule is turned on.")
        if (topk or 0) > 1:
            raise Refusal(
                "ValueError", "Spec v2 currently only supports topk = 1 for speculative decoding.", "args-spec"
            )
        return
    reason = None
    if s.overlap and (topk or 0) > 1:
        reason = "spec v2 currently only supports topk = 1"
    elif s.overlap and not second:
        reason = "SGLANG_ENABLE_SPEC_V2=False"
    elif not s.overlap:
        reason = "overlap schedule is disabled"
    if reason:
        s.overlap = False
        say(f"Spec v1 is used for eagle/eagle3/standalone speculative decoding because {reason}.")
    else:
        say("Spec v2 is enabled by default for eagle/eagle3/standalone speculative decoding.")
