"""The journal: what a run did, in the order in which it did it, on disk before each effect."""

from opsagent.journal.file import FileJournal
from opsagent.journal.fold import apply, fold
from opsagent.journal.memory import MemoryJournal
from opsagent.journal.reader import Log, read_log
from opsagent.journal.state import CallState, RunState

__all__ = ["CallState", "FileJournal", "Log", "MemoryJournal", "RunState", "apply", "fold", "read_log"]
