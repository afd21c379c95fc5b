"""The tool `write_sysfs`: one attribute under /sys or /proc/sys, with its old value recorded."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from opsagent_tools import probes
from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Host
from opsagent_tools.tool import Args, Context, Result, Tool

BINDING = ("bind", "unbind", "drivers_probe", "new_id", "remove_id", "driver_override")
"""Attributes that move a device between drivers: R3."""


class WriteSysfsArgs(Args):
    path: str = Field(pattern=r"^/(sys|proc/sys)/", description="Absolute path under /sys or /proc/sys.")
    value: str | None = Field(
        default=None, description="What to write, without a newline. Empty clears driver_override."
    )
    restore: dict[str, Any] | None = Field(
        default=None,
        description="Instead of value: the result of an earlier write_sysfs, whose old value is written back.",
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.value is None) == (self.restore is None):
            raise ValueError("give either value or restore")
        if ".." in self.path.split("/"):
            raise ValueError("the path must not climb (..)")
        if self.value is not None and ("\n" in self.value or "\0" in self.value):
            raise ValueError("one line only")
        return self


class WriteSysfsResult(Result):
    path: str
    before: str | None
    """The old value; null for attributes that can only be written (bind, unbind, drivers_probe)."""
    after: str | None
    changed: bool
    driver_before: str | None
    """Driver of the PCI device that path or value names (`vfio-pci`, `nvidia`, `none`); null when none is named."""
    driver_after: str | None


def run(host: Host, args: WriteSysfsArgs, ctx: Context | None = None) -> WriteSysfsResult:
    """Write it. Raises ToolFailed when the kernel refuses, OutcomeUnknown when the write hangs (a device that is held)."""
    value = args.value if args.value is not None else _old(args, host)
    got = probes.ask(host, "file", {"op": "attribute", "path": args.path, "value": value}, timeout_s=90)
    if got.get("error"):
        raise ToolFailed(str(got["error"]), where=host.name, hint="the kernel refused the value; nothing was changed")
    drivers = (got["driver_before"], got["driver_after"])
    changed = got["before"] != got["after"] or drivers[0] != drivers[1]
    moved = f", driver {drivers[0]} → {drivers[1]}" if drivers[0] != drivers[1] else ""
    return WriteSysfsResult(
        path=args.path, before=got["before"], after=got["after"], changed=changed, driver_before=drivers[0],
        driver_after=drivers[1], summary=f"{args.path}: {got['before']} → {got['after']}{moved}",
    )  # fmt: skip


def _old(args: WriteSysfsArgs, host: Host) -> str:
    earlier = args.restore or {}
    if earlier.get("path") != args.path:
        raise ToolFailed(f"that result is of {earlier.get('path')!r}, not of {args.path}", where=host.name)
    if earlier.get("before") is None:
        hint = "bind and unbind are undone by their opposite, written to the other driver"
        raise ToolFailed(f"{args.path} has no old value to write back", where=host.name, hint=hint)
    old = str(earlier["before"])
    return "" if old == "(null)" else old


def preview(host: Host, args: WriteSysfsArgs) -> str:
    """Old and new value, for whoever approves it. A read (a sysfs attribute is small)."""
    got = probes.ask(host, "file", {"op": "read", "path": args.path, "limit": 4096})
    old = (got.get("text") or "").strip() if got.get("exists") else "(not there)"
    return (
        f"{args.path}: {old or '(write-only or empty)'} → {args.value if args.value is not None else 'its old value'}"
    )


def probe(host: Host, args: WriteSysfsArgs, ctx: Context) -> WriteSysfsResult | None:
    """After an unknown outcome: whether the attribute has the value. Write-only ones tell nothing: None."""
    got = probes.ask(host, "file", {"op": "read", "path": args.path, "limit": 4096})
    now = (got.get("text") or "").strip()
    if args.value is None or now != (args.value or "(null)"):
        return None
    return WriteSysfsResult(
        path=args.path, before=None, after=now, changed=True, driver_before=None, driver_after=None,
        summary=f"{args.path} is {now}",
    )  # fmt: skip


TOOL = Tool(
    name="write_sysfs",
    description=(
        "Write one kernel attribute (under /sys or /proc/sys) on a host and record its old value and the driver of the PCI "
        "device that it concerns. restore=<its result> writes the old value back."
    ),
    args=WriteSysfsArgs,
    result=WriteSysfsResult,
    run=run,
    tier="R2",
    recovery="reconcilable",
    probe=probe,
)
