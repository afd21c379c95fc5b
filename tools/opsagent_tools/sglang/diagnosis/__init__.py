"""From a log to the cause: `diagnose(lines)`."""

from opsagent_tools.sglang.diagnosis.diagnose import diagnose
from opsagent_tools.sglang.diagnosis.model import Diagnosis, Evidence, Fix, Need, Noise

__all__ = ["Diagnosis", "Evidence", "Fix", "Need", "Noise", "diagnose"]
