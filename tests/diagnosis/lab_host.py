"""A `Host` in front of a small simulated world, without SSH between."""

from __future__ import annotations

from dataclasses import dataclass

from lab_engine.support import Lab

from opsagent_tools.host import Command, Completed, Sink


@dataclass(frozen=True)
class InLab:
    """Runs one argv at a time inside the simulated machine."""

    lab: Lab
    name: str = "gpu"

    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        (words,) = command.stages
        stdin = (command.stdin or "").encode()
        if words[0] in ("cat", "head", "tail", "stat"):
            return self._read(words, sink)
        code, out, err = self.lab.call(*words, stdin=stdin)
        if sink is not None:
            sink("stdout", out.encode())
        return Completed(code, out, err, len(out), len(err), 0.0)

    def _read(self, words: tuple[str, ...], sink: Sink | None) -> Completed:
        """Reading a file, which that world's registry may lack the programs for."""
        data = self.lab.log(words[-1]).encode()
        if words[0] == "stat":
            data = b"%d\n" % len(data)
        elif words[0] == "head":
            data = data[: int(words[2])]
        elif words[0] == "tail":
            data = data[-int(words[2]) :]
        if sink is not None:
            sink("stdout", data)
        return Completed(0, data.decode(), "", len(data), 0, 0.0)

    def close(self) -> None:
        return
