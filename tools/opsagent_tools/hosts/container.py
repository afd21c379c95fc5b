"""A Proxmox container as a host: every argv becomes `pct exec CT -- argv` on its parent."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from opsagent_tools.errors import HostUnreachable
from opsagent_tools.host import Argv, Command, Completed, Host, Sink
from opsagent_tools.hosts.wire import check, limited, timed_out

NOT_THERE = re.compile(r"container '\d+' not running!|Configuration file '[^']*/lxc/\d+\.conf' does not exist")
"""What `pct exec` says when there is no container to run in; its exit code then is no command's."""
OUTER_S = 15.0
"""What the parent's limit leaves to the container's own one: both end the same command, the inner one first."""


@dataclass(frozen=True)
class ContainerHost:
    """`pct exec` gives no login shell and the parent's environment; the exit code is the command's own.

    The time limit is set inside the container too: ending `pct exec` alone would leave the command running in there.
    """

    name: str
    parent: Host
    ctid: int
    owns_parent: bool = False

    def wrapped(self, command: Command) -> Command:
        """The command as the parent runs it (the gate looks at both)."""
        check(command)
        stages = tuple(self._stage(argv, command) for argv in command.stages)
        return replace(command, stages=stages, env={}, timeout_s=command.timeout_s + OUTER_S)

    def _stage(self, argv: Argv, command: Command) -> Argv:
        env = tuple(f"{name}={value}" for name, value in command.env.items())
        inner = limited(argv, command.timeout_s)
        return ("pct", "exec", str(self.ctid), "--", *(("env", *env) if env else ()), *inner)

    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        done = self.parent.run(self.wrapped(command), sink=sink, keep=keep)
        if not done.ok and not done.stdout and (refusal := NOT_THERE.search(done.stderr)):
            hint = f"on {self.parent.name}: pct status {self.ctid}; nothing was executed"
            raise HostUnreachable(refusal[0].strip(), where=self.name, hint=hint)
        late = timed_out(done.exit_code, done.duration_s, command.timeout_s)
        return replace(done, exit_code=124, timed_out=True) if late else done

    def close(self) -> None:
        if self.owns_parent:
            self.parent.close()
