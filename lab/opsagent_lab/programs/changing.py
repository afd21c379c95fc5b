"""Programs that change files: mkdir, cp, mv, rm, rmdir, ln, touch, chmod, chown, mktemp, truncate, sync."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace

from opsagent_lab.files import on_disk, words
from opsagent_lab.program import Exit, Process, Registry
from opsagent_lab.programs.options import Options, read, usage

COPY_RATE = 1.5e9
"""Bytes per simulated second."""


def _need(process: Process, options: Options, count: int = 1) -> None:
    if len(options.operands) < count:
        if options.operands and count == 2:
            raise usage(process, f"missing destination file operand after '{options.operands[0]}'")
        raise usage(process, "missing file operand" if count == 2 else "missing operand")


def _mkdir(process: Process) -> int:
    options = read(process, "pv", "m", {"parents": "p", "mode=": "m", "verbose": "v"})
    _need(process, options)
    mode = int(options.last("m", "755"), 8) if re.fullmatch(r"[0-7]+", options.last("m", "755")) else 0o755
    code = 0
    for name in options.operands:
        path = process.path(name)
        try:
            new = not process.files.exists(path)
            process.files.mkdir(path, parents="p" in options, mode=mode)
            if new and "m" in options:
                process.files.get(path).mode = mode
            if new and "v" in options:
                process.write_out(f"mkdir: created directory '{name}'\n")
        except OSError as problem:
            code = process.fail(f"cannot create directory '{name}': {words(problem)}")
    return code


def _targets(process: Process, options: Options) -> list[tuple[str, str]]:
    """Pairs of source and destination for cp, mv and ln."""
    _need(process, options, 1 if "t" in options else 2)
    operands = list(options.operands)
    into = options.last("t") or operands.pop()
    folder = "T" not in options and process.files.is_dir(process.path(into))
    if (len(operands) > 1 or "t" in options) and not folder:
        process.write_err(f"{process.name}: target '{into}' is not a directory\n")
        raise Exit(1)
    return [(s, posixpath.join(into, posixpath.basename(s.rstrip("/"))) if folder else into) for s in operands]


CP_LONG = {
    "archive": "a", "recursive": "r", "force": "f", "no-clobber": "n", "preserve?": "p", "verbose": "v",
    "target-directory=": "t",
    "no-target-directory": "T", "update": "u", "dereference": "L", "interactive": "i", "reflink?": "reflink",
    "sparse=": "sparse",
}  # fmt: skip


def _cp(process: Process) -> int:
    options = read(process, "arRfnpvuLdTi", "t", CP_LONG)
    code = 0
    for source, target in _targets(process, options):
        old, new = process.path(source), process.path(target)
        node = process.files.find(old, follow=not {"a", "d"} & options.given.keys())
        if node is None:
            code = process.fail(f"cannot stat '{source}': No such file or directory")
        elif node.kind == "dir" and not {"a", "r", "R"} & options.given.keys():
            code = process.fail(f"-r not specified; omitting directory '{source}'")
        elif old == new:
            code = process.fail(f"'{source}' and '{target}' are the same file")
        elif "n" in options and process.files.exists(new):
            continue
        else:
            try:
                _copy(process, old, new, bool({"a", "p"} & options.given.keys()))
                process.write_out(f"'{source}' -> '{target}'\n" if "v" in options else "")
            except OSError as problem:
                code = process.fail(f"cannot create regular file '{target}': {words(problem)}")
    return code


def _copy(process: Process, old: str, new: str, keep: bool) -> None:
    for path, node in list(process.files.walk(old)):
        target = new + path[len(old) :]
        if node.kind == "dir":
            process.files.mkdir(target, parents=path != old)
            continue
        if node.kind == "link" and not keep:
            node = process.files.get(path)
        if node.kind == "file" and path.startswith(("/proc/", "/sys/")):
            process.files.write(target, process.files.read(path))
            continue
        process.sleep(node.size / COPY_RATE)
        parent = process.files.get(posixpath.dirname(target))
        if parent.kind != "dir":
            raise NotADirectoryError(20, "Not a directory", target)
        if on_disk(node) > process.files.free(target):
            raise OSError(28, "No space left on device", target)
        real = process.files.resolve(target)
        process.files.nodes[real] = replace(node, mtime=node.mtime if keep else process.now, notes=dict(node.notes))


def _mv(process: Process) -> int:
    options = read(process, "fnviuT", "t", CP_LONG)
    code = 0
    for source, target in _targets(process, options):
        old, new = process.path(source), process.path(target)
        if process.files.find(old, follow=False) is None:
            code = process.fail(f"cannot stat '{source}': No such file or directory")
            continue
        if "n" in options and process.files.exists(new):
            continue
        try:
            if process.files.disk(old) is not process.files.disk(new):
                _copy(process, old, new, True)
                process.files.remove_tree(old)
            else:
                process.files.rename(old, new)
            process.write_out(f"renamed '{source}' -> '{target}'\n" if "v" in options else "")
        except OSError as problem:
            code = process.fail(f"cannot move '{source}' to '{target}': {words(problem)}")
    return code


def _rm(process: Process) -> int:
    long = {"recursive": "r", "force": "f", "verbose": "v", "dir": "d", "one-file-system": "one", "preserve-root?": "keep",
            "no-preserve-root": "all", "interactive?": "i"}  # fmt: skip
    options = read(process, "rRfvdiI", "", long)
    if not options.operands and "f" not in options:
        raise usage(process, "missing operand")
    recursive = bool({"r", "R"} & options.given.keys())
    code = 0
    for name in options.operands:
        path = process.path(name)
        node = process.files.find(path, follow=False)
        if node is None:
            if "f" not in options:
                code = process.fail(f"cannot remove '{name}': No such file or directory")
            continue
        if posixpath.normpath(path) == "/" and "all" not in options:
            process.write_err(
                "rm: it is dangerous to operate recursively on '/'\nrm: use --no-preserve-root to override this failsafe\n"
            )
            code = 1
            continue
        try:
            if node.kind == "dir" and recursive:
                process.files.remove_tree(path)
            elif node.kind == "dir" and "d" in options:
                process.files.rmdir(path)
            else:
                process.files.unlink(path)
            process.world.count(process.host, f"rm {path}")
            process.write_out(f"removed '{name}'\n" if "v" in options else "")
        except OSError as problem:
            code = process.fail(f"cannot remove '{name}': {words(problem)}")
    return code


def _rmdir(process: Process) -> int:
    options = read(process, "pv", "", {"parents": "p", "ignore-fail-on-non-empty": "i", "verbose": "v"})
    _need(process, options)
    code = 0
    for name in options.operands:
        try:
            process.files.rmdir(process.path(name))
        except OSError as problem:
            code = process.fail(f"failed to remove '{name}': {words(problem)}")
    return code


def _ln(process: Process) -> int:
    options = read(process, "sfnvrT", "t", {"symbolic": "s", "force": "f", "no-dereference": "n", "relative": "r"})
    code = 0
    for source, target in _targets(process, options):
        new = process.path(target)
        try:
            if "f" in options and process.files.find(new, follow=False) is not None:
                process.files.unlink(new)
            if "s" in options:
                process.files.symlink(source, new)
            else:
                process.files.put(new, process.files.get(process.path(source), follow=False))
        except OSError as problem:
            kind = "symbolic link" if "s" in options else "hard link"
            code = process.fail(f"failed to create {kind} '{target}': {words(problem)}")
    return code


def _touch(process: Process) -> int:
    options = read(process, "acm", "dtr", {"no-create": "c", "date=": "d", "reference=": "r"})
    _need(process, options)
    code = 0
    for name in options.operands:
        path = process.path(name)
        try:
            node = process.files.find(path)
            if node is not None:
                node.mtime = process.now
            elif "c" not in options:
                process.files.write(path, b"")
        except OSError as problem:
            code = process.fail(f"cannot touch '{name}': {words(problem)}")
    return code


def _chmod(process: Process) -> int:
    args = ["./" + a if re.fullmatch(r"-[rwxXst]+", a) else a for a in process.args]
    options = read(process, "Rvcf", "", {"recursive": "R", "verbose": "v", "reference=": "ref"}, args=args)
    _need(process, options)
    text, names = options.operands[0].removeprefix("./"), options.operands[1:]
    if not names:
        raise usage(process, f"missing operand after '{text}'")
    code = 0
    for name in names:
        path = process.path(name)
        try:
            for _at, node in process.files.walk(path) if "R" in options else [(path, process.files.get(path))]:
                node.mode = _mode(process, text, node.mode, node.kind == "dir")
        except OSError as problem:
            code = process.fail(f"cannot access '{name}': {words(problem)}")
    return code


def _mode(process: Process, text: str, old: int, folder: bool) -> int:
    if re.fullmatch(r"[0-7]{1,4}", text):
        return int(text, 8)
    mode = old
    for part in text.split(","):
        match = re.fullmatch(r"([ugoa]*)([-+=])([rwxXst]*)", part)
        if match is None:
            raise usage(process, f"invalid mode: '{text}'")
        who, op, what = match.groups()
        value = 4 * ("r" in what) + 2 * ("w" in what) + ("x" in what or ("X" in what and (folder or bool(old & 0o111))))
        for person in who.replace("a", "ugo") or "ugo":
            shift = {"u": 6, "g": 3, "o": 0}[person]
            if op == "=":
                mode &= ~(7 << shift)
            mode = mode & ~(value << shift) if op == "-" else mode | value << shift
    return mode


def _chown(process: Process) -> int:
    options = read(process, "Rvhf", "", {"recursive": "R", "no-dereference": "h"})
    _need(process, options)
    owner, names = options.operands[0].split(":")[0], options.operands[1:]
    if not names:
        raise usage(process, f"missing operand after '{options.operands[0]}'")
    code = 0
    for name in names:
        path = process.path(name)
        try:
            for _at, node in process.files.walk(path) if "R" in options else [(path, process.files.get(path))]:
                node.owner = owner or node.owner
        except OSError as problem:
            code = process.fail(f"cannot access '{name}': {words(problem)}")
    return code


def _mktemp(process: Process) -> int:
    options = read(process, "dqut", "p", {"directory": "d", "tmpdir?": "p", "quiet": "q", "suffix=": "s"})
    form = (options.operands or ["tmp.XXXXXXXXXX"])[0]
    if "XXX" not in form:
        return process.fail(f"too few X's in template '{form}'")
    letters = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
    name = re.sub(r"X{3,}$", lambda m: "".join(process.world.random.choice(letters) for _ in m.group(0)), form)
    path = (
        process.path(name)
        if options.operands and "p" not in options
        else posixpath.join(options.last("p") or "/tmp", name)
    )
    try:
        if "d" in options:
            process.files.mkdir(path, mode=0o700)
        elif "u" not in options:
            process.files.write(path, b"", mode=0o600)
    except OSError as problem:
        return process.fail(f"failed to create file via template '{form}': {words(problem)}")
    process.write_out(path + "\n")
    return 0


def _truncate(process: Process) -> int:
    options = read(process, "c", "s", {"size=": "s", "no-create": "c"})
    if "s" not in options:
        raise usage(process, "you must specify either '--size' or '--reference'")
    match = re.fullmatch(r"(\d+)([KMGT]?)", options.last("s"))
    if match is None:
        return process.fail(f"Invalid number: '{options.last('s')}'")
    size = int(match.group(1)) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[match.group(2)]
    for name in options.operands:
        path = process.path(name)
        if not process.files.exists(path):
            process.files.write(path, b"")
        node = process.files.get(path)
        node.size, node.data, node.sha256, node.allocated, node.mtime = size, node.data[:size], "", 0, process.now
    return 0


def _sync(_process: Process) -> int:
    return 0


PROGRAMS: Registry = {
    "mkdir": _mkdir, "cp": _cp, "mv": _mv, "rm": _rm, "rmdir": _rmdir, "ln": _ln, "touch": _touch, "chmod": _chmod,
    "chown": _chown, "mktemp": _mktemp, "truncate": _truncate, "sync": _sync,
}  # fmt: skip
