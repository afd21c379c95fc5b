"""docs/reference/configuration.md: files, keys, variables and folders, from the models and parsers that read them."""

from __future__ import annotations

import inspect
import json
import re
from types import ModuleType
from typing import Any

from bench.reference.markdown import attribute_docs, code, first_sentence, table, type_name
from pydantic import BaseModel

from opsagent import config, webhook, xdg
from opsagent.gate import policy_file
from opsagent.runbook import model as runbook
from opsagent.telemetry import settings as telemetry
from opsagent_tools.hosts.inventory import HostEntry

HEAD = """# Configuration

Everything has a default. Unknown keys are errors that name the nearest known one.
"""
VARIABLES = {
    "OPSAGENT_LLM": "the model of `run` and `chat` when `--llm` is not given; nothing else chooses one",
    "OPENAI_BASE_URL": "the endpoint of `--llm`; looked at only when an LLM was chosen",
    "OPENAI_API_KEY": "its key; likewise",
    "XDG_CONFIG_HOME": "where opsagent.toml, hosts.toml and learned signatures of a user are",
    "XDG_STATE_HOME": "where runs and the history of hosts are",
    "NO_COLOR": "not empty: no colours, in every verb",
    "SGLANG_*": "`plan` reads those that change memory, as the server would",
    "OTEL_*": "OpenTelemetry's own, see `[telemetry]`",
}
FRONT = (
    (runbook.FrontMatter, "Front matter"), (runbook.Param, "`params.NAME`"), (runbook.HostRole, "`hosts.ROLE`"),
    (runbook.Allow, "`allow`"), (runbook.BudgetSpec, "`budget`"), (runbook.OpenItem, "`open`, a list of"),
    (runbook.CallSpec, "The fences `call` and `rollback`"), (runbook.RemedySpec, "The fence `remedy`, by cause"),
)  # fmt: skip


def page() -> str:
    return "\n".join([HEAD, *_files(), *_hosts(), *_settings(), *_runbooks()])


def _files() -> list[str]:
    config_home, state = "~/.config/opsagent", "~/.local/state/opsagent"
    rows = [
        [code(f"{config_home}/opsagent.toml"), "the user's opsagent.toml; the administrator's is "
         "`/etc/opsagent/opsagent.toml`, the project's `./opsagent.toml`"],
        [code(f"./{xdg.HOSTS_FILE}"), f"the hosts; else `{config_home}/{xdg.HOSTS_FILE}`"],
        [code(f"{config_home}/learned/"), "signatures of `diagnose --learn`"],
        [code(f"{state}/runs/ID/"), "a run: `events.jsonl`, `blobs/`, `report.json`, `report.md`, `report.html`"],
        [code(f"{state}/chats/ID/"), "a chat: its own journal"],
        [code(f"{state}/history/"), "what launches taught about each host"],
    ]  # fmt: skip
    variables = [[code(name), what] for name, what in VARIABLES.items()]
    return [
        "## Files and folders\n", table(["path", "what"], rows),
        "\n`~/.config` is `$XDG_CONFIG_HOME` and `~/.local/state` is `$XDG_STATE_HOME` when they are set. "
        "Nothing is cached.\n",
        "## Environment\n", table(["variable", "what"], variables) + "\n",
    ]  # fmt: skip


def _hosts() -> list[str]:
    return [
        "## hosts.toml\n",
        "One table `[hosts.NAME]` for each machine; how to use it: [own hosts](../how-to/own-hosts.md).\n",
        _model(HostEntry),
    ]  # fmt: skip


def _settings() -> list[str]:
    parts = [
        "## opsagent.toml\n",
        f"Sections: {', '.join(f'`[{name}]`' for name in config.SECTIONS)}. A lower layer can only tighten `[gate]`.\n",
    ]
    sections: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
        (policy_file, (*policy_file.KEYS, *policy_file.RULE_KEYS)),
        (webhook, webhook.KEYS),
        (telemetry, telemetry.KEYS),
    )
    for module, keys in sections:
        title, example = example_of(module)
        silent = [key for key in keys if not re.search(rf"^(\[\[?gate\.)?{key}\b", example, re.MULTILINE)]
        assert not silent, f"{module.__name__} does not show {silent}"
        name = example.partition("]")[0].strip("[")
        parts += [f"### [{name}]\n", title + "\n", f"```toml\n{example}\n```\n"]
    return parts


def example_of(module: ModuleType) -> tuple[str, str]:
    """(first sentences, TOML) of the docstring of a module that reads a section."""
    text = inspect.cleandoc(module.__doc__ or "")
    prose, _, rest = text.partition("\n\n")
    return " ".join(prose.split()), rest.strip()


def _runbooks() -> list[str]:
    parts = ["## Runbooks\n", "How to write one: [own runbook](../how-to/own-runbook.md).\n"]
    for model, title in FRONT:
        parts += [f"### {title}\n", _about(model), _model(model)]
    return parts


def _about(model: type[BaseModel]) -> str:
    return first_sentence(model.__doc__) + "\n"


def _model(model: type[BaseModel]) -> str:
    docs, rows = attribute_docs(model), []
    for name, field in model.model_fields.items():
        default: Any = field.get_default(call_default_factory=True)
        shown = "required" if field.is_required() else _default(default)
        rows.append([code(field.alias or name), type_name(field.annotation), shown, docs.get(name, "")])
    return table(["key", "type", "default", "what it is"], rows) + "\n"


def _default(value: Any) -> str:
    return "" if value in ("", None) or isinstance(value, BaseModel) else code(json.dumps(value, default=list))
