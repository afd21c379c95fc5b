"""Services, logs and the clock: what systemd and its neighbours do to what runs here."""

from __future__ import annotations

import re

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.shells import fetched
from opsagent.gate.commands.simple import parse
from opsagent.gate.commands.tables import entries, rules, verb_of
from opsagent.gate.guards import paths
from opsagent.gate.guards.servers import named, own_unit
from opsagent.gate.trace import Trace
from opsagent_tools.tool import Tier

GUARDS = re.compile(
    r"(auditd?|firewalld|ufw|nftables|(ip6?tables|netfilter-persistent)[^/]*|apparmor|fail2ban|pve-firewall"
    r"|rsyslog|syslog|systemd-journald|"
    r"crowdsec[^/]*|ossec[^/]*|wazuh[^/]*|falco[^/]*|osqueryd|snort|suricata|clamav[^/]*|sssd|polkit"
    r"|selinux[^/]*)(\.(service|socket))?"
)
VITAL = re.compile(
    r"(sshd?|networking|NetworkManager|systemd-[a-z-]+|dbus(-broker)?|pve[a-z-]*|corosync|lxc[a-z-]*|libvirtd"
    r"|docker|containerd|"
    r"zfs[a-z-]*|lvm2[a-z-]*|multi-user|graphical|getty@?.*|cron|qemu-.*|init|basic|sysinit|network(-online)?"
    r"|local-fs|remote-fs|nfs[a-z-]*|iscsid?|"
    r"multipathd|display-manager|udev)(@[^.]*)?(\.(service|target|socket|mount|slice|scope))?|-\.mount|.*\.(mount"
    r"|slice|swap|target)"
)
ENDS = ("stop", "disable", "mask", "kill", "freeze", "revert")


def systemctl(argv: tuple[str, ...], t: Trace) -> None:
    entry = entries()["systemctl"]
    parsed = parse(argv, entry.grammar, t)
    verb = verb_of(parsed.operands, entry.verbs)
    units = parsed.operands[1:]
    tier = entry.verbs.get(verb, "R3") if verb else "R0"
    if tier == "R0":
        asked = parsed.values("-p", "-P", "--property")
        if verb == "show-environment" or any("environ" in each.lower() for each in asked):
            t.say("R2", "environment.print", "prints environment variables, secrets included")
        t.say("R0", "read", f"systemctl {verb} only tells")
        return
    if tier == "R2" and units:
        for unit in units:
            _unit(verb, unit, t)
        return
    t.say(tier, f"systemctl.{verb if verb in entry.verbs else 'unknown-verb'}", f"systemctl {verb}")


def _unit(verb: str, unit: str, t: Trace) -> None:
    ends = verb in ENDS
    if re.fullmatch(r"(reboot|poweroff|halt|kexec|soft-reboot|shutdown|rescue|emergency|ctrl-alt-del|exit|suspend"
    r"|hibernate|sleep|"
                    r"hybrid-sleep|runlevel[016]|umount|final|systemd-(reboot|poweroff|halt|kexec)).*", unit):  # fmt: skip
        t.say("R3", "unit.host", f"systemctl {verb} {unit} stops the whole host")
    if re.search(r"[*?\[]", unit):
        t.say("R3", "unit.pattern", f"systemctl {verb} {unit}: every unit that matches")
    elif GUARDS.fullmatch(unit) and ends:
        t.say("X", "unit.guard", f"systemctl {verb} {unit} switches off what watches over the host")
    elif VITAL.fullmatch(unit):
        t.say(
            "R3" if ends or verb in ("restart", "isolate") else "R2",
            "unit.vital",
            f"systemctl {verb} {unit}, which the host itself needs",
        )
    elif own_unit(t, unit):
        t.say("R1", "unit.own", f"systemctl {verb} {unit}, which this run started")
    elif verb == "start" and t.undoes and named(t, unit):
        # Whoever let the unit be stopped must not have to be awake for it to come back.
        t.say("R1", "unit.start-again", f"starts {unit} again, which the runbook names, as its declared rollback")
    else:
        known = "which the runbook names" if named(t, unit) else "not started by this run"
        t.say("R2", f"systemctl.{verb}", f"systemctl {verb} {unit}, {known}")
    if verb in ("enable", "disable", "mask", "unmask", "link") and "/" in unit:
        t.say("R3", "unit.path", f"systemctl {verb} {unit}: a unit file of any content")
    t.effect(f"{verb} of the unit {unit}")


def service(argv: tuple[str, ...], t: Trace) -> None:
    """service NAME VERB; `--status-all` only tells."""
    words = argv[1:]
    operators(words, t)
    if words[:1] == ("--status-all",) or words[1:2] == ("status",):
        t.say("R0", "read", "service only tells")
    elif len(words) >= 2:
        _unit(words[1], words[0], t)
        t.say("R2", "service.change", f"service {words[0]} {words[1]}")
    else:
        t.say("R3", "service.unknown", "service without a verb")


def flagged(argv: tuple[str, ...], t: Trace) -> None:
    """Programs whose options say it all (journalctl, dmesg, mokutil …); their operands are no files to write."""
    words = tuple(w for w in argv if not (argv[0] == "journalctl" and re.fullmatch(r"-\d+", w)))  # -b -1: a boot
    parsed = parse(words, rules(argv[0]), t)
    t.say("R0", "read", f"{argv[0]} tells")
    for each in parsed.operands:
        if each.startswith(("/dev/", "/proc/")) and argv[0] not in ("smartctl", "hdparm"):
            paths.read(t, each)


def hdparm(argv: tuple[str, ...], t: Trace) -> None:
    flagged(argv, t)
    if any(
        re.fullmatch(r"-[aABCdEkKmMNPQrRSWJLpsXZ]\d*|--[a-z-]+", word) and word not in ("--direct", "--verbose")
        for word in argv[1:]
    ):
        security = any(
            word.startswith(
                ("--security", "--trim", "--write", "--repair", "--make-bad", "--fw", "--dco", "--please", "--yes")
            )
            for word in argv
        )
        t.say("X" if security else "R2", "hdparm.set", "hdparm changes a disk")


def date(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("date"), t)
    sets = [word for word in parsed.operands if not word.startswith("+")]
    t.say("R3" if sets else "R0", "date.set" if sets else "read", "date sets the clock" if sets else "tells the time")


def hostname(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("hostname"), t)
    t.say("R3" if parsed.operands else "R0", "hostname.set" if parsed.operands else "read", "the host's name")


def crontab(argv: tuple[str, ...], t: Trace) -> None:
    lists = "-l" in argv[1:] and not {"-e", "-r", "-i"} & set(argv[1:])
    lists = lists or argv[0] == "atq"
    if not lists and fetched(t):
        t.say("X", "fetch-and-execute", f"{argv[0]} plants what the stage before it fetches")
    operators(argv[1:], t)
    t.say(
        "R0" if lists else "R3",
        f"{argv[0]}.change",
        f"{argv[0]} {'lists' if lists else 'plants commands that run later'}",
    )


def sysctl(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("sysctl"), t)
    sets = [word for word in parsed.operands if "=" in word]
    for word in sets:
        paths.write(t, "/proc/sys/" + word.split("=")[0].replace(".", "/"))
    if sets or parsed.has("-w", "--write", "-p", "-f", "--load", "--system"):
        t.say("R3", "sysctl.set", "sysctl changes the kernel's settings")
    t.say("R0", "read", "sysctl tells")


def ldconfig(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("ldconfig"), t)
    prints = parsed.has("-p", "--print-cache")
    t.say(
        "R0" if prints else "R3",
        "ldconfig.build",
        "ldconfig prints its cache" if prints else "ldconfig changes which libraries are found",
    )


def modprobe(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("modprobe"), t, doubt="R3")
    reads = parsed.has(
        "-c", "-n", "-D", "-R", "--showconfig", "--show-config", "--dry-run", "--show-depends", "--resolve-alias"
    )
    t.say("R0" if reads else "R3", "modprobe.load", "modprobe shows" if reads else "loads or removes a driver")


def kernel(argv: tuple[str, ...], t: Trace) -> None:
    """dkms status, grub and initramfs tools: only the listing forms are reads."""
    listing = argv[:2] in (("dkms", "status"), ("grub-editenv", "list"), ("mokutil", "--sb-state"))
    t.say(
        "R0" if listing else "R3",
        f"{argv[0]}.change",
        f"{argv[0]} {'lists' if listing else 'changes drivers or the boot'}",
    )
    operators(argv[1:], t)


def boot_service(argv: tuple[str, ...], t: Trace) -> None:
    """update-rc.d, chkconfig …: which services start at boot."""
    operators(argv[1:], t)
    if any(GUARDS.fullmatch(word) for word in argv[1:]) and set(argv) & {"disable", "remove", "off", "del", "--del"}:
        t.say("X", "unit.guard", f"{argv[0]} switches off what watches over the host")
    lists = argv[1:] in (("--list",), ("show",), ())
    t.say("R0" if lists else "R3", f"{argv[0]}.change", f"{argv[0]} changes what starts at boot")


def always(tier: Tier, why: str) -> Checker:
    def run(argv: tuple[str, ...], t: Trace) -> None:
        operators(argv[1:], t)
        t.say(tier, f"{argv[0]}.always", f"{argv[0]} {why}")

    return run


COMMANDS: dict[str, Checker] = {
    **dict.fromkeys(("update-rc.d", "chkconfig", "rc-update", "insserv"), boot_service),
    "systemctl": systemctl, "service": service, "rc-service": service, "date": date, "hostname": hostname, "hdparm": hdparm,
    **dict.fromkeys(("journalctl", "dmesg", "mokutil", "efibootmgr", "smartctl", "ethtool"), flagged),
    **dict.fromkeys(("crontab", "at", "batch", "atrm", "atq", "anacron"), crontab), "sysctl": sysctl, "ldconfig": ldconfig,
    "modprobe": modprobe, **dict.fromkeys(("dkms", "grub-editenv"), kernel),
    **dict.fromkeys(("insmod", "rmmod", "depmod", "kmod", "update-initramfs", "update-grub", "proxmox-kernel"),
    always("R3", "changes drivers or the boot")),
}  # fmt: skip
