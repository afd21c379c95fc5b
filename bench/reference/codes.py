"""docs/reference/exit-codes.md and events.md: exit codes, statuses, errors, and the journal's types of events."""

from __future__ import annotations

from bench.reference.markdown import attribute_docs, code, first_sentence, table

from opsagent.journal.format import EVENT_TYPES, FORMATS, UNFLUSHED
from opsagent.report.model import STATUS_BY_CODE
from opsagent_tools import errors
from opsagent_tools.errors import ExitCode, OpsError, worst

EXIT_HEAD = """# Exit codes

Of `run`, `resume`, `stop` and `rollback`; other verbs use the same numbers, and each verb's help says which. `status` is the
report's. With `--json` a report is printed on every code.
"""
OTHERS = """
`plan`: 0 fits, 1 would fail, 2 the question cannot be read · `diagnose`: 0 healthy, 1 failed, 3 the log does not tell, 2 no
such log · `replay`, `verify`: 0 the same, 9 not · `diff`: 0 the same course, 1 they part · `lint`, `policy test`: 0 or 2 ·
`doctor`, `hosts`: 0 fine, 2 to be configured, 3 unreachable, 8 the model makes no tool calls.
"""
EVENTS_HEAD = """# Events

A run's `events.jsonl` has one JSON object a line: `v` (format), `seq`, `ts` (UTC), `type`, `data`, `prev` (sha256 of
the line before). `eN` in reports is the event with `seq` N. Big outputs are files in `blobs/`, by their sha256.
"""


def exit_codes() -> str:
    docs = attribute_docs(ExitCode)
    rows = [[str(int(each)), code(STATUS_BY_CODE[int(each)]), docs[each.name]] for each in ExitCode]
    order = sorted(ExitCode, key=lambda each: sum(worst([each, other]) == other for other in ExitCode))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OpsError)]
    causes = [[code(kind.__name__), str(int(kind.exit_code)), first_sentence(kind.__doc__)] for kind in kinds]
    return "\n".join([
        EXIT_HEAD, table(["code", "status", "means"], rows),
        f"\nIf several hold, the first of: {', '.join(str(int(each)) for each in order)}.\n{OTHERS}",
        "## Errors\n", "What the program raises; `--json` prints `{\"error\": {\"what\", \"where\", \"hint\"}}`.\n",
        table(["error", "code", "means"], causes) + "\n",
    ])  # fmt: skip


def events() -> str:
    rows = [[code(name), what] for name, what in EVENT_TYPES.items()]
    unflushed = ", ".join(code(name) for name in sorted(UNFLUSHED))
    formats = "\n".join(f"* {number}: {what}" for number, what in FORMATS.items())
    return "\n".join([
        EVENTS_HEAD, table(["type", "what it says"], rows),
        f"\nEvery event is on the disk before the program goes on, except {unflushed}.\n",
        "## Formats\n", f"A newer program reads every older format.\n\n{formats}\n",
    ])  # fmt: skip
