"""From a log to the cause: `diagnose(lines)`. `CAUSES` are the causes that it can name, by slug."""

from collections.abc import Mapping

from opsagent_tools.sglang.diagnosis.diagnose import diagnose
from opsagent_tools.sglang.diagnosis.model import Diagnosis, Evidence, Fix, Link, Need, Noise
from opsagent_tools.sglang.diagnosis.signature import Cause, Causes

CAUSES: Mapping[str, Cause] = Causes()

__all__ = ["CAUSES", "Cause", "Diagnosis", "Evidence", "Fix", "Link", "Need", "Noise", "diagnose"]
