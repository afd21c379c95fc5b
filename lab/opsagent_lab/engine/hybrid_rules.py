"""Rules of models with recurrent state: state strategy against radix cache, speculation, pages and track interval."""

from __future__ import annotations

from collections.abc import Mapping

from opsagent_lab.engine.settings import Refusal, Settings, Value
from opsagent_lab.engine.shape import Shape
from opsagent_lab.engine.typed import Note, integer

_EXTRA_BUFFER = frozenset(
    {"Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"}
)
_FLA_CHUNK = 64
_OVERLAP_OFF = (
    "Disabling overlap schedule since mamba no_buffer is not compatible with overlap schedule, "
    "try to use --disable-radix-cache if overlap schedule is necessary"
)


def nemotron(s: Settings, values: Mapping[str, Value], say: Note) -> None:
    if s.strategy == "extra_buffer" and not s.modern:
        raise Refusal(
            "AssertionError", "mamba extra_buffer is not supported for NemotronHForCausalLM model", "args-mamba"
        )
    if s.spec is None and s.radix:
        say(_OVERLAP_OFF)
        s.overlap = False
    if values.get("attention_backend") == "triton":
        raise Refusal(
            "AssertionError",
            "NemotronHForCausalLM does not support triton attention backend,as the first layer might not "
            "be an attention layer",
            "args-nemotron",
        )


def state_strategy(s: Settings, values: Mapping[str, Value], shape: Shape, say: Note) -> None:
    """`_handle_mamba_radix_cache` and what became of it in 0.5.23."""
    arch = shape.architecture
    if s.strategy == "auto":
        s.strategy = "extra_buffer" if s.modern and s.overlap and s.radix else "no_buffer"
    if s.strategy.startswith("extra_buffer"):
        _extra_buffer(s, values, arch)
        return
    if not s.radix:
        return
    if s.page_size != 1 and s.release >= (0, 5, 10):
        if s.modern:
            raise Refusal("AssertionError", "no_buffer only supports page_size=1.", "args-mamba")
        say(
            f"{arch} with radix cache requires page_size=1 in the current Mamba scheduling mode (no_buffer), "
            f"but got {s.page_size}. Automatically setting page_size=1."
        )
        s.page_size = 1
    if s.spec is None:
        say(_OVERLAP_OFF)
        s.overlap = False
    elif s.version == "0.5.9":
        say(f"Disabling radix cache since speculative decoding for {arch} is not supported with radix cache yet.")
        s.radix = False
    elif not s.modern:
        raise Refusal(
            "ValueError",
            f"Speculative decoding for {arch} is not compatible with radix cache when using --mamba-scheduler-strategy "
            "no_buffer.To use radix cache with speculative decoding, please use --mamba-scheduler-strategy extra_buffer "
            "and set SGLANG_ENABLE_SPEC_V2=1.",
            "args-mamba-spec",
        )


def _extra_buffer(s: Settings, values: Mapping[str, Value], arch: str) -> None:
    if arch not in _EXTRA_BUFFER:
        text = (
            f"extra_buffer is not supported for {arch}; use no_buffer."
            if s.modern
            else f"mamba extra_buffer is not supported for {arch} model"
        )
        raise Refusal("AssertionError", text, "args-mamba")
    if not s.radix and s.version in ("0.5.10", "0.5.11"):
        raise Refusal(
            "ValueError",
            "mamba extra_buffer is not compatible with --disable-radix-cache Overlap scheduling is already supported with "
            "no_buffer + disable_radix_cache. Please use --mamba-scheduler-strategy no_buffer instead.",
            "args-mamba",
        )
    draft = integer(values, "speculative_num_draft_tokens")
    if draft is not None and s.track_interval < draft:
        text = (
            f"mamba_track_interval {s.track_interval} must be greater than or equal to "
            f"speculative_num_draft_tokens {draft}"
        )
        raise Refusal("AssertionError", "" if s.modern else text, "args-mamba")
    if values.get("page_size") is None:
        return
    if s.track_interval % s.page_size:
        text = f"mamba_track_interval {s.track_interval} must be divisible by page_size {s.page_size}"
        raise Refusal("AssertionError", "" if s.modern else text, "args-mamba")
    if max(_FLA_CHUNK, s.page_size) % min(_FLA_CHUNK, s.page_size):
        raise Refusal(
            "AssertionError",
            "For SSM models with extra buffer, either FLA_CHUNK_SIZE or page_size must be divisible by the other, "
            f"got FLA_CHUNK_SIZE={_FLA_CHUNK}, self.page_size={s.page_size}",
            "args-mamba",
        )
