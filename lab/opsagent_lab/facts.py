"""The state of the hosts as plain values, without times, pids and run ids: for oracles and for comparing runs."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from opsagent_lab.files import digest
from opsagent_lab.gpu_access import access
from opsagent_lab.network import Listener, Request
from opsagent_lab.processes import add, end
from opsagent_lab.program import Process
from opsagent_lab.state import Node, SimHost
from opsagent_lab.world import World

RUN_ID = re.compile(r"opsagent-[0-9a-z]+-(?=c?\d)")
VOLATILE = ("/tmp/", "/run/", "/var/log/", "/dev/", "/var/lib/opsagent/")
"""Places whose contents differ between equal runs (logs hold times); that something is there still counts."""


def hosts(world: World) -> dict[str, Any]:
    """Host → its facts, for the expressions of an oracle."""
    return {name: host_facts(world, host) for name, host in world.hosts.items()}


def host_facts(world: World, host: SimHost) -> dict[str, Any]:
    """`on`, `driver`, `gpus` (seen and usable), `bound` (PCI address → driver), `devices`, `venvs`, `units`, `servers`,
    `counters`, `paths` (folders and files that a person would name) of one host."""
    seen = access(world, host)
    return {
        "on": host.on,
        "boot_id": host.boot_id,
        "driver": {"loaded": host.driver.loaded, "module": host.driver.module, "user": host.driver.user},
        "gpus": len(seen.gpus) if not seen.cuda_problem else 0,
        "bound": {device.address: device.driver for device in host.pci if device.class_id.startswith("0x03")},
        "devices": sorted(host.devices),
        "venvs": {prefix: dict(venv.packages) for prefix, venv in host.venvs.items()},
        "units": {_plain(name): unit.active for name, unit in host.units.items()},
        "servers": {str(x.port): server_facts(world, host, x) for x in list(world.listeners) if x.host == host.name},
        "counters": dict(host.counters),
        "files": {path: node.size for path, node in list(host.nodes.items()) if node.kind == "file"},
    }


def server_facts(world: World, host: SimHost, listener: Listener) -> dict[str, Any]:
    """What listens on a port: its argv and, of a model server, what it says of itself (`info`)."""
    sim = host.processes.get(listener.pid)
    out: dict[str, Any] = {"argv": list(sim.argv) if sim else [], "unit": _plain(sim.unit) if sim else "", "info": {}}
    if listener.service is None:
        return out
    try:
        info = json.loads(_get(world, host, listener, "/server_info"))
    except ValueError:
        return out
    out["info"] = {key: value for key, value in info.items() if isinstance(value, (str, int, float, bool))}
    states = info.get("internal_states") or [{}]
    out["max_total_num_tokens"] = info.get("max_total_num_tokens")
    out["context_len"] = int(info.get("max_req_input_len") or 0) + 6
    out["max_running_requests"] = states[0].get("effective_max_running_requests_per_dp")
    out["speculation"] = info.get("speculative_algorithm") or ""
    out["version"] = info.get("version")
    return out


def _get(world: World, host: SimHost, listener: Listener, path: str) -> bytes:
    assert listener.service is not None
    sim = add(world, host, ["oracle"], memo={"login": True})
    try:
        client = Process(world, host, sim, ["oracle"], {}, io.BytesIO(), lambda _b: None, lambda _b: None)
        return b"".join(listener.service(client, Request("GET", path)).chunks())
    finally:
        end(world, host, sim.pid)


def _plain(text: str) -> str:
    return RUN_ID.sub("opsagent-RUN-", text)


def snapshot(world: World) -> dict[str, Any]:
    """The state of every host in a form that is equal for runs that did the same: for comparing an undisturbed run with one
    that was killed and taken up again."""
    return {name: _host(world, host) for name, host in sorted(world.hosts.items())}


def _host(world: World, host: SimHost) -> dict[str, Any]:
    lasting = [
        p for p in list(host.processes.values()) if not p.memo.get("login") and (p.memo.get("spawned") or not p.program)
    ]
    return {
        "on": host.on,
        "driver": [host.driver.module, host.driver.loaded, host.driver.user],
        "modules": sorted(host.modules),
        "pci": {device.address: [device.driver, device.override] for device in host.pci},
        "initramfs": dict(host.initramfs),
        "devices": dict(sorted(host.devices.items())),
        "venvs": {p: [v.python, sorted(v.packages.items())] for p, v in sorted(host.venvs.items())},
        "packages": dict(sorted(host.packages.items())),
        "units": {
            _plain(n): [u.active, u.sub, u.enabled, [_plain(a) for a in u.argv]] for n, u in sorted(host.units.items())
        },
        "processes": sorted(p.title or " ".join(_plain(a) for a in p.argv) for p in lasting),
        "ports": sorted([x.address, x.port] for x in list(world.listeners) if x.host == host.name),
        "files": {_plain(p): _node(p, n) for p, n in sorted(host.nodes.items())},
        "counters": dict(sorted(host.counters.items())),
    }


def _node(path: str, node: Node) -> list[Any]:
    if path.startswith(VOLATILE) or path.endswith((".log", ".pyc")) or "opsagent-" in path:
        return [node.kind]
    if node.kind == "file":
        return ["file", oct(node.mode), node.size, digest(node) if node.size < (1 << 20) or node.sha256 else ""]
    return [node.kind, oct(node.mode), node.target]
