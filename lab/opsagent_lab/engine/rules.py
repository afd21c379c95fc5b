"""SGLang's own argument checks, in its order and words: from typed flags to resolved `Settings`, or a `Refusal`.

Sources: server_args.py of 0.5.9 (:1699, :2330), 0.5.10 (:2123, :2959) and 0.5.11 (:2366, :3286),
arg_groups/mamba_hook.py and
overrides.py of 0.5.23, configs/model_config.py (context length). The typed flags come in as a mapping from argparse
destination (`tp_size`) to value.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from opsagent_lab.engine import defaults
from opsagent_lab.engine.hardware import Gpu
from opsagent_lab.engine.settings import Refusal, Settings, Value
from opsagent_lab.engine.shape import KNOWN_MODEL_TYPES, Shape

_EXTRA_BUFFER = frozenset(
    {"Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"}
)
_FUSED_ALLREDUCE = frozenset(
    {
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3NextForCausalLM",
        "Qwen3MoeForCausalLM",
    }
)
_FLA_CHUNK = 64
_RESET_48 = (
    "Max running requests is reset to 48 for speculative decoding. You can override this by explicitly setting "
    "--max-running-requests."
)


def _int(values: Mapping[str, Value], name: str, default: int | None = None) -> int | None:
    value = values.get(name)
    return default if value is None else int(str(value))


def _str(values: Mapping[str, Value], name: str, default: str | None = None) -> str | None:
    value = values.get(name)
    return default if value is None else str(value)


def _on(values: Mapping[str, Value], name: str) -> bool:
    return bool(values.get(name))


def resolve(
    version: str,
    values: Mapping[str, Value],
    env: Mapping[str, str],
    shape: Shape,
    gpus: Sequence[Gpu],
    *,
    note: Callable[[str], None] = lambda _text: None,
) -> Settings:
    """Settings of a launch on `gpus` (at least one). `note` gets every line that SGLang prints on the way. Raises
    Refusal.
    """
    s = _plain(version, values, env, shape)
    say = _recorder(s, note)
    _model_known(shape)
    _context(s, shape)
    _memory(s, values, shape, gpus)
    _model_specific(s, values, shape, gpus, say)
    _attention(s, values, gpus, say)
    _page(s)
    _speculation(s, values, say)
    _final_checks(s)
    return s


def _recorder(s: Settings, note: Callable[[str], None]) -> Callable[[str], None]:
    def say(text: str) -> None:
        s.notes.append(text)
        note(text)

    return say


def _plain(version: str, values: Mapping[str, Value], env: Mapping[str, str], shape: Shape) -> Settings:
    path = str(values.get("model_path"))
    spec = _str(values, "speculative_algorithm")
    strategy = _str(values, "mamba_scheduler_strategy") or _str(values, "mamba_radix_cache_strategy") or "auto"
    ssm = _str(values, "mamba_ssm_dtype") or env.get("SGLANG_MAMBA_SSM_DTYPE")
    return Settings(
        version=version,
        model_path=path,
        typed=values,
        env=env,
        tp=_int(values, "tp_size", 1) or 1,
        host=_str(values, "host", "127.0.0.1") or "127.0.0.1",
        port=_int(values, "port", 30000) or 30000,
        served_name=_str(values, "served_model_name") or path,
        load_format=_str(values, "load_format", "auto") or "auto",
        context_length=_int(values, "context_length"),
        max_running=_int(values, "max_running_requests"),
        max_total_tokens=_int(values, "max_total_tokens"),
        max_prefill_tokens=_int(values, "max_prefill_tokens", 16384) or 16384,
        graphs=not _on(values, "disable_cuda_graph"),
        piecewise_asked_off=_on(values, "disable_piecewise_cuda_graph"),
        page_size=_int(values, "page_size", 1) or 1,
        spec="EAGLE" if spec == "NEXTN" else spec,
        strategy=strategy,
        radix=not _on(values, "disable_radix_cache"),
        overlap=not _on(values, "disable_overlap_schedule"),
        track_interval=_int(values, "mamba_track_interval", 256) or 256,
        mamba_ratio=float(str(values.get("mamba_full_memory_ratio") or 0.9)),
        max_mamba=_int(values, "max_mamba_cache_size"),
        ssm_dtype=ssm or (shape.linear.ssm_dtype if shape.linear else "float32"),
        kv_dtype=_str(values, "kv_cache_dtype", "auto") or "auto",
        reasoning_parser=_str(values, "reasoning_parser"),
        tool_parser=_str(values, "tool_call_parser"),
        api_key=_str(values, "api_key"),
        metrics=_on(values, "enable_metrics"),
        warmup=not _on(values, "skip_server_warmup"),
        seed=_int(values, "random_seed") or random.randrange(1, 2**30),
        language_only=_on(values, "language_only"),
        torch_compile=_on(values, "enable_torch_compile"),
    )


def _model_known(shape: Shape) -> None:
    if shape.model_type and shape.model_type not in KNOWN_MODEL_TYPES:
        raise Refusal("ValueError", _UNKNOWN_TYPE.format(kind=shape.model_type), "args-arch")


_UNKNOWN_TYPE = (
    "The checkpoint you are trying to load has model type `{kind}` but Transformers does not recognize this architecture. "
    "This could be because of an issue with the checkpoint, or because your version of Transformers is out of date.\n\n"
    "You can update Transformers with the command `pip install --upgrade transformers`. If this does not work, and the "
    "checkpoint is very new, then there may not be a release version that supports this model yet. In "
    "this case, you can get "
    "the most up-to-date code by installing Transformers from source with the command "
    "`pip install git+https://github.com/huggingface/transformers.git`"
)


def _context(s: Settings, shape: Shape) -> None:
    if s.context_length is None or s.context_length <= shape.max_context:
        return
    text = (
        f"Warning: User-specified context_length ({s.context_length}) is greater than the derived context_length "
        f"({shape.max_context}). This may lead to incorrect model outputs or CUDA errors. Note that the derived "
        "context_length may differ from max_position_embeddings in the model's config."
    )
    allowed = s.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "").lower() in ("1", "true", "yes", "y")
    if not allowed:
        raise Refusal(
            "ValueError",
            f"{text} To allow overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
            "args-context",
        )
    s.notes.append(text)


def _memory(s: Settings, values: Mapping[str, Value], shape: Shape, gpus: Sequence[Gpu]) -> None:
    total = min(g.total_mib for g in gpus)
    chunk, graphs = defaults.chunk_and_graphs(total, s.tp, s.version)
    s.chunked = _int(values, "chunked_prefill_size", chunk) or chunk
    s.graph_max_bs = _int(values, "cuda_graph_max_bs") or _int(values, "cuda_graph_max_bs_decode") or graphs
    if s.modern and s.max_running is not None:
        s.graph_max_bs = min(s.graph_max_bs, s.max_running)
    off = _str(values, "cuda_graph_backend_prefill") == "disabled"
    s.piecewise = (
        (s.modern and s.graphs and not off)
        or (
            s.version in ("0.5.10", "0.5.11")
            and not s.piecewise_asked_off
            and shape.vision is None
            and not s.torch_compile
            and not shape.hybrid
        )
        or (s.version == "0.5.9" and _on(values, "enable_piecewise_cuda_graph"))
    )
    asked = values.get("mem_fraction_static")
    s.mem_fraction = float(str(asked)) if asked is not None else defaults.mem_fraction(s, shape, total)


def _model_specific(
    s: Settings, values: Mapping[str, Value], shape: Shape, gpus: Sequence[Gpu], say: Callable[[str], None]
) -> None:
    if shape.architecture == "NemotronHForCausalLM":
        _nemotron(s, values, say)
    elif shape.hybrid:
        _state_strategy(s, values, shape, say)
    sm = min(g.sm for g in gpus)
    if (
        s.tp > 1
        and 90 <= sm < 120
        and s.release >= (0, 5, 10)
        and shape.architecture in _FUSED_ALLREDUCE
        and not _on(values, "enforce_disable_flashinfer_allreduce_fusion")
    ):
        s.allreduce_fusion = True
        say(f"Auto-enabling FlashInfer AllReduce Fusion on SM90/SM10X for {shape.architecture}")


def _nemotron(s: Settings, values: Mapping[str, Value], say: Callable[[str], None]) -> None:
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


_OVERLAP_OFF = (
    "Disabling overlap schedule since mamba no_buffer is not compatible with overlap schedule, "
    "try to use --disable-radix-cache if overlap schedule is necessary"
)


def _state_strategy(s: Settings, values: Mapping[str, Value], shape: Shape, say: Callable[[str], None]) -> None:
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
    draft = _int(values, "speculative_num_draft_tokens")
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


def _attention(s: Settings, values: Mapping[str, Value], gpus: Sequence[Gpu], say: Callable[[str], None]) -> None:
    sm = min(g.sm for g in gpus)
    s.mm_backend = {9: "fa3", 10: "fa4"}.get(sm // 10, "triton_attn")
    s.sampling_backend = _str(values, "sampling_backend", "flashinfer") or "flashinfer"
    asked = _str(values, "attention_backend")
    if asked is not None:
        s.attention_backend = asked
    else:
        s.attention_backend = {9: "fa3", 10: "trtllm_mha"}.get(sm // 10, "flashinfer")
        say(f"Attention backend not specified. Use {s.attention_backend} backend by default.")
    if s.attention_backend in ("torch_native", "flex_attention"):
        name = "torch native" if s.attention_backend == "torch_native" else "torch Flex Attention"
        say(f"Cuda graph is disabled because of using {name}{' attention' if 'native' in name else ''} backend")
        s.graphs = False
        if s.spec and s.attention_backend == "flex_attention":
            raise Refusal(
                "AssertionError",
                "Speculative decoding is currently not supported with Flex Attention backend",
                "args-attention",
            )
    if s.attention_backend == "trtllm_mla" and sm < 100:
        raise Refusal(
            "ValueError",
            "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x). Please use a different backend.",
            "args-attention",
        )
    if s.attention_backend == "trtllm_mha" and not 100 <= sm < 120:
        raise Refusal(
            "ValueError",
            "TRTLLM MHA backend is only supported on Blackwell GPUs (SM100). Please use a different backend.",
            "args-attention",
        )


def _page(s: Settings) -> None:
    sizes = {"flashmla": 64, "cutlass_mla": 128, "fa4": 128}
    s.page_size = sizes.get(s.attention_backend, s.page_size)


def _speculation(s: Settings, values: Mapping[str, Value], say: Callable[[str], None]) -> None:
    if s.spec is None:
        return
    steps, topk, tokens = (
        _int(values, n) for n in ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
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


def _spec_generation(s: Settings, topk: int | None, say: Callable[[str], None]) -> None:
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


def _final_checks(s: Settings) -> None:
    """`check_server_args`."""
    if ":" in s.served_name:
        raise Refusal(
            "AssertionError",
            "served_model_name cannot contain a colon (':') character. The colon is reserved for the 'model:adapter' syntax "
            f"used in LoRA adapter specification. Invalid value: '{s.served_name}'",
            "args-check",
        )
    if s.chunked > 0 and s.chunked % s.page_size:
        raise Refusal("AssertionError", "chunked_prefill_size must be divisible by page_size", "args-check")
