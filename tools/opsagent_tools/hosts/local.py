"""This machine as a host: the reserved name `local`. No shell, no SSH; the same limits as over SSH."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field

from opsagent_tools.host import Command, Completed, Sink, Stream
from opsagent_tools.hosts.output import Clip
from opsagent_tools.hosts.wire import KILL_AFTER_S, PLAIN_ENV, check

CHUNK = 65536
LINGER_S = 1.0
"""How long output is still read after the command ended: a daemon that kept its descriptors must not hold us."""
OURS = ("OPENAI_", "OPSAGENT_LLM", "PYTHONPATH", "PYTHONHOME")
"""Names that belong to our own process and not to what we start."""


@dataclass
class LocalHost:
    """Runs argv as child processes, each pipe in a process group of its own."""

    name: str = "local"
    slots: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(8), repr=False)

    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        check(command)
        started = time.monotonic()
        with self.slots:
            try:
                pipe = _spawn(command)
            except OSError as error:
                code = 127 if isinstance(error, FileNotFoundError) else 126
                words = f"{error.filename or command.stages[0][0]}: {error.strerror}\n"
                if sink:
                    sink("stderr", words.encode())
                return Completed(code, "", words, 0, len(words.encode()), time.monotonic() - started)
            try:
                return _follow(pipe, command, sink, keep, started)
            finally:
                pipe.close()

    def close(self) -> None:
        """Nothing to close; jobs that were started go on."""


@dataclass
class _Pipe:
    """The processes of a pipe, and the descriptors that we read."""

    processes: list[subprocess.Popen[bytes]]
    out: int
    err: int

    def signal(self, sig: int) -> None:
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, sig)

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        for descriptor in (self.out, self.err):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        for process in self.processes:
            process.wait()

    @property
    def ended(self) -> bool:
        return all(process.poll() is not None for process in self.processes)


def _environment(command: Command) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**inherited, **PLAIN_ENV, **command.env}


def _spawn(command: Command) -> _Pipe:
    env, processes = _environment(command), list[subprocess.Popen[bytes]]()
    err_read, err_write = os.pipe()
    source: int | None = None
    try:
        for number, argv in enumerate(command.stages):
            first = number == 0
            stdin: int = subprocess.PIPE if first and command.stdin is not None else (source or subprocess.DEVNULL)
            process = subprocess.Popen(
                argv, stdin=stdin, stdout=subprocess.PIPE, stderr=err_write, env=env, start_new_session=True
            )
            processes.append(process)
            if source is not None:
                os.close(source)
            assert process.stdout is not None
            source = os.dup(process.stdout.fileno())
            process.stdout.close()
    except OSError:
        os.close(err_read)
        if source is not None:
            os.close(source)
        for process in processes:
            process.kill()
            process.wait()
        raise
    finally:
        os.close(err_write)
    assert source is not None
    if command.stdin is not None:
        threading.Thread(target=_feed, args=(processes[0], command.stdin), daemon=True).start()
    return _Pipe(processes, source, err_read)


def _feed(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):  # it ended without reading everything
        process.stdin.write(text.encode())
    with contextlib.suppress(OSError, ValueError):
        process.stdin.close()


def _follow(pipe: _Pipe, command: Command, sink: Sink | None, keep: int, started: float) -> Completed:
    clips: dict[Stream, Clip] = {"stdout": Clip(keep), "stderr": Clip(keep)}
    deadline = started + command.timeout_s
    timed_out, ended_at = False, None
    with selectors.DefaultSelector() as selector:
        selector.register(pipe.out, selectors.EVENT_READ, "stdout")
        selector.register(pipe.err, selectors.EVENT_READ, "stderr")
        while selector.get_map() or not pipe.ended:
            for key, _ in selector.select(0.1) if selector.get_map() else ():
                data = os.read(key.fd, CHUNK)
                if not data:
                    selector.unregister(key.fd)
                    continue
                stream: Stream = key.data
                clips[stream].add(data)
                if sink:
                    sink(stream, data)
            now = time.monotonic()
            if not selector.get_map() and not pipe.ended:
                time.sleep(0.005)
            if not timed_out and now >= deadline:
                timed_out = True
                pipe.signal(signal.SIGTERM)
            elif timed_out and now >= deadline + KILL_AFTER_S:
                pipe.signal(signal.SIGKILL)
            if pipe.ended:
                ended_at = ended_at or now
                if now - ended_at >= LINGER_S:
                    break
    code = pipe.processes[-1].returncode
    return Completed(
        124 if timed_out else (code if code >= 0 else 128 - code), clips["stdout"].text(), clips["stderr"].text(),
        clips["stdout"].total, clips["stderr"].total, time.monotonic() - started, timed_out,
    )  # fmt: skip
