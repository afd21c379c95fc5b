"""SGLang's own argument checks, in its order and words: from typed flags to resolved `Settings`, or a `Refusal`.

Sources: server_args.py of 0.5.9 (:1699, :2330), 0.5.10 (:2123, :2959) and 0.5.11 (:2366, :3286),
arg_groups/mamba_hook.py and
overrides.py of 0.5.23, configs/model_config.py (context length). The typed flags come in as a mapping from argparse
destination (`tp_size`) to value.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from opsagent_lab.engine import defaults
from opsagent_lab.engine.hardware import Gpu
from opsagent_lab.engine.hybrid_rules import nemotron, state_strategy
from opsagent_lab.engine.settings import Refusal, Settings, Value
from opsagent_lab.engine.shape import KNOWN_MODEL_TYPES, Shape
from opsagent_lab.engine.spec_rules import speculation
from opsagent_lab.engine.typed import Note, integer, on, text

_FUSED_ALLREDUCE = frozenset(
    {
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3NextForCausalLM",
        "Qwen3MoeForCausalLM",
    }
)


def resolve(
    version: str,
    values: Mapping[str, Value],
    env: Mapping[str, str],
    shape: Shape,
    gpus: Sequence[Gpu],
    *,
    note: Note = lambda _text: None,
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
    speculation(s, values, say)
    _final_checks(s)
    return s


def _recorder(s: Settings, note: Note) -> Note:
    def say(text: str) -> None:
        s.notes.append(text)
        note(text)

    return say


def _plain(version: str, values: Mapping[str, Value], env: Mapping[str, str], shape: Shape) -> Settings:
    path = str(values.get("model_path"))
    spec = text(values, "speculative_algorithm")
    strategy = text(values, "mamba_scheduler_strategy") or text(values, "mamba_radix_cache_strategy") or "auto"
    ssm = text(values, "mamba_ssm_dtype") or env.get("SGLANG_MAMBA_SSM_DTYPE")
    return Settings(
        version=version,
        model_path=path,
        typed=values,
        env=env,
        tp=integer(values, "tp_size", 1) or 1,
        host=text(values, "host", "127.0.0.1") or "127.0.0.1",
        port=integer(values, "port", 30000) or 30000,
        served_name=text(values, "served_model_name") or path,
        load_format=text(values, "load_format", "auto") or "auto",
        context_length=integer(values, "context_length"),
        max_running=integer(values, "max_running_requests"),
        max_total_tokens=integer(values, "max_total_tokens"),
        max_prefill_tokens=integer(values, "max_prefill_tokens", 16384) or 16384,
        graphs=not on(values, "disable_cuda_graph"),
        piecewise_asked_off=on(values, "disable_piecewise_cuda_graph"),
        page_size=integer(values, "page_size", 1) or 1,
        spec="EAGLE" if spec == "NEXTN" else spec,
        strategy=strategy,
        radix=not on(values, "disable_radix_cache"),
        overlap=not on(values, "disable_overlap_schedule"),
        track_interval=integer(values, "mamba_track_interval", 256) or 256,
        mamba_ratio=float(str(values.get("mamba_full_memory_ratio") or 0.9)),
        max_mamba=integer(values, "max_mamba_cache_size"),
        ssm_dtype=ssm or (shape.linear.ssm_dtype if shape.linear else "float32"),
        kv_dtype=text(values, "kv_cache_dtype", "auto") or "auto",
        reasoning_parser=text(values, "reasoning_parser"),
        tool_parser=text(values, "tool_call_parser"),
        api_key=text(values, "api_key"),
        metrics=on(values, "enable_metrics"),
        warmup=not on(values, "skip_server_warmup"),
        seed=integer(values, "random_seed") or random.randrange(1, 2**30),
        language_only=on(values, "language_only"),
        torch_compile=on(values, "enable_torch_compile"),
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
    words = (
        f"Warning: User-specified context_length ({s.context_length}) is greater than the derived context_length "
        f"({shape.max_context}). This may lead to incorrect model outputs or CUDA errors. Note that the derived "
        "context_length may differ from max_position_embeddings in the model's config."
    )
    allowed = s.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "").lower() in ("1", "true", "yes", "y")
    if not allowed:
        raise Refusal(
            "ValueError",
            f"{words} To allow overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
            "args-context",
        )
    s.notes.append(words)


def _memory(s: Settings, values: Mapping[str, Value], shape: Shape, gpus: Sequence[Gpu]) -> None:
    total = min(g.total_mib for g in gpus)
    chunk, graphs = defaults.chunk_and_graphs(total, s.tp, s.version)
    s.chunked = integer(values, "chunked_prefill_size", chunk) or chunk
    s.graph_max_bs = integer(values, "cuda_graph_max_bs") or integer(values, "cuda_graph_max_bs_decode") or graphs
    if s.modern and s.max_running is not None:
        s.graph_max_bs = min(s.graph_max_bs, s.max_running)
    off = text(values, "cuda_graph_backend_prefill") == "disabled"
    s.piecewise = (
        (s.modern and s.graphs and not off)
        or (
            s.version in ("0.5.10", "0.5.11")
            and not s.piecewise_asked_off
            and shape.vision is None
            and not s.torch_compile
            and not shape.hybrid
        )
        or (s.version == "0.5.9" and on(values, "enable_piecewise_cuda_graph"))
    )
    asked = values.get("mem_fraction_static")
    s.mem_fraction = float(str(asked)) if asked is not None else defaults.mem_fraction(s, shape, total)


def _model_specific(s: Settings, values: Mapping[str, Value], shape: Shape, gpus: Sequence[Gpu], say: Note) -> None:
    if shape.architecture == "NemotronHForCausalLM":
        nemotron(s, values, say)
    elif shape.hybrid:
        state_strategy(s, values, shape, say)
    sm = min(g.sm for g in gpus)
    if (
        s.tp > 1
        and 90 <= sm < 120
        and s.release >= (0, 5, 10)
        and shape.architecture in _FUSED_ALLREDUCE
        and not on(values, "enforce_disable_flashinfer_allreduce_fusion")
    ):
        s.allreduce_fusion = True
        say(f"Auto-enabling FlashInfer AllReduce Fusion on SM90/SM10X for {shape.architecture}")


def _attention(s: Settings, values: Mapping[str, Value], gpus: Sequence[Gpu], say: Note) -> None:
    sm = min(g.sm for g in gpus)
    s.mm_backend = {9: "fa3", 10: "fa4"}.get(sm // 10, "triton_attn")
    s.sampling_backend = text(values, "sampling_backend", "flashinfer") or "flashinfer"
    asked = text(values, "attention_backend")
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
