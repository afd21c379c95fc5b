"""Programs that pass text along: cat, head, tail, tee, wc, sort, echo, printf, tr, cut, uniq, base64."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from opsagent_lab.files import words
from opsagent_lab.program import Exit, Process, Registry
from opsagent_lab.programs.options import read, usage

CHUNK = 1 << 16
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "0": "\0", "a": "\a", "b": "\b", "e": "\033"}


def _unescape(text: str) -> str:
    return re.sub(r"\\([ntr\\0abe])", lambda m: ESCAPES[m.group(1)], text)


def echo_text(args: list[str]) -> bytes:
    newline, escapes = True, False
    while args and re.fullmatch(r"-[neE]+", args[0]):
        newline, escapes = newline and "n" not in args[0], "e" in args[0]
        args = args[1:]
    text = " ".join(args)
    return ((_unescape(text) if escapes else text) + ("\n" if newline else "")).encode()


def printf_text(form: str, args: list[str]) -> bytes:
    """The format, repeated while arguments are left (%s, %d, %i, %x, %c, %q is not known, %%)."""
    out, left = "", list(args)
    while True:
        before = len(left)

        def fill(match: re.Match[str], left: list[str] = left) -> str:
            spec, kind = match.group(1), match.group(2)
            if kind == "%":
                return "%"
            value = left.pop(0) if left else ""
            if kind in "dix":
                return str(f"%{spec}{kind}" % int(value or "0", 0))
            return str(f"%{spec}s" % (value[:1] if kind == "c" else _unescape(value) if kind == "b" else value))

        out += re.sub(r"%([-0-9.]*)([sdixcb%])", fill, _unescape(form))
        if not left or len(left) == before:
            return out.encode()


def _echo(process: Process) -> int:
    process.write_out(echo_text(process.args))
    return 0


def _printf(process: Process) -> int:
    if not process.args:
        raise usage(process, "missing operand")
    process.write_out(printf_text(process.args[0], process.args[1:]))
    return 0


def chunks(process: Process, name: str) -> Iterator[bytes]:
    """The bytes of a file (or of stdin for `-`). Raises OSError."""
    if name == "-":
        while data := process.stdin.read(CHUNK):
            yield data
        return
    path, at = process.path(name), 0
    node = process.files.get(path)
    if node.kind == "file" and path.startswith(("/proc/", "/sys/")):
        yield process.files.read(path)
        return
    while data := process.files.read(path, at, 1 << 20):
        if node.kind == "char":
            process.sleep(len(data) / 2e7)  # endless: let a time limit see it
        yield data
        at += len(data)


def _cat(process: Process) -> int:
    options = read(process, "nAevtuE")
    code, number = 0, 0
    for name in options.operands or ["-"]:
        try:
            for data in chunks(process, name):
                if "n" in options:
                    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
                    data = "".join(f"{number + i:6}\t{line}" for i, line in enumerate(lines, 1)).encode()
                    number += len(lines)
                process.write_out(data)
        except OSError as problem:
            code = process.fail(f"{name}: {words(problem)}")
    return code


def _count(process: Process, text: str) -> tuple[str, int]:
    """A count of head and tail: (sign, number), with suffixes K, M, G, kB …"""
    match = re.fullmatch(r"([+-]?)(\d+)(?:([KMG])(?:iB)?|([kMG]B|b))?", text)
    if match is None:
        process.write_err(f"{process.name}: invalid number of {'bytes' if 'c' in text else 'lines'}: '{text}'\n")
        raise Exit(1)
    power = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "kB": 1000, "MB": 10**6, "GB": 10**9, "b": 512}
    return match.group(1), int(match.group(2)) * power.get(match.group(3) or match.group(4) or "", 1)


def _window_args(process: Process) -> tuple[list[str], str, str, bool, bool]:
    """Arguments of head and tail: (operands, what `n`|`c`, count, quiet, follow), with the old form -20."""
    args = [f"-n{a[1:]}" if re.fullmatch(r"-\d+", a) else a for a in process.args]
    long = {
        "lines=": "n",
        "bytes=": "c",
        "quiet": "q",
        "silent": "q",
        "verbose": "v",
        "follow?": "f",
        "retry": "F",
        "pid=": "P",
    }
    options = read(process, "qvfFz", "ncs", long, args=args)
    what = "c" if "c" in options else "n"
    return (
        options.operands or ["-"],
        what,
        options.last(what, "10"),
        "q" in options,
        bool({"f", "F"} & options.given.keys()),
    )


def _headline(process: Process, names: list[str], name: str, quiet: bool, first: bool) -> None:
    if len(names) > 1 and not quiet:
        process.write_out(f"{'' if first else chr(10)}==> {'standard input' if name == '-' else name} <==\n")


def _head(process: Process) -> int:
    names, what, text, quiet, _follow = _window_args(process)
    sign, count = _count(process, text)
    code = 0
    for number, name in enumerate(names):
        try:
            source = chunks(process, name)
            first = next(source, b"")
            _headline(process, names, name, quiet, number == 0)
            if sign == "-":
                whole = first + b"".join(source)
                cut = max(0, len(whole) - count) if what == "c" else None
                lines = whole.splitlines(keepends=True)
                process.write_out(whole[:cut] if what == "c" else b"".join(lines[: max(0, len(lines) - count)]))
                continue
            left = count
            data: bytes | None = first
            while data and left > 0:
                if what == "c":
                    process.write_out(data[:left])
                    left -= len(data)
                else:
                    lines = data.splitlines(keepends=True)[:left]
                    process.write_out(b"".join(lines))
                    left -= sum(line.endswith(b"\n") for line in lines)
                data = next(source, None) if left > 0 else None
        except OSError as problem:
            code = process.fail(f"cannot open '{name}' for reading: {words(problem)}")
    return code


def _tail(process: Process) -> int:
    names, what, text, quiet, follow = _window_args(process)
    sign, count = _count(process, text)
    code = 0
    for number, name in enumerate(names):
        try:
            size = process.files.get(process.path(name)).size if name != "-" else 0
            if name != "-" and what == "c" and not name.startswith("/proc"):
                start = count - 1 if sign == "+" else max(0, size - count)
                _headline(process, names, name, quiet, number == 0)
                _send(process, name, max(0, start))
            else:
                whole = b"".join(chunks(process, name))
                lines = whole.splitlines(keepends=True)
                _headline(process, names, name, quiet, number == 0)
                if what == "c":
                    process.write_out(
                        whole[max(0, count - 1) :] if sign == "+" else whole[max(0, len(whole) - count) :]
                    )
                else:
                    process.write_out(
                        b"".join(
                            lines[max(0, count - 1) :]
                            if sign == "+"
                            else lines[len(lines) - count if count < len(lines) else 0 :]
                        )
                    )
        except OSError as problem:
            code = process.fail(f"cannot open '{name}' for reading: {words(problem)}")
    if follow and not code and names[-1] != "-":
        _follow(process, names[-1])
    return code


def _send(process: Process, name: str, start: int) -> None:
    path = process.path(name)
    while data := process.files.read(path, start, 1 << 20):
        process.write_out(data)
        start += len(data)


def _follow(process: Process, name: str) -> None:
    """`tail -f`: until a signal comes."""
    at = process.files.get(process.path(name)).size
    while True:
        process.sleep(1.0)
        node = process.files.find(process.path(name))
        if node is not None and node.size > at:
            _send(process, name, at)
            at = node.size


def _tee(process: Process) -> int:
    options = read(process, "ai", "", {"append": "a"})
    code = 0
    targets = []
    for name in options.operands:
        try:
            path = process.path(name)
            computed = path.startswith(("/sys/", "/proc/"))
            if computed:
                process.files.get(path)
            elif "a" not in options or not process.files.exists(path):
                process.files.write(path, b"")
            targets.append(path)
        except OSError as problem:
            code = process.fail(f"{name}: {words(problem)}")
    sent = {path: b"" for path in targets if path.startswith(("/sys/", "/proc/"))}
    while data := process.stdin.read(CHUNK):
        process.write_out(data)
        for path in targets:
            if path in sent:
                sent[path] += data
            else:
                process.files.write(path, data, append=True)
    for path, data in sent.items():
        try:
            process.files.write(path, data)
        except OSError as problem:
            code = process.fail(f"{path}: {words(problem)}")
    return code


def _wc(process: Process) -> int:
    options = read(process, "lwcm", "", {"lines": "l", "words": "w", "bytes": "c", "chars": "m"})
    kinds = [k for k in "lwcm" if k in options] or ["l", "w", "c"]
    code, names, rows = 0, options.operands or ["-"], []
    for name in names:
        try:
            data = b"".join(chunks(process, name))
        except OSError as problem:
            code = process.fail(f"{name}: {words(problem)}")
            continue
        counts = {
            "l": data.count(b"\n"),
            "w": len(data.split()),
            "c": len(data),
            "m": len(data.decode("utf-8", "replace")),
        }
        rows.append(([counts[k] for k in kinds], "" if name == "-" else name))
    if len(names) > 1:
        rows.append(([sum(r[0][i] for r in rows) for i in range(len(kinds))], "total"))
    width = max((len(str(v)) for r in rows for v in r[0]), default=1) if len(kinds) > 1 or len(rows) > 1 else 1
    for values, name in rows:
        process.write_out((" ".join(f"{v:{width}}" for v in values) + (f" {name}" if name else "")) + "\n")
    return code


def _lines(process: Process, names: list[str]) -> list[str]:
    out: list[str] = []
    for name in names or ["-"]:
        try:
            out += b"".join(chunks(process, name)).decode("utf-8", "replace").splitlines()
        except OSError as problem:
            process.write_err(f"{process.name}: cannot read: {name}: {words(problem)}\n")
            raise Exit(2) from problem
    return out


def _sort(process: Process) -> int:
    options = read(process, "rnuhVf", "kt", {"reverse": "r", "numeric-sort": "n", "unique": "u", "key=": "k"}, code=2)
    lines = _lines(process, options.operands)
    field = int(re.match(r"\d+", options.last("k", "1")).group(0)) if "k" in options else 0  # type: ignore[union-attr]

    def key(line: str) -> tuple[float, str]:
        parts = line.split(options.last("t") or None)
        text = line if not field else parts[field - 1] if field <= len(parts) else ""
        number = re.match(r"\s*-?\d+(\.\d+)?", text)
        return (float(number.group(0)) if number and ("n" in options or "h" in options) else 0.0, text)

    ordered = sorted(lines, key=key, reverse="r" in options)
    if "u" in options:
        ordered = list(dict.fromkeys(ordered))
    process.write_out("".join(f"{line}\n" for line in ordered))
    return 0


def _uniq(process: Process) -> int:
    options = read(process, "c", "", {"count": "c"})
    groups: list[list[str]] = []
    for line in _lines(process, options.operands):
        if groups and groups[-1][0] == line:
            groups[-1].append(line)
        else:
            groups.append([line])
    for group in groups:
        process.write_out(f"{len(group):7} {group[0]}\n" if "c" in options else f"{group[0]}\n")
    return 0


def _cut(process: Process) -> int:
    options = read(process, "s", "dfc", {"delimiter=": "d", "fields=": "f", "characters=": "c"})
    if "f" not in options and "c" not in options:
        raise usage(process, "you must specify a list of bytes, characters, or fields")
    sep = options.last("d", "\t")
    wanted: list[int] = []
    for part in options.last("f" if "f" in options else "c").split(","):
        low, dash, high = part.partition("-")
        wanted += range(int(low or 1), (int(high) if high else 500 if dash else int(low)) + 1)
    for line in _lines(process, options.operands):
        if "c" in options:
            process.write_out("".join(line[n - 1 : n] for n in wanted) + "\n")
        elif sep not in line:
            process.write_out("" if "s" in options else line + "\n")
        else:
            parts = line.split(sep)
            process.write_out(sep.join(parts[n - 1] for n in wanted if n <= len(parts)) + "\n")
    return 0


def _tr(process: Process) -> int:
    options = read(process, "ds", "", {"delete": "d", "squeeze-repeats": "s"})
    sets = [_unescape(s).replace("\\000", "\0") for s in options.operands]
    data = process.stdin.read().decode("utf-8", "surrogateescape")
    if "d" in options and sets:
        data = "".join(c for c in data if c not in sets[0])
    elif len(sets) == 2:
        wide = sets[1] + sets[1][-1:] * max(0, len(sets[0]) - len(sets[1]))
        data = data.translate({ord(a): b for a, b in zip(sets[0], wide, strict=False)})
    else:
        raise usage(process, "missing operand")
    process.write_out(data.encode("utf-8", "surrogateescape"))
    return 0


def _base64(process: Process) -> int:
    options = read(process, "di", "w", {"decode": "d", "wrap=": "w", "ignore-garbage": "i"})
    name = (options.operands or ["-"])[0]
    try:
        data = b"".join(chunks(process, name))
    except OSError as problem:
        return process.fail(f"{name}: {words(problem)}")
    if "d" in options:
        try:
            process.write_out(base64.b64decode(data))
        except ValueError:
            return process.fail("invalid input")
        return 0
    text = base64.b64encode(data).decode()
    width = int(options.last("w", "76"))
    process.write_out("\n".join(text[i : i + width] for i in range(0, len(text), width)) + "\n" if width else text)
    return 0


PROGRAMS: Registry = {
    "cat": _cat, "head": _head, "tail": _tail, "tee": _tee, "wc": _wc,
    "sort": _sort, "uniq": _uniq, "cut": _cut, "tr": _tr, "echo": _echo, "printf": _printf, "base64": _base64,
}  # fmt: skip
