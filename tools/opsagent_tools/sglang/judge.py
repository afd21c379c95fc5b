"""The verdict on one set of flags: the assessment, and the first reason to fail in the order in which SGLang
would notice.
"""

from __future__ import annotations

from opsagent_tools.sglang.argument_rules import argument_refusal
from opsagent_tools.sglang.arguments import Arguments
from opsagent_tools.sglang.case import Assessment, Case, Failed, assess
from opsagent_tools.sglang.quant_rules import quant_refusal
from opsagent_tools.sglang.refusals import class_refusal, gpu_refusal, memory_failure, model_refusal


def judge(case: Case, arguments: Arguments) -> tuple[Assessment | None, Failed | None]:
    """`(assessment, failure)`; the assessment is None when the flags cannot be computed at all."""
    if arguments.unknown is not None:
        return None, arguments.unknown
    found = assess(case, arguments.values)
    failed = (
        model_refusal(case, arguments.values)
        or argument_refusal(case, arguments.values, found.settings)
        or gpu_refusal(case, found.settings)
        or class_refusal(case, arguments.values)
        or found.failed
        or quant_refusal(case, arguments.values, found.settings)
        or memory_failure(case, found)
    )
    return found, failed
