"""A launch as SGLang resolves it: every value that the budget, the log and the API depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Value = str | int | float | bool | list[str] | None


class Refusal(Exception):
    """SGLang's own argument check ends the launch. `trace` names the traceback that the real one prints."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(message)
        self.kind, self.message, self.trace = kind, message, trace


@dataclass(slots=True)
class Settings:
    """Resolved arguments of one launch; filled by `rules.resolve` from what was typed."""

    version: str
    model_path: str
    typed: Mapping[str, Value]
    env: Mapping[str, str]
    tp: int = 1
    host: str = "127.0.0.1"
    port: int = 30000
    served_name: str = ""
    load_format: str = "auto"
    context_length: int | None = None
    mem_fraction: float = 0.0
    max_running: int | None = None
    max_total_tokens: int | None = None
    max_prefill_tokens: int = 16384
    chunked: int = 4096
    graph_max_bs: int = 32
    graphs: bool = True
    piecewise: bool = False
    piecewise_asked_off: bool = False
    page_size: int = 1
    spec: str | None = None
    spec_steps: int = 0
    spec_topk: int = 0
    spec_tokens: int = 0
    strategy: str = "no_buffer"
    radix: bool = True
    overlap: bool = True
    track_interval: int = 256
    mamba_ratio: float = 0.9
    max_mamba: int | None = None
    ssm_dtype: str = "float32"
    kv_dtype: str = "auto"
    attention_backend: str = "flashinfer"
    sampling_backend: str = "flashinfer"
    mm_backend: str = "triton_attn"
    allreduce_fusion: bool = False
    reasoning_parser: str | None = None
    tool_parser: str | None = None
    api_key: str | None = None
    metrics: bool = False
    warmup: bool = True
    seed: int = 0
    language_only: bool = False
    torch_compile: bool = False
    notes: list[str] = field(default_factory=list)
    """Lines that SGLang prints while it resolves the arguments, in order."""

    @property
    def modern(self) -> bool:
        """0.5.23's order: draft weights before the pools."""
        return self.version == "0.5.23"

    @property
    def release(self) -> tuple[int, ...]:
        return tuple(int(p) for p in self.version.split("."))
