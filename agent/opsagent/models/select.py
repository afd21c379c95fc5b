"""Which model decides: the autopilot unless somebody asks for an LLM. A key that lies in the environment asks nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from opsagent_tools.errors import InputError

if TYPE_CHECKING:
    from opsagent.models.openai_chat import OpenAIChat

OPENAI = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Choice:
    """The model of a run, before anything is imported or sent."""

    kind: Literal["autopilot", "replay", "openai"]
    name: str
    """The model name that is sent, or `autopilot`, or the run that is replayed."""
    base_url: str = ""
    api_key: str = ""

    @property
    def host(self) -> str:
        """Host and port of the base URL."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def notice(self) -> str:
        """One line to print before the first request; '' when nothing is sent anywhere."""
        if self.kind != "openai":
            return ""
        return f"LLM: {self.name} at {self.host} – the runbook and the results of calls are sent there"


def choose(llm: str | None, env: Mapping[str, str]) -> Choice:
    """From `--llm` (None: not given) and the environment. Raises InputError."""
    name = (llm if llm is not None else env.get("OPSAGENT_LLM", "")).strip()
    if not name or name == "autopilot":
        if llm is not None and not name:
            raise InputError("--llm needs a name", hint="autopilot, replay:RUN, or the model's name at the endpoint")
        return Choice("autopilot", "autopilot")
    if name.startswith("replay:"):
        if not name.removeprefix("replay:"):
            raise InputError("--llm replay: needs a run", hint="--llm replay:RUN; `opsagent runs` lists them")
        return Choice("replay", name.removeprefix("replay:"))
    base_url = env.get("OPENAI_BASE_URL", "").strip() or OPENAI
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InputError(
            f"OPENAI_BASE_URL is no URL: {base_url!r}", where="environment", hint="http://HOST:PORT/v1, for example"
        )
    key = env.get("OPENAI_API_KEY", "").strip()
    if not key and base_url == OPENAI:
        raise InputError(
            f"--llm {name} needs an endpoint", where="environment",
            hint="set OPENAI_BASE_URL (and OPENAI_API_KEY if it wants one), or use --llm autopilot",
        )  # fmt: skip
    return Choice("openai", name, base_url, key or "EMPTY")


def connect(choice: Choice, **options: Any) -> OpenAIChat:
    """The client of a chosen endpoint; `options` are the fields of OpenAIChat. Imports the SDK (half a second)."""
    from opsagent.models.openai_chat import Endpoint, OpenAIChat

    return OpenAIChat(Endpoint(choice.name, choice.base_url, choice.api_key), **options)
