"""Guard of paths: what reading, writing or removing a path means, after normalisation and the host's own realpath."""

from __future__ import annotations

import fnmatch
import posixpath
import re

from opsagent.gate.guards import places
from opsagent.gate.policy import under
from opsagent.gate.trace import Trace

UNKNOWN = "\x00"
"""Stands for (a part of) an operand that is only known when the command runs."""
SHELLISH = re.compile(r"[;&|`\n<>]|\$\(|\$\{")
ROOTED = re.compile(r"/proc/(?:[0-9]+|self|thread-self)(?:/task/[0-9]+)?/root(/.*)?")
INDIRECT = re.compile(r"/proc/(?:[0-9]+|self|thread-self)(?:/task/[0-9]+)?/(cwd|exe|fd)(/.*)?")


LONGEST = 4096
"""Bytes of a path (PATH_MAX)."""


def normal(path: str) -> str:
    """Absolute normal form; relative paths are taken from the login directory, `~` is root's home."""
    if path.startswith("~"):
        user, _, rest = path[1:].partition("/")
        path = f"/home/{user}/{rest}" if user and user != "root" else f"/root/{rest}"
    for variable in ("$HOME", "${HOME}"):
        if path.startswith(variable):
            path = "/root" + path[len(variable) :]
    if not path.startswith("/"):
        path = posixpath.join("/root", path)
    path = posixpath.normpath(path)
    if path.startswith("//"):
        path = path[1:]
    while found := ROOTED.fullmatch(path):
        path = found[1] or "/"
    return path


def resolved(t: Trace, path: str) -> tuple[str, ...]:
    """The path as written and as the host resolves it (once, if they are the same or the host was not asked)."""
    written = normal(path)
    if UNKNOWN in path or t.foreign:
        return (written,)
    asked = path if ".." in path and path.startswith("/") else written  # a/../b is not b when a is a link
    fact = t.fact(f"path:{asked}", f"{written} is not a link")
    real = fact.get("real") if isinstance(fact, dict) else None
    if isinstance(real, str) and real != written:
        t.effect(f"{written} is {real}")
        return (written, normal(real))
    return (written,)


def _kind(t: Trace, path: str) -> str:
    fact = t.facts.known.get(f"path:{normal(path)}")
    return str(fact.get("kind", "")) if isinstance(fact, dict) else ""


def doubtful(t: Trace, path: str) -> bool:
    """A path with shell syntax in it is what somebody hoped a shell would expand: we do not guess."""
    if len(path) > LONGEST:
        t.say("R3", "path.too-long", "a path that no system takes")
        return True
    if SHELLISH.search(path.replace(UNKNOWN, "")):
        t.say("R3", "path.shell-syntax", f"{path!r} contains shell syntax")
        return True
    return False


def read(t: Trace, path: str, *, recursive: bool = False) -> None:
    """Contents of a file are read (with `recursive`: of everything below)."""
    if path in ("-", ""):
        return
    if doubtful(t, path) and len(path) > LONGEST:
        return
    if path == UNKNOWN or (UNKNOWN in path and not path.startswith(("/", "~", "."))):
        t.say("R2", "path.unknown", "reads files whose names are known only when it runs")
        return
    if UNKNOWN in path:  # something below a folder that we do know
        folder, name = posixpath.dirname(path.split(UNKNOWN)[0] + "x"), path.rsplit(UNKNOWN, 1)[-1].strip("/")
        if _finds_secrets(normal(folder), name):
            t.say(
                "X",
                "secret.read",
                f"would read {name or 'environments and memory'} wherever it is found below {folder}",
            )
        path, recursive = folder, not name.strip("*?") or name.strip("*") in (".", "")
    for each in resolved(t, path):
        if secret(each):
            t.say("X", "secret.read", f"{each} holds secrets")
        elif INDIRECT.fullmatch(each) and "$" not in each:
            t.say("R3", "path.indirect", f"{each} leads to a file that is known only when it runs")
        elif places.CHARACTER_DEVICE.fullmatch(each):
            continue
        elif places.BLOCK_DEVICE.fullmatch(each) or _kind(t, path) == "block":
            t.say("R3", "device.read", f"{each} is a raw device: everything on it would be read")
        elif recursive and (each in places.SECRET_PARENTS or re.fullmatch(r"/home/[^/]+|/proc/[^/]+", each)):
            t.say("R3", "secret.below", f"there are secrets below {each}")
        elif "$" in each:
            t.say("R2", "path.variable", f"{path!r} contains a variable")
    t.say("R0", "read", "reads files")


def _finds_secrets(folder: str, name: str) -> bool:
    """Whether looking for `name` (a pattern, '' for everything) below a folder is bound to meet secrets."""
    if under(folder, "/proc"):
        return not name or any(fnmatch.fnmatch(each, name) for each in ("environ", "mem"))
    if not name.strip("*?"):
        return False
    below = [each for each in places.SAMPLES if under(each, folder)]
    return secret(f"/x/{name.strip('*?')}") or any(fnmatch.fnmatch(posixpath.basename(each), name) for each in below)


def secret(place: str) -> bool:
    """Whether a normalised path (or a pattern that somebody hopes to be expanded) is a place of secrets."""
    place = place.strip()
    if any(c in place for c in "*?[") and any(fnmatch.fnmatch(each, place) for each in places.SAMPLES):
        return True
    return bool(places.SECRET.fullmatch(place)) and not places.NOT_SECRET.fullmatch(place)


MENTION = re.compile(r"(?:~|\$HOME|\$\{HOME\})?/[\w./@*?-]+|\.ssh/[\w./-]+")


def mentions(t: Trace, text: str) -> None:
    """Code that we do not follow: what it names in plain words is refused where a plain command would be."""
    for found in (each[:LONGEST] for each in MENTION.findall(text[: 4 * LONGEST])):
        place = normal(found)
        if secret(place) or (places.NEVER_WRITTEN.fullmatch(place) and not place.startswith("/dev/")):
            t.say("X", "secret.mention", f"opaque code names {place}")


def metadata(t: Trace, path: str) -> None:
    """Only names, sizes and times are read."""
    doubtful(t, path)
    t.say("R0", "read", "reads names, sizes and times")


def owned(t: Trace, real: str) -> bool:
    """Whether this run created the path, or a folder above it."""
    return any(under(real, mine) for mine in t.facts.owned if mine not in places.TOP)


def write(t: Trace, path: str, *, what: str = "writes") -> None:
    """A file or folder is made, replaced or changed."""
    if path in ("-", ""):
        return
    if doubtful(t, path) and len(path) > LONGEST:
        return
    if UNKNOWN in path and path == UNKNOWN:
        t.say("R3", "path.unknown", f"{what} paths that are known only when it runs")
        return
    if not path.startswith("/") and not re.match(r"(~|\$\{?HOME)", path):
        t.say("R2", "path.relative", f"{path} is relative: the folder is not ours to choose")
    for each in resolved(t, path):
        _write_one(t, path, each, what)


def _write_one(t: Trace, path: str, each: str, what: str) -> None:
    if places.CHARACTER_DEVICE.fullmatch(each):
        return
    pattern = each.startswith("/dev/") and not each.startswith("/dev/shm/") and any(c in each for c in "*?[$")
    if places.BLOCK_DEVICE.fullmatch(each) or _kind(t, path) == "block" or pattern:
        t.say("X", "device.write", f"{what} the raw device {each}")
    elif places.NEVER_WRITTEN.fullmatch(each) or (
        any(c in each for c in "*?[") and any(fnmatch.fnmatch(one, each) for one in places.SAMPLES)
    ):
        t.say("X", "path.never", f"{what} {each}: nobody may")
    elif secret(each):
        t.say("R3", "secret.write", f"{what} {each}, a place of secrets")
    elif places.GUARDED.fullmatch(each) and not each.startswith("/dev/shm/"):
        t.say("R3", "path.guarded", f"{what} {each} (boot, driver, container, service or system configuration)")
    elif each in places.TOP:
        t.say("R2", "path.top", f"{what} {each} itself")
    elif any(c in each for c in "*?[$") or UNKNOWN in each:
        _say_roots(t, each, what, "R2")
    elif t.foreign:
        t.say("R1", "path.container", f"{what} {each} in {t.foreign}")
    else:
        _say_roots(t, each, what, "R1")


def _say_roots(t: Trace, each: str, what: str, tier_inside: str) -> None:
    if not any(under(each, root) for root in t.policy.roots):
        t.say("R2", "path.outside-roots", f"{what} {each}, which is not under an allowed root")
        return
    fact = t.facts.known.get(f"path:{each}")
    exists = isinstance(fact, dict) and bool(fact.get("exists")) and fact.get("kind") != "dir"
    if tier_inside == "R2" or (exists and not owned(t, each)):
        t.say("R2", "path.existing", f"{what} {each}, which this run did not make")
    else:
        t.say("R1", "path.root", f"{what} {each}, under an allowed root")


def remove(t: Trace, path: str, *, recursive: bool = False) -> None:
    """A file is removed (with `recursive`: everything below)."""
    if doubtful(t, path) and len(path) > LONGEST:
        return
    what = "removes everything below" if recursive else "removes"
    for each in resolved(t, path):
        ours = owned(t, each)
        if UNKNOWN in each or any(c in each for c in "*?[$"):
            t.say(
                "R3", "remove.unknown", f"{what} paths that are known only when it runs ({path.replace(UNKNOWN, '…')})"
            )
        top = each.rstrip("*/") or "/"
        if recursive and (top in places.TOP or each in places.TOP):
            t.say("X", "remove.top", f"{what} {top}")
        elif places.NEVER_WRITTEN.fullmatch(each) or places.BLOCK_DEVICE.fullmatch(each):
            t.say("X", "path.never", f"{what} {each}: nobody may")
        elif ours:
            t.say("R1", "remove.owned", f"{what} {each}, which this run made")
        elif recursive:
            t.say("R3", "remove.recursive", f"{what} {each}, which this run did not make")
        elif any(under(each, root) for root in t.policy.roots) and places.LEFTOVER.fullmatch(each):
            t.say("R2", "remove.leftover", f"{what} {each}, which this run did not make")
        else:
            t.say("R3", "remove.file", f"{what} {each}, which this run did not make: it cannot be taken back")
        t.effect(f"{what} {each}")
