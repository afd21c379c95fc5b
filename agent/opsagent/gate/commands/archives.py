"""Archives, compression, rsync and mounts: they write where options say, and some options run commands."""

from __future__ import annotations

import posixpath
import re
import shlex

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.simple import apply, parse, unknown
from opsagent.gate.commands.tables import rules
from opsagent.gate.guards import paths, places
from opsagent.gate.trace import Trace


def tar(argv: tuple[str, ...], t: Trace) -> None:
    """`tar xzf A -C DIR`: the first word may be a cluster without its dash."""
    words = list(argv[1:])
    if words and not words[0].startswith("-") and re.fullmatch(r"[A-Za-z]+", words[0]):
        words = _old_style(words)
    parsed = rules("tar").parse(words)
    unknown(parsed, "tar", t, "R3")
    apply(parsed.given, "tar", t)
    operators(parsed.operands, t)
    archives = parsed.values("-f", "--file")
    folder = (parsed.values("-C", "--directory") or ["."])[-1]
    if any(":" in each.split("/")[0] for each in archives):
        t.say("R3", "tar.remote", "the archive is on another host")
    if parsed.has("-c", "-r", "-u", "-A", "--create", "--append", "--update", "--concatenate"):
        for each in archives:
            paths.write(t, each)
        for each in parsed.operands:
            paths.read(t, each if each.startswith("/") else posixpath.join(folder, each), recursive=True)
        t.say("R0", "read", "tar packs")
    elif parsed.has("-x", "--extract", "--get"):
        for each in archives:
            paths.read(t, each)
        if not parsed.has("-O", "--to-stdout"):
            paths.write(t, folder, what="unpacks into")
            t.say("R1", "tar.extract", "tar unpacks whatever the archive holds")
            _environment(folder, t)
            if paths.normal(folder) in places.TOP and paths.normal(folder) not in ("/tmp", "/models"):
                t.say("R3", "tar.top", f"the archive decides what is replaced below {folder}")
        if parsed.has("-P"):
            t.say("R3", "tar.absolute", "the archive decides where files go")
    elif parsed.has("-t", "-d", "--list", "--diff", "--compare"):
        for each in archives:
            paths.read(t, each)
        t.say("R0", "read", "tar lists")
    else:
        t.say("R3", "tar.unknown", "tar without an operation that we know")


def _environment(folder: str, t: Trace) -> None:
    """Programs below /opt are run later without a question: what is unpacked there could replace them."""
    if paths.normal(folder).startswith("/opt/"):
        t.say("R2", "environment.replace", f"could replace programs below {folder}")


def _old_style(words: list[str]) -> list[str]:
    """`cf A x` as `-c -f A x`: values follow in the order of their letters."""
    letters, rest = words[0], words[1:]
    found: list[str] = []
    for letter in letters:
        found.append(f"-{letter}")
        if letter in "fCTXIgNbKLVF" and rest:
            found.append(rest.pop(0))
    return found + rest


def unzip(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("unzip"), t)
    for each in parsed.operands[:1]:
        paths.read(t, each)
    if parsed.has("-l", "-v", "-t", "-z", "-Z", "-p", "-c"):
        t.say("R0", "read", "unzip lists")
        return
    paths.write(t, (parsed.values("-d") or ["."])[-1], what="unpacks into")
    _environment((parsed.values("-d") or ["."])[-1], t)
    t.say("R2" if parsed.has("-o") else "R1", "unzip.extract", "unzip unpacks whatever the archive holds")


def zip_(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("zip"), t)
    t.say("R1", "zip.pack", "zip packs files")
    for each in parsed.operands[:1]:
        paths.write(t, each)
    for each in parsed.operands[1:]:
        paths.read(t, each, recursive=True)
    if parsed.has("-m"):
        t.say("R3", "zip.move", "zip removes what it packed")
    if parsed.has("-T") and any(word.startswith(("-TT", "-T")) and "T" in word[2:] for word in argv):
        t.say("R3", "zip.command", "zip runs a command")


def compress(argv: tuple[str, ...], t: Trace) -> None:
    """gzip FILE replaces the file; -c, -l and -t do not."""
    parsed = parse(argv, rules(argv[0]), t)
    t.say("R0", "read", f"{argv[0]} packs or unpacks")
    quiet = parsed.has("-c", "-l", "-t", "--stdout", "--list", "--test")
    for each in parsed.operands:
        paths.read(t, each)
        if not quiet:
            paths.write(t, each, what="replaces" if not parsed.has("-k", "--keep") else "packs beside")
            t.say("R1" if parsed.has("-k", "--keep") else "R2", f"{argv[0]}.replace", f"{argv[0]} replaces files")


def other_archive(argv: tuple[str, ...], t: Trace) -> None:
    """7z, cpio, ar …: listing is a read, the rest is not followed."""
    listing = (argv[0].startswith("7z") and argv[1:2] in (("l",), ("t",))) or (argv[0] == "cpio" and "-t" in argv[1:2])
    listing = listing or (argv[0] == "ar" and argv[1:2] == ("t",))
    for each in argv[2:]:
        if not each.startswith("-"):
            paths.read(t, each)
    t.say(
        "R0" if listing else "R3",
        f"{argv[0]}.archive",
        f"{argv[0]} {'lists' if listing else 'writes what the archive says'}",
    )


REMOTE = re.compile(r"(?:[^/@:]+@)?(\[[^\]]+\]|[^/:]+)::?.*|rsync://.*")
SSH_VALUE = frozenset(
    [
        "-p",
        "-i",
        "-l",
        "-F",
        "-o",
        "-c",
        "-m",
        "-b",
        "-B",
        "-E",
        "-I",
        "-J",
        "-L",
        "-D",
        "-R",
        "-S",
        "-W",
        "-Q",
        "-e",
        "-w",
    ]
)
SSH_SAFE = re.compile(
    r"(BatchMode|ServerAliveInterval|ServerAliveCountMax|ConnectTimeout|ConnectionAttempts|Compression|Port|User"
    r"|IdentitiesOnly|TCPKeepAlive|"
    r"StrictHostKeyChecking=(yes|ask)|LogLevel|AddressFamily|Ciphers|MACs|KexAlgorithms|HostKeyAlgorithms|IPQoS"
    r"|ForwardAgent=no|NumberOfPasswordPrompts)\b.*",
    re.IGNORECASE,
)


def ssh_options(words: list[str], t: Trace) -> list[str]:
    """Judge the options of ssh; returns what follows them (destination and command)."""
    words = list(words)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word[:2] in SSH_VALUE:
            value = word[2:] or (words.pop(0) if words else "")
            if word[:2] == "-o" and not SSH_SAFE.fullmatch(value.replace(" ", "=", 1)):
                t.say("R3", "ssh.option", f"ssh -o {value} can run commands or weaken the link")
            elif word[:2] not in ("-o", "-p", "-l", "-i", "-c", "-m", "-b", "-B"):
                t.say("R3", "ssh.option", f"ssh {word[:2]} opens tunnels or reads other settings")
        elif not set(word[1:]) <= set("46CqTnvxNta"):
            t.say("R3", "ssh.option", f"ssh {word} is not an option that we know to be harmless")
    return words


WRITES = re.compile(r"--(del|remove|force|inplace|ignore-errors)")
"""Options of rsync that matter only when it writes."""


def rsync(argv: tuple[str, ...], t: Trace) -> None:
    parsed = rules("rsync").parse(argv[1:])
    dry = parsed.has("-n", "--dry-run", "--list-only")
    unknown(parsed, "rsync", t, "R3")
    apply([each for each in parsed.given if not (dry and WRITES.match(each.name))], "rsync", t)
    operators(parsed.operands, t)
    for each in parsed.values("-e", "--rsh"):
        try:
            words = shlex.split(each)
        except ValueError:
            words = [each]
        if words[:1] == ["ssh"] or words[:1] == ["/usr/bin/ssh"]:
            for word in ssh_options(words[1:], t):
                t.say("R3", "rsync.shell", f"-e {word!r} is more than ssh with options")
        else:
            t.say("R3", "rsync.shell", f"rsync runs {each!r}")
    words = parsed.operands
    dry = dry or len(words) < 2
    for each in words[:-1] if len(words) > 1 else words:
        if not REMOTE.fullmatch(each):
            paths.read(t, each, recursive=True)
    if dry:
        t.say("R0", "read", "rsync only compares")
        return
    if REMOTE.fullmatch(words[-1]):
        t.say("R3", "rsync.push", f"writes to another host ({words[-1]})")
    else:
        paths.write(t, words[-1], what="copies into")
        _environment(words[-1], t)
    t.say("R1", "rsync.copy", "rsync copies files")


def mount(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules(argv[0]), t, doubt="R3")
    reads = argv[0] == "mount" and not parsed.operands and not parsed.has("-a", "--all")
    t.say("R0" if reads else "R3", f"{argv[0]}.change", f"{argv[0]} {'lists' if reads else 'changes what is mounted'}")


def patch(argv: tuple[str, ...], t: Trace) -> None:
    dry = "--dry-run" in argv
    t.say("R2" if dry else "R3", "patch", "patch changes the files that the patch names")


PACKERS = [
    "gzip",
    "gunzip",
    "bzip2",
    "bunzip2",
    "xz",
    "unxz",
    "zstd",
    "unzstd",
    "lz4",
    "lzop",
    "compress",
    "uncompress",
    "pigz",
    "pbzip2",
    "lzma",
    "unlzma",
    "brotli",
]
COMMANDS: dict[str, Checker] = {
    "tar": tar, "bsdtar": tar, "zip": zip_, "unzip": unzip, **dict.fromkeys(PACKERS, compress), "rsync": rsync,
    "patch": patch,
    **dict.fromkeys(("7z", "7za", "7zr", "unrar", "rar", "cpio", "pax", "ar"), other_archive), "mount": mount,
    "umount": mount,
}  # fmt: skip
