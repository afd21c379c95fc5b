"""One pass over a log: which pattern matched where, what each server start got to, and which lines are known noise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from opsagent_tools.sglang.diagnosis.degenerate import answers_of
from opsagent_tools.sglang.diagnosis.model import Noise
from opsagent_tools.sglang.diagnosis.pattern import Index, Pattern
from opsagent_tools.sglang.diagnosis.signature import Knowledge, NoiseRule
from opsagent_tools.sglang.log.events import Event, Skimmed, events
from opsagent_tools.sglang.log.facts import ANCHORS, FactsReader
from opsagent_tools.sglang.log.lines import Source
from opsagent_tools.sglang.log.traceback import Block

KEEP_FIRST, KEEP_LAST, QUOTE = 40, 8, 300
_ANSI_PIECE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\r")

FATAL = (
    r"Received sigquit from a child process?|(?:Scheduler|\w+Client|\w+Worker\w*) hit an exception|Exception in \w+:|"
    r"Watchdog timeout|terminated unexpectedly|died during initialization|scheduler is dead|"
    r"error while attempting to bind|Initialization failed\. warmup error|crashed with exit code|^Killed\b|"
    r"Application startup failed|Exception in thread|exited unexpectedly"
)
_FATAL = re.compile(FATAL, re.I)
_OK = re.compile(r"\"(?:GET|POST) /\S* HTTP/[\d.]+\" 2\d\d")
_TROUBLE = re.compile(
    r"^\W*(?:error|fatal)\b|\berror:|\[ERROR\]|\bfatal\b|\bfailed\b|\bCRITICAL\b|exception|Segmentation fault|core dumped|"
    r"abort|cannot|could not|couldn't|unable to|denied|Killed",
    re.I,
)
_ERROR = re.compile(
    r"已杀死|(?:^|\s)Killed\b|"
    r"^(?:[\w.:/-]+: )?(?:error|fatal|panic)\b|^failed: |\b(?:Error|Exception): |: (?:fatal )?error: ",
    re.I,
)
_WARNING = re.compile(r"^\[W\d{3,4} |\bWARN(?:ING)?\b|\b\w*Warning: ")
_REQUEST = re.compile(r"\b(?:Receive|Finish): obj=\w*Req(?:uest|Input)\(.{0,400}?(?:text|prompt)=")
_MARKS = (
    *ANCHORS, "sigquit", "scheduler hit", "watchdog", "unexpectedly", "died during", "is dead", "attempting to bind",
    "warmup error", "crashed with", "killed", "startup failed", "exception", 'http/1.1" 2', "error", "fatal", "critical",
    "abort", "segmentation",
)  # fmt: skip


@dataclass(slots=True)
class Hit:
    """A pattern matched here."""

    line: int
    launch: int
    block: int
    quote: str
    match: re.Match[str]
    phase: str
    ready: bool
    args: bool
    """On the arguments line, or in what a client asked or the model answered: it proves nothing by itself."""
    noise: bool
    time: float | None
    error: bool = False
    """The line is an exception, or calls itself an error."""
    source: str = ""
    warned: bool = False
    """The line calls itself a warning."""


@dataclass(slots=True)
class Launch:
    """One server start."""

    number: int
    reader: FactsReader = field(default_factory=FactsReader)
    first_line: int = 0
    last_line: int = 0
    first_time: float | None = None
    last_time: float | None = None
    ready_line: int = 0
    served_line: int = 0
    fatal_lines: list[int] = field(default_factory=list)

    @property
    def up(self) -> bool:
        """It came up, or serves, and nothing fatal was seen since."""
        line = max(self.ready_line, self.served_line)
        return line > 0 and not any(fatal > self.ready_line for fatal in self.fatal_lines)


@dataclass(slots=True)
class Trouble:
    """A line that speaks of an error, for the case that no signature fits."""

    line: int
    quote: str
    launch: int


@dataclass(slots=True)
class Scan:
    """Everything that one pass found."""

    knowledge: Knowledge
    hits: list[list[Hit]]
    launches: dict[int, Launch] = field(default_factory=dict)
    blocks: dict[int, Block] = field(default_factory=dict)
    noise: list[Noise] = field(default_factory=list)
    trouble: list[Trouble] = field(default_factory=list)
    skimmed: Skimmed = field(default_factory=Skimmed)

    def of(self, source: str) -> list[Hit]:
        return self.hits[self.knowledge.numbers[source]]


def scan(source: Source, knowledge: Knowledge) -> Scan:
    """Read the whole of `source` once; memory does not grow with it."""
    result = Scan(knowledge, [[] for _ in knowledge.patterns])
    index = Index.of(knowledge.patterns)
    rules = [
        (rule, Pattern.of(rule.line), re.compile(rule.until, re.I) if rule.until else None) for rule in knowledge.noise
    ]
    quiet = Index.of(tuple(pattern for _rule, pattern, _until in rules))

    def wanted(lowered: str) -> bool:
        return any(a in lowered for a in _MARKS) or index.wanted(lowered) or quiet.wanted(lowered)

    until: re.Pattern[str] | None = None
    began = 0
    for event in events(source, wanted=wanted, skimmed=result.skimmed):
        launch = _launch(result, event)
        if event.block is not None and len(result.blocks) < 256:
            result.blocks.setdefault(event.block.number, event.block)
        if until is not None:
            if until.search(event.text) or event.line - began > 400:
                until = None
                continue
            if (".so" in event.text and "OSError" in event.text) or event.role in ("header", "frame", "chain", "code"):
                continue  # other processes' lines can stand between the markers
        lowered = event.text.lower()
        rule = None
        for n in quiet.candidates(lowered):
            if rules[n][1].search(event.text):
                rule, until, began = rules[n][0], rules[n][2], event.line
                _note(result, rule, event)
                break
        _marks(launch, event, quiet=rule is not None)
        if event.text.startswith("#") and not event.role:
            continue
        for n, match in _matches(index, lowered, event.text):
            _hit(result, n, event, match, launch, rule)
        if (
            rule is None
            and len(result.trouble) < 200
            and "ServerArgs(" not in event.text
            and (event.role == "exception" or _TROUBLE.search(event.text))
        ):
            result.trouble.append(Trouble(event.line, quote(event, event.text), event.launch))
    if result.launches and result.skimmed.served_line:
        newest = max(result.launches.values(), key=lambda n: n.last_line)
        newest.served_line = max(newest.served_line, result.skimmed.served_line)
    return result


def _matches(index: Index, lowered: str, text: str) -> Iterator[tuple[int, re.Match[str]]]:
    for n in index.candidates(lowered):
        if match := index.patterns[n].search(text):
            yield n, match


def _launch(result: Scan, event: Event) -> Launch:
    launch = result.launches.get(event.launch)
    if launch is None:
        launch = result.launches[event.launch] = Launch(event.launch, first_line=event.line)
    launch.last_line = event.line
    if event.head.time is not None:
        launch.first_time = launch.first_time if launch.first_time is not None else event.head.time
        launch.last_time = event.head.time
    launch.reader.feed(event)
    return launch


def _marks(launch: Launch, event: Event, *, quiet: bool) -> None:
    if "fired up and ready" in event.text or "Uvicorn running on" in event.text:
        launch.ready_line = launch.ready_line or event.line
    elif _OK.search(event.text):
        launch.served_line = event.line
    elif not quiet and _FATAL.search(event.text) and len(launch.fatal_lines) < 64:
        launch.fatal_lines.append(event.line)


def _note(result: Scan, rule: NoiseRule, event: Event) -> None:
    if sum(n.slug == rule.slug for n in result.noise) < 3:
        result.noise.append(Noise(slug=rule.slug, line=event.line, text=quote(event, event.text), reason=rule.reason))


def _hit(result: Scan, n: int, event: Event, match: re.Match[str], launch: Launch, rule: NoiseRule | None) -> None:
    found = result.hits[n]
    if len(found) >= KEEP_FIRST + KEEP_LAST:
        del found[KEEP_FIRST]
    found.append(
        Hit(
            event.line,
            event.launch,
            event.block.number if event.block else 0,
            quote(event, event.text, match.start()),
            match,
            launch.reader.facts.phase,
            0 < launch.ready_line < event.line,
            "ServerArgs(" in event.text or _quoted(event.text, match),
            rule is not None,
            event.head.time,
            event.role == "exception"
            or event.head.level in ("ERROR", "CRITICAL", "FATAL")
            or bool(_ERROR.search(event.text)),
            result.knowledge.patterns[n].source,
            event.head.level == "WARNING" or bool(_WARNING.search(event.text)),
        )
    )


def _quoted(text: str, match: re.Match[str]) -> bool:
    """The match lies in a logged request, or within the words of one answer: a model may well speak of errors."""
    if _REQUEST.search(text, 0, match.start() + 1):
        return True
    return '"choices"' in text and len(match[0]) > 2 and any(match[0] in answer for answer in answers_of(text))


def quote(event: Event, text: str, start: int = 0) -> str:
    """At most 300 characters that stand on the line as written, from the match on if the line is long."""
    if event.raw and b"\x1b" in event.raw:
        raw = event.raw.decode("utf-8", "replace")
        text, start = max(_ANSI_PIECE.split(raw), key=len), 0
    text = text.strip() if len(text) <= QUOTE else text[max(0, min(start, len(text) - 40)) :].strip()
    return text if len(text) <= QUOTE else text[: QUOTE - 1].rstrip() + "…"
