"""The shells of the lab's hosts: run what `shell_parse` reads, with builtins, pipes in threads, redirections and `$?`."""

from __future__ import annotations

import io
import posixpath
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from opsagent_lab import files as lab_files
from opsagent_lab.pipes import Pipe
from opsagent_lab.processes import NotRunnable, which
from opsagent_lab.program import Exit, Killed, Process, Stdin, Writer
from opsagent_lab.shell_parse import Pipeline, Redirect, ShellSyntax, Simple, Word, parse


@dataclass(frozen=True, slots=True)
class Streams:
    """Where a command reads and writes."""

    stdin: Stdin
    out: Writer
    err: Writer


@dataclass
class Shell:
    """One shell process: its variables, options and the last exit code."""

    process: Process
    name: str = "bash"
    variables: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    parameters: list[str] = field(default_factory=lambda: ["bash"])
    status: int = 0
    background: int = 0
    options: set[str] = field(default_factory=set)
    builtins: dict[str, Callable[[Shell, list[str], Streams], int]] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        return {k: v for k, v in self.variables.items() if k in self.exported}

    def complain(self, streams: Streams, text: str) -> None:
        prefix = f"{self.name}: line 1" if self.name == "bash" else f"{self.name}: 1"
        streams.err(f"{prefix}: {text}\n".encode())


def run_text(shell: Shell, text: str, streams: Streams) -> int:
    """Run a command line or script; returns its exit code. `exit` leaves by Exit, which the caller turns into the code."""
    try:
        pipelines = parse(text)
    except ShellSyntax as problem:
        first = text.strip().splitlines()[0] if text.strip() else ""
        if shell.name == "bash":
            streams.err(f"bash: -c: line 1: {problem.words}\nbash: -c: line 1: `{first}'\n".encode())
        else:
            streams.err(f'{shell.name}: 1: Syntax error: "{problem.words}"\n'.encode())
        return 2
    for pipeline in pipelines:
        if (pipeline.joiner == "&&" and shell.status) or (pipeline.joiner == "||" and not shell.status):
            continue
        shell.status = (
            _background(shell, pipeline, streams) if pipeline.background else _pipeline(shell, pipeline, streams)
        )
        if shell.status and "e" in shell.options and not pipeline.negated and not _guarded(pipelines, pipeline):
            raise Exit(shell.status)
    return shell.status


def _guarded(pipelines: list[Pipeline], pipeline: Pipeline) -> bool:
    """Whether `set -e` overlooks a failure because a `&&` or `||` follows."""
    after = pipelines.index(pipeline) + 1
    return after < len(pipelines) and pipelines[after].joiner in ("&&", "||")


def _background(shell: Shell, pipeline: Pipeline, streams: Streams) -> int:
    """`command &`: a process of its own that survives the shell."""
    if len(pipeline.stages) != 1:
        shell.complain(streams, "syntax error near unexpected token `&'")
        return 2
    simple = pipeline.stages[0]
    inner, argv = _prepare(shell, simple, replace(streams, stdin=io.BytesIO()))
    env = shell.environment() | {name: _join(shell, word) for name, word in simple.assignments}
    sim = shell.process.world.spawn(
        shell.process.host,
        argv,
        env=env,
        out=inner.out,
        err=inner.err,
        stdin=inner.stdin,
        ppid=1,
        cgroup=shell.process.sim.cgroup,
        cwd=shell.process.sim.cwd,
        user=shell.process.user,
    )
    shell.background = sim.pid
    return 0


def _pipeline(shell: Shell, pipeline: Pipeline, streams: Streams) -> int:
    codes = [0] * len(pipeline.stages)
    if len(pipeline.stages) == 1:
        codes[0] = _simple(shell, pipeline.stages[0], streams)
    else:
        _stages(shell, pipeline, streams, codes)
    code = codes[-1]
    if "pipefail" in shell.options:
        code = next((c for c in reversed(codes) if c), 0)
    return int(not code) if pipeline.negated else code


def _stages(shell: Shell, pipeline: Pipeline, streams: Streams, codes: list[int]) -> None:
    """Run the stages of a pipe side by side; each is a subshell, so `exit` and `cd` in it stay in it."""
    check = shell.process.checkpoint
    pipes = [Pipe(check) for _ in pipeline.stages[1:]]
    ends: list[BaseException] = []

    def body(number: int) -> None:
        stdin: Stdin = streams.stdin if number == 0 else pipes[number - 1]
        out = streams.out if number == len(pipes) else pipes[number].write
        copy = replace(shell, variables=dict(shell.variables), exported=set(shell.exported))
        try:
            codes[number] = _simple(copy, pipeline.stages[number], Streams(stdin, out, streams.err))
        except Exit as stop:
            codes[number] = stop.code
        except BrokenPipeError:
            codes[number] = 141
        except BaseException as problem:
            ends.append(problem)
        finally:
            if number < len(pipes):
                pipes[number].end()
            if number > 0:
                pipes[number - 1].abandon()

    threads = [threading.Thread(target=body, args=(n,), daemon=True) for n in range(len(pipeline.stages))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if ends:
        raise ends[0]


def _simple(shell: Shell, simple: Simple, streams: Streams) -> int:
    try:
        inner, argv = _prepare(shell, simple, streams)
    except OSError as problem:
        shell.complain(streams, f"{problem.filename}: {lab_files.words(problem)}")
        return 1
    values = {name: _join(shell, word) for name, word in simple.assignments}
    if not argv:
        shell.variables.update(values)
        return 0
    builtin = shell.builtins.get(argv[0])
    if builtin is not None:
        try:
            return builtin(shell, argv, inner)
        except BrokenPipeError:
            raise
        except OSError as problem:
            shell.complain(streams, f"{argv[0]}: write error: {lab_files.words(problem)}")
            return 1
    env = shell.environment() | values
    try:
        path, _node = which(shell.process.world, shell.process.host, argv[0], env, shell.process.sim.cwd)
    except NotRunnable as problem:
        shell.complain(inner, f"{argv[0]}: {problem.words}")
        return problem.code
    del path
    return shell.process.run(argv, env=env, stdin=inner.stdin, out=inner.out, err=inner.err)


def _prepare(shell: Shell, simple: Simple, streams: Streams) -> tuple[Streams, list[str]]:
    """Apply the redirections and expand the words."""
    for redirect in simple.redirects:
        streams = _redirected(shell, redirect, streams)
    return streams, [text for word in simple.words for text in expand(shell, word)]


def _redirected(shell: Shell, redirect: Redirect, streams: Streams) -> Streams:
    target = _join(shell, redirect.target)
    tree, path = shell.process.files, posixpath.normpath(posixpath.join(shell.process.sim.cwd, target))
    if redirect.kind == "<":
        return replace(streams, stdin=io.BytesIO(tree.read(path)))
    if redirect.kind == ">&":
        writer = {"1": streams.out, "2": streams.err}.get(target)
        if writer is None:
            raise OSError(9, "Bad file descriptor", target)
    else:
        if not path.startswith(("/sys/", "/proc/")) and (redirect.kind == ">" or not tree.exists(path)):
            tree.write(path, b"")
        writer = _discard if path == "/dev/null" else _appender(shell, path)
    return replace(streams, out=writer) if redirect.fd == 1 else replace(streams, err=writer)


def _discard(_data: bytes) -> None:
    return None


def _appender(shell: Shell, path: str) -> Writer:
    tree = shell.process.files

    def write(data: bytes) -> None:
        tree.write(path, data, append=True)

    return write


# -- expansion


def _value(shell: Shell, name: str) -> str:
    if name == "?":
        return str(shell.status)
    if name == "$":
        return str(shell.process.sim.pid)
    if name == "!":
        return str(shell.background or "")
    if name == "#":
        return str(len(shell.parameters) - 1)
    if name in ("@", "*"):
        return " ".join(shell.parameters[1:])
    if name.isdigit():
        return shell.parameters[int(name)] if int(name) < len(shell.parameters) else ""
    if name not in shell.variables and "u" in shell.options:
        shell.process.err(f"{shell.name}: line 1: {name}: unbound variable\n".encode())
        raise Exit(1)
    return shell.variables.get(name, "")


def _join(shell: Shell, word: Word) -> str:
    """A word as one string, without splitting (assignments, redirections)."""
    text = "".join(_value(shell, p.text) if p.variable else p.text for p in word.pieces)
    first = word.pieces[0] if word.pieces else None
    if first is not None and not first.quoted and not first.variable and (text == "~" or text.startswith("~/")):
        return shell.variables.get("HOME", "/root") + text[1:]
    return text


def expand(shell: Shell, word: Word) -> list[str]:
    """A word as arguments: variables, splitting of unquoted ones, globs, tilde."""
    if len(word.pieces) == 2 and word.pieces[1].variable and word.pieces[1].text == "@" and word.pieces[1].quoted:
        return shell.parameters[1:]
    fields: list[tuple[str, str]] = [("", "")]
    solid = any(p.quoted for p in word.pieces)
    for piece in word.pieces:
        text = _value(shell, piece.text) if piece.variable else piece.text
        if piece.variable and not piece.quoted:
            parts = text.split()
            solid = solid or bool(parts)
            if text[:1].isspace() and fields[-1][0]:
                fields.append(("", ""))
            for number, part in enumerate(parts):
                if number:
                    fields.append(("", ""))
                fields[-1] = (fields[-1][0] + part, fields[-1][1] + part)
            continue
        mask = "\0" * len(text) if piece.quoted else text
        fields[-1] = (fields[-1][0] + text, fields[-1][1] + mask)
        solid = solid or bool(text)
    if not solid:
        return []
    if len(fields) == 1 and not any(c in fields[0][1] for c in "*?["):
        return [_join(shell, word)] if fields[0][0].startswith("~") else [fields[0][0]]
    return [match for text, mask in fields for match in _globbed(shell, text, mask)]


def _globbed(shell: Shell, text: str, mask: str) -> list[str]:
    if not any(c in mask for c in "*?["):
        return [text]
    escaped = "".join(f"[{c}]" if m == "\0" and c in "*?[" else c for c, m in zip(text, mask, strict=True))
    base = shell.process.sim.cwd
    found = shell.process.files.glob(posixpath.join(base, escaped))
    if not text.startswith("/"):
        found = [posixpath.relpath(path, base) for path in found]
    return sorted(found) or [text]


def run_login(process: Process, text: str, builtins: dict[str, Callable[[Shell, list[str], Streams], int]]) -> int:
    """What sshd does: the user's login shell with `-c text`."""
    shell = new_shell(process, "bash", builtins)
    try:
        return run_text(shell, text, Streams(process.stdin, process.out, process.err))
    except Exit as stop:
        return stop.code & 255
    except Killed as death:
        return 128 + death.signum


def new_shell(process: Process, name: str, builtins: dict[str, Callable[[Shell, list[str], Streams], int]]) -> Shell:
    return Shell(process, name, dict(process.env), set(process.env), [name], builtins=builtins)
