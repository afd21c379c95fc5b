"""du and df: what takes space, and what is left."""

from __future__ import annotations

import re

from opsagent_lab.files import on_disk, words
from opsagent_lab.program import Exit, Process, Registry
from opsagent_lab.programs.listing import human
from opsagent_lab.programs.options import read, usage
from opsagent_lab.state import Disk


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


PROGRAMS: Registry = {"du": _du, "df": _df}
