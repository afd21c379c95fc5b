"""git, openssl, gpg, keys, and what is left: read-only forms are known, the rest is R3."""

from __future__ import annotations

import re
from typing import cast

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.simple import apply, parse, unknown
from opsagent.gate.commands.tables import entries, rules
from opsagent.gate.grammar import grammar
from opsagent.gate.guards import paths
from opsagent.gate.trace import Trace
from opsagent_tools.tool import Tier

GIT_WRITES = re.compile(r"(--output(=.*)?|-o|--ext-diff|--open-files-in-pager.*|-O.*|--upload-pack(=.*)?"
r"|--exec(=.*)?|-u|--textconv|--filters|"
                        r"--add|--unset.*|--replace-all|--edit|-e|--global|--system|--set.*|--delete|-[dDmMcC]"
                        r"|--move|--copy|--rename-section.*)")  # fmt: skip
GIT_ALONE = {
    "branch": r"(-[avrl]+|--(all|list|remotes|verbose|show-current|contains|merged|no-merged|sort=.*|format=.*"
    r"|points-at))", "tag": r"(-l|-n\d*|--list|--sort=.*|--contains|--points-at|-v)",
    "remote": r"(-v|--verbose|show|get-url)",
    "config": r"(-l|--list|--get.*|--show-origin|--show-scope|--local|--name-only|-z)", "stash/list": r".*",
    "worktree/list": r".*", "reflog": r"(show|exists|-.*|HEAD.*)",
}  # fmt: skip


def git(argv: tuple[str, ...], t: Trace) -> None:
    parsed = grammar(entries_options("git"), posix=True).parse(argv[1:])
    unknown(parsed, "git", t, "R3")
    apply(parsed.given, "git", t)
    words = parsed.operands
    verbs = entries()["git"].verbs
    verb = (
        f"{words[0]}/{words[1]}"
        if len(words) > 1 and f"{words[0]}/{words[1]}" in verbs
        else (words[0] if words else "")
    )
    tier = verbs.get(verb, "R3" if verb else "R0")
    rest = words[2:] if "/" in verb else words[1:]
    operators(rest, t)
    t.say(tier, f"git.{verb or 'bare'}" if tier != "R0" else "read", f"git {verb.replace('/', ' ')}")
    for each in rest:
        place = each.partition("=")[2] or each
        if place.startswith(("/", "~", "../")) and not place.startswith("//"):
            paths.read(t, place)
    if tier != "R0":
        if verb in ("fetch", "pull", "clone", "checkout", "add", "commit", "init"):
            t.say("R3", "git.change", "git changes a working tree and may run hooks")
        return
    strict = GIT_ALONE.get(verb)
    flags = [w for w in rest if w.startswith("-")]
    if strict is not None:
        plain = [w for w in rest if not w.startswith("-")]
        fine = all(re.fullmatch(strict, w) for w in flags)
        loose = (
            verb in ("branch", "tag", "config", "remote") and not flags and plain and not re.fullmatch(strict, plain[0])
        )
        config = verb == "config" and len(plain) == 1 and not flags
        if not fine or (loose and not config) or (verb == "config" and len(plain) > 1 and not flags):
            t.say("R2", f"git.{verb}-change", f"git {verb} with more than a question")
    elif any(
        GIT_WRITES.fullmatch(w)
        for w in flags
        if not re.fullmatch(r"-[cdDmMC]\d*|-[0-9uo]+|--exec", w) or (verb == "grep" and w.startswith("-O"))
    ):
        t.say("R3", "git.option", f"git {verb} with an option that writes or runs something")
    if verb == "ls-remote" and any(
        re.search(r"ext::|--upload-pack|--exec|^-", w)
        for w in rest
        if "://" not in w and w not in ("-h", "--heads", "-t", "--tags", "--refs", "-q")
    ):
        t.say("R3", "git.remote", "git runs a helper")


def entries_options(name: str) -> str:
    """The options of a program's block as text, without the words that say how to parse."""
    return " ".join(word for word in entries()[name].options.split() if word not in ("posix", "single"))


def openssl(argv: tuple[str, ...], t: Trace) -> None:
    words = argv[1:]
    operators(words, t)
    reads = words[:1] in (("version",), ("s_client",), ("ciphers",), ("list",), ("rand",), ("speed",)) or (
        words[:1] in (("x509",), ("crl",), ("verify",), ("req",))
        and not {"-out", "-signkey", "-CAkey", "-new", "-x509", "-newkey"} & set(words)
    )
    for flag, value in zip(words, [*words[1:], ""], strict=False):
        if flag in ("-in", "-CAfile", "-key", "-inkey", "-passin") and value and not value.startswith("pass:"):
            paths.read(t, value.removeprefix("file:"))
        elif flag in ("-out", "-keyout", "-writerand"):
            paths.write(t, value)
    if any(word in ("-engine", "-provider", "-provider-path") for word in words):
        t.say("R3", "openssl.engine", "openssl loads code")
    for word in words:
        if words[:1] == ("rsa",) or words[:1] == ("pkey",):
            t.say("X" if not {"-pubout", "-pubin"} & set(words) else "R2", "secret.read", "handles private keys")
            break
        if word.startswith("-passin") and "env:" in word:
            t.say("R2", "secret.env", "takes a password from the environment")
    digest = words[:1] in (("dgst",), ("sha256",), ("md5",), ("sha1",), ("enc",), ("base64",))
    if digest:
        for word in words[1:]:
            if not word.startswith("-"):
                paths.read(t, word)
    plain = digest and words[0] != "enc" and "-sign" not in words
    t.say("R0" if reads or plain else "R3", "openssl.other", f"openssl {words[0] if words else ''}")


def keys(argv: tuple[str, ...], t: Trace) -> None:
    """ssh-keygen -l and gpg --list-keys tell; everything else makes, shows or changes keys."""
    words = set(argv[1:])
    tells = (argv[0] == "ssh-keygen" and any(re.fullmatch(r"-[a-zA-Z]*l[a-zA-Z]*", w) for w in words)) or (
        argv[0] in ("gpg", "gpg2") and words & {"--list-keys", "-k", "--version", "--verify", "--list-public-keys"}
    )
    tells = tells or (argv[0] == "ssh-add" and words <= {"-l", "-L"} and bool(words))
    secret = words & {"--export-secret-keys", "--export-secret-subkeys"} or (argv[0] == "ssh-keygen" and "-y" in words)
    for each in argv[1:]:
        if not each.startswith("-") and "/" in each and argv[0] != "ssh-keygen":
            paths.read(t, each)
    t.say(
        "X" if secret else "R0" if tells else "R3",
        f"{argv[0]}.keys" if not tells else "read",
        f"{argv[0]} handles keys",
    )
    operators(argv[1:], t)


def maintenance(argv: tuple[str, ...], t: Trace) -> None:
    operators(argv[1:], t)
    t.say("R3", f"{argv[0]}.change", f"{argv[0]} changes the system's own files")


def start_stop(argv: tuple[str, ...], t: Trace) -> None:
    t.say("R3", "start-stop-daemon", "starts or stops services by its own rules")


def ldd(argv: tuple[str, ...], t: Trace) -> None:
    """ldd may run the program's own loader: only for programs of the system and of serving environments."""
    parsed = rules("ldd").parse(argv[1:])
    unknown(parsed, "ldd", t)
    operators(parsed.operands, t)
    t.say("R0", "read", "ldd lists libraries")
    for each in parsed.operands:
        paths.read(t, each)
        place = paths.normal(each)
        if not each.startswith("/") or not place.startswith(("/usr/", "/bin/", "/lib", "/sbin/", "/opt/", "/srv/")):
            t.say("R3", "ldd.loader", f"ldd can run {each}")


def getent(argv: tuple[str, ...], t: Trace) -> None:
    operators(argv[1:], t)
    if {"shadow", "gshadow"} & set(argv[1:]):
        t.say("X", "secret.read", "prints password hashes")
    t.say("R0", "read", "getent looks names up")


def printenv(argv: tuple[str, ...], t: Trace) -> None:
    from opsagent.gate.guards.variables import SECRETS

    names = [word for word in argv[1:] if not word.startswith("-")]
    if any(SECRETS.fullmatch(name) for name in names):
        t.say("X", "secret.environ", "prints a secret of the environment")
    t.say("R0" if names else "R2", "environment.print" if not names else "read", "prints environment variables")
    operators(names, t)


QUESTIONS: dict[str, tuple[str, ...]] = {
    "ipmitool": ("sensor", "sdr", "sel", "fru", "mc"), "cpupower": ("frequency-info", "idle-info", "info", "monitor"),
    "chronyc": ("tracking", "sources", "sourcestats", "activity"), "ntpq": ("-p", "-pn", "-c"),
    "nvidia-container-cli": ("info", "list"),
    "nvidia-ctk": ("--version", "cdi"), "rdma": ("link", "dev", "res", "stat"), "exportfs": ("-v", "-s"),
    "nginx": ("-t", "-v", "-V"),
    "apachectl": ("-t", "-S", "-v", "configtest", "status"), "haproxy": ("-v", "-vv"), "caddy": ("version", "validate"),
    "patchelf": ("--print-rpath", "--print-needed", "--print-interpreter", "--version"), "auditctl": ("-l", "-s"),
    "pkg-config": ("--modversion", "--libs", "--cflags", "--list-all", "--exists", "--version"),
}  # fmt: skip
"""Programs of which only these first words are questions."""
CHANGES = re.compile(r"(set|clear|add|del|delete|reset|write|raw|power|on|off|cycle|generate|bind|unbind|.*=[0-9]+)")


def question(argv: tuple[str, ...], t: Trace) -> None:
    asks = argv[1:2] != () and argv[1] in QUESTIONS[argv[0]] and not any(CHANGES.fullmatch(word) for word in argv[2:])
    operators(argv[1:], t)
    severe = "X" if argv[0] == "auditctl" else "R3"
    t.say(
        "R0" if asks else cast(Tier, severe),
        f"{argv[0]}.change" if not asks else "read",
        f"{argv[0]} {' '.join(argv[1:2])}",
    )


def man(argv: tuple[str, ...], t: Trace) -> None:
    for each in parse(argv, rules("man"), t, doubt="R3").operands:
        if "/" in each:
            paths.read(t, each)
    t.say("R0", "read", "man prints a page")


COMMANDS: dict[str, Checker] = {
    "man": man, **dict.fromkeys(QUESTIONS, question), "git": git, "openssl": openssl, **dict.fromkeys(("ssh-keygen",
    "ssh-add", "ssh-agent", "gpg", "gpg2", "keytool",
    "certbot", "certutil"), keys),
    **dict.fromkeys(("update-ca-certificates", "update-locale", "locale-gen", "update-passwd"), maintenance),
    "ldd": ldd, "printenv": printenv, "getent": getent,
    "start-stop-daemon": start_stop,
}  # fmt: skip
