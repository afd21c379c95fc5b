"""Failures that do not come from memory: kernels for another GPU, damaged shards, too few cards, tensors that do
not divide.
"""

from __future__ import annotations

from opsagent_lab.engine.launch import Launch, Shard, Trouble
from opsagent_lab.engine.shape import TEXT_ARCHITECTURES

NO_KERNEL = (
    "CUDA error: no kernel image is available for execution on the device\n"
    "Search for `cudaErrorNoKernelImageForDevice' in "
    "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html "
    "for more information.\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)


class Fault(Exception):
    """Every scheduler ends with this trouble."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


def runs_on(archs: tuple[str, ...], sm: int) -> bool:
    """Whether code built for `archs` runs on a card: the same major version, and a minor one that is not newer."""
    if not archs:
        return True
    built = [int(a.removeprefix("sm_").rstrip("af")) for a in archs if a.startswith("sm_")]
    return any(b // 10 == sm // 10 and b % 10 <= sm % 10 for b in built)


def torch_warning(launch: Launch) -> str:
    """What torch prints when it meets a card that it was not built for; '' when it was."""
    gpu = launch.gpus[0]
    if runs_on(launch.torch_archs, gpu.sm):
        return ""
    built = " ".join(launch.torch_archs)
    return (
        f"{launch.site}/torch/cuda/__init__.py:304: UserWarning: \n"
        f"{gpu.name} with CUDA capability sm_{gpu.sm} is not compatible with the current PyTorch installation.\n"
        f"The current PyTorch install supports CUDA capabilities {built}.\n"
        f"If you want to use the {gpu.name} GPU with PyTorch, please check the instructions at "
        "https://pytorch.org/get-started/locally/\n\n  warnings.warn("
    )


def kernel_trouble(launch: Launch, *, at: str) -> Trouble | None:
    """`at` load: torch itself has no code for the card; `at` graphs or first: SGLang's kernels have none."""
    sm = launch.gpus[0].sm
    if at == "load":
        if runs_on(launch.torch_archs, sm):
            return None
        return Trouble("no-kernel-load", "torch.AcceleratorError", NO_KERNEL, "torch-build-predates-gpu")
    if launch.shape.quant == "fp8" and sm < 89:
        inner = "type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')"
        return _inside_capture(f"at 1:0:\n{inner}", f"ValueError: {inner}", "quant-format-gpu-unsupported", at)
    if not launch.nvcc and launch.settings.attention_backend == "flashinfer":
        inner = "Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"
        return _inside_capture(inner, f"RuntimeError: {inner}", "cuda-toolkit-not-found", at)
    if runs_on(launch.kernel_archs, sm):
        return None
    return _inside_capture(NO_KERNEL, f"torch.AcceleratorError: {NO_KERNEL}", "kernel-arch-missing", at)


def hangs(launch: Launch) -> bool:
    """Whether the first collective never ends: peer copies that the machine cannot do, and nobody switched them off."""
    off = launch.settings.env.get("NCCL_P2P_DISABLE") == "1"
    return launch.settings.tp > 1 and not launch.p2p and not off


def _inside_capture(message: str, inner: str, cause: str, at: str) -> Trouble:
    from opsagent_lab.engine.traces import ADVICE

    if at != "graphs":
        kind, _, rest = inner.partition(": ")
        return Trouble("first-forward", kind, rest, cause)
    return Trouble(
        "graph-failed", "Exception", f"Capture cuda graph failed: {message}\n{ADVICE}", cause, {"inner": inner}
    )


def shard_trouble(launch: Launch, shard: Shard) -> Trouble:
    """A weight file that cannot be read, or does not belong to this config."""
    if shard.wrong == "shape":
        vocab = launch.shape.vocab
        text = f"self.org_vocab_size={vocab} self.use_presharded_weights=False loaded_weight.shape[output_dim]=8"
        return Trouble("shape-mismatch", "AssertionError", text, "checkpoint-shape-mismatch")
    inner = {"pointer": "header too large"}.get(shard.wrong, "incomplete metadata, file not fully covered")
    return Trouble(
        "shard-corrupt",
        "safetensors._safetensors_rust.SafetensorError",
        f"Error while deserializing header: {inner}",
        "checkpoint-shard-corrupt",
    )


def startup_trouble(launch: Launch) -> Trouble | None:
    """What stops the ranks before they have a model: too few cards, an unknown class, tensors that do not divide."""
    s, shape = launch.settings, launch.shape
    if s.tp > len(launch.gpus):
        return Trouble(
            "device-ordinal",
            "torch.AcceleratorError",
            "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n"
            "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
            "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
            "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n",
            "gpu-index-out-of-range",
        )
    if shape.architecture not in TEXT_ARCHITECTURES:
        known = ", ".join(f"'{a}'" for a in sorted(TEXT_ARCHITECTURES))
        return Trouble(
            "arch-unsupported",
            "ValueError",
            f"Model architectures ['{shape.architecture}'] are not supported for now. "
            f"Supported architectures: dict_keys([{known}])",
            "arch-not-supported",
        )
    if shape.heads % s.tp or (s.tp > shape.kv_heads and s.tp % shape.kv_heads):
        return Trouble("tp-divide", "AssertionError", "", "tp-size-not-divisible")
    if shape.width % s.tp:
        return Trouble(
            "tp-divide", "AssertionError", f"{shape.width} is not divisible by {s.tp}", "tp-size-not-divisible"
        )
    return None
