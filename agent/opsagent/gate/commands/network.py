"""Network tools: telling is a read; links, routes and firewalls are R3; a firewall is never switched off; tunnels are R3."""

from __future__ import annotations

import re

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.archives import ssh_options
from opsagent.gate.guards import paths
from opsagent.gate.trace import Trace

SHOWS = ("show", "list", "lst", "ls", "sh", "s", "get", "help")


def ip(argv: tuple[str, ...], t: Trace) -> None:
    """ip [OPTIONS] OBJECT [COMMAND]: without a command it shows."""
    words = list(argv[1:])
    operators(words, t)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if re.fullmatch(r"-(b|batch|force|a|all)", word):
            t.say("R3", "ip.batch", "ip runs commands from a file, or in every name space")
        if re.fullmatch(r"-(n|netns|f|family|l|loops|rc|rcvbuf)", word) and words:
            words.pop(0)
    subject = words[0] if words else ""
    verb = words[1] if len(words) > 1 else "show"
    if subject in ("netns", "vrf") and verb in ("exec", "e", "ex", "exe"):
        t.say("R3", "ip.exec", "ip runs a command in another name space")
        return
    if subject in ("monitor", "mon") or (subject and (verb in SHOWS or _filter(subject, verb))):
        t.say("R0", "read", f"ip {subject} shows")
        return
    t.say("R0" if not subject else "R3", "ip.change", f"ip {subject} {verb} changes the network")


def _filter(subject: str, verb: str) -> bool:
    """`ip addr dev eth0` shows too: what follows is no verb but a filter."""
    return verb in (
        "dev",
        "up",
        "scope",
        "to",
        "label",
        "type",
        "table",
        "cache",
        "proto",
        "master",
        "root",
        "match",
        "exact",
        "vrf",
    )


def iptables(argv: tuple[str, ...], t: Trace) -> None:
    words = argv[1:]
    operators(words, t)
    shows = [
        w for w in words if re.fullmatch(r"-[vnxtw]*[LS][vnx]*|--list(-rules)?|-C|--check|--version|-V|-h|--help", w)
    ]
    changes = [
        w
        for w in words
        if re.fullmatch(
            r"-[ADIRFZNXPE].*|--(append|delete|insert|replace|flush|zero|new-chain|delete-chain|policy|rename-chain).*",
            w,
        )
    ]
    if shows and not changes:
        t.say("R0", "read", f"{argv[0]} lists rules")
    else:
        t.say("R3", "firewall.change", f"{argv[0]} changes the firewall")


def nft(argv: tuple[str, ...], t: Trace) -> None:
    operators(argv[1:], t)
    words = [
        w
        for w in argv[1:]
        if not re.fullmatch(r"-[acnNsSyjupteT]+|--(handle|numeric|json|stateless|terse|numeric-[a-z]+|service|guid)", w)
    ]
    text = " ".join(words)
    shows = (
        bool(words)
        and re.fullmatch(r"list|describe|monitor", words[0].split()[0] if words[0] else "") is not None
        and ";" not in text
    )
    if re.search(r"\bflush\s+ruleset\b", text):
        t.say("R3", "firewall.flush", "nft throws the whole firewall away")
    t.say(
        "R0" if shows or words[:1] in (["-v"], ["--version"]) else "R3",
        "firewall.change",
        f"nft {'lists' if shows else 'changes the firewall'}",
    )


def ufw(argv: tuple[str, ...], t: Trace) -> None:
    words = [w for w in argv[1:] if w not in ("--force", "--dry-run")]
    operators(words, t)
    if words[:1] in (["disable"], ["reset"]):
        t.say("X", "firewall.off", f"ufw {words[0]} switches the firewall off")
    elif words[:1] in (["status"], ["show"], ["version"], ["app"]) and words[1:2] != ["update"]:
        t.say("R0", "read", "ufw shows")
    elif words[:1] == ["allow"] and len(words) == 2 and re.fullmatch(r"[0-9]+(/(tcp|udp))?", words[1]):
        t.say("R2", "firewall.port", f"opens the port {words[1]}")
    else:
        t.say("R3", "firewall.change", "ufw changes the firewall")


def firewall_cmd(argv: tuple[str, ...], t: Trace) -> None:
    words = argv[1:]
    operators(words, t)
    shows = all(
        re.fullmatch(
            r"--(state|list-[a-z-]+|get-[a-z-]+|query-[a-z-]+|info-[a-z-]+|zone=.*|permanent|version|help|quiet)(=.*)?",
            w,
        )
        for w in words
    )
    opens = bool(words) and all(
        re.fullmatch(r"--(add-port=[0-9-]+/(tcp|udp)|zone=.*|permanent|timeout=.*)", w) for w in words
    )
    if opens:
        t.say("R2", "firewall.port", "opens a port")
        return
    off = any(w.startswith(("--panic", "--set-default-zone=trusted", "--reset-to-defaults")) for w in words)
    t.say("X" if off else "R0" if shows and words else "R3", "firewall.change" if not shows else "read", "firewall-cmd")


def nmcli(argv: tuple[str, ...], t: Trace) -> None:
    words = [w for w in argv[1:] if not w.startswith("-")]
    operators(argv[1:], t)
    shows = not words or (len(words) < 2) or words[1] in ("show", "status", "list", "s") or words[0] in ("monitor",)
    t.say("R0" if shows else "R3", "nmcli.change", f"nmcli {'shows' if shows else 'changes the network'}")
    if {"-s", "--show-secrets"} & set(argv[1:]):
        t.say("X", "secret.read", "prints network passwords")


def legacy(argv: tuple[str, ...], t: Trace) -> None:
    """ifconfig, route, brctl, bridge, arp …: at most flags and one name is a question; anything more is a change."""
    words = [w for w in argv[1:] if not w.startswith("-")]
    operators(argv[1:], t)
    if argv[0] in ("bridge", "tc", "brctl", "ovs-vsctl", "ovs-ofctl", "wg", "iw", "ipset", "conntrack"):
        shows = (
            any(w in ("show", "list", "ls", "showmacs", "showstp", "dump-flows", "-L") for w in argv[1:3])
            or not argv[1:]
        )
        if argv[0] == "wg" and argv[1:2] != ("show",):
            shows = False
        if argv[0] == "wg" and {"dump", "private-key", "preshared-keys"} & set(argv):
            t.say("X", "secret.read", "prints keys")
    else:
        flags = all(re.fullmatch(r"-[aensvCFN46]+", w) for w in argv[1:] if w.startswith("-"))
        shows = (
            argv[0] in ("ifconfig", "route", "arp", "iwconfig")
            and len(words) <= (0 if argv[0] == "route" else 1)
            and flags
        )
    t.say("R0" if shows else "R3", f"{argv[0]}.change", f"{argv[0]} {'shows' if shows else 'changes the network'}")


def ssh(argv: tuple[str, ...], t: Trace) -> None:
    """Another host: no gate judges what happens there, and the words become shell text on the far side."""
    if argv[1:] == ("-V",):
        t.say("R0", "help", "ssh tells its version")
        return
    rest = ssh_options(list(argv[1:]), t) if argv[0] in ("ssh", "sftp") else list(argv[1:])
    for each in rest if argv[0] == "scp" else []:
        if ":" not in each.split("/")[0] and not each.startswith("-"):
            paths.read(t, each)
    if argv[0] == "ssh" and len(rest) > 1:
        from opsagent.gate.commands.shells import text

        text(" ".join(rest[1:]), t)
    t.say("R3", f"{argv[0]}.other-host", f"{argv[0]} acts on another host, where nothing is judged")


def netcat(argv: tuple[str, ...], t: Trace) -> None:
    """`nc -z HOST PORT` only tries; listening, -e and everything else is a channel out."""
    flags = [w for w in argv[1:] if w.startswith("-")]
    tries = (
        argv[0] in ("nc", "ncat", "netcat")
        and any("z" in w for w in flags)
        and all(re.fullmatch(r"-[zvnuw46]+\d*", w) for w in flags)
    )
    operators(argv[1:], t)
    t.say(
        "R0" if tries else "R3",
        f"{argv[0]}.channel",
        f"{argv[0]} {'tries a port' if tries else 'opens a channel to somewhere'}",
    )


def tcpdump(argv: tuple[str, ...], t: Trace) -> None:
    if any(w.startswith(("-z", "--postrotate")) for w in argv[1:]):
        t.say("R3", "tcpdump.command", "tcpdump runs a command")
    lists = argv[1:] in (("-D",), ("--list-interfaces",), ("--version",))
    t.say("R0" if lists else "R2", f"{argv[0]}.listen", f"{argv[0]} reads what others send")
    for flag, value in zip(argv, (*argv[1:], ""), strict=True):
        if flag == "-w" and value != "-":
            paths.write(t, value)
        elif flag.startswith("-w") and len(flag) > 2:
            paths.write(t, flag[2:])


LEGACY = [
    "ifconfig",
    "route",
    "arp",
    "brctl",
    "bridge",
    "tc",
    "wg",
    "iw",
    "iwconfig",
    "ipset",
    "conntrack",
    "ovs-vsctl",
    "ovs-ofctl",
    "ifup",
    "ifdown",
    "dhclient",
    "netplan",
    "vconfig",
    "ifenslave",
]
CHANNELS = [
    "telnet",
    "ftp",
    "tftp",
    "lftp",
    "ncftp",
    "nc",
    "ncat",
    "netcat",
    "socat",
    "rlogin",
    "rsh",
    "cloudflared",
    "ngrok",
    "frpc",
    "chisel",
    "tailscale",
    "autossh",
    "sshuttle",
    "openvpn",
    "wg-quick",
]
COMMANDS: dict[str, Checker] = {
    "ip": ip, **dict.fromkeys(("iptables", "ip6tables", "iptables-nft", "iptables-legacy", "ebtables", "arptables"),
    iptables), "nft": nft, "ufw": ufw,
    **dict.fromkeys(("iptables-restore", "ip6tables-restore"), iptables), "firewall-cmd": firewall_cmd, "nmcli": nmcli,
    **dict.fromkeys(LEGACY, legacy), **dict.fromkeys(("ssh", "scp", "sftp", "mosh"), ssh), **dict.fromkeys(CHANNELS, netcat),
    **dict.fromkeys(("tcpdump", "tshark", "dumpcap", "ngrep"), tcpdump),
}  # fmt: skip
