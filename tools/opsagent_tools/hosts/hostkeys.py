"""Host keys that are not known yet: refused, shown with their fingerprint, and added to known_hosts when a person says so.

The line is the one that OpenSSH would add (`[address]:port` when the port is not 22, hashed under `HashKnownHosts yes`),
so that `ssh` and `ssh-keygen -R` know the host by it too.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.hostkeys import InvalidHostKey
from paramiko.ssh_exception import SSHException

from opsagent_tools.errors import InputError

FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


@dataclass(frozen=True, slots=True)
class HostKey:
    """A key that a host showed."""

    host: str
    """As known_hosts names it: `gpu7`, `[gpu7]:2222`."""
    kind: str
    """`ssh-ed25519`, `ecdsa-sha2-nistp256`, …"""
    data: str
    """base64 of the public key."""
    file: str
    """The known_hosts file that it would be added to."""
    hashed: bool = False

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as `ssh-keygen -lf` prints it."""
        return fingerprint(base64.b64decode(self.data))


def fingerprint(blob: bytes) -> str:
    """`SHA256:…` of a public key's bytes."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


class UnknownHostKey(SSHException):
    """The host is in no known_hosts file; `key` is what it showed."""

    def __init__(self, key: HostKey) -> None:
        super().__init__(f"{key.host} not found in known_hosts")
        self.key = key


class RevokedHostKey(SSHException):
    """A known_hosts file marks the key that the host showed as @revoked."""


@dataclass(frozen=True)
class Refuse(paramiko.MissingHostKeyPolicy):
    """The policy of every connection: an unknown key ends it, and the error carries the key."""

    file: str
    hashed: bool = False
    revoked: frozenset[str] = frozenset()
    """base64 of keys that are never right."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        if key.get_base64() in self.revoked:
            raise RevokedHostKey(f"{key.get_name()} {fingerprint(key.asbytes())}")
        raise UnknownHostKey(HostKey(hostname, key.get_name(), key.get_base64(), self.file, self.hashed))


def load(client: paramiko.SSHClient, paths: Iterable[Path]) -> frozenset[str]:
    """Teach a client the keys of known_hosts files; returns those marked @revoked, which it is not taught.

    paramiko reads no markers: it fails on such a line, or would take the key for a good one. @cert-authority lines are left
    out, so a host that has only a certificate counts as unknown. Raises InputError for a file that cannot be read.
    """
    revoked: set[str] = set()
    texts: list[tuple[Path, list[str]]] = []
    for path in paths:
        try:
            rows = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise InputError(f"cannot read known hosts: {error.strerror}", where=str(path)) from error
        revoked |= {row.split()[3] for row in rows if row.startswith("@revoked") and len(row.split()) > 3}
        texts.append((path, [row for row in rows if not row.startswith("@")]))
    for path, rows in texts:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as clean:
            clean.writelines(f"{row}\n" for row in rows if not revoked & set(row.split()))
            clean.flush()
            try:
                client.load_system_host_keys(clean.name)
            except (InvalidHostKey, SSHException) as error:
                raise InputError(f"cannot read known hosts: {error}", where=str(path)) from error
    return frozenset(revoked)


def remember(key: HostKey) -> str:
    """Add a key that a person has compared to its known_hosts file; returns the line. Raises InputError."""
    path = Path(key.file).expanduser()
    name = paramiko.HostKeys.hash_host(key.host) if key.hashed else key.host
    line = f"{name} {key.kind} {key.data}"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else b""
        with open(path, "ab", opener=_private) as file:
            file.write((b"" if not before or before.endswith(b"\n") else b"\n") + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"cannot add the host key: {error.strerror}", where=str(path)) from error
    return line


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
