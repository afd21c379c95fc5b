"""What the operator allows, as one value. It is folded from layers, and a lower layer can only tighten."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field

from opsagent_tools.tool import Tier

DEFAULT_ROOTS = (
    "/srv/models", "/models", "/data/models", "/mnt/models", "/var/log/sglang", "/opt/sglang", "/opt/sglang-*",
    "/var/lib/opsagent", "/tmp", "/var/tmp",
)  # fmt: skip
"""Where new files may be made when no layer names roots. A trailing `*` stands for the rest of that one name."""


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """An operator's own rule: raises the tier of calls of a tool whose argv begins with these words."""

    id: str
    tier: Tier
    why: str
    tool: str = "*"
    prefix: tuple[str, ...] = ()
    match: tuple[tuple[str, ...], ...] = ()
    not_match: tuple[tuple[str, ...], ...] = ()
    origin: str = ""

    def applies(self, tool: str, argv: tuple[str, ...]) -> bool:
        """Words are compared as they are; the program by its base name; a word `*` stands for any one word."""
        if self.tool not in ("*", tool) or len(argv) < len(self.prefix):
            return False
        named = (posixpath.basename(argv[0]), *argv[1:]) if argv else ()
        return all(want in ("*", have) for want, have in zip(self.prefix, named, strict=False))


@dataclass(frozen=True, slots=True)
class Policy:
    """The gate's configuration for one run. Everything that is not said stays at its default, which is the strict one."""

    roots: tuple[str, ...] = DEFAULT_ROOTS
    ports: tuple[tuple[int, int], ...] = ()
    """Inclusive ranges in which a server may be started as R1."""
    containers: tuple[str, ...] = ()
    """CTIDs (or container names) that may be written to."""
    units: tuple[str, ...] = ()
    """Units that the runbook names: stopping such a server is R2, not R3."""
    tools: tuple[str, ...] | None = None
    """Tools that the runbook declares; None: no runbook."""
    hosts: tuple[str, ...] | None = None
    """Hosts that may be written to; None: any configured one."""
    port_limit: tuple[tuple[int, int], ...] | None = None
    """What `ports` of a runbook may be at most; None: the layers do not say. Likewise the next two."""
    container_limit: tuple[str, ...] | None = None
    unit_limit: tuple[str, ...] | None = None
    rules: tuple[PolicyRule, ...] = ()
    tier_caps: dict[str, Tier] = field(default_factory=dict)
    """Host name → highest tier that is ever admitted there."""
    max_hosts_written: int | None = None
    maintenance_windows: tuple[str, ...] = ()
    """Each one must be open for anything above R0, e.g. `Sat,Sun 22:00-04:00 UTC`."""
    approval_expiry_s: float = 3600.0


def under(path: str, root: str) -> bool:
    """Whether a normalised absolute path is the root or lies below it (`/opt/sglang-*` matches one name)."""
    root = root.rstrip("/") or "/"
    if root == "/":
        return True
    if not root.endswith("*"):
        return path == root or path.startswith(root + "/")
    parent, stem = posixpath.split(root[:-1])
    if not path.startswith(parent.rstrip("/") + "/"):
        return False
    name = path[len(parent.rstrip("/")) + 1 :].split("/", 1)[0]
    return name.startswith(stem) and len(name) > len(stem)


def narrower(upper: tuple[str, ...], lower: tuple[str, ...]) -> tuple[str, ...]:
    """Intersection of two sets of roots."""
    found = [low for low in lower if any(under(low.rstrip("*"), up) or low == up for up in upper)]
    found += [up for up in upper if any(under(up.rstrip("*"), low) for low in lower)]
    return tuple(dict.fromkeys(found))
