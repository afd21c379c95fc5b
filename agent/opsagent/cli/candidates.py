"""What the shell offers after TAB: runs, hosts, runbooks, scenarios, causes, tools. Each function is quick and never fails.

They read folders and files of this machine only; no host is asked, and what cannot be read offers nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

MOST = 50
"""Runs that are offered, newest first."""


def _matching(words: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word, help=text or None) for word, text in words if word.startswith(incomplete)]


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of runs, newest first, with their runbook and hosts; a path once there is a slash."""
    if "/" in incomplete or incomplete.startswith("."):
        return [CompletionItem(incomplete, type="dir")]
    return _matching(_runs(), incomplete)


def _runs() -> Iterator[tuple[str, str]]:
    from opsagent.xdg import state_home

    found: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        for folder in (state_home() / "runs").iterdir():
            with contextlib.suppress(OSError):
                found.append(((folder / "events.jsonl").stat().st_mtime, folder))
    for _time, folder in sorted(found, reverse=True)[:MOST]:
        yield folder.name, _about(folder / "events.jsonl")


def _about(events: Path) -> str:
    """`migrate, kpro6 kpro5/ct129` from the first line of a journal."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        with events.open("rb") as lines:
            started = json.loads(lines.readline(1 << 20))["data"]
        hosts = " ".join(name for name in (started.get("hosts") or {}).values() if name)
        return ", ".join(part for part in ((started.get("runbook") or {}).get("name", ""), hosts) if part)
    return ""


def host_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of hosts.toml, aliases of ~/.ssh/config, and `local`."""
    return _matching(_hosts(ctx), incomplete)


def roles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`ROLE=` from the runbook of the line, then the names of hosts."""
    role, equals, name = incomplete.partition("=")
    if equals:
        return [CompletionItem(f"{role}={item.value}", help=item.help) for item in host_names(ctx, param, name)]
    return _matching(((f"{each}=", text) for each, text in _front(ctx, "hosts")), incomplete)


def params(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`NAME=` of the runbook's parameters."""
    return _matching(((f"{each}=", text) for each, text in _front(ctx, "params")), incomplete)


def _hosts(ctx: click.Context) -> Iterator[tuple[str, str]]:
    from opsagent.xdg import hosts_file
    from opsagent_tools.hosts.ssh_config import config_text, names_of

    given = ctx.params.get("hosts_file") or ctx.params.get("file") or ""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        tables = tomllib.loads(hosts_file(given).read_text(encoding="utf-8")).get("hosts", {})
        yield from ((name, str(table.get("label", ""))) for name, table in tables.items())
    with contextlib.suppress(OSError, ValueError):
        yield from ((name, "~/.ssh/config") for name in names_of(config_text(Path.home() / ".ssh" / "config")))
    yield "local", "this machine"


def runbooks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shipped runbooks by name, and files."""
    from opsagent.data import data_dir

    found: list[tuple[str, str]] = []
    with contextlib.suppress(OSError):
        found = [(f"runbooks/{path.name}", "") for path in sorted(data_dir("runbooks").glob("*.md"))]
    return [*_matching(found, incomplete), CompletionItem(incomplete, type="file")]


def _front(ctx: click.Context, table: str) -> Iterator[tuple[str, str]]:
    """(name, help) of the runbook's parameters or host roles."""
    with contextlib.suppress(Exception):  # an unreadable runbook offers nothing
        import yaml

        from opsagent.data import find_runbook

        left = [word for word in ctx.args if not word.startswith("-")]  # click gives up before an option without value
        runbook = ctx.params.get("runbook") or next(iter(left), "")
        front = re.split(r"^---\s*$", find_runbook(str(runbook)).read_text(encoding="utf-8"), flags=re.MULTILINE)[1]
        for name, spec in (yaml.safe_load(front).get(table) or {}).items():
            yield str(name), str(spec.get("help", "")) if isinstance(spec, dict) else ""


def scenarios(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The lab's scenarios."""
    from importlib.resources import files

    found = sorted(entry.name for entry in (files("opsagent_lab") / "scenarios").iterdir())
    return _matching(((name.removesuffix(".toml"), "") for name in found if name.endswith(".toml")), incomplete)


def causes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Slugs of causes."""
    from opsagent_tools.sglang.diagnosis import CAUSES

    return _matching(((slug, cause.means) for slug, cause in CAUSES.items()), incomplete)


def tools(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of tools."""
    from opsagent_tools.registry import NAMES

    return _matching(((name, "") for name in NAMES), incomplete)
