"""Which attention backend SGLang takes when none is named."""

from __future__ import annotations

from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.values import Values


def default_attention(values: Values, spec: ModelSpec, gpu: GpuFacts) -> str:
    """`_get_default_attn_backend` (server_args.py of 0.5.11), with FlashInfer installed, as it is with every release."""
    major = (gpu.sm or (0, 0))[0]
    algorithm, topk = values.get("speculative_algorithm"), values.get("speculative_eagle_topk")
    if spec.mla is not None:
        return {9: "fa3", 10: "flashinfer"}.get(major, "triton")
    if topk is not None and (int(topk) > 1 or int(values.get("page_size") or 1) > 1):
        return "flashinfer"
    if major == 9:
        return "fa3"
    return "trtllm_mha" if major == 10 and (algorithm is None or topk is not None) else "flashinfer"
