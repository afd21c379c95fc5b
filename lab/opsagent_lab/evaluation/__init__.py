"""The evaluation of a model on simulated hosts: tasks, trials, and what they came to."""

from opsagent_lab.evaluation.suite import Suite, Task, load, names
from opsagent_lab.evaluation.summary import Summary, summarise
from opsagent_lab.evaluation.trial import Trial, attempt

__all__ = ["Suite", "Summary", "Task", "Trial", "attempt", "load", "names", "summarise"]
