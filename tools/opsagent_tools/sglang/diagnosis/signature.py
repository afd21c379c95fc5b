"""Signatures: what in a log proves which cause. They are data, one TOML file per family, read once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from opsagent_tools.errors import InputError
from opsagent_tools.sglang.diagnosis.pattern import Pattern

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """One way in which a cause shows. Every condition that is given must hold; `line` is the evidence.

    `near`: patterns that match in the same traceback or within `span` lines; `block`: in the same
    traceback only; `far`: none of them may. `with` and
    `but`: these must, or must not, match on the line itself.
    `seen` / `unseen`: the same for the whole server start. `phase`: one of these. `ready`: the server had come up before
    the line (true), or had not (false). `ended`: true if the server must not be up at the end. `where`: named facts.
    `tier`: 3 proves, 2 strongly suggests, 1 is the best guess when nothing else speaks.
    """

    cause: str
    family: str
    line: str
    near: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    with_: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    phase: tuple[str, ...] = ()
    ready: bool | None = None
    ended: bool | None = None
    tier: int = 3
    span: int = 40
    noise: bool = False
    """Looks at lines that are otherwise known as noise."""
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """What we know about a cause, in our own words, and what helps."""

    slug: str
    family: str
    means: str
    proof: str
    not_to_be_confused: str = ""
    beats: tuple[str, ...] = ()
    """Causes that are consequences or weaker readings when this one is proved too."""
    fix: str = ""
    flags: Json = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    version: str | None = None
    needs: tuple[tuple[tuple[str, ...], str], ...] = ()
    by_version: tuple[Json, ...] = ()
    """Overrides of the fix: `{"from": "0.5.12", "flags": {…}}` or `{"until": "0.5.11", …}`."""


@dataclass(frozen=True, slots=True)
class NoiseRule:
    slug: str
    line: str
    reason: str
    until: str = ""
    """With it the rule covers a block: everything up to the line that matches this."""


@dataclass(frozen=True)
class Knowledge:
    """Everything that the packaged data says."""

    causes: dict[str, Cause]
    signatures: tuple[Signature, ...]
    noise: tuple[NoiseRule, ...]
    patterns: tuple[Pattern, ...]
    numbers: dict[str, int]
    watch: dict[str, str]
    """Patterns without a signature, by name: what the detection of hangs looks at."""


def _tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def read_signature(slug: str, family: str, data: Json) -> Signature:
    known: Json = {k: data[k] for k in ("line", "ready", "ended", "tier", "span", "noise", "confidence") if k in data}
    lists = {
        k: _tuple(data.get(k)) for k in ("with", "near", "block", "far", "but", "seen", "unseen", "where", "phase")
    }
    if extra := set(data) - set(known) - set(lists):
        raise InputError(f"unknown keys {sorted(extra)} in a signature of {slug}", where=f"{family}.toml")
    lists["with_"] = lists.pop("with")
    fields: Json = {**known, **lists}
    return Signature(cause=slug, family=family, **fields)


def read_cause(slug: str, family: str, data: Json) -> Cause:
    return Cause(
        slug,
        family,
        data["means"],
        data["proof"],
        data.get("confused", ""),
        _tuple(data.get("beats")),
        data.get("fix", ""),
        data.get("flags", {}),
        data.get("env", {}),
        _tuple(data.get("commands")),
        data.get("version"),
        tuple((tuple(need["argv"]), need["why"]) for need in data.get("needs", ())),
        tuple(data.get("by_version", ())),
    )


@lru_cache(maxsize=4)
def knowledge(extra: str = "") -> Knowledge:
    """The packaged signatures; `extra` is TOML text of the same shape, added to them (learned signatures)."""
    causes: dict[str, Cause] = {}
    signatures: list[Signature] = []
    noise: list[NoiseRule] = []
    watch: dict[str, str] = {}
    folder = files("opsagent_tools.sglang.diagnosis") / "signatures"
    sources = [
        (item.name.removesuffix(".toml"), item.read_text("utf-8"))
        for item in folder.iterdir()
        if item.name.endswith(".toml")
    ]
    for family, text in [*sorted(s for s in sources if not s[0].startswith("_")), ("learned", extra)]:
        data = tomllib.loads(text)
        for slug, entry in data.get("cause", {}).items():
            signatures += [read_signature(slug, family, sign) for sign in entry.pop("sign", ())]
            if "means" in entry:
                causes[slug] = read_cause(slug, family, entry)
        watch |= data.get("watch", {})
        noise += [NoiseRule(**rule) for rule in data.get("noise", ())]
    numbers: dict[str, int] = {}
    for source in watch.values():
        numbers.setdefault(source, len(numbers))
    for sign in signatures:
        for source in (sign.line, *sign.near, *sign.block, *sign.far, *sign.seen, *sign.unseen):
            numbers.setdefault(source, len(numbers))
    return Knowledge(causes, tuple(signatures), tuple(noise), tuple(Pattern.of(s) for s in numbers), numbers, watch)


class Causes(Mapping[str, Cause]):
    """Every cause by slug; the data is read when it is first looked at."""

    def __getitem__(self, slug: str) -> Cause:
        return knowledge().causes[slug]

    def __iter__(self) -> Iterator[str]:
        return iter(knowledge().causes)

    def __len__(self) -> int:
        return len(knowledge().causes)
