"""Package managers: telling is a read, simulating too; installing runs code of others; removing and upgrading all is R3."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from opsagent.gate.argv import Checker, check
from opsagent.gate.commands.services import GUARDS
from opsagent.gate.commands.simple import parse
from opsagent.gate.commands.tables import entries, rules, verb_of
from opsagent.gate.grammar import Parsed
from opsagent.gate.guards import paths
from opsagent.gate.guards.urls import HUBS, local
from opsagent.gate.trace import Trace

SYSTEM = re.compile(
    r"(nvidia|libnvidia|cuda-drivers|xserver-xorg-video-nvidia|linux-(image|headers|modules|generic|firmware)"
    r"|proxmox|pve-|grub|shim|systemd$|"
    r"initramfs|dracut|libc6|libc-bin|openssh-server|dkms|zfs|lxc-pve|firmware|intel-microcode|amd64-microcode"
    r"|kernel|udev|bash$|dpkg$|apt$|sudo$).*"
)


def apt(argv: tuple[str, ...], t: Trace) -> None:
    entry = entries()["apt"]
    parsed = parse(argv, rules("apt"), t)
    verb = verb_of(parsed.operands, entry.verbs)
    tier = entry.verbs.get(verb, "R3") if verb else "R0"
    for each in parsed.values("-o", "--option"):
        harmless = re.match(
            r"(Dpkg::Use-Pty|Acquire::(http|https)::Timeout|DPkg::Lock::Timeout|APT::Color"
            r"|Dpkg::Options::=--force-conf(def|old)|Dpkg::Progress-Fancy)",
            each,
        )
        if not harmless:
            t.say("R3", "apt.option", f"{each} can make apt run commands")
    if parsed.has("-s", "--simulate", "--just-print", "--dry-run", "--no-act", "--recon", "--print-uris"):
        t.say("R0", "read", "apt only simulates")
        return
    name = verb if verb in entry.verbs else "unknown-verb"
    if verb in ("remove", "purge") and any(GUARDS.fullmatch(each) for each in parsed.operands[1:]):
        t.say("X", "package.guard", "removes what watches over the host")
    t.say(tier, f"apt.{name}" if tier != "R0" else "read", f"{argv[0]} {verb}".strip())
    if verb == "install":
        _install(parsed.operands[1:], t)


def _install(words: list[str], t: Trace) -> None:
    for each in words:
        if SYSTEM.match(each):
            t.say("R3", "package.system", f"{each} is (part of) a driver, a kernel, the boot or the base system")
        if each.endswith(("-", "+")) and not each.endswith(("++", "+-")) and each.endswith("-"):
            t.say("R3", "package.remove", f"{each} would be removed")
        if "/" in each and each.startswith((".", "/")):
            t.say("R3", "package.file", f"{each} is a package file of unknown origin")


def apt_bare(argv: tuple[str, ...], t: Trace) -> None:
    apt(("apt", *argv[1:]), t)


def dpkg(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("dpkg"), t, doubt="R3")
    if parsed.has("--no-act", "--simulate", "--dry-run"):
        t.say("R1", "dpkg.simulate", "dpkg simulates")
    if parsed.has("-i", "--install", "--unpack"):
        t.say("R3", "package.file", "installs package files of unknown origin")
    if parsed.has("-x", "-X", "--extract", "-e", "--control"):
        t.say("R1", "dpkg.extract", "unpacks a package")
        for each in parsed.operands[1:]:
            paths.write(t, each)
    t.say("R0", "read", "dpkg tells")


def rpm(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("rpm"), t, doubt="R3")
    if parsed.has("-q", "-V", "--query", "--verify"):
        t.say("R0", "read", "rpm tells")
    elif not parsed.has("-i", "-U", "-F"):
        t.say("R3", "rpm.unknown", "rpm without a query")
    else:
        t.say("R3", "package.file", "installs package files")


def pip(argv: tuple[str, ...], t: Trace) -> None:
    entry = entries()["pip"]
    parsed = parse(argv, rules("pip"), t)
    verb = verb_of(parsed.operands, entry.verbs)
    tier = entry.verbs.get(verb, "R3") if verb else "R0"
    t.say(
        tier,
        f"pip.{verb if verb in entry.verbs else 'unknown-verb'}" if tier != "R0" else "read",
        f"pip {verb}".strip(),
    )
    _indexes(parsed, t)
    if verb in ("install", "download", "wheel"):
        _requirements(parsed.operands[1:], t)
    elif verb == "uninstall":
        t.say("R2", "pip.uninstall", "removes packages of an environment")


def _indexes(parsed: Parsed, t: Trace) -> None:
    """Where packages come from: an index that we do not know runs its code here."""
    for each in parsed.values("-i", "--index-url", "--default-index", "-f", "--find-links"):
        host = (urlsplit(each).hostname or "") if "://" in each else ""
        if host and not HUBS.fullmatch(host) and not local(host):
            t.say("R3", "package.index", f"{host} is not an index that we know")


def _requirements(words: list[str], t: Trace) -> None:
    for each in words:
        if re.search(r"^(git|hg|svn|bzr)\+|://|^\.|^/|@ *(git|https?|file)", each):
            t.say("R3", "package.source", f"{each} runs code from a place that no index vouches for")


def uv(argv: tuple[str, ...], t: Trace) -> None:
    entry = entries()["uv"]
    parsed = parse(argv, rules("uv"), t)
    verb = verb_of(parsed.operands, entry.verbs)
    tier = entry.verbs.get(verb, "R3") if verb else "R0"
    if parsed.has("-V"):
        tier = "R0"
    _indexes(parsed, t)
    t.say(
        tier,
        f"uv.{verb.replace('/', '-') if verb in entry.verbs else 'unknown-verb'}" if tier != "R0" else "read",
        f"uv {verb.replace('/', ' ')}",
    )
    if verb == "venv":
        for each in parsed.operands[1:] or [".venv"]:
            paths.write(t, each, what="makes the environment")
        if parsed.has("--clear"):
            t.say("R3", "uv.clear", "replaces an environment")
    elif verb in ("pip/install", "pip/sync"):
        _requirements(parsed.operands[2:], t)
        if parsed.has("--dry-run"):
            t.say("R1", "uv.dry-run", "only resolves")
    elif verb in ("run", "tool/run") and len(parsed.operands) > 1:
        check(parsed.operands[2 if verb == "tool/run" else 1 :], t)


def hf(argv: tuple[str, ...], t: Trace) -> None:
    """hf download makes new files where `--local-dir` or the cache says; hf cache rm removes."""
    words = [word for word in argv[1:] if not word.startswith("-")]
    verb = " ".join(words[:2])
    for flag, value in zip(argv, (*argv[1:], ""), strict=True):
        name, _, attached = flag.partition("=")
        place = attached or value
        if name in ("--local-dir", "--cache-dir"):
            if words[:1] == ["download"] and "--dry-run" not in argv:
                paths.write(t, place, what="downloads into")
            else:
                paths.metadata(t, place)
        elif name == "--token":
            t.say("R2", "secret.argv", "a token in the arguments can be seen by everybody on the host")
        elif name in ("--force-download", "--revision", "--include", "--exclude"):
            continue
    if (
        words[:1] in (["env"], ["version"])
        or verb
        in (
            "cache ls",
            "cache scan",
            "cache verify",
            "auth whoami",
            "auth list",
            "models ls",
            "models info",
            "repo list",
        )
        or words[:1] == ["scan-cache"]
        or words[:1] == ["whoami"]
    ):
        t.say("R0", "read", f"hf {verb} tells")
    elif verb == "auth token":
        t.say("X", "secret.read", "prints the token")
    elif words[:1] == ["download"]:
        dry = "--dry-run" in argv
        t.say(
            "R0" if dry else "R1",
            "hf.download",
            "downloads files of a repository" if not dry else "tells what it would download",
        )
        if not dry and not any(word.startswith(("--local-dir", "--cache-dir")) for word in argv):
            t.say("R1", "hf.cache", "into the cache of the user")
    elif words[:1] == ["cache"]:
        t.say("R3", "hf.cache-remove", f"hf {verb} removes downloaded files")
    else:
        t.say("R3", "hf.change", f"hf {verb} changes something at the hub, or credentials")


def node(argv: tuple[str, ...], t: Trace) -> None:
    """perl, ruby, node …: only `--version` is followed."""
    if argv[1:] in (("-v",), ("-V",), ("--version",), ("-version",)):
        t.say("R0", "help", f"{argv[0]} tells its version")
        return
    from opsagent.gate.commands.shells import fetched, opaque

    if fetched(t):
        t.say("X", "fetch-and-execute", f"{argv[0]} runs what the stage before it fetches")
    opaque(" ".join(argv[1:]), t)
    t.say("R3", "script.opaque", f"{argv[0]} runs code that we do not follow")


def nvcc(argv: tuple[str, ...], t: Trace) -> None:
    tells = argv[1:] in (("-V",), ("--version",), ("--list-gpu-arch",), ("--list-gpu-code",), ("--help",), ("-h",))
    t.say("R0" if tells else "R3", "nvcc.compile", "nvcc tells" if tells else "nvcc compiles code")


OTHERS = [
    "perl",
    "ruby",
    "node",
    "php",
    "lua",
    "tclsh",
    "wish",
    "guile",
    "julia",
    "Rscript",
    "R",
    "osascript",
    "elixir",
    "erl",
    "ghc",
    "runghc",
    "java",
    "scala",
    "groovy",
    "deno",
    "bun",
    "ipython",
    "jupyter",
]
COMMANDS: dict[str, Checker] = {
    "apt": apt, "apt-get": apt_bare, "apt-cache": apt_bare, "dpkg": dpkg, "rpm": rpm, "pip": pip, "pipx": pip,
    "uv": uv, "hf": hf,
    "huggingface-cli": hf, **dict.fromkeys(OTHERS, node), "nvcc": nvcc,
}  # fmt: skip
