"""find (and fd, locate): it reads names, unless its expression runs, removes or writes."""

from __future__ import annotations

from collections.abc import Sequence

from opsagent.gate.argv import Checker, check
from opsagent.gate.guards import paths
from opsagent.gate.guards.paths import UNKNOWN
from opsagent.gate.trace import Trace

TESTS0 = frozenset(
    [
        "-daystart",
        "-depth",
        "-d",
        "-mount",
        "-xdev",
        "-noleaf",
        "-ignore_readdir_race",
        "-noignore_readdir_race",
        "-warn",
        "-nowarn",
        "-empty",
        "-executable",
        "-false",
        "-nogroup",
        "-nouser",
        "-readable",
        "-true",
        "-writable",
        "-ls",
        "-print",
        "-print0",
        "-prune",
        "-quit",
        "-a",
        "-and",
        "-o",
        "-or",
        "-not",
        "!",
        "(",
        ")",
        ",",
        "-follow",
        "-help",
        "--help",
        "-version",
        "--version",
    ]
)
TESTS1 = frozenset(
    [
        "-maxdepth",
        "-mindepth",
        "-regextype",
        "-amin",
        "-anewer",
        "-atime",
        "-cmin",
        "-cnewer",
        "-context",
        "-ctime",
        "-fstype",
        "-gid",
        "-group",
        "-ilname",
        "-iname",
        "-inum",
        "-ipath",
        "-iregex",
        "-iwholename",
        "-links",
        "-lname",
        "-mmin",
        "-mtime",
        "-name",
        "-newer",
        "-path",
        "-perm",
        "-regex",
        "-samefile",
        "-size",
        "-type",
        "-uid",
        "-used",
        "-user",
        "-wholename",
        "-xtype",
        "-printf",
        "-neweraa",
        "-newermt",
        "-newermm",
        "-newerat",
        "-newerct",
        "-newermc",
        "-newercm",
        "-newerma",
        "-newerac",
        "-newerca",
        "-newercc",
        "-neweram",
        "-files0-from",
    ]
)


def find(argv: tuple[str, ...], t: Trace) -> None:
    words = list(argv[1:])
    while (words and words[0] in ("-H", "-L", "-P")) or (words[:1] and words[0].startswith(("-D", "-O"))):
        words = words[2:] if words[0] == "-D" else words[1:]
    starts: list[str] = []
    while words and not words[0].startswith("-") and words[0] not in ("(", ")", "!", ","):
        starts.append(words.pop(0))
    starts = starts or ["."]
    for each in starts:
        paths.metadata(t, each)
    name = wanted_name(words)
    while words:
        words = _step(words, starts, name, t)


def wanted_name(words: Sequence[str]) -> str:
    """`/NAME` when the expression looks for one name or path, else ''."""
    for flag, value in zip(words, [*words[1:], ""], strict=False):
        if flag in ("-name", "-iname", "-path", "-wholename", "-ipath"):
            return "/" + value.rsplit("/", 1)[-1]
    return ""


def _step(words: list[str], starts: list[str], name: str, t: Trace) -> list[str]:
    word, rest = words[0], words[1:]
    if word in TESTS0:
        return rest
    if word in TESTS1:
        if word == "-files0-from":
            t.say("R2", "path.unknown", "find takes its start folders from a file")
        return rest[1:]
    if word in ("-exec", "-execdir", "-ok", "-okdir"):
        return _run(word, rest, starts, name, t)
    if word == "-delete":
        for each in starts:
            paths.remove(t, each.rstrip("/") + "/" + UNKNOWN, recursive=True)
        return rest
    if word in ("-fprint", "-fprint0", "-fls"):
        paths.write(t, rest[0] if rest else "?")
        return rest[1:]
    if word == "-fprintf":
        paths.write(t, rest[0] if rest else "?")
        return rest[2:]
    t.say("R3", "find.unknown", f"find {word} is not an expression that we know")
    return rest


def _run(word: str, rest: list[str], starts: list[str], name: str, t: Trace) -> list[str]:
    """`-exec CMD … ;` or `{} +`: judged once for each start folder, with the found names unknown below it."""
    end = next((i for i, each in enumerate(rest) if each == ";" or (each == "+" and i and rest[i - 1] == "{}")), None)
    if end is None:
        t.say("R3", "find.unknown", f"find {word} without its end")
        end = len(rest)
    for start in starts:
        place = start.rstrip("/") + "/" + UNKNOWN + name
        check([part.replace("{}", place) for part in rest[:end]], t)
    if word in ("-execdir", "-okdir"):
        t.say("R1", "find.execdir", "find runs it in the folders that it finds")
    return rest[end + 1 :]


def fd(argv: tuple[str, ...], t: Trace) -> None:
    words = list(argv[1:])
    for index, word in enumerate(words):
        if word in ("-x", "--exec", "-X", "--exec-batch"):
            check([part.replace("{}", UNKNOWN) for part in words[index + 1 :]] + [UNKNOWN], t)
            break
        if word.startswith(("--exec=", "--exec-batch=", "-x", "-X")):
            t.say("R3", "fd.command", "fd runs a command")
    t.say("R0", "read", "fd reads names")


COMMANDS: dict[str, Checker] = {"find": find, "fd": fd, "fdfind": fd}
