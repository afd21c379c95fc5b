"""Lines that look like trouble and are not, and those that only a model with vision prints."""

from __future__ import annotations

from collections.abc import Iterator

from opsagent_lab.engine.launch import Launch, ModelDir, Say

DEPRECATED_ENTRY = (
    "{site}/sglang/launch_server.py:{line}: UserWarning: 'python -m sglang.launch_server' is still supported, but "
    "'sglang serve' is the recommended entrypoint.\n  Example: sglang serve --model-path <model> [options]\n  warnings.warn("
)

_USE_FAST = (
    "[transformers] The `use_fast` parameter is deprecated and will be removed in a future version. Use "
    '`backend="torchvision"` instead of `use_fast=True`, or `backend="pil"` instead of `use_fast=False`.'
)
_FA3 = "Can not import FA3 in sgl_kernel. Please check your installation."
_TL_WHERE = (
    "{site}/triton/language/semantic.py:1670: UserWarning: tl.where with a non-boolean condition is deprecated and will "
    "error out in a future triton release. Got uint8\n  warnings.warn("
)
_BARRIER = (
    "{site}/torch/distributed/c10d_logger.py:83: UserWarning: barrier(): using the device under current context. You can "
    "specify `device_id` in `init_process_group` to mute this warning.\n  return func(*args, **kwargs)"
)


def generation_config_of(model: ModelDir, rank: int | None = None) -> Iterator[Say]:
    if model.generation_config:
        return
    path = model.path
    yield Say(
        f"Failed to load generation config for {path}: {path} does not appear to have a file named generation_config.json. "
        f"Checkout 'https://huggingface.co/{path}/tree/main' for available files.. Proceeding without generation config.",
        rank,
    )


def generation_config(launch: Launch, rank: int | None = None) -> Iterator[Say]:
    yield from generation_config_of(launch.model, rank)


def processor(launch: Launch, rank: int | None = None, *, announce: bool = True) -> Iterator[Say]:
    """The multimodal processor of a model with vision."""
    if launch.shape.vision is None:
        return
    if announce:
        yield Say(_USE_FAST, rank, stamp=False)
    if launch.model.generic_tokenizer:
        yield Say(
            f"Processor tokenizer for {launch.model.path} is TokenizersBackend, reloading via get_tokenizer", rank
        )


def tokenizer(launch: Launch, rank: int | None = None) -> Iterator[Say]:
    if not launch.model.generic_tokenizer:
        return
    path = launch.model.path
    yield Say(f"Tokenizer loaded as generic TokenizersBackend for {path}, retrying with use_fast=False", rank)
    yield Say(f"Loading tokenizer for {path} directly as PreTrainedTokenizerFast (bypassing AutoTokenizer)", rank)
    yield Say(
        f"Tokenizer for {path} loaded as generic TokenizersBackend. Set --trust-remote-code to load the model-specific "
        "tokenizer.",
        rank,
    )


def processor_import(launch: Launch, rank: int | None = None) -> Iterator[Say]:
    """The import of an audio and video processor that this model does not use."""
    if launch.shape.vision is None or launch.torchcodec == "ok":
        return
    head = "Ignore import error when loading sglang.srt.multimodal.processors.mimo_v2: "
    if launch.torchcodec == "missing":
        yield Say(f"{head}No module named 'torchcodec'", rank)
    else:
        yield Say(head + _libavutil(launch.site), rank)


def _libavutil(site: str) -> str:
    """What torchcodec says on a machine without FFmpeg: frightening, and only about video."""
    out = [
        "Could not load libtorchcodec. Likely causes:",
        "          1. FFmpeg is not properly installed in your environment. We support",
        "             versions 4, 5, 6, 7, and 8, and we attempt to load libtorchcodec",
        "             for each of those versions. Errors for versions not installed on",
        "             your system are expected; only the error for your installed FFmpeg",
        "             version is relevant. On Windows, ensure you've installed the",
        '             "full-shared" version which ships DLLs.',
        "        The following exceptions were raised as we tried to load libtorchcodec:",
        "        ",
        "[start of libtorchcodec loading traceback]",
    ]
    for version, library in ((8, 60), (7, 59), (6, 58), (5, 57), (4, 56)):
        out += [
            f"FFmpeg version {version}:",
            "Traceback (most recent call last):",
            f'  File "{site}/torch/_ops.py", line 1488, in load_library',
            "    ctypes.CDLL(path)",
            f"OSError: libavutil.so.{library}: cannot open shared object file: No such file or directory",
            "",
            "The above exception was the direct cause of the following exception:",
            "",
            "Traceback (most recent call last):",
            f'  File "{site}/torchcodec/_core/ops.py", line 57, in load_torchcodec_shared_libraries',
            "    torch.ops.load_library(core_library_path)",
            f"OSError: Could not load this library: {site}/torchcodec/libtorchcodec_core{version}.so",
        ]
    return "\n".join([*out, "[end of libtorchcodec loading traceback]."])


def model_imports(launch: Launch, rank: int | None = None) -> Iterator[Say]:
    for module in (
        ("mimo_audio", "mimo_v2", "mimo_v2_nextn") if launch.settings.release >= (0, 5, 11) else ("mimo_audio",)
    ):
        yield Say(f"Ignore import error when loading sglang.srt.models.{module}: {_FA3}", rank)


def building(launch: Launch, rank: int | None = None) -> Iterator[Say]:
    """What the model's constructor prints."""
    if launch.shape.vision is not None:
        backend = launch.settings.mm_backend
        yield Say(f"Multimodal attention backend not set. Use {backend}.", rank)
        yield Say(f"Using {backend} as multimodal attention backend.", rank)
    if launch.shape.hybrid:
        yield Say("[transformers] `torch_dtype` is deprecated! Use `dtype` instead!", rank, stamp=False)
    if launch.shape.gated_output:
        yield Say("using attn output gate!", rank)


def linear_backend(launch: Launch, rank: int | None) -> Iterator[Say]:
    if not launch.shape.hybrid:
        return
    if not rank:
        yield Say("Linear attention kernel backend: decode=triton, prefill=triton", rank)
    yield Say("Using hybrid linear attention backend for hybrid GDN models.", rank)
    if not rank:
        yield Say(
            "GDN kernel dispatcher: decode=TritonGDNKernel, extend=TritonGDNKernel, "
            "verify=TritonGDNKernel packed_decode=True",
            rank,
        )


def fused_allreduce(launch: Launch, rank: int) -> Iterator[Say]:
    """FlashInfer's all-reduce workspaces, on Hopper and datacentre Blackwell only."""
    if not launch.settings.allreduce_fusion:
        return
    unit = launch.shape.hidden * 8192
    for _round in range(2):
        for i, offset in enumerate((unit, 2 * 2**20, 3 * unit)):
            yield Say(
                f"[SymmDeviceMemory] Rank: {rank}, Group size: {launch.settings.tp}, device_idx: {rank}, "
                f"Signal pad offset: {offset}",
                rank,
            )
            if rank == 0 and _round == 0 and i in (0, 2):
                yield Say(_BARRIER.format(site=launch.site), rank, stamp=False)
        yield Say(
            f"FlashInfer workspace initialized for rank {rank}, world_size {launch.settings.tp}, backend trtllm", rank
        )


def moe_configs(launch: Launch) -> Iterator[Say]:
    """No tuned kernel configuration for this card and these expert sizes: slower, not broken."""
    experts = launch.shape.experts
    if experts is None:
        return
    folder = f"{launch.site}/sglang/srt/layers/moe/moe_runner/triton_utils/configs"
    name = (
        f"E={experts.count},N={experts.width // launch.settings.tp},device_name={launch.gpus[0].name.replace(' ', '_')}"
    )
    rank = 0 if launch.settings.tp > 1 else None
    yield Say(
        f"Config file not found at {folder}/triton_3_6_0/{name}.json. Fallback to triton version 3.2.0 and use MoE kernel "
        f"config from {folder}/triton_3_2_0/{name}.json. Performance might be sub-optimal!",
        rank,
    )
    yield Say(
        "Using MoE kernel config with down_moe=False. Performance might be sub-optimal! Config file not found at "
        f"{folder}/triton_3_6_0/{name}_down.json, you can create them with "
        "https://github.com/sgl-project/sglang/tree/main/benchmark/kernels/fused_moe_triton",
        rank,
    )


def triton_warning(launch: Launch) -> Say:
    return Say(_TL_WHERE.format(site=launch.site), stamp=False)
