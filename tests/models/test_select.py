"""Which model decides: nothing is sent anywhere unless somebody asked for it."""

from __future__ import annotations

import pytest

from opsagent.models.select import choose
from opsagent_tools.errors import InputError

KEY = {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": "http://127.0.0.1:30000/v1"}


@pytest.mark.parametrize(
    ("llm", "env"), [(None, {}), (None, KEY), ("autopilot", KEY), (None, {"OPSAGENT_LLM": "autopilot"})]
)
def test_a_key_in_the_environment_is_no_wish(llm: str | None, env: dict[str, str]) -> None:
    choice = choose(llm, env)
    assert (choice.kind, choice.notice) == ("autopilot", "")


@pytest.mark.parametrize(("llm", "env"), [("bridge", KEY), (None, {**KEY, "OPSAGENT_LLM": "bridge"})])
def test_any_other_name_is_the_model_that_is_asked_for(llm: str | None, env: dict[str, str]) -> None:
    choice = choose(llm, env)
    assert (choice.kind, choice.name, choice.host, choice.api_key) == ("openai", "bridge", "127.0.0.1:30000", "sk-x")
    assert "bridge" in choice.notice
    assert "127.0.0.1:30000" in choice.notice


def test_a_local_endpoint_needs_no_key() -> None:
    assert choose("m", {"OPENAI_BASE_URL": "http://gpu1:8000/v1"}).api_key == "EMPTY"


def test_openai_itself_needs_only_a_key() -> None:
    assert choose("gpt-x", {"OPENAI_API_KEY": "sk-x"}).host == "api.openai.com"


def test_the_notice_shows_no_password() -> None:
    choice = choose("m", {"OPENAI_BASE_URL": "https://user:geheim@gw.example/v1"})
    assert "geheim" not in choice.notice
    assert choice.host == "gw.example"


def test_a_recorded_run() -> None:
    assert choose("replay:7f3a", {}).kind == "replay"
    assert choose("replay:7f3a", {}).name == "7f3a"


@pytest.mark.parametrize(
    ("llm", "env"),
    [
        ("", {}),
        ("replay:", {}),
        ("gpt-x", {}),
        ("m", {"OPENAI_BASE_URL": "gpu1:8000"}),
        ("m", {"OPENAI_BASE_URL": "ftp://x"}),
    ],
)
def test_bad_wishes_are_usage_errors(llm: str, env: dict[str, str]) -> None:
    with pytest.raises(InputError):
        choose(llm, env)
