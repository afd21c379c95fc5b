"""Why a launch will fail, with SGLang's own words and the flag that resolves it, in the order in which SGLang
would notice.
"""

from __future__ import annotations

from opsagent_tools.sglang.allocator import GIB
from opsagent_tools.sglang.architectures import known
from opsagent_tools.sglang.case import Assessment, Case, Failed
from opsagent_tools.sglang.settings import Settings
from opsagent_tools.sglang.values import Values

NO_MEMORY = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."


def model_refusal(case: Case, values: Values) -> Failed | None:
    """Unknown model type or class, and a context that the model does not have (configs/model_config.py)."""
    spec, version = case.spec, case.rules.version
    facts = known(spec.architecture, spec.model_type, version)
    remote = isinstance(case.config.get("auto_map"), dict) and bool(values.get("trust_remote_code"))
    if spec.model_type and not facts.model_type and not facts.own and not remote:
        words = (
            f"ValueError: The checkpoint you are trying to load has model type `{spec.model_type}` but Transformers does "
            "not recognize this architecture. This could be because of an issue with the checkpoint, "
            "or because your version of "
            "Transformers is out of date."
        )
        return Failed("unknown-architecture", "arch-unknown-to-transformers", words, _newer(facts.since, version))
    length = values.get("context_length")
    if (
        length is not None
        and int(length) > spec.context
        and not _truthy(case.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"))
    ):
        words = (
            f"ValueError: Warning: User-specified context_length ({length}) is greater than the derived context_length "
            f"({spec.context}). This may lead to incorrect model outputs or CUDA errors. Note that the derived "
            "context_length may differ from max_position_embeddings in the model's config. To allow "
            "overriding this maximum, set the env var "
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
        )
        return Failed("arg-rejected", "context-length-exceeds-model", words, f"--context-length {spec.context}")
    return None


def class_refusal(case: Case, values: Values) -> Failed | None:
    """The model class is looked up after the arguments are checked (models/registry.py)."""
    spec = case.spec
    facts = known(spec.architecture, spec.model_type, case.rules.version)
    if facts.own or facts.fallback or isinstance(case.config.get("auto_map"), dict):
        return None
    words = f"ValueError: Model architectures ['{spec.architecture}'] are not supported for now."
    return Failed("unknown-architecture", "arch-not-supported", words, _newer(facts.since, case.rules.version))


def _newer(since: str, version: str) -> str:
    return f"SGLang {since} has it" if since and since != version else "no modelled SGLang has it"


def _truthy(value: str | None) -> bool:
    return str(value or "").lower() in ("1", "true", "yes", "on")


def gpu_refusal(case: Case, settings: Settings) -> Failed | None:
    """More ranks than cards: the first rank without one dies (taxonomy: gpu-index-out-of-range)."""
    need = settings.tp * settings.pp
    if need <= case.gpu.count:
        return None
    words = f"RuntimeError: CUDA error: invalid device ordinal ({need} ranks, {case.gpu.count} GPUs)"
    return Failed("not-enough-gpus", "gpu-index-out-of-range", words, f"--tp {case.gpu.count} or fewer")


def memory_failure(case: Case, found: Assessment) -> Failed | None:
    """What the budget says: weights, pools, requests, graphs, in the order of the launch."""
    budget, settings = found.budget, found.settings
    if budget is None:
        return found.failed
    if budget.weights > budget.free + 0.01 * GIB:
        words = "torch.OutOfMemoryError: CUDA out of memory. (while the model is built)"
        return Failed("weights-oom", "oom-weight-load", words, "--tp over more GPUs, or quantised weights")
    if budget.tokens <= 0:
        return _no_pool(case, found)
    if budget.pool_end < 0:
        words = "torch.OutOfMemoryError: CUDA out of memory. (in mem_cache/memory_pool.py)"
        return Failed(
            "kv-pool-oom", "oom-pool-alloc", words, "a lower --mem-fraction-static, or fewer --max-running-requests"
        )
    if budget.running <= 0:
        cause = "hybrid-spec-state-reserve" if settings.spec and budget.spec_reserve else "kv-pool-no-room"
        words = "AssertionError: capture_bs=[0]" if settings.graphs else "AssertionError: max_running_request is zero"
        return Failed("max-running-requests-zero", cause, words, _more_slots(found))
    if found.after.lowest < 0:
        return _after_failure(found)
    return None


def _no_pool(case: Case, found: Assessment) -> Failed:
    budget = found.budget
    assert budget is not None
    if budget.spec_reserve > 0 and not case.rules.joint_state:
        return Failed(
            "kv-pool-negative",
            "hybrid-spec-state-reserve",
            NO_MEMORY,
            "--max-running-requests with the number you need",
        )
    return Failed("kv-pool-negative", "kv-pool-no-room", NO_MEMORY, "a higher --mem-fraction-static")


def _more_slots(found: Assessment) -> str:
    if found.settings.spec is not None and not found.settings.running_given:
        return "--max-running-requests with the number you need"
    return "a higher --mem-fraction-static, --mamba-full-memory-ratio or --max-mamba-cache-size"


def _after_failure(found: Assessment) -> Failed:
    """Which step after the pools runs out first: target graphs, draft weights, draft pool, draft graphs."""
    after, settings = found.after, found.settings
    if after.graphs_left >= 0 and after.draft_load < 0:
        words = "torch.OutOfMemoryError: CUDA out of memory. (while the draft model is loaded)"
        return Failed("weights-oom", "oom-weight-load", words, "a lower --mem-fraction-static")
    if after.graphs_left >= 0 and after.draft_pool < 0:
        words = "torch.OutOfMemoryError: CUDA out of memory. (in the draft's mem_cache/memory_pool.py)"
        return Failed("kv-pool-oom", "oom-pool-alloc", words, "a lower --mem-fraction-static, or --max-total-tokens")
    if settings.graphs or settings.piecewise_tokens:
        words = "Exception: Capture cuda graph failed: CUDA out of memory."
        fix = "a lower --mem-fraction-static, or a smaller --cuda-graph-max-bs"
        return Failed("graph-capture-oom", "oom-graph-capture", words, fix)
    words = "torch.OutOfMemoryError: CUDA out of memory."
    return Failed("kv-pool-oom", "oom-pool-alloc", words, "a lower --mem-fraction-static")
