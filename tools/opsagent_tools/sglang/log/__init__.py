"""Logs of SGLang as data: `events` (records with rank, level and tracebacks) and `facts` (phases, memory, limits)."""

from opsagent_tools.sglang.log.events import Event, Skimmed, events
from opsagent_tools.sglang.log.facts import Facts, FactsReader, Limits, MemoryLine, Phase, facts
from opsagent_tools.sglang.log.lines import Source

__all__ = ["Event", "Facts", "FactsReader", "Limits", "MemoryLine", "Phase", "Skimmed", "Source", "events", "facts"]
