"""Volumes, file systems and partitions: listing is a read, the rest is R3, overwriting devices is refused."""

from __future__ import annotations

import re

from opsagent.gate.argv import Checker, operators
from opsagent.gate.trace import Trace

LISTS: dict[str, str] = {
    "mdadm": r"(-D|--detail|-Q|--query|-E|--examine|--scan|-v|-b|--brief|/dev/\S+)+",
    "losetup": r"(-a|-l|--all|--list|-n|-O\S*|-J|--json|/dev/\S+)+",
    "dmsetup": r"(ls|info|table|status|deps|--tree|version|\S+)", "cryptsetup": r"(status|--version|isLuks|\S+)",
    "multipath": r"(-l|-ll|-v\d)+",
    "iscsiadm": r"(-m|session|-P|\d)+", "drbdadm": r"(status|role|cstate|dstate|\S+)",
    "ceph": r"(-s|status|health|detail|df|osd|tree|versions)+", "rbd": r"(ls|list|info|status|du|\S+)",
    "fdisk": r"(-l|--list|-o\S*|/dev/\S+)+", "sfdisk": r"(-l|--list|-J|--json|-d|--dump|/dev/\S+)+",
    "gdisk": r"(-l|/dev/\S+)+", "cfdisk": r"(?!)",
    "parted": r"(-l|--list|-s|--script|-m|/dev/\S+|print|unit|[a-zA-Z]*B|free)+",
}  # fmt: skip
FIRST: dict[str, tuple[str, ...]] = {
    "dmsetup": ("ls", "info", "table", "status", "deps", "version"), "cryptsetup": ("status", "--version", "isLuks"),
    "drbdadm": ("status", "role", "cstate", "dstate"), "rbd": ("ls", "list", "info", "status", "du"),
}  # fmt: skip
ZFS_READS = (
    "list",
    "get",
    "status",
    "iostat",
    "history",
    "events",
    "version",
    "holds",
    "userspace",
    "groupspace",
    "diff",
    "upgrade_list",
)


def volume(argv: tuple[str, ...], t: Trace) -> None:
    words = argv[1:]
    operators(words, t)
    pattern = LISTS.get(argv[0], r"(?!)")
    lists = bool(words) and all(re.fullmatch(pattern, word) for word in words)
    if argv[0] in FIRST:
        lists = lists and words[0] in FIRST[argv[0]]
    if argv[0] in ("parted", "fdisk", "gdisk", "sfdisk"):
        lists = lists and bool({"-l", "--list", "print", "-J", "-d", "--dump", "--json"} & set(words))
    if argv[0] == "multipath" and "-ll" not in words and "-l" not in words:
        lists = False
    if argv[0] == "cryptsetup" and words[:1] in (
        ("luksErase",),
        ("erase",),
        ("luksFormat",),
        ("luksKillSlot",),
        ("reencrypt",),
    ):
        t.say("X", "device.write", f"cryptsetup {words[0]} makes a device unreadable")
    if argv[0] == "mdadm" and any(word.startswith(("--zero-superblock", "--create", "-C")) for word in words):
        t.say("X", "device.write", "mdadm overwrites devices")
    t.say("R0" if lists else "R3", f"{argv[0]}.change", f"{argv[0]} {'lists' if lists else 'changes volumes'}")


def zfs(argv: tuple[str, ...], t: Trace) -> None:
    verb = (argv[1:] or ("",))[0]
    operators(argv[1:], t)
    reads = verb in ZFS_READS or argv[1:] in (("--version",),)
    if argv[0] == "zpool" and verb == "labelclear":
        t.say("X", "device.write", "zpool labelclear overwrites a device")
    t.say("R0" if reads else "R3", f"{argv[0]}.{verb or 'bare'}" if not reads else "read", f"{argv[0]} {verb}")


def swap(argv: tuple[str, ...], t: Trace) -> None:
    shows = (
        argv[0] == "swapon"
        and all(re.fullmatch(r"-s|--summary|--show(=.*)?|--noheadings|--bytes|--raw", w) for w in argv[1:])
        and argv[1:]
    )
    operators(argv[1:], t)
    t.say(
        "R0" if shows or argv == ("swapon",) else "R3",
        f"{argv[0]}.change",
        f"{argv[0]} {'shows' if shows else 'changes swap'}",
    )


def lvm(argv: tuple[str, ...], t: Trace) -> None:
    operators(argv[1:], t)
    reads = argv[0] == "lvm" and argv[1:2] in (("version",), ("lvs",), ("vgs",), ("pvs",))
    t.say(
        "R0" if reads else "R3",
        f"{argv[0]}.change",
        f"{argv[0]} {'tells' if reads else 'changes volumes or their contents'}",
    )


CHANGES = [
    "pvcreate",
    "pvremove",
    "pvresize",
    "pvmove",
    "pvchange",
    "vgcreate",
    "vgremove",
    "vgextend",
    "vgreduce",
    "vgrename",
    "vgchange",
    "vgcfgrestore",
    "lvcreate",
    "lvremove",
    "lvextend",
    "lvreduce",
    "lvresize",
    "lvrename",
    "lvconvert",
    "lvchange",
    "kpartx",
    "partprobe",
    "partx",
    "fstrim",
    "targetcli",
    "lvm",
]
COMMANDS: dict[str, Checker] = {
    **dict.fromkeys(LISTS, volume), "zfs": zfs, "zpool": zfs, "swapon": swap, "swapoff": swap, **dict.fromkeys(CHANGES, lvm),
}  # fmt: skip
