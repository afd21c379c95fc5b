"""What a diagnosis says: verdict, cause, the lines that prove it, and a remedy that can be executed."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from opsagent_tools.sglang.log.facts import Limits

Verdict = Literal["failed", "healthy", "unknown"]
FlagValue = str | int | float | bool | None
"""Value of a flag in a remedy: null removes the flag, true sets a flag without a value, false its opposite."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Evidence(_Model):
    """One line of the log: 1-based number, and text that stands on it (clipped)."""

    line: int
    text: str


class Fix(_Model):
    """A typed remedy. `flags` and `env` are changes to the launch that failed; `commands` are for a person to run."""

    summary: str = ""
    flags: dict[str, FlagValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    commands: list[str] = Field(default_factory=list)
    version: str | None = None
    """A release of SGLang to move to, when only that helps."""


class Need(_Model):
    """Evidence that the log does not hold: a read-only command for the host, and what its answer decides."""

    argv: list[str]
    why: str


class Noise(_Model):
    """A line that looks like an error and is none."""

    slug: str
    line: int
    text: str
    reason: str


class Link(_Model):
    """One exception of the chain that ended the server, in printed order: the first is the original."""

    line: int
    type: str
    message: str


class Diagnosis(_Model):
    """The answer of `diagnose`; its JSON is a contract (`cause` is "none" unless the verdict is "failed")."""

    verdict: Verdict
    cause: str = "none"
    confidence: float = 0.0
    evidence: list[Evidence] = Field(default_factory=list)
    also: list[str] = Field(default_factory=list)
    fix: Fix = Field(default_factory=Fix)
    phase: str = "arguments"
    sglang: str | None = None
    needs: list[Need] = Field(default_factory=list)
    summary: str = ""
    chain: list[Link] = Field(default_factory=list)
    noise: list[Noise] = Field(default_factory=list)
    ruled_out: list[str] = Field(default_factory=list)
    """For an unknown: what the log speaks against, in words."""
    limits: Limits = Field(default_factory=Limits)
    launches: int = 1
    """Server starts seen in the log."""
    simulated: bool = False
