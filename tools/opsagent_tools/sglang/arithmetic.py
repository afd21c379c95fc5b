"""How SGLang's memory arithmetic differs from version to version: data, not ifs.

Read from server_args.py, model_executor/*kv_cache_mixin.py, model_executor/pool_configurator.py (0.5.9 to 0.5.11) and
arg_groups/memory_hook.py, mem_cache/kv_cache_configurator.py (0.5.23) of the wheels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from opsagent_tools.sglang.read_spec import SWA_ARCHITECTURES

GEMMA4 = frozenset({"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"})
NO_EXTRA_BUFFER = frozenset(
    {
        "NemotronHForCausalLM",
        "FalconH1ForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "Lfm2ForCausalLM",
        "JetNemotronForCausalLM",
    }
)


@dataclass(frozen=True, slots=True)
class Tier:
    """Defaults for cards below `below_mib` of total memory."""

    below_mib: float
    chunked_prefill: int
    graph_bs: int
    """Largest CUDA-graph batch at tp < 4."""
    graph_bs_tp4: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """One version's rules. MiB where named so; the formula that uses them is in `budget.py` and `settings.py`."""

    version: str
    tiers: tuple[Tier, ...]
    unknown: Tier
    fraction_unknown: float
    """mem_fraction_static when the card's memory is unknown."""
    spec_reserve_mib: int
    standalone_reserve_mib: int
    piecewise_opt_in: bool
    """Piecewise CUDA graphs are captured only when asked for (0.5.9), not unless something switches them off."""
    piecewise_with_spec: bool
    """They stay on under speculative decoding (since 0.5.11)."""
    breakable: bool
    """Prefill graphs are breakable ones with rules of their own, --disable-cuda-graph ends them too (0.5.23)."""
    piecewise_mla_mib: int
    floor_mib: int
    """Least reserve on cards over 60 GiB (10 GiB since 0.5.10), MiB."""
    clamp_graphs_to_requests: bool
    spec_v2: bool
    """Default of SGLANG_ENABLE_SPEC_V2."""
    draft_first: bool
    """Draft weights are loaded before the pools are sized, draft KV is part of a token's price."""
    joint_state: bool
    """State slots and the verification states are solved together (0.5.23)."""
    half_pool_cap: bool
    """Running requests are capped by half the tokens when not given."""
    half_pool_cap_given: bool
    extra_row: int
    """Rows of req_to_token beyond the running requests."""
    rope_growth: bool
    swa: frozenset[str]
    extra_buffer_default: bool
    no_extra_buffer: frozenset[str]
    vlm_cache_mib: int
    no_buffer_refuses_spec: bool = True
    """False: speculation without extra_buffer switches the prefix cache off instead (0.5.9)."""
    extra_buffer_needs_radix: bool = True
    extra_buffer_fixed: int = 0
    """0.5.9 adds this many slots with extra_buffer under speculation, overlap or not (0: by overlap)."""
    no_buffer_sets_page: bool = True
    """no_buffer with prefix cache sets the page size to 1; before 0.5.11 another one stops the scheduler after the load."""
    pp_refuses_mixed_chunk: bool = False
    memory_flag_hint: str = "Not enough memory. Please try to increase --mem-fraction-static."


TIERS = (
    Tier(20 * 1024, 2048, 8, 8),
    Tier(35 * 1024, 2048, 24, 80),
    Tier(60 * 1024, 4096, 32, 160),
    Tier(90 * 1024, 8192, 256, 512),
    Tier(160 * 1024, 8192, 256, 512),
    Tier(float("inf"), 16384, 512, 512),
)

V0_5_11 = Arithmetic(
    version="0.5.11",
    tiers=TIERS,
    unknown=Tier(0, 4096, 160, 160),
    fraction_unknown=0.88,
    spec_reserve_mib=4096,
    standalone_reserve_mib=6144,
    piecewise_opt_in=False,
    piecewise_with_spec=True,
    breakable=False,
    piecewise_mla_mib=1536,
    floor_mib=10240,
    clamp_graphs_to_requests=False,
    spec_v2=True,
    draft_first=False,
    joint_state=False,
    half_pool_cap=True,
    half_pool_cap_given=False,
    extra_row=1,
    rope_growth=True,
    swa=SWA_ARCHITECTURES,
    extra_buffer_default=False,
    no_extra_buffer=NO_EXTRA_BUFFER,
    vlm_cache_mib=0,
)
V0_5_10 = replace(
    V0_5_11,
    version="0.5.10",
    spec_v2=False,
    extra_row=0,
    swa=SWA_ARCHITECTURES - GEMMA4,
    piecewise_with_spec=False,
    no_buffer_sets_page=False,
    pp_refuses_mixed_chunk=True,
)
V0_5_9 = replace(
    V0_5_10,
    version="0.5.9",
    spec_reserve_mib=2048,
    piecewise_opt_in=True,
    piecewise_mla_mib=0,
    half_pool_cap=False,
    no_buffer_refuses_spec=False,
    extra_buffer_needs_radix=False,
    extra_buffer_fixed=1,
)
V0_5_23 = replace(
    V0_5_11,
    version="0.5.23",
    tiers=(TIERS[0], Tier(35 * 1024, 4096, 48, 160), *TIERS[2:]),
    fraction_unknown=0.95,
    spec_reserve_mib=0,
    standalone_reserve_mib=0,
    clamp_graphs_to_requests=True,
    breakable=True,
    draft_first=True,
    joint_state=True,
    half_pool_cap_given=True,
    extra_buffer_needs_radix=False,
    extra_buffer_default=True,
    no_extra_buffer=frozenset(),
    vlm_cache_mib=100,
)
ARITHMETIC: Mapping[str, Arithmetic] = {a.version: a for a in (V0_5_9, V0_5_10, V0_5_11, V0_5_23)}
NEWEST = "0.5.23"


def release(version: str) -> tuple[int, ...]:
    """`0.5.11.post1` → (0, 5, 11), for comparing."""
    numbers = []
    for part in version.split("."):
        digits = "".join(c for c in part if c.isdigit())
        if not part[:1].isdigit():
            break
        numbers.append(int(digits))
    return tuple(numbers[:3])


def nearest(version: str) -> tuple[Arithmetic, str]:
    """The rules of this version, else of the nearest that is modelled, and a remark that says so (empty when exact)."""
    if version in ARITHMETIC:
        return ARITHMETIC[version], ""
    wanted = release(version)
    order = sorted(ARITHMETIC.values(), key=lambda a: release(a.version))
    below = [a for a in order if release(a.version) <= wanted]
    chosen = below[-1] if below else order[0]
    above = next((a for a in order if release(a.version) > wanted), None)
    if (
        below
        and above is not None
        and len(wanted) == 3
        and release(above.version)[2] - wanted[2] < wanted[2] - release(chosen.version)[2]
    ):
        chosen = above
    if release(chosen.version) == wanted:
        return chosen, ""
    return chosen, f"SGLang {version or '?'} is not modelled: the rules of {chosen.version}, the nearest, are used"
