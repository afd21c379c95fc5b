"""Programs that make, move, change and remove files: what matters is where."""

from __future__ import annotations

import posixpath
import re

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.simple import parse
from opsagent.gate.commands.tables import rules
from opsagent.gate.grammar import Parsed
from opsagent.gate.guards import paths, places
from opsagent.gate.policy import under
from opsagent.gate.trace import Trace


def _destination(parsed: Parsed) -> tuple[list[str], str]:
    """Sources and destination of cp, mv, ln and install (`-t DIR` or the last operand)."""
    into = parsed.values("-t", "--target-directory")
    if into:
        return parsed.operands, into[-1]
    return parsed.operands[:-1], parsed.operands[-1] if parsed.operands else ""


def _into(t: Trace, sources: list[str], target: str) -> None:
    """Writing sources to a target that may be a folder: then each name in it counts too."""
    paths.write(t, target)
    for source in sources:
        name = posixpath.basename(source.rstrip("/"))
        if name and target:
            paths.write(t, posixpath.join(target, name))


EMPTY = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")


def _empties(t: Trace, sources: list[str]) -> None:
    if any(paths.normal(each) in EMPTY for each in sources):
        t.say("R3", "file.emptied", "what was in the file would be gone")


def cp(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("cp"), t)
    sources, target = _destination(parsed)
    deep = parsed.has("-r", "-R", "-a", "--recursive", "--archive")
    for each in sources:
        paths.read(t, each, recursive=deep)
    _into(t, sources, target)
    _empties(t, sources)
    if not sources:
        t.say("R3", "cp.incomplete", "cp without a source")


def mv(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("mv"), t)
    sources, target = _destination(parsed)
    for each in sources:
        paths.read(t, each, recursive=False)
        before = t.tier
        paths.remove(t, each)
        if before != t.tier and t.tier == "X":
            t.say("X", "path.never", f"moves {each} away")
    _into(t, sources, target)
    if not sources:
        t.say("R3", "mv.incomplete", "mv without a source")


def rm(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("rm"), t)
    deep = parsed.has("-r", "-R", "--recursive")
    for each in parsed.operands:
        paths.remove(t, each, recursive=deep)
    t.say("R1", "rm", "removes")


def rmdir(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("rmdir"), t)
    for each in parsed.operands:
        paths.write(t, each, what="removes the empty folder")
    t.say("R2", "rmdir", "removes empty folders")


def unlink(argv: tuple[str, ...], t: Trace) -> None:
    for each in argv[1:]:
        paths.remove(t, each)
    t.say("R2", "unlink", "removes a file")


MODE = re.compile(r"[0-7]{3,5}")


def _mode(t: Trace, mode: str) -> None:
    """setuid, setgid, or writable by everybody."""
    if MODE.fullmatch(mode):
        number = int(mode, 8)
        risky = number & 0o6002 and not number & 0o1000
    else:
        risky = bool(re.search(r"[+=][rwxX]*s", mode) or re.search(r"(^|,)[ugoa]*[oa][ugoa]*[+=][rxX]*w", mode))
    if risky:
        t.say("R3", "chmod.mode", f"mode {mode}: setuid, setgid or writable by everybody")


def mkdir(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("mkdir"), t)
    for each in parsed.operands:
        paths.write(t, each, what="makes the folder")
    for mode in parsed.values("-m", "--mode"):
        _mode(t, mode)
    t.say("R1", "mkdir", "makes folders")


def mknod(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules(argv[0]), t)
    for each in parsed.operands[:1] if argv[0] == "mknod" else parsed.operands:
        paths.write(t, each)
    fifo = argv[0] == "mkfifo" or parsed.operands[1:2] == ["p"]
    t.say("R1" if fifo else "R3", f"{argv[0]}.node", f"{argv[0]} makes a {'pipe' if fifo else 'device node'}")


def mktemp(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("mktemp"), t)
    folder = (parsed.values("-p", "--tmpdir") or ["/tmp"])[-1] or "/tmp"
    names = parsed.operands or ["tmp.XXXX"]
    for each in names:
        paths.write(t, each if each.startswith("/") else posixpath.join(folder, each))
    t.say("R1", "mktemp", "makes a temporary file")


def touch(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("touch"), t)
    for each in parsed.operands:
        paths.write(t, each, what="touches")
    t.say("R1", "touch", "makes files or changes their times")


def ln(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("ln"), t) if argv[0] == "ln" else rules("link").parse(argv[1:])
    sources, target = _destination(parsed)
    if not parsed.operands[1:] and not parsed.has("-t", "--target-directory"):
        target = posixpath.basename(target)
    _into(t, sources, target)
    for each in sources:
        quiet = places.SECRET.fullmatch(paths.normal(each)) or places.NEVER_WRITTEN.fullmatch(paths.normal(each))
        if quiet or paths.normal(each) in places.TOP:
            t.say("R3", "ln.target", f"a link to {each}: what is written through it lands there")
    if parsed.has("-f", "--force"):
        t.say("R2", "ln.replace", "replaces what was there")
    t.say("R1", "ln", "makes links")


def install(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("install"), t)
    for mode in parsed.values("-m", "--mode"):
        _mode(t, mode)
    if parsed.has("-d", "--directory"):
        for each in parsed.operands:
            paths.write(t, each, what="makes the folder")
        return
    sources, target = _destination(parsed)
    for each in sources:
        paths.read(t, each)
    _into(t, sources, target)
    _empties(t, sources)
    t.say("R1", "install", "copies files")


def resize(argv: tuple[str, ...], t: Trace) -> None:
    """truncate and fallocate: what was in the file may be gone."""
    parsed = parse(argv, rules(argv[0]), t)
    t.say("R2", f"{argv[0]}.cut", f"{argv[0]} changes the size of files: their contents may be gone")
    if argv[0] == "truncate" and not any(value.startswith(("+", ">", "%")) for value in parsed.values("-s", "--size")):
        t.say("R3", "file.emptied", "what was in the file would be gone")
    for each in parsed.operands:
        paths.write(t, each, what="cuts or grows")
        if not any(under(place, root) for place in paths.resolved(t, each) for root in t.policy.roots):
            t.say("R3", f"{argv[0]}.outside-roots", f"{argv[0]} {each}, which is not under an allowed root")


def tee(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules(argv[0]), t)
    for each in parsed.operands:
        paths.write(t, each, what="writes")
    t.say("R0", "read", f"{argv[0]} copies its input")


def shred(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules(argv[0]), t)
    for each in parsed.operands:
        paths.write(t, each, what="overwrites")
    t.say("R3", "shred", f"{argv[0]} destroys contents for good")


def chmod(argv: tuple[str, ...], t: Trace) -> None:
    """chmod, chown, chgrp, setfacl, chattr …: the first operand is the mode or owner."""
    parsed = parse(argv, rules(argv[0]), t)
    words = parsed.operands
    if argv[0] == "chattr":
        words = [word for word in words if not re.fullmatch(r"[+=-][a-zA-Z]+", word)]
    head = 0 if argv[0] == "chattr" or parsed.has("--reference", "-b", "-k", "-m", "-x", "-M") else 1
    deep = parsed.has("-R", "--recursive", "-r")
    if argv[0] == "chmod":
        for mode in words[:1]:
            _mode(t, mode)
    if argv[0] == "setcap":
        t.say("R3", "setcap", "gives a program the rights of root")
    for each in words[head:]:
        paths.write(t, each, what=f"{argv[0]} changes the rights of")
        if deep and not any(paths.owned(t, place) for place in paths.resolved(t, each)):
            t.say("R3", f"{argv[0]}.recursive", f"{argv[0]} changes everything below {each}")
        elif not any(paths.owned(t, place) for place in paths.resolved(t, each)):
            t.say("R2", f"{argv[0]}.existing", f"{argv[0]} changes the rights of {each}, which this run did not make")
    t.say("R1", f"{argv[0]}.rights", f"{argv[0]} changes rights")


def dd(argv: tuple[str, ...], t: Trace) -> None:
    t.say("R0", "read", "dd copies bytes")
    operators(argv[1:], t)
    for word in argv[1:]:
        key, _, value = word.partition("=")
        if key == "if":
            paths.read(t, value)
        elif key == "of":
            paths.write(t, value, what="dd overwrites")
            if places.CHARACTER_DEVICE.fullmatch(paths.normal(value)) is None:
                t.say("R2", "dd.write", f"dd overwrites {value}")
        elif key not in (
            "bs",
            "count",
            "skip",
            "seek",
            "ibs",
            "obs",
            "cbs",
            "status",
            "conv",
            "iflag",
            "oflag",
            "iseek",
            "oseek",
        ):
            t.say("R3", "dd.unknown", f"{word!r} is not a word of dd")


COMMANDS: dict[str, Checker] = {
    "cp": cp, "mv": mv, "rm": rm, "rmdir": rmdir, "unlink": unlink, "mkdir": mkdir, "mknod": mknod, "mkfifo": mknod,
    "mktemp": mktemp,
    "touch": touch, "ln": ln, "link": ln, "install": install, "truncate": resize, "fallocate": resize, "tee": tee,
    "sponge": tee,
    **dict.fromkeys(("shred", "srm", "scrub", "wipe"), shred), "dd": dd,
    **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl", "setcap", "chattr", "setfattr", "chcon", "restorecon"), chmod),
}  # fmt: skip
