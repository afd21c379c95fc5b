"""Programs that look at files: ls, stat, readlink, realpath, sha256sum, basename, dirname, file tests."""

from __future__ import annotations

import posixpath
import re
import stat as bits

from opsagent_lab.clock import stamp
from opsagent_lab.files import digest, on_disk, words
from opsagent_lab.program import Process, Registry
from opsagent_lab.programs.options import read, usage
from opsagent_lab.state import Disk, Node

KINDS = {"file": bits.S_IFREG, "dir": bits.S_IFDIR, "link": bits.S_IFLNK, "char": bits.S_IFCHR}


def human(size: float, base: int = 1024) -> str:
    """A size as `ls -h` prints it: rounded up, one digit below ten."""
    if size < base:
        return str(int(size))
    for unit in "KMGTP":
        size /= base
        if size < base:
            tenths = -(-size * 10 // 1)
            return f"{tenths / 10:.1f}{unit}" if tenths < 100 else f"{-(-size // 1):.0f}{unit}"
    return f"{size:.0f}E"


def _mode(node: Node) -> str:
    return bits.filemode(KINDS[node.kind] | node.mode)


def _long(node: Node, name: str, wide: int, sizes: bool) -> str:
    if node.kind == "char":
        size = f"{node.device[0]}, {node.device[1]:3}"
    else:
        size = human(node.size) if sizes else str(4096 if node.kind == "dir" else node.size)
    when = stamp(node.mtime, "%b %e %H:%M")
    arrow = f" -> {node.target}" if node.kind == "link" else ""
    links = 2 if node.kind == "dir" else 1
    return f"{_mode(node)} {links} {node.owner} {node.owner} {size:>{wide}} {when} {name}{arrow}\n"


def _ls(process: Process) -> int:
    long = {"all": "a", "almost-all": "A", "human-readable": "h", "directory": "d", "recursive": "R", "reverse": "r",
            "full-time": "full", "time-style=": "style", "color?": "color", "size": "s", "si": "h"}  # fmt: skip
    options = read(process, "laAdh1tSrRsinpFcugoLkB", "IT", long, code=2)
    code, folders, singles = 0, [], []
    for name in options.operands or ["."]:
        node = process.files.find(process.path(name), follow="l" not in options and "d" not in options)
        node = node or process.files.find(process.path(name), follow=False)
        if node is None:
            code = 2
            process.write_err(f"ls: cannot access '{name}': No such file or directory\n")
        elif node.kind == "dir" and "d" not in options:
            folders.append(name)
        else:
            singles.append(name)
    _entries(process, options.given, [(n, process.path(n)) for n in singles])
    many = len(options.operands) > 1 or "R" in options
    while folders:
        name = folders.pop(0)
        base = process.path(name)
        try:
            inside = process.files.listdir(base)
        except OSError as problem:
            code = 2
            process.write_err(f"ls: cannot open directory '{name}': {words(problem)}\n")
            continue
        if many:
            process.write_out(f"{'' if not singles and name == (options.operands or ['.'])[0] else chr(10)}{name}:\n")
        if "a" in options:
            inside = [".", "..", *inside]
        elif "A" not in options:
            inside = [n for n in inside if not n.startswith(".")]
        entries = [(n, posixpath.normpath(posixpath.join(base, n))) for n in inside]
        if "l" in options or "s" in options:
            nodes = [process.files.find(p, follow=False) for _n, p in entries]
            total = sum(on_disk(n) for n in nodes if n) // 1024
            process.write_out(f"total {human(total * 1024) if 'h' in options else total}\n")
        _entries(process, options.given, entries)
        if "R" in options:
            folders[:0] = [
                posixpath.join(name, n) for n, p in entries if n not in (".", "..") and process.files.is_dir(p)
            ]
    return code


def _entries(process: Process, given: dict[str, list[str]], entries: list[tuple[str, str]]) -> None:
    nodes = [(n, process.files.find(p, follow="L" in given)) for n, p in entries]
    there = [(n, node) for n, node in nodes if node is not None]
    if "t" in given:
        there.sort(key=lambda item: -item[1].mtime)
    elif "S" in given:
        there.sort(key=lambda item: -item[1].size)
    if "r" in given:
        there.reverse()
    if not {"l", "g", "o"} & given.keys():
        process.write_out(
            "".join(f"{n}{'/' if {'p', 'F'} & given.keys() and d.kind == 'dir' else ''}\n" for n, d in there)
        )
        return
    lengths = [len(human(d.size) if "h" in given else str(d.size)) if d.kind != "char" else 8 for _n, d in there]
    wide = max(lengths, default=1)
    process.write_out("".join(_long(node, name, wide, "h" in given) for name, node in there))


def _stat_fields(process: Process, name: str, node: Node) -> dict[str, str]:
    real = KINDS[node.kind] | node.mode
    kind = {"file": "regular file" if node.size else "regular empty file", "dir": "directory"}
    kind |= {"link": "symbolic link", "char": "character special file"}
    moment = stamp(node.mtime, "%Y-%m-%d %H:%M:%S.000000000 +0000")
    return {
        "n": name, "N": f"'{name}'" + (f" -> '{node.target}'" if node.kind == "link" else ""), "s": str(node.size),
        "b": str(on_disk(node) // 512), "B": "512", "o": "4096", "F": kind[node.kind], "a": f"{node.mode:o}",
        "f": f"{real:x}",
        "A": _mode(node), "U": node.owner, "G": node.owner, "u": "0" if node.owner == "root" else "1000",
        "g": "0" if node.owner == "root" else "1000", "h": "1", "i": str(abs(hash(name)) % 10**7), "d": "64768",
        "t": f"{node.device[0]:x}", "T": f"{node.device[1]:x}", "y": moment, "Y": str(int(node.mtime)), "x": moment,
        "X": str(int(node.mtime)), "z": moment, "Z": str(int(node.mtime)), "w": "-", "W": "0", "m": "/",
    }  # fmt: skip


def _stat(process: Process) -> int:
    options = read(
        process, "Lft", "c", {"format=": "c", "printf=": "p", "dereference": "L", "file-system": "f", "terse": "t"}
    )
    if not options.operands:
        raise usage(process, "missing operand")
    code = 0
    for name in options.operands:
        path = process.path(name)
        try:
            node = process.files.get(path, follow="L" in options)
        except OSError as problem:
            code = process.fail(f"cannot stat '{name}': {words(problem)}")
            continue
        fields = _disk_fields(process, path) if "f" in options else _stat_fields(process, name, node)
        form = options.last("c") or options.last("p")
        if form:
            text = re.sub(r"%([a-zA-Z])", lambda m, f=fields: f.get(m.group(1), "?"), form)  # type: ignore[misc]
            process.write_out(text.replace("\\n", "\n") if "p" in options else text + "\n")
            continue
        f = fields
        process.write_out(
            f"  File: {f['n']}\n  Size: {f['s']:<15}\tBlocks: {f['b']:<10} IO Block: 4096   {f['F']}\n"
            f"Device: fd00h/64768d\tInode: {f['i']:<11} Links: 1\nAccess: ({node.mode:04o}/{f['A']})  Uid: "
            f"({f['u']:>5}/{f['U']:>8})   "
            f"Gid: ({f['g']:>5}/{f['G']:>8})\nAccess: {f['x']}\nModify: {f['y']}\nChange: {f['z']}\n Birth: -\n"
        )  # fmt: skip
    return code


def _disk_fields(process: Process, path: str) -> dict[str, str]:
    disk = process.files.disk(path) or Disk("/", 0)
    free = (disk.size - process.files.used(disk)) // 4096
    return {
        "S": "4096",
        "s": "4096",
        "b": str(disk.size // 4096),
        "f": str(free),
        "a": str(free),
        "T": disk.fstype,
        "n": path,
    }


def _readlink(process: Process) -> int:
    options = read(process, "fenvqsm", "", {"canonicalize": "f", "canonicalize-existing": "e", "no-newline": "n"})
    if not options.operands:
        raise usage(process, "missing operand")
    code = 0
    for name in options.operands:
        path = process.path(name)
        node = process.files.find(path, follow=False)
        if {"f", "e", "m"} & options.given.keys():
            try:
                real = process.files.resolve(path)
                if "e" in options and not process.files.exists(real):
                    raise OSError(2, "No such file or directory")
                process.write_out(real + ("" if "n" in options else "\n"))
            except OSError:
                code = 1
        elif node is None or node.kind != "link":
            code = 1
        else:
            process.write_out(node.target + ("" if "n" in options else "\n"))
    return code


def _realpath(process: Process) -> int:
    options = read(
        process,
        "emsqz",
        "",
        {"canonicalize-existing": "e", "canonicalize-missing": "m", "no-symlinks": "s", "quiet": "q"},
    )
    if not options.operands:
        raise usage(process, "missing operand")
    code = 0
    for name in options.operands:
        path = process.path(name)
        try:
            real = path if "s" in options else process.files.resolve(path)
            if "e" in options:
                process.files.get(real)
            process.write_out(real + "\n")
        except OSError as problem:
            if "m" in options:
                process.write_out(path + "\n")
                continue
            code = 1
            if "q" not in options:
                process.write_err(f"realpath: {name}: {words(problem)}\n")
    return code


def _sha256sum(process: Process) -> int:
    long = {"check": "c", "quiet": "q", "status": "s", "binary": "b", "text": "t", "strict": "S", "ignore-missing": "i"}
    options = read(process, "cbt", "", long)
    code = 0
    for name in options.operands or ["-"]:
        try:
            if "c" in options:
                code = max(code, _check(process, process.files.text(process.path(name)), options.given))
            elif name == "-":
                data = process.stdin.read()
                process.write_out(f"{digest(Node(data=data, size=len(data)))}  -\n")
            else:
                process.write_out(f"{_hash(process, name)}  {name}\n")
        except OSError as problem:
            code = process.fail(f"{name}: {words(problem)}")
    return code


def _hash(process: Process, name: str) -> str:
    path = process.path(name)
    node = process.files.get(path)
    if node.kind == "dir":
        raise IsADirectoryError(21, "Is a directory")
    process.sleep(node.size / 1.2e9)
    if path.startswith(("/proc/", "/sys/")):
        data = process.files.read(path)
        return digest(Node(data=data, size=len(data)))
    return digest(node)


def _check(process: Process, text: str, given: dict[str, list[str]]) -> int:
    bad = missing = 0
    for line in text.splitlines():
        wanted, _space, name = line.partition(" ")
        name = name.lstrip(" *")
        try:
            good = _hash(process, name) == wanted
            if not good or not {"q", "s"} & given.keys():
                process.write_out("" if "s" in given else f"{name}: {'OK' if good else 'FAILED'}\n")
            bad += not good
        except OSError as problem:
            missing += 1
            process.write_err(f"{process.name}: {name}: {words(problem)}\n")
            process.write_out("" if "s" in given else f"{name}: FAILED open or read\n")
    if missing:
        process.write_err(f"{process.name}: WARNING: {missing} listed file{'s' * (missing > 1)} could not be read\n")
    if bad and "s" not in given:
        process.write_err(f"{process.name}: WARNING: {bad} computed checksum{'s' * (bad > 1)} did NOT match\n")
    return 1 if bad or missing else 0


def _basename(process: Process) -> int:
    if not process.args:
        raise usage(process, "missing operand")
    text = posixpath.basename(process.args[0].rstrip("/"))
    suffix = process.args[1] if len(process.args) > 1 else ""
    process.write_out((text.removesuffix(suffix) if text != suffix else text) + "\n")
    return 0


def _dirname(process: Process) -> int:
    if not process.args:
        raise usage(process, "missing operand")
    for name in process.args:
        process.write_out((posixpath.dirname(name.rstrip("/")) or ("/" if name.startswith("/") else ".")) + "\n")
    return 0


PROGRAMS: Registry = {
    "ls": _ls, "stat": _stat, "readlink": _readlink, "realpath": _realpath, "sha256sum": _sha256sum,
"basename": _basename, "dirname": _dirname,
}  # fmt: skip
