"""The tool `ssh_exec`: one command, or a pipe, on a host. No shell text."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from opsagent_tools.host import Command, Host, Stream
from opsagent_tools.hosts.output import Clip
from opsagent_tools.tool import Args, Context, Result, Tool

BLOB_BYTES = 32 << 20
"""Whole outputs up to this size are kept as blobs; of longer ones the head and the tail."""

Word = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Argv = Annotated[list[Word], Field(min_length=1)]


class SshExecArgs(Args):
    argv: Argv | None = Field(
        default=None,
        description='The command as a list of words, e.g. ["ss", "-ltnp"]. Not a shell: no globs, pipes, $VARS.',
    )
    stages: Annotated[list[Argv], Field(min_length=1, max_length=8)] | None = Field(
        default=None, description='A pipe, as a list of commands: [["ps", "aux"], ["grep", "sglang"]]. Instead of argv.'
    )
    stdin: str | None = Field(
        default=None, description="Text for the command's standard input. Without it, it is closed."
    )
    timeout_s: float = Field(default=60, gt=0, le=600, description="Seconds until it is killed. Longer work: run_job.")
    ok_codes: list[int] = Field(default=[0], description="Exit codes that are not a failure, e.g. [0, 1] for grep.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.argv is None) == (self.stages is None):
            raise ValueError("give either argv or stages")
        return self

    @property
    def command(self) -> Command:
        """The pipe as the host runs it."""
        stages = self.stages if self.stages is not None else [self.argv or []]
        return Command(tuple(tuple(stage) for stage in stages), stdin=self.stdin, timeout_s=self.timeout_s)


class SshExecResult(Result):
    exit_code: int = Field(description="Of the last stage; 128 + n after signal n; 124 when the time limit ended it.")
    stdout: str
    """Head and tail, when it is long; `blobs` has the whole."""
    stderr: str
    stdout_bytes: int
    stderr_bytes: int
    timed_out: bool
    duration_s: float
    blobs: dict[str, str] = {}
    """sha256 of the whole `stdout` and `stderr`, for those that were clipped."""
    ok: bool
    """Whether the exit code is one of `ok_codes`."""

    @property
    def failed(self) -> bool:
        return not self.ok


def run(host: Host, args: SshExecArgs, ctx: Context | None = None, *, keep: int = 12_000) -> SshExecResult:
    """Run it. Any exit code is a result. Raises HostUnreachable or OutcomeUnknown (see Host)."""
    ctx = ctx or Context()
    whole: dict[Stream, Clip] = {"stdout": Clip(BLOB_BYTES), "stderr": Clip(BLOB_BYTES)}
    done = host.run(args.command, sink=lambda stream, data: whole[stream].add(data), keep=keep)
    blobs = {name: ctx.keep(name, clip.data()) for name, clip in whole.items() if clip.total > keep}
    words = f"killed by the time limit of {args.timeout_s:g} s" if done.timed_out else f"exit {done.exit_code}"
    return SshExecResult(
        exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr, stdout_bytes=done.stdout_bytes,
        stderr_bytes=done.stderr_bytes, timed_out=done.timed_out, duration_s=round(done.duration_s, 3),
        blobs={name: sha for name, sha in blobs.items() if sha}, ok=done.exit_code in args.ok_codes and not done.timed_out,
        summary=words,
    )  # fmt: skip


TOOL = Tool(
    name="ssh_exec",
    description=(
        "Run one command (argv) or a pipe (stages) on a host and return exit code, stdout and stderr, long output clipped "
        "in the middle. There is no shell: no quotes to add, no $VARS, globs, `;`, `&&` or redirections. "
        "Prefer the typed tools where one fits."
    ),
    args=SshExecArgs,
    result=SshExecResult,
    run=run,
    tier="R0",
    recovery="non_retriable",
)
