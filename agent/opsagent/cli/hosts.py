"""`opsagent hosts`: the machines by name. `add` writes hosts.toml and tries the connection; `list`; `test`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from opsagent.cli.candidates import host_names

if TYPE_CHECKING:
    from opsagent.doctor import Check
    from opsagent_tools.hosts.inventory import Inventory

FILE = click.option("--hosts", "file", default="", metavar="FILE", help="hosts.toml to use (default: ./hosts.toml).")
KEYS = click.option(
    "--accept-key", "accepted", multiple=True, metavar="SHA256:…",
    help="Add an unknown host key to known_hosts if this is its fingerprint.",
)  # fmt: skip
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group("hosts", short_help="The machines: add one, list them, test the connection.")
def command() -> None:
    """The machines that runbooks act on, by name.

    They are in ./hosts.toml, else in ~/.config/opsagent/hosts.toml; the aliases of ~/.ssh/config and `local` (this machine)
    need no entry.

    \b
    Examples:
      opsagent hosts add kpro5 --address 10.0.0.5 --user root
      opsagent hosts list
      opsagent hosts test
    """


@command.command("add")
@click.argument("name")
@click.option("--address", metavar="HOST", help="A name, an IP address or a Host alias of ~/.ssh/config.")
@click.option("--user", metavar="NAME", help="Who to log in as.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the SSH server.")
@click.option("--identity", metavar="FILE", help="Private key; else the agent's and the usual ones are tried.")
@click.option("--jump", metavar="HOST", help="Go through this host: another entry, or user@host:port.")
@click.option("--known-hosts", metavar="FILE", help="Use this known_hosts file instead of the usual ones.")
@click.option("--password-env", metavar="VARIABLE", help="The environment variable that holds a password.")
@click.option("--via", metavar="PARENT", help="A Proxmox container: the host that it is on.", shell_complete=host_names)
@click.option("--pct", type=click.IntRange(min=100), help="A Proxmox container: its number.")
@click.option("--label", metavar="TEXT", help="What people call it; shown when a call is approved.")
@click.option(
    "--tier-cap", type=click.Choice(["R0", "R1", "R2", "R3"]), help="No call above this tier there, whoever asks."
)
@FILE
@KEYS
@click.option("--no-test", is_flag=True, help="Write the entry without connecting.")
@JSON
def add(name: str, file: str, accepted: tuple[str, ...], no_test: bool, as_json: bool, **given: Any) -> int:
    """Write the entry NAME into hosts.toml, or change what is given of one that is there; then connect.

    An empty value removes a setting. Comments stay. The entry is kept when the connection fails, and the exit code says why.
    A host key that is not in known_hosts is shown and refused: compare it on the machine's console, then say it with
    --accept-key, and it is added to known_hosts as ssh would. A key that has changed is never accepted this way.

    \b
    Examples:
      opsagent hosts add kpro5 --address 10.0.0.5 --user root --label "blue rack"
      opsagent hosts add kpro5/ct129 --via kpro5 --pct 129       # a container of it
      opsagent hosts add gpu7 --address gpu7.internal --jump kpro5 --identity ~/.ssh/ops --tier-cap R1
      opsagent hosts add kpro5 --user ''                         # back to what ~/.ssh/config says

    Exit: 0 written and reached, 2 a wrong entry, key or credential, 3 written but not reachable.
    """
    from opsagent import hosts_toml, xdg
    from opsagent.cli import fail
    from opsagent_tools.errors import OpsError

    path = xdg.hosts_file(file)
    try:
        text = hosts_toml.read(path)
        settings = _settings(name, given, text, str(path))
        made, inventory = hosts_toml.edited(text, name, settings, str(path))
        hosts_toml.write(path, made)
    except OpsError as error:
        return fail(error, as_json=as_json)
    if not as_json:
        click.echo(f"{path}: [hosts.{_quoted(name)}] " + ("is written" if made != text else "is as it was"))
    if no_test:
        return _end([], as_json=as_json, file=str(path), name=name, written=True)
    return _test((name,), inventory, accepted, as_json=as_json, file=str(path), name=name, written=True)


@command.command("list")
@FILE
@JSON
def list_hosts(file: str, as_json: bool) -> int:
    """The hosts that can be named, and how each is reached. Nothing is connected.

    \b
    Examples:
      opsagent hosts list
      opsagent hosts list --hosts lab.toml --json
    """
    from opsagent.cli import fail
    from opsagent_tools.errors import OpsError

    try:
        inventory = _inventory(file)
        rows = _rows(inventory)
    except OpsError as error:
        return fail(error, as_json=as_json)
    if as_json:
        click.echo(json.dumps({"hosts": rows, "file": inventory.path}, indent=1, ensure_ascii=False))
    else:
        _print(rows)
    return 0


@command.command("test")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=host_names)
@FILE
@KEYS
@JSON
def test(names: tuple[str, ...], file: str, accepted: tuple[str, ...], as_json: bool) -> int:
    """Connect to the hosts NAME (default: all of hosts.toml) and say what they are. Nothing is changed there.

    \b
    Examples:
      opsagent hosts test
      opsagent hosts test kpro5 --accept-key SHA256:KtvPoJTHkkPVcWhYVJmYBTvCDNwKfO2Yv7+Sy5NZFKA

    Exit: 0 all can be used, 2 a key, a credential or an entry is wrong, 3 not reachable.
    """
    from opsagent.cli import fail
    from opsagent_tools.errors import InputError, OpsError

    try:
        inventory = _inventory(file)
        if not names and not inventory.entries:
            raise InputError("no hosts are configured", hint="opsagent hosts add NAME --address …")
    except OpsError as error:
        return fail(error, as_json=as_json)
    return _test(names or tuple(inventory.entries), inventory, accepted, as_json=as_json)


def _settings(name: str, given: dict[str, Any], text: str, where: str) -> dict[str, Any]:
    """What was given; an empty word removes. A new entry without address is the alias of that name, when there is one."""
    from opsagent_tools.hosts.connect import aliases
    from opsagent_tools.hosts.inventory import parse_inventory

    settings = {key: value or None for key, value in given.items() if value is not None}
    new = name not in parse_inventory(text, where).entries
    if new and not settings.get("address") and not settings.get("via") and name in aliases():
        settings["address"] = name
    return settings


def _quoted(name: str) -> str:
    return json.dumps(name) if "/" in name or "." in name else name


def _inventory(file: str) -> Inventory:
    from opsagent import xdg
    from opsagent_tools.hosts.inventory import load_inventory

    return load_inventory(xdg.hosts_file(file), missing_ok=not file)


def _rows(inventory: Inventory) -> list[dict[str, Any]]:
    from opsagent_tools.hosts.connect import aliases
    from opsagent_tools.hosts.inventory import LOCAL

    rows: list[dict[str, Any]] = []
    for name, entry in inventory.entries.items():
        user = f"{entry.user}@" if entry.user else ""
        port = f":{entry.port}" if entry.port else ""
        reached = f"pct exec {entry.pct} on {entry.via}" if entry.via else f"{user}{entry.address}{port}"
        rows.append(
            {"name": name, "reached": reached, "jump": entry.jump, "label": entry.label, "tier_cap": entry.tier_cap,
             "source": inventory.path}
        )  # fmt: skip
    plain = {"jump": "", "label": "", "tier_cap": None}
    rows += [
        {"name": name, "reached": f"ssh {name}", **plain, "source": "~/.ssh/config"}
        for name in sorted(aliases() - set(inventory.entries))
    ]
    return [*rows, {"name": LOCAL, "reached": "this machine", **plain, "source": "always"}]


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from opsagent.fence import neutral

    table = Table(box=None, pad_edge=False)
    for column in ("host", "reached by", "through", "label", "at most", "from"):
        table.add_column(column, overflow="fold")
    for row in rows:
        cells = [row["name"], row["reached"], row["jump"], row["label"], row["tier_cap"] or "", row["source"]]
        table.add_row(*[Text(neutral(cell)) for cell in cells])
    Console().print(table)


def _test(
    names: tuple[str, ...], inventory: Inventory, accepted: tuple[str, ...], *, as_json: bool, **more: Any
) -> int:
    """Connect to each; whatever cannot be used is one finding."""
    from opsagent.cli.doctor import print_check

    found: list[Check] = []
    for check in _checks(names, inventory, accepted):
        found.append(check)
        if not as_json:
            print_check(check)
    return _end(found, as_json=as_json, **more)


def _checks(names: tuple[str, ...], inventory: Inventory, accepted: tuple[str, ...]) -> Iterator[Check]:
    from opsagent import doctor
    from opsagent.accept import accept_keys
    from opsagent_tools.errors import OpsError
    from opsagent_tools.host import Host
    from opsagent_tools.hosts.inventory import open_host

    opened: dict[str, Host] = {}
    try:
        for name in names:
            try:
                for line in accept_keys(name, inventory, accepted, opened) if accepted else ():
                    yield doctor.Check("host", name, True, f"its key is added to {line}")
            except OpsError as error:
                yield doctor.failed("host", name, error)
                continue
            yield from doctor.host(name, lambda name=name: open_host(name, inventory, opened))  # type: ignore[misc]
    finally:
        for host in opened.values():
            host.close()


def _end(found: list[Check], *, as_json: bool, **more: Any) -> int:
    from opsagent.cli.doctor import rows_of
    from opsagent_tools.errors import worst

    code = int(worst([check.exit_code for check in found if check.ok is False]))
    if as_json:
        body = {"ok": code == 0, "exit_code": code, **more, "checks": rows_of(found)}
        click.echo(json.dumps(body, indent=1, ensure_ascii=False))
    return code
