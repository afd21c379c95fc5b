# opsagent probe: net
"""Sockets and HTTP where `ss` and `curl` are missing.

Argument, `op` is one of
* `listen`  {op}. Answer: {listeners: [{address, port, pid: int|null, process: str}]}.
* `get`     {op, url, timeout: seconds}; stdin: an API key, or nothing. Answer: {status: int, body: str}; status 0: no
  answer, and body says why. Proxies are not used.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

LISTEN = "0A"
LIMIT = 1 << 20


def sockets() -> dict[str, tuple[str, int]]:
    """Listening sockets by inode: address and port, from /proc/net/tcp and tcp6."""
    found = {}
    for name, size in (("tcp", 4), ("tcp6", 16)):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] != LISTEN:
                    continue
                text, port = words[1].split(":")
                raw = bytes.fromhex(text)
                raw = b"".join(raw[i : i + 4][::-1] for i in range(0, size, 4))  # each 32-bit word is little-endian
                found[words[9]] = (str(ipaddress.ip_address(raw)), int(port, 16))
    return found


def owners(inodes: set[str]) -> dict[str, int]:
    """Pid by inode, as far as we may look."""
    found: dict[str, int] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for handle in os.scandir(f"/proc/{entry.name}/fd"):
                with contextlib.suppress(OSError):
                    link = os.readlink(handle.path)  # noqa: PTH115 (Path.readlink is of Python 3.9)
                    inode = link[8:-1]
                    if link.startswith("socket:[") and inode in inodes:
                        found.setdefault(inode, int(entry.name))
    return found


def name(pid: int | None) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def listen() -> dict[str, Any]:
    found = sockets()
    pids = owners(set(found))
    rows = [
        {"address": address, "port": port, "pid": pids.get(inode), "process": name(pids.get(inode))}
        for inode, (address, port) in found.items()
    ]
    return {"listeners": sorted(rows, key=lambda row: (row["port"], row["address"]))}


def get(wanted: dict[str, Any], key: str) -> dict[str, Any]:
    request = urllib.request.Request(wanted["url"], headers={"Authorization": f"Bearer {key}"} if key else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=wanted["timeout"]) as answer:
            return {"status": answer.status, "body": answer.read(LIMIT).decode("utf-8", "replace")}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "body": error.read(LIMIT).decode("utf-8", "replace")}
    except (OSError, ValueError) as error:
        return {"status": 0, "body": str(error)}


def main() -> None:
    wanted = json.loads(sys.argv[1])
    print(json.dumps(listen() if wanted["op"] == "listen" else get(wanted, sys.stdin.read().strip())))


main()
