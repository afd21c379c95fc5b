"""What SGLang's ServerArgs refuses although argparse accepted it, in the order in which it is checked, with its own words.

Source: server_args.py of 0.5.11 (`_handle_model_specific_adjustments` on), layers/attention/attention_registry.py
for kernels that a
card does not have. Versions that are milder are in `arithmetic.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsagent_tools.sglang.attention import default_attention
from opsagent_tools.sglang.case import Case, Failed
from opsagent_tools.sglang.quant import read_quant
from opsagent_tools.sglang.settings import Settings
from opsagent_tools.sglang.values import Values

COMPATIBLE = {
    "modelopt_fp8": {"modelopt"}, "modelopt_fp4": {"modelopt"}, "modelopt_mixed": {"modelopt"}, "petit_nvfp4": {"modelopt"},
    "w8a8_int8": {"compressed-tensors"}, "w8a8_fp8": {"compressed-tensors"}, "awq_marlin": {"awq"}, "gptq_marlin": {"gptq"},
    "moe_wna16": {"awq", "gptq"}, "marlin": {"gptq"}, "awq": {"awq_marlin"}, "gptq": {"gptq_marlin"},
}  # fmt: skip
GPT_OSS_BACKENDS = ("triton", "trtllm_mha", "fa3", "fa4", "ascend", "intel_xpu", "aiter")
LLAMA4_BACKENDS = ("fa3", "aiter", "triton", "ascend", "trtllm_mha", "intel_xpu")
FLA_CHUNK = 64
KV4_MHA: tuple[str, ...] = ("triton", "torch_native", "flex_attention", "trtllm_mha")
KV4_MLA: tuple[str, ...] = ("cutlass_mla", "flashinfer", "trtllm_mla", "flashmla")


def argument_refusal(case: Case, values: Values, settings: Settings) -> Failed | None:
    """The first rule that these arguments break, None when SGLang accepts them."""
    return next(_broken(case, values, settings), None)


def _failed(cause: str, words: str, fix: str) -> Failed:
    return Failed("arg-rejected", cause, words, fix)


def _broken(case: Case, values: Values, settings: Settings) -> Iterator[Failed]:
    yield from _quantization(case, values)
    yield from _state_cache(case, values, settings)
    yield from _backends(case, values, settings)
    yield from _parallel(values, settings)
    yield from _speculation(case, values, settings)
    yield from _rest(case, values, settings)
    yield from _kernels(case, values, settings)


def _quantization(case: Case, values: Values) -> Iterator[Failed]:
    flag, method = values.get("quantization"), read_quant(case.spec.quantization).method
    if flag and method and flag not in ("unquant", method) and method not in COMPATIBLE.get(str(flag), ()):
        words = (
            f"ValueError: Quantization method specified in the model config ({method}) does not match "
            "the quantization method "
            f"specified in the `quantization` argument ({flag})."
        )
        yield _failed("quant-flag-mismatch", words, "without --quantization: the checkpoint says how it is quantised")


def _state_cache(case: Case, values: Values, settings: Settings) -> Iterator[Failed]:
    """Hybrid models: strategies of the state cache (`_handle_mamba_radix_cache`)."""
    spec, rules, arch = case.spec, case.rules, case.spec.architecture
    if not spec.is_hybrid:
        return
    buffered = settings.strategy.startswith("extra_buffer")
    radix_off = bool(values.get("disable_radix_cache"))
    if buffered and arch in rules.no_extra_buffer:
        yield _failed(
            "extra-buffer-unsupported",
            f"AssertionError: mamba extra_buffer is not supported for {arch} model",
            "no_buffer",
        )
    if buffered and radix_off and rules.extra_buffer_needs_radix:
        words = (
            "ValueError: mamba extra_buffer is not compatible with --disable-radix-cache Overlap "
            "scheduling is already supported "
            "with no_buffer + disable_radix_cache. Please use --mamba-scheduler-strategy no_buffer instead."
        )
        yield _failed("extra-buffer-unsupported", words, "without --disable-radix-cache, or with no_buffer")
    if buffered:
        yield from _track_interval(values)
    elif settings.radix and settings.page_size != 1 and not rules.no_buffer_sets_page:
        words = f"AssertionError: Page size must be 1 for MambaRadixCache v1, got {settings.page_size}"
        yield _failed("hybrid-cache-args-invalid", words, "without --page-size")
    elif settings.radix and settings.spec is not None and rules.no_buffer_refuses_spec:
        words = (
            f"ValueError: Speculative decoding for {arch} is not compatible with radix cache when using "
            "--mamba-scheduler-strategy no_buffer.To use radix cache with speculative decoding, please use "
            "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1."
        )
        yield _failed("spec-needs-extra-buffer", words, "--mamba-scheduler-strategy extra_buffer")
    if arch in ("NemotronHForCausalLM", "Lfm2ForCausalLM") and values.get("attention_backend") == "triton":
        name = "NemotronHForCausalLM" if arch.startswith("Nemo") else arch
        gap = "" if arch.startswith("Nemo") else " "
        words = (
            f"AssertionError: {name} does not support triton attention backend,{gap}as the first "
            "layer might not be an attention layer"
        )
        yield _failed("attn-backend-model-unsupported", words, "--attention-backend flashinfer")


def _track_interval(values: Values) -> Iterator[Failed]:
    interval = int(values.get("mamba_track_interval") or 256)
    draft, page = values.get("speculative_num_draft_tokens"), values.get("page_size")
    if draft is not None and interval < int(draft):
        words = (
            f"AssertionError: mamba_track_interval {interval} must be greater than or equal to "
            f"speculative_num_draft_tokens {draft}"
        )
        yield _failed("hybrid-cache-args-invalid", words, f"--mamba-track-interval {draft} or more")
    if page is not None and interval % int(page):
        words = f"AssertionError: mamba_track_interval {interval} must be divisible by page_size {page}"
        yield _failed("hybrid-cache-args-invalid", words, "a page size that divides the interval")
    if page is not None and max(FLA_CHUNK, int(page)) % min(FLA_CHUNK, int(page)):
        words = (
            "AssertionError: For SSM models with extra buffer, either FLA_CHUNK_SIZE or page_size "
            "must be divisible by the other, got "
            f"FLA_CHUNK_SIZE={FLA_CHUNK}, self.page_size={page}"
        )
        yield _failed("hybrid-cache-args-invalid", words, "a page size that divides 64, or a multiple of it")


def _backends(case: Case, values: Values, settings: Settings) -> Iterator[Failed]:
    arch, sm = case.spec.architecture, case.gpu.sm
    both = values.get("attention_backend")
    yield from _fp4_cache(case, values)
    chosen = {str(values.get(f"{kind}_attention_backend") or both or "") for kind in ("prefill", "decode")} - {""}
    if arch == "GptOssForCausalLM" and chosen - set(GPT_OSS_BACKENDS):
        words = (
            f"AssertionError: GptOssForCausalLM requires one of {list(GPT_OSS_BACKENDS)} "
            f"attention backend, but got {sorted(chosen)}"
        )
        yield _failed("attn-backend-model-unsupported", words, "--attention-backend triton")
    if arch.startswith("Llama4") and both and both not in LLAMA4_BACKENDS:
        words = (
            "AssertionError: fa3, aiter, triton, ascend, trtllm_mha or intel_xpu is required for Llama4 model but got "
            f"{both}"
        )
        yield _failed("attn-backend-model-unsupported", words, "--attention-backend triton")
    if sm is None:
        return
    if "trtllm_mla" in chosen and sm[0] < 10:
        words = (
            "ValueError: TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x). "
            "Please use a different backend."
        )
        yield _failed("attn-backend-gpu-unsupported", words, "another --attention-backend")
    if "trtllm_mha" in chosen and (values.get("prefill_attention_backend") or both) == "trtllm_mha" and sm[0] != 10:
        words = (
            "ValueError: TRTLLM MHA backend for prefill is only supported on Blackwell GPUs (SM100). "
            "Please use a different prefill "
            "backend."
        )
        yield _failed("attn-backend-gpu-unsupported", words, "another --attention-backend")


def _fp4_cache(case: Case, values: Values) -> Iterator[Failed]:
    """`_handle_kv4_compatibility`: a KV cache in fp4 needs a backend that reads it; the default one often does not."""
    sm, mla = case.gpu.sm, case.spec.mla is not None
    if values.get("kv_cache_dtype") != "fp4_e2m1" or sm is None:
        return
    both = values.get("attention_backend") or default_attention(values, case.spec, case.gpu)
    prefill, decode = (values.get(f"{kind}_attention_backend") or both for kind in ("prefill", "decode"))
    if prefill != decode and prefill != "fa4":
        return
    kind, able = ("MLA", KV4_MLA) if mla else ("MHA", KV4_MHA)
    able = able[:3] if prefill == "fa4" else able
    if decode not in able:
        words = f"AssertionError: KV4 {kind} expects attention_backend to be one of {list(able)}, but got {decode}"
        yield _failed("attn-backend-model-unsupported", words, f"--attention-backend {able[0]}")


def _parallel(values: Values, settings: Settings) -> Iterator[Failed]:
    if settings.dp > 1 and settings.tp % settings.dp:
        yield _failed("tp-size-not-divisible", "AssertionError (tp_size % dp_size == 0)", "--tp a multiple of --dp")
    ep = int(values.get("ep_size") or 1)
    if ep > 1 and settings.tp % ep:
        yield _failed(
            "tp-size-not-divisible", f"AssertionError: {settings.tp} is not divisible by {ep}", "--ep a divisor of --tp"
        )


def _speculation(case: Case, values: Values, settings: Settings) -> Iterator[Failed]:
    spec = settings.spec
    if spec is None:
        return
    if settings.dp > 1 and spec.algorithm in ("STANDALONE", "NGRAM", "DFLASH"):
        name = spec.algorithm if spec.algorithm == "DFLASH" else spec.algorithm.lower()
        words = f"ValueError: Currently {name} speculative decoding does not support dp attention."
        yield _failed("spec-args-incomplete", words, "without --enable-dp-attention")
    if spec.algorithm in ("EAGLE", "EAGLE3", "STANDALONE"):
        yield from _chain(values, settings)
    if spec.algorithm in ("STANDALONE", "DFLASH", "EAGLE3") and not values.get("speculative_draft_model_path"):
        words = f"{spec.algorithm} speculative decoding requires setting --speculative-draft-model-path."
        if spec.algorithm == "DFLASH":
            yield _failed(
                "spec-args-incomplete", f"ValueError: {words}", "--speculative-draft-model-path with the draft's folder"
            )


def _chain(values: Values, settings: Settings) -> Iterator[Failed]:
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    steps, topk, draft = (values.get(name) for name in names)
    fix = "--speculative-num-steps, --speculative-eagle-topk and --speculative-num-draft-tokens together"
    if steps is None and (topk is not None or draft is not None):
        yield _failed("spec-args-incomplete", "AssertionError", fix)
    if steps is not None and topk is None:
        words = "TypeError: '>' not supported between instances of 'NoneType' and 'int'"
        yield _failed("spec-args-incomplete", words, fix)
    if topk is not None and int(topk) > 1:
        backend = values.get("attention_backend")
        if "trtllm_mha" in (backend, values.get("decode_attention_backend"), values.get("prefill_attention_backend")):
            words = "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding."
            yield _failed("spec-topk-unsupported", words, "--speculative-eagle-topk 1")
        if settings.page_size > 1 and backend not in ("flashinfer", "fa3", None):
            words = (
                "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces "
                "incorrect results for paged "
                "attention backends. This combination is only supported for the 'flashinfer' backend."
            )
            yield _failed("spec-topk-unsupported", words, "--page-size 1")


def _rest(case: Case, values: Values, settings: Settings) -> Iterator[Failed]:
    if values.get("enable_hierarchical_cache") and not settings.radix:
        words = (
            "ValueError: The arguments enable-hierarchical-cache and disable-radix-cache are "
            "mutually exclusive and cannot be used "
            "at the same time. Please use only one of them."
        )
        yield _failed("invalid-flag-value", words, "one of the two")
    if not 0 < settings.swa_ratio <= 1:
        words = "ValueError: --swa-full-tokens-ratio should be in range (0, 1.0]."
        yield _failed("invalid-flag-value", words, "--swa-full-tokens-ratio 0.8")
    mixed = case.rules.pp_refuses_mixed_chunk and bool(values.get("enable_mixed_chunk"))
    if settings.pp > 1 and (settings.spec is not None or mixed):
        words = "AssertionError: Pipeline parallelism is not compatible with overlap schedule, speculative decoding"
        yield _failed("spec-args-incomplete", words, "without speculation, or --pp 1")
    if settings.chunked_prefill > 0 and settings.chunked_prefill % settings.page_size:
        words = "AssertionError: chunked_prefill_size must be divisible by page_size"
        yield _failed("invalid-flag-value", words, f"--chunked-prefill-size a multiple of {settings.page_size}")
    policy = values.get("schedule_policy", "fcfs")
    if values.get("enable_priority_scheduling") and policy not in ("fcfs", "lof"):
        words = (
            "AssertionError: To use priority scheduling, schedule_policy must be 'fcfs' or 'lof'. "
            f"'{policy}' is not supported."
        )
        yield _failed("invalid-flag-value", words, "--schedule-policy fcfs")
    if values.get("enable_two_batch_overlap") and settings.a2a == "none":
        words = "ValueError: When enabling two batch overlap, moe_a2a_backend cannot be 'none'."
        yield _failed("invalid-flag-value", words, "--moe-a2a-backend deepep, or without --enable-two-batch-overlap")
    yield from _lora(values)


def _lora(values: Values) -> Iterator[Failed]:
    """`check_lora_server_args`."""
    if not (values.get("enable_lora") or values.get("lora_paths")):
        return
    if values.get("speculative_algorithm") not in ("NGRAM", None):
        words = "ValueError: Currently LoRA is only compatible with NGRAM speculative decoding."
        yield _failed("spec-args-incomplete", words, "without speculation, or without LoRA")
    if not values.get("lora_paths") and not (values.get("max_lora_rank") and values.get("lora_target_modules")):
        words = (
            "AssertionError: When no initial --lora-paths is provided, you need to specify both --max-lora-rank and "
            "--lora-target-modules for LoRA initialization."
        )
        yield _failed("invalid-flag-value", words, "--lora-paths, or --max-lora-rank and --lora-target-modules")


def _kernels(case: Case, values: Values, settings: Settings) -> Iterator[Failed]:
    """Backends that stop when they are made, after the pools: the arguments alone are not refused."""
    spec, sm = case.spec, case.gpu.sm
    backend = values.get("attention_backend")
    if backend == "fa3" and sm is not None and not (sm[0] == 9 or (sm[0] == 8 and spec.mla is None)):
        words = (
            "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use "
            "`--attention-backend flashinfer`."
        )
        yield _failed("attn-backend-gpu-unsupported", words, "--attention-backend flashinfer")
    if spec.architecture == "GraniteMoeHybridForCausalLM" and backend == "triton" and spec.layers[0].mixer == "linear":
        full = [index for index, layer in enumerate(spec.layers) if layer.mixer == "full"]
        words = f"ValueError: layer_id=0 not in full attention layers: dict_keys({full})"
        yield _failed("attn-backend-model-unsupported", words, "--attention-backend flashinfer")
