"""How a launch divides the memory: the state pool, the KV pool and the number of requests, by SGLang version.

0.5.9 to 0.5.11 (model_runner_kv_cache_mixin.py): what is left over after weights and the non-static share is charged
with the
speculative state of the *asked-for* number of requests, split between recurrent state and KV, and only then it turns out how
many requests the slots are good for. 0.5.23 (mem_cache/kv_cache_configurator.py) solves for slots and intermediates
together.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsagent_lab.engine.card import GIB, MIB
from opsagent_lab.engine.settings import Settings
from opsagent_lab.engine.shape import Shape

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


class NoRoom(Exception):
    """The sizing itself fails. `kind` is one of pool, state, requests; `detail` is SGLang's sentence."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


@dataclass(frozen=True, slots=True)
class State:
    """Recurrent state of one request slot, in bytes, over all linear layers."""

    conv: int
    ssm: int

    @property
    def size(self) -> int:
        return self.conv + self.ssm


@dataclass(frozen=True, slots=True)
class Sizing:
    """What one launch gets: `tokens` and `requests` are the limits that a user meets; `slots` is None without state."""

    tokens: int
    requests: int
    slots: int | None
    state: State | None


def state_of(shape: Shape, s: Settings) -> State | None:
    """configs/mamba_utils.py: convolution window and state matrix of one slot on one rank."""
    lin = shape.linear
    if lin is None:
        return None
    inner = lin.value_heads * lin.value_dim
    channels = inner + 2 * lin.key_heads * lin.key_dim
    conv = channels // s.tp * (lin.kernel - 1) * _DTYPE_BYTES[s.env.get("SGLANG_MAMBA_CONV_DTYPE", "bfloat16")]
    ssm = lin.value_heads // s.tp * lin.value_dim * lin.key_dim * _DTYPE_BYTES[s.ssm_dtype]
    return State(conv * shape.linear_layers, ssm * shape.linear_layers)


def kv_element_bytes(s: Settings) -> int:
    return 1 if s.kv_dtype.startswith("fp8") else 2


def token_bytes(shape: Shape, s: Settings, layers: int | None = None) -> int:
    """Bytes of K and V of one token on one rank."""
    kv = max(1, shape.kv_heads // s.tp)
    return kv * 2 * shape.head_dim * (shape.attention_layers if layers is None else layers) * kv_element_bytes(s)


def slots_per_request(s: Settings) -> int:
    """How many state slots one running request may hold (radix snapshots and track buffers)."""
    if not s.radix:
        return 1
    if s.strategy == "no_buffer":
        return 3
    if s.strategy == "extra_buffer_lazy":
        return 4
    if s.version == "0.5.9":
        return 4 if s.spec else 5
    return 5 if s.overlap else 4


def context_of(shape: Shape, s: Settings) -> int:
    return s.context_length or shape.max_context


def _requests(s: Settings, shape: Shape, tokens: int) -> int:
    """Requests that the tokens are good for, before the slots have their say."""
    estimate = min(max(int(tokens / context_of(shape, s) * 512), 2048), 4096)
    if s.modern:
        return min(max(1, s.max_running or estimate), tokens // 2)
    if s.max_running is not None:
        return min(s.max_running, estimate)
    return estimate if s.version == "0.5.9" else min(estimate, tokens // 2)


def _slots(s: Settings, state: State, rest: int) -> tuple[int, int]:
    """(slots, bytes left for KV) for 0.5.9 to 0.5.11."""
    if s.spec:
        rest -= state.size * (s.max_running or 0) * s.spec_tokens
    if s.max_mamba is not None:
        slots = s.max_mamba
    elif not s.radix and s.max_running is not None:
        slots = s.max_running
    else:
        slots = int(rest * s.mamba_ratio / (1 + s.mamba_ratio) // state.size)
    return slots, rest - slots * state.size


def _slots_modern(s: Settings, state: State, rest: int) -> tuple[int, int]:
    """(slots, bytes left for KV) for 0.5.23: intermediates are charged for the requests that the slots can serve."""
    q, draft, cap = slots_per_request(s), s.spec_tokens if s.spec else 0, s.max_running or 10**6
    if s.max_mamba is not None or (not s.radix and s.max_running is not None):
        slots = s.max_mamba if s.max_mamba is not None else cap
        inner = (min(cap, slots // q) + 1) if s.radix else slots + 1
        return slots, rest - (slots + 1) * state.size - (state.size * inner * draft)
    half = rest * s.mamba_ratio / (1 + s.mamba_ratio)
    if draft:
        slots = int((half - state.size * (1 + draft)) // (state.size * (1 + draft / q)))
        rest -= state.size * (min(cap, slots // q) + 1) * draft
    else:
        slots = int((half - state.size) // state.size)
    return slots, rest - (slots + 1) * state.size


def _pool_message(s: Settings, post: int, pre: int, slots: int | None) -> str:
    if s.version == "0.5.9":
        return (
            "Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: self.server_args.mem_fraction_static={s.mem_fraction}"
        )
    if not s.modern:
        return "Not enough memory. Please try to increase --mem-fraction-static."
    if slots is not None:
        return (
            "Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
            f"Computed max_mamba_cache_size={slots} (total_rest_memory={(post - pre * (1 - s.mem_fraction)) / GIB:.2f} GB). "
            "Try: (1) reduce --max-running-requests, (2) increase --mem-fraction-static, "
            "(3) reduce --speculative-num-draft-tokens, or (4) use GPUs with more memory."
        )
    least = 1 - post / pre
    return (
        f"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={s.mem_fraction}. "
        f"Raise --mem-fraction-static above {-(-least * 1000 // 1) / 1000:.3f} "
        f"(minimum viable = 1 - available/pre = {least:.4f}). If using speculative decoding, draft weights are now counted."
    )


def size(shape: Shape, s: Settings, *, pre: int, post: int) -> Sizing:
    """Limits from free bytes before (`pre`) and after (`post`) the weights, the least over all ranks. Raises NoRoom."""
    rest = post - int(pre * (1 - s.mem_fraction))
    if s.modern and shape.vision and not s.language_only:
        rest -= 100 * MIB
    state, slots = state_of(shape, s), None
    if state is not None:
        slots, rest = (_slots_modern if s.modern else _slots)(s, state, rest)
    cell = token_bytes(shape, s)
    if s.modern and s.spec:
        cell += token_bytes(shape, s, shape.draft_layers)
    tokens = rest // cell
    if s.max_total_tokens is not None:
        tokens = min(tokens, s.max_total_tokens)
    tokens = tokens // s.page_size * s.page_size
    if tokens <= 0:
        raise NoRoom("pool", _pool_message(s, post, pre, slots if state and slots is not None and slots <= 0 else None))
    requests = _requests(s, shape, tokens)
    if slots is not None:
        requests = min(requests, slots // slots_per_request(s))
    return Sizing(tokens, max(0, requests), slots, state)


def gib(size_bytes: float) -> float:
    return size_bytes / GIB
