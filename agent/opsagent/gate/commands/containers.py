"""Containers and virtual machines: the command inside is judged too, and the container must be one that the policy names."""

from __future__ import annotations

from collections.abc import Mapping

from opsagent.gate.argv import Checker, check, embedded, operators
from opsagent.gate.commands.simple import apply, parse, unknown
from opsagent.gate.commands.tables import entries, verb_of
from opsagent.gate.grammar import grammar
from opsagent.gate.guards import paths, variables
from opsagent.gate.trace import Trace, up

DOCKER_EXEC = grammar(
    "-itdT -u: -w: -e: --interactive --tty --detach --user: --workdir: --env: --env-file:read --privileged!R3"
    " --detach-keys: "
    "--no-TTY --index:",
    posix=True,
)


def inside(name: str, argv: list[str], t: Trace) -> None:
    """Judge a command that runs in a container; writes need the container to be one that is named."""
    if not argv:
        t.say("R3", "argv.empty", f"no command for {name}")
        return
    outer, t.foreign = t.foreign, name
    before = list(t.findings)
    t.findings.clear()
    try:
        check(argv, t)
        inner = t.tier
    finally:
        t.foreign = outer
        t.findings[:0] = before
    t.effect(f"runs in {name}")
    plain = name.split()[-1]
    if inner != "R0" and plain not in t.policy.containers:
        t.say(up(inner, "R2"), "container.not-named", f"{name} is not among the containers that may be written to")


def pct(argv: tuple[str, ...], t: Trace) -> None:
    if argv[1:2] == ("exec",):
        _pct_exec(list(argv[2:]), t)
        return
    words = tuple(f"-{w}" if w in ("-memory", "-cores") else w for w in argv)
    entry = entries()["pct"]
    parsed = entry.grammar.parse(words[1:])
    verb = verb_of(parsed.operands, entry.verbs)
    tier = entry.verbs.get(verb, "R3") if verb else "R0"
    if tier == "R0":
        unknown(parsed, "pct", t)
    apply(parsed.given, "pct", t)
    operators(parsed.operands, t)
    embedded(parsed.operands, t)
    t.say(tier, f"pct.{verb if verb in entry.verbs else 'unknown-verb'}" if tier != "R0" else "read", f"pct {verb}")
    target = parsed.operands[1] if len(parsed.operands) > 1 else ""
    if tier != "R0" and target not in t.policy.containers:
        t.say("R2", "container.not-named", f"container {target or '(none)'} is not among those that may be written to")
    if verb in ("push", "pull"):
        sources, targets = parsed.operands[2:3], parsed.operands[3:4]
        for each in sources:
            paths.read(t, each)
        for each in targets:
            paths.write(t, each)


def _pct_exec(words: list[str], t: Trace) -> None:
    """pct exec CTID [--keep-env B] -- CMD …"""
    ctid = words[0] if words else ""
    if not ctid.isdigit():
        t.say("R3", "pct.unknown", f"{ctid!r} is not a container's number")
        return
    rest = words[1:]
    while rest and rest[0].startswith("--") and rest[0] != "--":
        if not rest[0].startswith("--keep-env"):
            t.say("R3", "pct.unknown-option", f"pct exec {rest[0]}")
        rest = rest[1:] if "=" in rest[0] else rest[2:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    inside(f"container {ctid}", rest, t)


def qm(argv: tuple[str, ...], t: Trace) -> None:
    entry = entries()["qm"]
    parsed = parse(argv, entry.grammar, t)
    words = parsed.operands
    verb = verb_of(words, entry.verbs)
    if words[:1] in (["agent"], ["guest"], ["cloudinit"]) and len(words) > 2:
        verb = f"{words[0]}/{words[2]}" if f"{words[0]}/{words[2]}" in entry.verbs else verb
    tier = entry.verbs.get(verb, "R3") if verb else "R0"
    t.say(tier, f"qm.{verb.replace('/', '-')}" if tier != "R0" else "read", f"qm {verb}")
    if verb == "start":
        t.say("R3", "qm.hostpci", "a virtual machine with hostpci takes its GPU away from the host's driver")


def docker(argv: tuple[str, ...], t: Trace) -> None:
    """docker, podman, nerdctl; `exec` is judged by what it runs, `cp` by both paths."""
    entry = entries()[argv[0]]
    words = list(argv[1:])
    verb, rest = _docker_verb(words, entry.verbs)
    if verb in ("exec", "container/exec", "compose/exec"):
        parsed = DOCKER_EXEC.parse(rest)
        unknown(parsed, "docker exec", t, "R3")
        apply(parsed.given, "docker exec", t)
        for each in parsed.values("-e", "--env"):
            variables.assign(t, *each.partition("=")[::2])
        name = parsed.operands[0] if parsed.operands else "?"
        inside(f"container {name}", parsed.operands[1:], t)
        return
    parsed = parse(argv, entry.grammar, t) if entry.verbs.get(verb) == "R0" else entry.grammar.parse(words)
    tier = entry.verbs.get(verb, "R3") if verb else "R0"
    apply(parsed.given, argv[0], t) if tier != "R0" else None
    operators(parsed.operands, t)
    shown = verb.replace("/", " ")
    t.say(
        tier,
        f"docker.{shown.replace(' ', '-') if verb in entry.verbs else 'other'}" if tier != "R0" else "read",
        f"{argv[0]} {shown}",
    )
    if verb in ("cp", "container/cp"):
        for each in rest[:1]:
            paths.read(t, each.partition(":")[2] or each)
        for each in rest[1:2]:
            paths.write(t, each.partition(":")[2] or each)
    targets = [w for w in rest if not w.startswith("-")]
    if tier == "R2" and targets and not any(each in t.policy.containers for each in targets):
        t.say("R2", "container.not-named", f"{targets[0]} is not among the containers that may be written to")


VALUE_OPTIONS = (
    "-H",
    "--host",
    "-c",
    "--context",
    "--config",
    "-l",
    "--log-level",
    "-f",
    "--file",
    "-p",
    "--project-name",
    "--profile",
)


def _docker_verb(words: list[str], verbs: Mapping[str, object]) -> tuple[str, list[str]]:
    """The verb (`ps`, `image/ls`) behind global options, and what follows it."""
    rest = list(words)
    found: list[str] = []
    while rest and len(found) < 2:
        word = rest[0]
        if word.startswith("-"):
            if found and found[0] not in ("compose",):
                break
            rest = rest[2:] if word in VALUE_OPTIONS else rest[1:]
            continue
        if (
            found
            and "/".join([*found, word]) not in verbs
            and found[0] not in ("compose", "container", "image", "system", "volume", "network")
        ):
            break
        found.append(rest.pop(0))
        if len(found) == 1 and found[0] not in ("compose", "container", "image", "system", "volume", "network",
        "context", "node", "service",
                                                "stack", "plugin", "manifest", "buildx", "swarm", "builder",
                                                "secret", "config", "trust"):  # fmt: skip
            break
    return "/".join(found), rest


def lxc(argv: tuple[str, ...], t: Trace) -> None:
    """lxc-attach -n NAME -- CMD, lxc exec NAME -- CMD, machinectl …"""
    if argv[0] == "lxc-attach" and "--" in argv:
        at = argv.index("--")
        name = next((argv[i + 1] for i, w in enumerate(argv[:at]) if w in ("-n", "--name") and i + 1 < at), "?")
        inside(f"container {name}", list(argv[at + 1 :]), t)
        if any(w.startswith("-") and w not in ("-n", "--name", "--clear-env", "--keep-env") for w in argv[1:at]):
            t.say("R3", "lxc-attach.option", "lxc-attach with options that we do not follow")
    elif argv[0] == "lxc" and argv[1:2] == ("exec",) and "--" in argv:
        at = argv.index("--")
        inside(f"container {argv[2]}", list(argv[at + 1 :]), t)
    elif argv[0] == "lxc" and argv[1:2] in (("list",), ("info",), ("ls",), ("version",)):
        t.say("R0", "read", "lxc tells")
    else:
        t.say("R3", f"{argv[0]}.change", f"{argv[0]} changes containers")
    operators(argv[1:], t)


def kubectl(argv: tuple[str, ...], t: Trace) -> None:
    entry = entries()["kubectl"]
    words = list(argv[1:])
    if "exec" in words[:6] and "--" in words:
        at = words.index("--")
        target = next((w for w in words[words.index("exec") + 1 : at] if not w.startswith("-")), "?")
        inside(f"container {target}", words[at + 1 :], t)
        if any(w.startswith(("--kubeconfig", "--server", "-s")) for w in words[:at]):
            t.say("R3", "kubectl.option", "another cluster")
        return
    parsed = parse(argv, entry.grammar, t)
    verb = verb_of(parsed.operands, entry.verbs)
    tier = entry.verbs.get(verb, "R3") if verb else "R0"
    t.say(tier, f"kubectl.{verb.replace('/', '-')}" if tier != "R0" else "read", f"kubectl {verb}")
    kinds = " ".join(parsed.operands[1:3]).lower()
    if tier == "R0" and ("secret" in kinds or "secrets" in kinds) and verb != "explain":
        t.say("X", "secret.read", "reads the cluster's secrets")


def pve_firewall(argv: tuple[str, ...], t: Trace) -> None:
    verb = (argv[1:] or ("status",))[0]
    tier = entries()["pve-firewall"].verbs.get(verb, "R3")
    operators(argv[1:], t)
    t.say(tier, f"pve-firewall.{verb}" if tier != "R0" else "read", f"pve-firewall {verb}")


COMMANDS: dict[str, Checker] = {
    "pct": pct, "qm": qm, **dict.fromkeys(("docker", "podman", "nerdctl"), docker),
    **dict.fromkeys(("lxc-attach", "lxc", "lxc-start", "lxc-stop", "lxc-destroy", "lxc-create", "lxc-execute",
    "lxc-console"), lxc),
    **dict.fromkeys(("kubectl", "oc", "k3s"), kubectl), "pve-firewall": pve_firewall,
}  # fmt: skip
