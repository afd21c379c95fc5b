"""The plan in words: what binds, what SGLang will change by itself, and where each term comes from."""

from __future__ import annotations

from opsagent_tools.sglang.allocator import GIB
from opsagent_tools.sglang.arguments import Arguments
from opsagent_tools.sglang.case import Assessment, Case, Failed
from opsagent_tools.sglang.checkpoint import half_downloaded
from opsagent_tools.sglang.lines import LINES, TERMS
from opsagent_tools.sglang.plan import Limits, PerGpu, Source, Wish


def binding(case: Case, found: Assessment | None, failed: Failed | None) -> str:
    """The constraint that sets the limits, in one sentence."""
    if found is None or found.budget is None:
        return failed.words if failed else ""
    budget, settings = found.budget, found.settings
    if failed is not None and failed.failure not in ("kv-pool-negative", "max-running-requests-zero"):
        return failed.words
    if settings.spec and budget.state is not None and budget.spec_reserve > budget.usable / 4:
        given = "--max-running-requests" if settings.running_given else "speculation, --max-running-requests not given"
        return f"reserve for {settings.max_running} running requests ({given})"
    if budget.bound_by == "slots":
        return f"{budget.slots} state slots, {budget.slots_per_request} for each running request"
    if budget.bound_by == "asked":
        return f"--max-running-requests {settings.max_running}"
    if budget.tokens < budget.context:
        return f"KV pool of {budget.tokens} tokens, less than one context of {budget.context}"
    return f"memory left for KV: {budget.kv_bytes / GIB:.1f} GiB"


def notes_of(
    case: Case, arguments: Arguments, found: Assessment | None, failed: Failed | None, want: Wish | None
) -> list[str]:
    """What a user will notice."""
    notes: list[str] = []
    if case.checkpoint is not None and case.checkpoint.bad:
        notes.append(half_downloaded(case.checkpoint))
    if want is not None and want.context and want.context > case.spec.context:
        notes.append(f"the model's longest context is {case.spec.context} tokens, {want.context} are wished for")
    notes += arguments.deprecated
    if found is None or found.budget is None or failed:
        return notes
    if found.budget.tokens < found.budget.context:
        notes.append(
            f"prompts over {found.budget.max_prompt} tokens are refused although the context length is "
            f"{found.budget.context}"
        )
    return notes


def sources_of(case: Case) -> list[Source]:
    """Where each term of the formula stands in the sources of the version whose rules answer."""
    version = case.rules.version
    return [Source(term=term, sglang=version, where=where) for term, where in zip(TERMS, LINES[version], strict=True)]


def limits_of(found: Assessment | None) -> Limits | None:
    if found is None or found.budget is None:
        return None
    budget = found.budget
    per_context = budget.tokens // budget.context if budget.context else 0
    return Limits(
        max_total_num_tokens=budget.tokens,
        max_running_requests=budget.running,
        context_len=budget.context,
        max_prompt_tokens=budget.max_prompt,
        full_contexts_at_once=min(per_context, budget.running),
    )


def per_gpu(found: Assessment | None) -> PerGpu | None:
    """GiB of every term of the budget, rounded as SGLang's log rounds."""
    if found is None or found.budget is None:
        return None
    budget = found.budget

    def gib(size: float) -> float:
        return round(size / GIB, 2)

    return PerGpu(
        free=gib(budget.free),
        weights=gib(budget.weights),
        draft_weights=gib(budget.draft_weights),
        spec_reserve=gib(budget.spec_reserve),
        mamba_state=gib(budget.state_bytes),
        mamba_intermediate=gib(budget.intermediate_bytes),
        kv_cache=gib(budget.kv_bytes),
        draft_kv=gib(budget.draft_kv_bytes),
        pool_end_avail=gib(budget.pool_end),
        usable=gib(budget.usable),
        graphs=round(found.after.graphs + found.after.piecewise, 2),
        other_after_pools=round(found.after.workspace, 2),
        end_avail=round(found.after.end, 2),
        parts={part: gib(size) for part, size in found.parts.items() if part != "total"},
    )
