"""sh, bash, dash, and the commands that are built into them."""

from __future__ import annotations

import posixpath

from opsagent_lab import files as lab_files
from opsagent_lab.processes import NotRunnable, which
from opsagent_lab.program import Exit, Process, Registry
from opsagent_lab.programs.expressions import test
from opsagent_lab.programs.text import echo_text, printf_text
from opsagent_lab.shell import Shell, Streams, new_shell, run_text


def _cd(shell: Shell, argv: list[str], streams: Streams) -> int:
    target = argv[1] if len(argv) > 1 else shell.variables.get("HOME", "/root")
    path = posixpath.normpath(posixpath.join(shell.process.sim.cwd, target))
    node = shell.process.files.find(path)
    if node is None or node.kind != "dir":
        shell.complain(streams, f"cd: {target}: {'Not a directory' if node else 'No such file or directory'}")
        return 1
    shell.process.sim.cwd = path
    shell.variables["PWD"] = path
    return 0


def _exit(shell: Shell, argv: list[str], _streams: Streams) -> int:
    if len(argv) > 1 and not argv[1].lstrip("-").isdigit():
        raise Exit(2)
    raise Exit(int(argv[1]) & 255 if len(argv) > 1 else shell.status)


def _export(shell: Shell, argv: list[str], streams: Streams) -> int:
    for item in argv[1:]:
        name, given, value = item.partition("=")
        if not name.isidentifier():
            shell.complain(streams, f"export: `{item}': not a valid identifier")
            return 1
        if given:
            shell.variables[name] = value
        shell.exported.add(name)
    return 0


def _unset(shell: Shell, argv: list[str], _streams: Streams) -> int:
    for name in argv[1:]:
        shell.variables.pop(name, None)
        shell.exported.discard(name)
    return 0


def _set(shell: Shell, argv: list[str], streams: Streams) -> int:
    args = argv[1:]
    while args:
        item = args.pop(0)
        names = [args.pop(0)] if item in ("-o", "+o") and args else list(item[1:])
        if "o" in names and args and item not in ("-o", "+o"):
            names = [n for n in names if n != "o"] + [args.pop(0)]
        for name in names:
            short = {"errexit": "e", "nounset": "u", "xtrace": "x"}.get(name, name)
            if short not in ("e", "u", "x", "pipefail"):
                shell.complain(streams, f"set: {item}: invalid option")
                return 2
            (shell.options.add if item[0] == "-" else shell.options.discard)(short)
    return 0


def _command(shell: Shell, argv: list[str], streams: Streams) -> int:
    if len(argv) < 3 or argv[1] not in ("-v", "-V"):
        shell.complain(streams, "command: only -v is supported here")
        return 2
    code = 0
    for name in argv[2:]:
        if name in shell.builtins:
            streams.out(f"{name}\n".encode())
            continue
        try:
            path, _node = which(
                shell.process.world, shell.process.host, name, shell.environment(), shell.process.sim.cwd
            )
            streams.out(f"{path}\n".encode())
        except NotRunnable:
            code = 1
    return code


def _type(shell: Shell, argv: list[str], streams: Streams) -> int:
    code = 0
    for name in [a for a in argv[1:] if not a.startswith("-")]:
        if name in shell.builtins:
            streams.out(f"{name} is a shell builtin\n".encode())
            continue
        try:
            path, _node = which(
                shell.process.world, shell.process.host, name, shell.environment(), shell.process.sim.cwd
            )
            streams.out(f"{name} is {path}\n".encode())
        except NotRunnable:
            shell.complain(streams, f"type: {name}: not found")
            code = 1
    return code


def _echo(_shell: Shell, argv: list[str], streams: Streams) -> int:
    streams.out(echo_text(argv[1:]))
    return 0


def _printf(shell: Shell, argv: list[str], streams: Streams) -> int:
    if len(argv) < 2:
        shell.complain(streams, "printf: usage: printf [-v var] format [arguments]")
        return 2
    streams.out(printf_text(argv[1], argv[2:]))
    return 0


def _test(shell: Shell, argv: list[str], streams: Streams) -> int:
    return test(shell.process, argv, lambda text: shell.complain(streams, text))


def _pwd(shell: Shell, _argv: list[str], streams: Streams) -> int:
    streams.out(f"{shell.process.sim.cwd}\n".encode())
    return 0


def _true(_shell: Shell, _argv: list[str], _streams: Streams) -> int:
    return 0


def _false(_shell: Shell, _argv: list[str], _streams: Streams) -> int:
    return 1


def _exec(shell: Shell, argv: list[str], streams: Streams) -> int:
    env = shell.environment()
    raise Exit(shell.process.run(argv[1:], env=env, stdin=streams.stdin, out=streams.out, err=streams.err))


def _ulimit(shell: Shell, argv: list[str], streams: Streams) -> int:
    if argv[1:] in ([], ["-n"]):
        streams.out(b"1024\n" if argv[1:] else b"unlimited\n")
    elif argv[1:2] not in (["-n"], ["-c"], ["-l"], ["-Hn"], ["-Sn"]):
        shell.complain(streams, f"ulimit: {argv[1]}: invalid option")
        return 2
    return 0


BUILTINS = {
    "cd": _cd,
    "exit": _exit,
    "export": _export,
    "unset": _unset,
    "set": _set,
    "command": _command,
    "type": _type,
    "echo": _echo,
    "printf": _printf,
    "test": _test,
    "[": _test,
    "pwd": _pwd,
    "true": _true,
    ":": _true,
    "false": _false,
    "exec": _exec,
    "ulimit": _ulimit,
    "umask": _true,
    "wait": _true,
}


def _shell(process: Process) -> int:
    """sh [-elux] [-o pipefail] [-c text [name args…] | file args…]; without either the text comes from stdin."""
    shell = new_shell(process, "bash" if process.name in ("bash", "-bash") else process.name, BUILTINS)
    args, command = process.args, False
    while args and args[0].startswith("-") and len(args[0]) > 1:
        item = args.pop(0)
        if item in ("--login", "--norc", "--noprofile", "--"):
            continue
        if item.startswith("--"):
            process.write_err(
                f"{process.name}: {item}: invalid option\nUsage:\t{process.name} [GNU long option] [option] ...\n"
            )
            return 2
        for letter in item[1:]:
            if letter == "c":
                command = True
            elif letter == "o" and args:
                shell.options.add(args.pop(0))
            elif letter in "eux":
                shell.options.add(letter)
            elif letter not in "lisvh":
                process.write_err(f"{process.name}: -{letter}: invalid option\nUsage:\t{process.name} [option] ...\n")
                return 2
    streams = Streams(process.stdin, process.out, process.err)
    if command:
        if not args:
            process.write_err(f"{process.name}: -c: option requires an argument\n")
            return 2
        text, shell.parameters = args[0], args[1:] or [process.name]
    elif args:
        return _script(shell, args, streams)
    else:
        text = process.stdin.read().decode("utf-8", "replace")
    return _finish(shell, text, streams)


def _finish(shell: Shell, text: str, streams: Streams) -> int:
    try:
        return run_text(shell, text, streams)
    except Exit as stop:
        return stop.code & 255


def _script(shell: Shell, args: list[str], streams: Streams) -> int:
    """`sh FILE`: a self-extracting installer runs as the program that it is; text is read as a script."""
    process = shell.process
    path = process.path(args[0])
    try:
        node = process.files.get(path)
        if node.program:
            return process.world.registry[node.program](_renamed(process, args))
        text = process.files.text(path)
    except OSError as problem:
        missing = isinstance(problem, FileNotFoundError)
        process.write_err(f"{process.name}: {args[0]}: {lab_files.words(problem)}\n")
        return 127 if missing else 126
    shell.parameters = args
    return _finish(shell, text, streams)


def _renamed(process: Process, argv: list[str]) -> Process:
    process.argv = argv
    return process


PROGRAMS: Registry = {name: _shell for name in ("sh", "bash", "dash")}
