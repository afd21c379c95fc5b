"""Markdown to `Runbook`. Collects every fault with its line instead of stopping at the first."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml
from markdown_it import MarkdownIt
from pydantic import BaseModel, ValidationError

from opsagent.runbook.model import Call, CallSpec, Check, FrontMatter, Remedy, RemedySpec, Runbook, Step
from opsagent_tools.errors import InputError, suggest

M = TypeVar("M", bound=BaseModel)
FENCES = ("call", "check", "remedy", "rollback")
HEADING = re.compile(r"^(?P<title>.*?)\s*(?:\{#(?P<id>[^}\s]*)\})?$")
STEP_ID = re.compile(r"^[a-z][a-z0-9-]*$")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a runbook: where, what, and what to write instead."""

    path: str
    line: int
    what: str
    instead: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}" + (f" ({self.instead})" if self.instead else "")


class RunbookError(InputError):
    """The runbook cannot be run; `faults` has every fault found."""

    def __init__(self, path: str, faults: list[Fault]) -> None:
        first = faults[0]
        more = f" (and {len(faults) - 1} more: opsagent lint {path})" if len(faults) > 1 else ""
        super().__init__(first.what + more, where=f"{path}:{first.line}", hint=first.instead)
        self.faults = faults


@dataclass
class _Draft:
    """A step while its fences are being read."""

    id: str
    title: str
    line: int
    prose: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)
    rollbacks: list[Call] = field(default_factory=list)

    def done(self) -> Step:
        prose = "\n\n".join(self.prose)
        return Step(
            self.id, self.title, self.line, prose, tuple(self.calls), tuple(self.checks), tuple(self.remedies),
            tuple(self.rollbacks),
        )  # fmt: skip


class _Reader:
    """Reads one file; every fault goes to `faults`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.faults: list[Fault] = []

    def fault(self, line: int, what: str, instead: str = "") -> None:
        self.faults.append(Fault(self.path, line, what, instead))

    def model(self, kind: type[M], value: Any, line: int, what: str) -> M | None:
        """Validate a piece of YAML; each pydantic error becomes a fault, unknown keys get a suggestion."""
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            for item in error.errors():
                place = ".".join(str(part) for part in item["loc"])
                if item["type"] == "extra_forbidden":
                    names = [f.alias or name for name, f in kind.model_fields.items()]
                    self.fault(line, f"{what}: unknown key {place!r}", suggest(str(item["loc"][-1]), names))
                else:
                    self.fault(line, f"{what}: {place}: {item['msg']}")
            return None

    def yaml(self, text: str, line: int, what: str) -> Any:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            at = line + (mark.line if mark else 0)
            self.fault(
                at, f"{what} is not YAML: {getattr(error, 'problem', None) or error}", "quote strings with : or {"
            )
            return None


def parse(text: str, path: str = "<runbook>") -> tuple[Runbook | None, list[Fault]]:
    """Compile a runbook; returns it (None when it is too broken) and the faults of its structure."""
    reader = _Reader(path)
    front, body, offset = _front(text, reader)
    title, intro, steps, remedies = _body(body, offset, reader)
    if not steps:
        reader.fault(1, "no step", "a step is a level-2 heading with an id: ## Title {#id}")
    if front is None:
        return None, reader.faults
    done = tuple(step.done() for step in steps)
    return Runbook(path, text, front, title or front.name, intro, done, tuple(remedies)), reader.faults


def _front(text: str, reader: _Reader) -> tuple[FrontMatter | None, str, int]:
    """Split off the front matter; returns it, the body, and the number of lines before the body."""
    match = re.match(r"^---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", text, re.DOTALL | re.MULTILINE)
    if not match:
        reader.fault(1, "no front matter", "begin with a block between two lines `---` that holds opsagent: 1 and name")
        return None, text, 0
    value = reader.yaml(match.group(1), 2, "front matter")
    offset = match.group(0).count("\n")
    if not isinstance(value, dict):
        if value is not None:
            reader.fault(2, "front matter is not a map")
        return None, text[match.end() :], offset
    return reader.model(FrontMatter, value, 2, "front matter"), text[match.end() :], offset


def _body(body: str, offset: int, reader: _Reader) -> tuple[str, str, list[_Draft], list[Remedy]]:
    """Walk the Markdown: headings open steps, typed fences fill them, the rest is prose."""
    lines = body.splitlines()
    steps: list[_Draft] = []
    title, intro, common = "", [], _Draft("", "", 0)
    tokens = MarkdownIt("commonmark").parse(body)
    for position, token in enumerate(tokens):
        if token.level != 0 or token.map is None:
            continue
        line = offset + token.map[0] + 1
        draft = steps[-1] if steps else common
        if token.type == "heading_open":
            text = tokens[position + 1].content
            if token.tag == "h1":
                title = title or text
            elif token.tag == "h2":
                steps.append(_heading(text, line, steps, reader))
            else:
                draft.prose.append(text)
        elif token.type == "fence" and token.info.split()[:1] and token.info.split()[0] in FENCES:
            _fence(token.info.split()[0], token.content, line + 1, draft, reader)
        else:
            if token.type == "fence" and token.info.split()[:1]:
                _suspicious_fence(token.info.split()[0], line, reader)
            draft.prose.append("\n".join(lines[token.map[0] : token.map[1]]))
    intro = common.prose
    if common.calls or common.checks or common.rollbacks:
        reader.fault(
            offset + 1, "a call, check or rollback before the first step", "put it below a heading: ## Title {#id}"
        )
    return title, "\n\n".join(intro), steps, common.remedies


def _suspicious_fence(info: str, line: int, reader: _Reader) -> None:
    """A fence that is nearly ours is a typo, not prose: a check that nobody runs would be the worst outcome."""
    hint = suggest(info.lower(), FENCES, cutoff=0.75, otherwise="")
    if hint:
        reader.fault(line, f"unknown fence {info!r}", hint)


def _heading(text: str, line: int, steps: list[_Draft], reader: _Reader) -> _Draft:
    match = HEADING.match(text)
    assert match is not None
    step_id, title = match.group("id") or "", match.group("title")
    if not step_id:
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "step"
        reader.fault(line, f"step {title!r} has no id", f"write: ## {title} {{#{slug}}}")
        step_id = slug
    elif not STEP_ID.match(step_id):
        reader.fault(line, f"step id {step_id!r} is not a slug", "lower-case letters, digits and dashes")
    if any(step.id == step_id for step in steps):
        reader.fault(line, f"second step with the id {step_id!r}", "ids are unique: resume and `then:` go by them")
    return _Draft(step_id, title, line)


def _fence(kind: str, text: str, line: int, draft: _Draft, reader: _Reader) -> None:
    if kind == "check":
        draft.checks.extend(_checks(text, line, reader))
        return
    value = reader.yaml(text, line, f"{kind} fence")
    if value is None:
        if not text.strip():
            reader.fault(line, f"empty {kind} fence")
        return
    if kind == "remedy":
        draft.remedies.extend(_remedies(value, text, line, reader))
        return
    spec = reader.model(CallSpec, value, line, f"{kind} fence")
    if spec is not None:
        (draft.calls if kind == "call" else draft.rollbacks).append(Call(spec, line))


def _checks(text: str, line: int, reader: _Reader) -> list[Check]:
    """Each list item is one expression; YAML's comment behind it is kept as the reason.

    Read by line rather than as YAML: an expression may hold `: `, `#` inside quotes, or start with `!`.
    """
    checks: list[Check] = []
    for number, raw in enumerate(text.splitlines(), line):
        stripped = raw.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if not stripped.startswith("- "):
            reader.fault(number, "a check is a list of expressions", "write: - EXPRESSION   # why")
            continue
        expr, _, why = stripped[2:].partition("   #")
        if not why and re.search(r"\s#\s", expr):
            expr, why = re.split(r"\s+#\s", expr, maxsplit=1)
        expr = expr.strip()
        if len(expr) > 1 and expr[0] == expr[-1] and expr[0] in "'\"" and expr[0] not in expr[1:-1]:
            expr = expr[1:-1]
        checks.append(Check(expr, number, why.strip()))
    return checks


def _remedies(value: Any, text: str, line: int, reader: _Reader) -> list[Remedy]:
    if not isinstance(value, dict):
        reader.fault(line, "a remedy fence maps causes to remedies", "write: cause-slug: {set: …, then: step}")
        return []
    found: list[Remedy] = []
    for cause, body in value.items():
        at = next((line + i for i, raw in enumerate(text.splitlines()) if raw.startswith(f"{cause}:")), line)
        if isinstance(body, dict) and isinstance(body.get("call"), dict):
            body = {**body, "call": [body["call"]]}
        spec = reader.model(RemedySpec, body, at, f"remedy {cause!r}")
        if spec is not None:
            found.append(Remedy(str(cause), spec, at))
    return found
