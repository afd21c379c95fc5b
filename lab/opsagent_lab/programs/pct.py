"""pct and qm of Proxmox VE, and rsync."""

from __future__ import annotations

import posixpath
import re

from opsagent_lab import machines
from opsagent_lab.files import digest, words
from opsagent_lab.program import Process, Registry
from opsagent_lab.state import Node, SimHost

_KEY = re.compile(
    r"dev\d+|mp\d+|net\d+|memory|cores|onboot|features|hostname|swap|unprivileged|startup|description|tags"
)


def _container(process: Process, ctid: str) -> SimHost | None:
    return next((c for c in process.world.containers(process.host) if str(c.ctid) == ctid), None)


def _pct(process: Process) -> int:
    if not process.host.pve:
        process.write_err("bash: line 1: pct: command not found\n")
        return 127
    args = process.args
    verb = args[0] if args else ""
    if verb == "list":
        return _list(process)
    verbs = {
        "config": _config, "status": _status, "exec": _exec, "set": _set, "start": _start, "stop": _stop, "shutdown": _stop,
        "reboot": _reboot, "push": _push, "pull": _pull,
    }  # fmt: skip
    handler = verbs.get(verb)
    if handler is None or len(args) < 2:
        process.write_err(f"ERROR: unknown command 'pct {verb}'\n")
        return 255
    container = _container(process, args[1])
    if container is None:
        process.write_err(f"Configuration file 'nodes/{process.host.hostname}/lxc/{args[1]}.conf' does not exist\n")
        return 2
    if container.lock and verb in ("set", "start", "stop", "shutdown", "reboot"):
        process.write_err(f"CT is locked ({container.lock})\n")
        return 255
    return handler(process, container, args[2:])


def _list(process: Process) -> int:
    containers = process.world.containers(process.host)
    if containers:
        process.write_out("VMID       Status     Lock         Name                \n")
    for c in containers:
        process.write_out(f"{c.ctid:<10} {'running' if c.on else 'stopped':<10} {c.lock:<12} {c.hostname:<20}\n")
    return 0


def _config(process: Process, container: SimHost, _args: list[str]) -> int:
    lines = [line for line in machines.config_of(process.world, container) if not line.startswith("[")]
    plain = sorted(line for line in lines if not line.startswith("lxc."))
    process.write_out("".join(f"{line}\n" for line in [*plain, *(line for line in lines if line.startswith("lxc."))]))
    return 0


def _status(process: Process, container: SimHost, _args: list[str]) -> int:
    process.write_out(f"status: {'running' if container.on else 'stopped'}\n")
    return 0


def _exec(process: Process, container: SimHost, args: list[str]) -> int:
    if not container.on:
        process.write_err(f"container '{container.ctid}' not running!\n")
        return 255
    keep = True
    while args[:1] in (["--keep-env"], ["-keep-env"]) and len(args) > 1:
        keep, args = args[1] not in ("0", "no", "false"), args[2:]
    if args and args[0].startswith("-") and args[0] != "--":
        process.write_err(f"Unknown option: {args[0].lstrip('-')}\n400 unable to parse option\n")
        return 255
    argv = args[1:] if args[:1] == ["--"] else args
    if not argv:
        process.write_err("400 not enough arguments\n")
        return 255
    env = {k: v for k, v in process.env.items() if keep and k not in ("PWD", "SSH_CONNECTION")}
    env |= {"HOME": "/root", "USER": "root"}
    return process.run(argv, env=env, host=container)


def _set(process: Process, container: SimHost, args: list[str]) -> int:
    path = machines.config_path(container)
    lines = machines.config_of(process.world, container)
    todo = list(args)
    while todo:
        name = todo.pop(0).lstrip("-")
        if not todo:
            process.write_err("400 not enough arguments\n")
            return 255
        value = todo.pop(0)
        if name == "delete":
            gone = value.replace(";", ",").split(",")
            lines = [line for line in lines if line.partition(":")[0] not in gone]
        elif _KEY.fullmatch(name):
            if name.startswith("dev") and not value.partition(",")[0].startswith("/dev/"):
                process.write_err(
                    f"400 Parameter verification failed.\n{name}: invalid format - path: invalid device path\n"
                )
                return 255
            lines = [line for line in lines if line.partition(":")[0] != name] + [f"{name}: {value}"]
        else:
            process.write_err(f"Unknown option: {name}\n400 unable to parse option\n")
            return 255
    text = "".join(f"{line}\n" for line in lines).encode()
    process.files.put(path, Node(data=text, size=len(text), mode=0o640))
    process.world.count(container, "config")
    return 0


def _start(process: Process, container: SimHost, _args: list[str]) -> int:
    if container.on:
        process.write_err(f"CT {container.ctid} already running\n")
        return 255
    missing = machines.pass_devices(process.world, container)
    if missing:
        process.write_err(f"Device {missing} does not exist\n")
        return 255
    process.sleep(6)
    machines.start_host(process.world, container)
    return 0


def _stop(process: Process, container: SimHost, _args: list[str]) -> int:
    if not container.on:
        process.write_err(f"CT {container.ctid} not running\n")
        return 255
    process.sleep(4)
    machines.stop_host(process.world, container)
    return 0


def _reboot(process: Process, container: SimHost, args: list[str]) -> int:
    if not container.on:
        process.write_err(f"CT {container.ctid} not running\n")
        return 255
    _stop(process, container, args)
    return _start(process, container, args)


def _push(process: Process, container: SimHost, args: list[str]) -> int:
    return _copy(process, process.host, container, args)


def _pull(process: Process, container: SimHost, args: list[str]) -> int:
    return _copy(process, container, process.host, args)


def _copy(process: Process, source: SimHost, target: SimHost, args: list[str]) -> int:
    names = [a for a in args if not a.startswith("-")]
    if len(names) < 2:
        process.write_err("400 not enough arguments\n")
        return 255
    if not (source.on and target.on):
        process.write_err("can only push files to a running CT\n")
        return 255
    node = process.world.files(source).find(names[0])
    if node is None:
        process.write_err(f"failed to open {names[0]} for reading: No such file or directory\n")
        return 2
    process.sleep(1 + node.size / 8e8)
    process.world.files(target).put(names[1], _clone(node))
    return 0


def _clone(node: Node) -> Node:
    return Node(
        node.kind, node.mode, 0.0, node.data, node.size, node.sha256, program=node.program, notes=dict(node.notes)
    )


def _qm(process: Process) -> int:
    if process.args[:1] == ["list"]:
        rows = [p for p in process.files.glob("/etc/pve/qemu-server/*.conf")]
        if rows:
            process.write_out("      VMID NAME                 STATUS     MEM(MB)    BOOTDISK(GB) PID       \n")
        for path in rows:
            process.write_out(
                f"{posixpath.basename(path)[:-5]:>10} vm{posixpath.basename(path)[:-5]:<18} stopped    4096         "
                f"     32.00 0         \n"
            )
        return 0
    if process.args[:1] == ["config"] and len(process.args) > 1:
        path = f"/etc/pve/qemu-server/{process.args[1]}.conf"
        if process.files.exists(path):
            process.write_out(process.files.text(path))
            return 0
        process.write_err(
            f"Configuration file 'nodes/{process.host.hostname}/qemu-server/{process.args[1]}.conf' does not exist\n"
        )
        return 2
    process.write_err("ERROR: unknown command\n")
    return 255


_RSYNC_VALUES = (
    "-e", "--rsh", "--exclude", "--include", "--partial-dir", "--bwlimit", "--info", "--timeout", "--contimeout", "--chmod",
    "--chown", "--log-file", "--compress-level",
)  # fmt: skip
_RSYNC_FLAGS = {
    "--archive": "a", "--recursive": "r", "--dry-run": "n", "--checksum": "c", "--itemize-changes": "i", "--verbose": "v",
    "--partial": "P", "--progress": "P", "--no-inc-recursive": "P", "--copy-links": "L", "--hard-links": "H", "--quiet": "q",
    "--human-readable": "h", "--inplace": "I", "--sparse": "S", "--whole-file": "W", "--stats": "s", "--append-verify": "A",
    "--mkpath": "M", "--no-compress": "z", "--one-file-system": "x", "--size-only": "o", "--ignore-existing": "u",
}  # fmt: skip


def _rsync(process: Process) -> int:
    """rsync [options] SOURCE… TARGET: a folder from another host, or a local one."""
    todo, names, given = list(process.args), [], set()
    while todo:
        word = todo.pop(0)
        name = word.partition("=")[0]
        if name in _RSYNC_VALUES:
            todo = todo if "=" in word else todo[1:]
        elif name in _RSYNC_FLAGS:
            given.add(_RSYNC_FLAGS[name])
        elif word.startswith("-") and len(word) > 1 and not set(word[1:]) - set("avrlptgoDHAXnicuLPhqzSWxe"):
            given |= set(word[1:])
            todo = todo[1:] if word.endswith("e") else todo
        elif word.startswith("-"):
            process.write_err(
                f"rsync: {word}: unknown option\n"
                "rsync error: syntax or usage error (code 1) at main.c(1795) [client=3.2.7]\n"
            )
            return 1
        else:
            names.append(word)
    if len(names) < 2:
        process.write_err("rsync error: syntax or usage error (code 1) at main.c(1805) [client=3.2.7]\n")
        return 1
    code = 0
    for name in names[:-1]:
        code = code or _rsync_one(process, name, process.path(names[-1].rstrip("/") or "/"), given)
    return code


def _rsync_one(process: Process, source: str, target: str, given: set[str]) -> int:
    host, _, path = source.rpartition(":")
    origin = process.world.resolve(host.rpartition("@")[2]) if host else process.host
    if origin is None or not origin.on:
        process.write_err(
            f"ssh: Could not resolve hostname {host}: Name or service not known\nrsync error: unexplained error "
            f"(code 255) at "
            "io.c(228) [Receiver=3.2.7]\n"
        )
        return 255
    files = process.world.files(origin)
    if files.find(path) is None:
        process.write_err(
            f'rsync: [sender] change_dir "{path}" failed: No such file or directory (2)\nrsync error: some '
            f"files/attrs were not "
            "transferred (see previous errors) (code 23) at main.c(1865) [Receiver=3.2.7]\n"
        )
        return 23
    base = path.rstrip("/") if path.endswith("/") else posixpath.dirname(path.rstrip("/"))
    for at, node in list(files.walk(path.rstrip("/"))):
        if node.kind != "file" or at.endswith(".incomplete"):
            continue
        where = posixpath.join(target, posixpath.relpath(at, base))
        there = process.files.find(where)
        same = there is not None and there.size == node.size
        if same and (digest(there) == digest(node) if "c" in given and there else True):
            continue  # without --checksum rsync looks at size and time only: a flipped byte stays
        if "i" in given:
            mark = ">f+++++++++" if there is None else ">fc........" if same else ">f.s......."
            process.write_out(f"{mark} {posixpath.relpath(at, base)}\n")
        if "n" in given:
            continue
        try:
            if node.size > process.files.free(target):
                raise OSError(28, "No space left on device", where)
            process.sleep(node.size / 4e8)
            process.files.put(where, _clone(node))
        except OSError as problem:
            process.write_err(
                f'rsync: [receiver] write failed on "{where}": {words(problem)} (28)\nrsync error: error in file IO '
                f"(code 11) at receiver.c(380) [receiver=3.2.7]\n"
            )
            return 11
        process.write_out(f"{node.size:>15,} 100%  400.00MB/s    0:00:00 (xfr#1, to-chk=0/1)\n")
    return 0


PROGRAMS: Registry = {"pct": _pct, "qm": _qm, "rsync": _rsync}
