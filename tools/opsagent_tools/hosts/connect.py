"""Opening an SSH connection: Fabric reads the configuration and connects; every way to fail is one typed error.

Host keys are checked against known_hosts files and nothing is ever added to them (Fabric's own default accepts unknown
hosts). Nothing is asked on the terminal. `~/.ssh/config` is honoured: HostName, User, Port, IdentityFile, IdentitiesOnly,
ProxyJump, ProxyCommand, UserKnownHostsFile, GlobalKnownHostsFile, HashKnownHosts, ConnectTimeout, Include.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shlex
import socket
from dataclasses import dataclass, field
from pathlib import Path

import fabric  # type: ignore[import-untyped]
import paramiko
from paramiko.config import SSHConfig
from paramiko.ssh_exception import (
    AuthenticationException,
    BadAuthenticationType,
    BadHostKeyException,
    ConfigParseError,
    NoValidConnectionsError,
    PasswordRequiredException,
    SSHException,
)

from opsagent_tools.errors import AuthFailed, HostError, HostKeyMismatch, HostUnreachable, InputError
from opsagent_tools.hosts.hostkeys import HostKey, Refuse, RevokedHostKey, UnknownHostKey, fingerprint, load
from opsagent_tools.hosts.ssh_config import config_text

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else it prints tracebacks of failed connects

KEEPALIVE_S = 15
SILENCE_MS = 60_000
"""How long sent bytes may stay unacknowledged before the kernel gives the link up (TCP_USER_TIMEOUT)."""


@dataclass(frozen=True, slots=True)
class SshTarget:
    """How to reach a host. Empty fields are looked up in `~/.ssh/config`, as `ssh ADDRESS` would."""

    address: str
    """A name, an IP address, or a `Host` alias of the SSH configuration."""
    user: str = ""
    port: int = 0
    identity: str = ""
    jump: SshTarget | None = None
    known_hosts: str = ""
    password: str = field(default="", repr=False)
    ssh_config: str = ""
    """Another configuration file than `~/.ssh/config` ("none" for no file)."""
    connect_timeout_s: float = 15.0


def connect(target: SshTarget, where: str) -> fabric.Connection:
    """An open connection. Raises HostUnreachable, HostKeyMismatch, AuthFailed or InputError; nothing ran then."""
    connection = prepare(target)
    try:
        connection.open()
    except Exception as error:
        failure = explain(error, connection, where)
        with contextlib.suppress(Exception):
            connection.close()
        raise failure from error
    transport = connection.transport
    assert transport is not None
    transport.set_keepalive(KEEPALIVE_S)
    if isinstance(transport.sock, socket.socket):  # not so through a jump host: there the outer socket has it
        _tune(transport.sock)
    gateway = connection.gateway
    if isinstance(gateway, fabric.Connection) and gateway.transport:
        gateway.transport.set_keepalive(KEEPALIVE_S)
        if isinstance(gateway.transport.sock, socket.socket):
            _tune(gateway.transport.sock)
    return connection


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # 47 ms to 2 ms a command
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)


def prepare(target: SshTarget) -> fabric.Connection:
    """The connection as it will be opened: configuration merged, host keys loaded, unknown ones refused."""
    config = fabric.Config(ssh_config=_ssh_config(target.ssh_config), lazy=True)
    gateway = prepare(target.jump) if target.jump else None
    connection = fabric.Connection(
        target.address, user=target.user or None, port=target.port or None, config=config, gateway=gateway,
        connect_timeout=target.connect_timeout_s,
    )  # fmt: skip
    _secure(connection, target)
    hop = connection.gateway
    while isinstance(hop, fabric.Connection) and hop is not gateway:  # hops that Fabric made from ProxyJump
        _secure(hop, SshTarget(hop.original_host, ssh_config=target.ssh_config, known_hosts=target.known_hosts))
        hop = hop.gateway
    return connection


def _ssh_config(chosen: str) -> SSHConfig:
    config = SSHConfig()
    paths = [chosen] if chosen else ["~/.ssh/config", "/etc/ssh/ssh_config"]
    for path in (Path(name).expanduser() for name in paths if name != "none"):
        if not path.exists():
            continue
        try:
            config.parse(io.StringIO(config_text(path)))
        except (ConfigParseError, OSError, ValueError) as error:
            raise InputError(f"cannot read the SSH configuration: {error}", where=str(path)) from error
    return config


def _secure(connection: fabric.Connection, target: SshTarget) -> None:
    shown = connection.ssh_config
    client = connection.client
    hashed = str(shown.get("hashknownhosts", "no")).lower() == "yes"
    revoked = load(client, known_hosts_files(target, shown))
    client.set_missing_host_key_policy(Refuse(target.known_hosts or _user_files(shown)[0], hashed, revoked))
    keys = [target.identity] if target.identity else [str(name) for name in shown.get("identityfile", [])]
    found = [str(Path(name).expanduser()) for name in keys if Path(name).expanduser().is_file()]
    if target.identity and not found:
        raise InputError(f"no such identity file: {target.identity}", hint="`identity` is the path of a private key")
    only = bool(target.identity or target.password) or str(shown.get("identitiesonly", "no")).lower() == "yes"
    connection.connect_kwargs = {
        "key_filename": found, "look_for_keys": not only and not found, "allow_agent": not only,
        "banner_timeout": target.connect_timeout_s, "auth_timeout": 20.0, "channel_timeout": 20.0,
        **({"password": target.password} if target.password else {}),
    }  # fmt: skip


def known_hosts_files(target: SshTarget, shown: dict[str, object]) -> list[Path]:
    """The files that say which host keys are right: the configured one, else those that OpenSSH would read."""
    if target.known_hosts:
        path = Path(target.known_hosts).expanduser()
        if not path.is_file():
            raise InputError(f"no such known_hosts file: {target.known_hosts}")
        return [path]
    everyone = str(shown.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts")).split()
    return [path for path in (Path(name).expanduser() for name in [*_user_files(shown), *everyone]) if path.is_file()]


def _user_files(shown: dict[str, object]) -> list[str]:
    return str(shown.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")).split() or ["/dev/null"]


def explain(error: Exception, connection: fabric.Connection, where: str) -> HostError | InputError:
    """The one typed error that a failed connect is. `where` names the host as the user knows it."""
    hop = connection.gateway
    if isinstance(hop, fabric.Connection) and not hop.is_connected:
        return explain(error, hop, f"{where} (jump host {hop.original_host})")
    place = f"{connection.user}@{connection.host}:{connection.port}"
    return _refused_us(error, place, where) or _unreachable(error, place, where)


def _refused_us(error: Exception, place: str, where: str) -> HostError | InputError | None:
    host, _, port = place.rpartition("@")[2].rpartition(":")
    if isinstance(error, BadHostKeyException):
        what = (
            f"the host key of {place} has CHANGED: it shows {_shown(error.key)}, known_hosts has "
            f"{_shown(error.expected_key)}"
        )
        entry = host if port == "22" else f"[{host}]:{port}"
        hint = (
            f"find out why before anything else; if it was re-installed: ssh-keygen -R '{entry}', then add the new key"
        )
        return HostKeyMismatch(what, where=where, hint=hint)
    if isinstance(error, RevokedHostKey):
        what = f"the host key of {place} is marked @revoked in known_hosts: {error}"
        return HostKeyMismatch(what, where=where, hint="somebody may hold that key: do not connect to this host")
    if isinstance(error, UnknownHostKey):
        return _unknown_key(error.key, place, where)
    if isinstance(error, PasswordRequiredException):
        return AuthFailed(
            f"the key for {place} has a passphrase", where=where, hint="load it into ssh-agent: ssh-add KEY"
        )
    if isinstance(error, BadAuthenticationType):
        hint = f"it allows: {', '.join(error.allowed_types)}; name a key with `identity` or load one with ssh-add"
        return AuthFailed(f"{place} does not take what we offer", where=where, hint=hint)
    if isinstance(error, AuthenticationException) and "transport shut down" in str(error):
        return None  # the link was lost before the host had answered: it did not refuse anybody
    if isinstance(error, AuthenticationException) or "No authentication methods" in str(error):
        hint = (
            "the key or password is not the right one for this user: try `ssh` by hand, then set `user` and `identity`"
        )
        return AuthFailed(f"{place} refuses our credentials", where=where, hint=hint)
    if isinstance(error, (SSHException, ValueError)) and "key" in str(error).lower() and "encountered" in str(error):
        return InputError(f"a private key cannot be read: {error}", where=where)
    return None


def _unknown_key(key: HostKey, place: str, where: str) -> HostKeyMismatch:
    name = where.partition(" (")[0]  # without the jump host, which is reached on the way to it
    failure = HostKeyMismatch(
        f"the host key of {place} is unknown, so we do not connect: it shows {key.kind} {key.fingerprint}", where=where,
        hint="compare that on its console (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub); if it is the same: "
        f"opsagent hosts test {shlex.quote(name)} --accept-key {key.fingerprint}",
    )  # fmt: skip
    failure.offered = key
    return failure


def _unreachable(error: Exception, place: str, where: str) -> HostError:
    words, hint = f"{error}" or type(error).__name__, "check address, port and firewall; nothing was executed"
    if isinstance(error, NoValidConnectionsError | ConnectionRefusedError):
        reasons = {type(one) for one in getattr(error, "errors", {}).values()} or {type(error)}
        refused = ConnectionRefusedError in reasons
        words = "connection refused" if refused else f"no route ({words})"
        hint = "is sshd running there, on this port? nothing was executed"
    elif isinstance(error, socket.gaierror):
        words, hint = "the name cannot be resolved", "check `address` in hosts.toml, or the Host alias in ~/.ssh/config"
    elif isinstance(error, TimeoutError):
        words = "no answer in time"
    elif "banner" in words:
        words, hint = "something answers, but not as an SSH server", "check the port; nothing was executed"
    elif isinstance(error, EOFError | ConnectionResetError):
        words = "the connection was closed before we were logged in"
    elif isinstance(error, paramiko.ChannelException):
        words = f"the jump host cannot reach it ({error.text})"
    return HostUnreachable(f"{place}: {words}", where=where, hint=hint)


def _shown(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {fingerprint(key.asbytes())}"


def aliases(ssh_config: str = "") -> set[str]:
    """The plain `Host` names of the SSH configuration (no patterns)."""
    names = _ssh_config(ssh_config).get_hostnames()
    return {name for name in names if not set(name) & set("*?!")}


def environment_password(name: str) -> str:
    """A password from the environment: the only place we take one from."""
    if name and name not in os.environ:
        raise InputError(
            f"the environment has no {name}", hint="`password_env` names the variable that holds the password"
        )
    return os.environ.get(name, "")
