"""Host keys that a person has compared: only those are added to known_hosts, each by its fingerprint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from opsagent_tools.errors import HostKeyMismatch, InputError
from opsagent_tools.host import Host, argv
from opsagent_tools.hosts.hostkeys import FINGERPRINT, remember
from opsagent_tools.hosts.inventory import Inventory, open_host


def accept_keys(name: str, inventory: Inventory, accepted: Sequence[str], opened: dict[str, Host]) -> Iterator[str]:
    """Connect; add each unknown key whose fingerprint was accepted (a jump host has one too), and yield its file and line.

    Raises:
        InputError: not a fingerprint.
        HostKeyMismatch: an unknown key that is not among them, or a changed one: that is never accepted.
        HostError: the host cannot be reached or used.
    """
    for each in accepted:
        if not FINGERPRINT.fullmatch(each):
            raise InputError(
                f"not a fingerprint: {each!r}", where="--accept-key", hint="SHA256:…, as ssh-keygen -lf prints it"
            )
    left = set(accepted)
    while True:
        try:
            argv(open_host(name, inventory, opened), "true", timeout_s=20.0)
            return
        except HostKeyMismatch as error:
            if error.offered is None:
                raise
            if error.offered.fingerprint not in left:
                error.what += f"; accepted {'were' if len(accepted) > 1 else 'was'} {', '.join(accepted)}"
                raise
            left.remove(error.offered.fingerprint)
            yield f"{error.offered.file}: {remember(error.offered)}"
        for host in opened.values():
            with contextlib.suppress(Exception):
                host.close()
