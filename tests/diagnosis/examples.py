"""Labelled logs: real ones of SGLang 0.5.11, and short ones in the words of sources, libraries and public threads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
REAL = {
    "f-ctx-too-long": "context-length-exceeds-model",
    "f-load-oom": "gpu-memory-occupied",
    "f-missing-shard": "checkpoint-shape-mismatch",
    "f-parser-typo": "invalid-flag-value",
    "f-port-busy": "port-in-use",
    "f-scheduler-sigkill": "worker-sigkilled",
    "f-truncated": "checkpoint-shard-corrupt",
    "f-unknown-arch": "arch-unknown-to-transformers",
    "t-nemotronh": "attn-backend-model-unsupported",
    "tp1-mtp-noflag": "spec-needs-extra-buffer",
    "tp2-seed1-fixed": "hybrid-spec-state-reserve",
}
HEALTHY = ("dense8b-cg", "t-moe30b", "tp1-mtp-extra", "tp1-plain", "tp2-mrr8-msf82", "tp2-nomtp", "tp2-seed2-mrr4")
CUT = ("t-q3next80b-tp2", "t-seed2-exact")
ABSENCE = {"nccl-init-hang", "hf-download-stalled", "scheduler-hang"}
"""Causes that show as something that does not come: another server's lines take that away."""


@dataclass(frozen=True)
class Example:
    """`source` says where the wording is from."""

    name: str
    verdict: str
    cause: str
    text: str
    source: str = "recorded from SGLang 0.5.11 on H200s, dummy weights"

    @property
    def data(self) -> bytes:
        return self.text.encode()


def real(name: str) -> str:
    return (DATA / "logs" / f"{name}.log").read_text("utf-8")


def recorded() -> list[Example]:
    found = [Example(name, "failed", cause, real(name)) for name, cause in REAL.items()]
    found += [Example(name, "healthy", "none", real(name)) for name in HEALTHY]
    return found + [Example(name, "unknown", "none", real(name)) for name in CUT]


def sections(path: Path) -> list[Example]:
    """Sections of a file: `=== slug [verdict] | source`, then the log."""
    found = []
    for number, part in enumerate(path.read_text("utf-8").split("=== ")[1:]):
        head, _, text = part.partition("\n")
        want, _, source = head.partition(" | ")
        slug, _, verdict = want.partition(" ")
        found.append(Example(f"{path.stem}-{number}", verdict or "failed", slug, text, source))
    return found


def variants() -> list[Example]:
    """The examples that the signatures were written with, in data/variants."""
    return [e for path in sorted((DATA / "variants").glob("*.txt")) for e in sections(path)]


def examples() -> list[Example]:
    return recorded() + variants()
