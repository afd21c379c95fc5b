"""Programs that look at files: ls, stat, du, df, find, readlink, realpath, sha256sum, basename, dirname, file tests."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import stat as bits

from opsagent_lab.clock import stamp
from opsagent_lab.files import digest, on_disk, words
from opsagent_lab.program import Exit, Process, Registry
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


def _du(process: Process) -> int:
    long = {"summarize": "s", "human-readable": "h", "block-size=": "B", "apparent-size": "A", "bytes": "b",
    "max-depth=": "d",
            "total": "c", "all": "a", "dereference": "L", "one-file-system": "x"}  # fmt: skip
    options = read(process, "shbkmcaxLD", "Bd", long)
    apparent = bool({"A", "b"} & options.given.keys())
    unit = 1 if "b" in options else 2**20 if "m" in options else _unit(process, options.last("B", "1K"))
    depth = 0 if "s" in options else int(options.last("d", "1000"))
    code, grand = 0, 0

    def size(path: str) -> int:
        parts = process.files.walk(path)
        return sum((n.size if n.kind != "dir" else 4096) if apparent else on_disk(n) for _p, n in parts)

    def show(amount: int, name: str) -> None:
        text = human(amount) if "h" in options else str(-(-amount // unit))
        process.write_out(f"{text}\t{name}\n")

    for name in options.operands or ["."]:
        base = process.path(name)
        try:
            base = process.files.resolve(base) if "L" in options or "D" in options else base
            entries = list(process.files.walk(base))
        except OSError as problem:
            code = process.fail(f"cannot access '{name}': {words(problem)}")
            continue
        for path, node in sorted(entries, key=lambda e: -e[0].count("/")):
            below = path[len(base) :]
            if path != base and (below.count("/") > depth or (node.kind != "dir" and "a" not in options)):
                continue
            if path != base:
                show(size(path), name.rstrip("/") + below)
        total = size(base)
        grand += total
        show(total, name)
    if "c" in options:
        show(grand, "total")
    return code


def _unit(process: Process, text: str) -> int:
    match = re.fullmatch(r"(\d*)([KMGT]?)(i?B)?", text)
    if match is None:
        process.write_err(f"{process.name}: invalid --block-size argument '{text}'\n")
        raise Exit(1)
    return int(match.group(1) or 1) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[match.group(2)]


def _df(process: Process) -> int:
    long = {"human-readable": "h", "block-size=": "B", "print-type": "T", "type=": "t", "portability": "P",
    "output?": "output",
            "exclude-type=": "x", "all": "a", "local": "l", "si": "h"}  # fmt: skip
    options = read(process, "hkmTPal", "Btx", long)
    unit = 2**20 if "m" in options else _unit(process, options.last("B", "1K"))
    disks, code = [], 0
    for name in options.operands:
        path = process.path(name)
        if process.files.find(path) is None:
            code = process.fail(f"{name}: No such file or directory")
            continue
        disk = process.files.disk(process.files.resolve(path))
        if disk is not None:
            disks.append(disk)
    if options.operands and not disks:
        return code
    rows = [_df_row(process, d, unit, "h" in options) for d in (disks if options.operands else process.host.disks)]
    size = (
        "Size"
        if "h" in options
        else f"{human(unit)}-blocks"
        if unit not in (1024, 1)
        else "1K-blocks"
        if unit > 1
        else "1B-blocks"
    )
    heads = {"source": "Filesystem", "fstype": "Type", "size": size, "used": "Used", "avail": "Avail"
    if "h" in options else "Available",
             "pcent": "Use%", "target": "Mounted on"}  # fmt: skip
    columns = ["source", "size", "used", "avail", "pcent", "target"]
    if "T" in options:
        columns.insert(1, "fstype")
    if options.last("output"):
        columns = options.last("output").split(",")
    unknown = [c for c in columns if c not in heads]
    if unknown:
        raise usage(process, f"option --output: field '{unknown[0]}' unknown")
    table = [[heads[c] for c in columns]] + [[row[c] for c in columns] for row in rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    left = {"source", "fstype", "target"}
    for row in table:
        cells = [f"{v:<{w}}" if c in left else f"{v:>{w}}" for v, w, c in zip(row, widths, columns, strict=True)]
        process.write_out(" ".join(cells).rstrip() + "\n")
    return code


def _df_row(process: Process, disk: Disk, unit: int, sizes: bool) -> dict[str, str]:
    used = min(disk.size, process.files.used(disk))
    free = disk.size - used

    def show(amount: int) -> str:
        return human(amount) if sizes else str(-(-amount // unit))

    percent = f"{-(-used * 100 // max(1, used + free))}%"
    return {"source": disk.device, "fstype": disk.fstype, "size": show(disk.size), "used": show(used), "avail": show(free),
            "pcent": percent, "target": disk.mount}  # fmt: skip


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


def _find(process: Process) -> int:
    args = process.args
    starts = []
    while args and not args[0].startswith(("-", "(", "!")):
        starts.append(args.pop(0))
    tests, actions, depth = _find_tests(process, args)
    code = 0
    for start in starts or ["."]:
        base = process.path(start)
        try:
            entries = list(process.files.walk(base))
        except OSError as problem:
            code = process.fail(f"'{start}': {words(problem)}")
            continue
        for path, node in entries:
            below = path[len(base) :] if base != "/" else path
            level = below.strip("/").count("/") + 1 if below.strip("/") else 0
            if not depth[0] <= level <= depth[1]:
                continue
            shown = start.rstrip("/") + ("/" if below and not below.startswith("/") else "") + below if below else start
            if all(_matches(process, node, path, shown, *test) for test in tests):
                process.write_out(_printed(actions, node, shown, below))
    return code


def _find_tests(process: Process, args: list[str]) -> tuple[list[tuple[str, str]], str, tuple[int, int]]:
    tests, action, low, high = [], "%p\n", 0, 10**6
    while args:
        item = args.pop(0)
        known = (
            "-name",
            "-iname",
            "-type",
            "-size",
            "-path",
            "-newer",
            "-mmin",
            "-maxdepth",
            "-mindepth",
            "-printf",
            "-links",
        )
        if item in known:
            if not args:
                process.write_err(f"find: missing argument to `{item}'\n")
                raise Exit(1)
            value = args.pop(0)
            if item == "-maxdepth":
                high = int(value)
            elif item == "-mindepth":
                low = int(value)
            elif item == "-printf":
                action = value
            else:
                tests.append((item, value))
        elif item == "-print0":
            action = "%p\0"
        elif item == "-empty":
            tests.append((item, ""))
        elif item not in ("-print", "-xdev", "-L"):
            process.write_err(f"find: unknown predicate `{item}'\n")
            raise Exit(1)
    return tests, action, (low, high)


def _matches(process: Process, node: Node, path: str, shown: str, test: str, value: str) -> bool:
    if test in ("-name", "-iname"):
        name = posixpath.basename(path)
        pair = (name.lower(), value.lower()) if test == "-iname" else (name, value)
        return fnmatch.fnmatchcase(*pair)
    if test == "-path":
        return fnmatch.fnmatchcase(shown, value)
    if test == "-type":
        return {"file": "f", "dir": "d", "link": "l", "char": "c"}[node.kind] in value.split(",")
    if test == "-empty":
        return node.kind == "file" and not node.size
    if test == "-newer":
        other = process.files.find(process.path(value))
        return other is not None and node.mtime > other.mtime
    sign, number = (value[0], value[1:]) if value[0] in "+-" else ("", value)
    if test == "-mmin":
        have = int((process.now - node.mtime) // 60)
    else:
        unit = {"c": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(number[-1], 512)
        number = number.rstrip("ckMGb")
        have = -(-node.size // unit)
    return have > int(number) if sign == "+" else have < int(number) if sign == "-" else have == int(number)


def _printed(form: str, node: Node, shown: str, below: str) -> str:
    kind = {"file": "f", "dir": "d", "link": "l", "char": "c"}[node.kind]
    fields = {"p": shown, "f": posixpath.basename(shown), "s": str(node.size), "y": kind, "P": below.lstrip("/"),
    "m": f"{node.mode:o}",
              "b": str(on_disk(node) // 512), "T@": f"{node.mtime:.10f}", "l": node.target, "%": "%"}  # fmt: skip
    text = re.sub(r"%(T@|[pfsyPmbl%])", lambda m: fields[m.group(1)], form)
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("\\0", "\0")


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
    "ls": _ls, "stat": _stat, "du": _du, "df": _df, "readlink": _readlink, "realpath": _realpath, "sha256sum": _sha256sum,
    "find": _find, "basename": _basename, "dirname": _dirname,
}  # fmt: skip
