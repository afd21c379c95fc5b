"""The tool `write_file`: a text file on a host, whole or not at all, with a backup and a diff."""

from __future__ import annotations

import difflib
import hashlib
from typing import Any, Self

from pydantic import Field, model_validator

from opsagent_tools import probes
from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Host
from opsagent_tools.tool import Args, Context, Result, Tool

LIMIT = 1 << 20
DIFF_CHARS = 20_000
BACKUPS = "/var/lib/opsagent/backups"


class WriteFileArgs(Args):
    path: str = Field(pattern=r"^/", description="Absolute path of the file; not a link.")
    content: str | None = Field(default=None, description="The whole new text of the file.")
    restore: dict[str, Any] | None = Field(
        default=None, description="Instead of content: the result of an earlier write_file of this path, to undo it."
    )
    mode: str | None = Field(
        default=None, pattern=r"^0?[0-7]{3}$", description='Octal, e.g. "0644". Default: as it was, else 0644.'
    )
    sha256: str | None = Field(
        default=None, description='What the file must be now, else nothing is written; "" means that it must not exist.'
    )
    parents: bool = Field(default=False, description="Make missing folders.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.content is None) == (self.restore is None):
            raise ValueError("give either content or restore")
        return self


class WriteFileResult(Result):
    path: str
    changed: bool
    created: bool
    before: str | None
    """sha256 of what it was; null when it did not exist."""
    after: str | None
    """sha256 of what it is; null when it was removed again."""
    backup: str | None
    """Where the old text lies on the host (never in the file's own folder)."""
    diff: str
    """Unified diff, clipped."""


def run(host: Host, args: WriteFileArgs, ctx: Context | None = None) -> WriteFileResult:
    """Write or restore. Raises ToolFailed when the file is not what was expected or cannot be written."""
    ctx = ctx or Context()
    if args.restore is not None:
        return _restore(host, args, args.restore)
    assert args.content is not None
    wanted = {
        "op": "write", "path": args.path, "mode": args.mode, "expect": args.sha256, "parents": args.parents,
        "backup": f"{BACKUPS}/{ctx.run_id}",
    }  # fmt: skip
    got = _ask(host, wanted, args.content)
    changed = got["before"] != got["after"]
    old = "" if got["created"] else got["text"]
    words = "written" if got["created"] else ("changed" if changed else "already as wanted")
    return WriteFileResult(
        path=args.path, changed=changed, created=got["created"], before=got["before"], after=got["after"],
        backup=got["backup"], diff=diff(old, args.content, args.path), summary=f"{args.path} {words}",
    )  # fmt: skip


def _restore(host: Host, args: WriteFileArgs, earlier: dict[str, Any]) -> WriteFileResult:
    if earlier.get("path") != args.path:
        raise ToolFailed(f"that result is of {earlier.get('path')!r}, not of {args.path}", where=host.name)
    if not earlier.get("changed"):
        same = earlier.get("after")
        return WriteFileResult(
            path=args.path, changed=False, created=False, before=same, after=same, backup=None, diff="",
            summary=f"{args.path} had not been changed",
        )  # fmt: skip
    if not earlier.get("created") and not earlier.get("backup"):
        raise ToolFailed("no backup was kept", where=host.name)
    source = None if earlier.get("created") else earlier["backup"]
    got = _ask(host, {"op": "restore", "path": args.path, "from": source, "expect": earlier.get("after")}, None)
    words = "removed again" if got["after"] is None else "is what it was"
    return WriteFileResult(
        path=args.path, changed=True, created=False, before=got["before"], after=got["after"], backup=None, diff="",
        summary=f"{args.path} {words}",
    )  # fmt: skip


def diff(old: str | None, new: str, path: str) -> str:
    """Unified diff of two texts (`old` None: it was not text, or too long to show), clipped."""
    if old is None:
        return f"({path} was not text, or too long to show)"
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), path, path, n=2)
    text = "".join(line if line.endswith("\n") else line + "\n\\ no newline at the end\n" for line in lines)
    return (
        text if len(text) <= DIFF_CHARS else text[:DIFF_CHARS] + f"\n[… {len(text) - DIFF_CHARS} more characters …]\n"
    )


def preview(host: Host, args: WriteFileArgs) -> str:
    """The diff that `run` would make, for whoever approves it. A read."""
    if args.content is None:
        return f"{args.path}: back to what it was before this run"
    got = _ask(host, {"op": "read", "path": args.path, "limit": LIMIT}, None)
    return diff(got["text"] if got["exists"] else "", args.content, args.path)


def _ask(host: Host, wanted: dict[str, Any], stdin: str | None) -> dict[str, Any]:
    got = probes.ask(host, "file", wanted, stdin=stdin)
    if got.get("error"):
        raise ToolFailed(str(got["error"]), where=host.name, hint="nothing was changed")
    return got


def probe(host: Host, args: WriteFileArgs, ctx: Context) -> WriteFileResult | None:
    """After an unknown outcome: whether the file has the wanted text."""
    got = _ask(host, {"op": "read", "path": args.path, "limit": LIMIT}, None)
    wanted = hashlib.sha256(args.content.encode()).hexdigest() if args.content is not None else None
    if not got["exists"] or got["sha256"] != wanted:
        return None
    backup = f"{BACKUPS}/{ctx.run_id}/{args.path.strip('/').replace('/', '__')}" if args.sha256 else ""
    return WriteFileResult(
        path=args.path, changed=True, created=args.sha256 == "", before=args.sha256 or None, after=wanted,
        backup=f"{backup}.{args.sha256[:12]}" if args.sha256 else None, diff="", summary=f"{args.path} has the wanted text",
    )  # fmt: skip


TOOL = Tool(
    name="write_file",
    description=(
        "Write a whole text file on a host: atomically, with a backup outside its folder and a diff. Give sha256 (from an "
        "earlier read) so that nothing is overwritten that changed in between. restore=<its result> undoes it."
    ),
    args=WriteFileArgs,
    result=WriteFileResult,
    run=run,
    tier="R1",
    recovery="reconcilable",
    probe=probe,
)
