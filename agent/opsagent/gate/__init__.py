"""The gate: every call is classified (R0 read … R3 destructive or opaque, X never) and, above R0, declared or approved.

`classify` is a pure function of call, facts and policy. `Gate` puts it together with a source of facts and an approver.
"""

from __future__ import annotations

from opsagent.gate.approvals import Grant, Mode
from opsagent.gate.classify import Facts, classify
from opsagent.gate.gate import Gate
from opsagent.gate.policy import Policy

__all__ = ["Facts", "Gate", "Grant", "Mode", "Policy", "classify"]
