"""Where notifications may go, and what becomes of one that is not taken."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from notify.webhook_server import Hook

from opsagent.config import Layer, Level, read_layer
from opsagent.webhook import Undelivered, Webhook, deliver, webhook_of
from opsagent_tools.errors import InputError, OpsError

SECRET = "T0K3N-in-the-path"


def layer(tmp_path: Path, text: str, level: Level = "user") -> Layer:
    path = tmp_path / f"{level}.toml"
    path.write_text("[notify]\n" + text)
    return read_layer(level, path)


def test_the_strongest_layer_with_a_table_counts(tmp_path: Path) -> None:
    user = layer(tmp_path, 'url_env = "A"\non = ["ends"]\nattempts = 2')
    project = layer(tmp_path, 'url_env = "B"', "project")
    env = {"A": "https://a.example/x", "B": "https://b.example/y"}
    assert webhook_of([user, project], env) == Webhook("https://a.example/x", ("ends",), 3.0, 2)
    assert webhook_of([project], env) == Webhook("https://b.example/y")
    assert webhook_of([], env) is None


@pytest.mark.parametrize(
    ("url", "more", "fine"),
    [
        ("https://hooks.example/x", "", True),
        ("http://127.0.0.1:8080/x", "", True),
        ("http://[::1]:8080/x", "", True),
        ("http://localhost/x", "", True),
        ("http://hooks.example/x", "", False),
        ("http://hooks.example/x", "allow_http = true", True),
        ("http://127.0.0.1.evil.example/x", "", False),
        ("ftp://127.0.0.1/x", "", False),
        ("file:///etc/passwd", "", False),
        ("https://", "", False),
        ("http://[::1", "", False),
        ("", "", False),
    ],
)
def test_only_https_and_loopback_unless_allowed(tmp_path: Path, url: str, more: str, fine: bool) -> None:
    found = [layer(tmp_path, f'url_env = "HOOK"\n{more}')]
    if fine:
        hook = webhook_of(found, {"HOOK": url})
        assert hook is not None
        assert hook.url == url
    else:
        with pytest.raises(OpsError) as caught:
            webhook_of(found, {"HOOK": url})
        assert not isinstance(caught.value, InputError)  # it is off, and the run goes on
        assert url == "" or url not in caught.value.what + caught.value.hint + caught.value.where


@pytest.mark.parametrize(
    ("text", "level", "key"),
    [
        ('url_en = "A"', "user", "url_en"),
        ('url_env = "A"\nurl_file = "/x"', "user", "url_file"),
        ("timeout_s = 3", "user", "url_env"),
        ('url_env = "A"\non = ["starts"]', "user", "on"),
        ('url_env = "A"\nattempts = 0', "user", "attempts"),
        ('url_env = "A"\ntimeout_s = "3"', "user", "timeout_s"),
        ('url_file = "hook-url"', "project", "url_file"),
        ('url_env = "A"\nallow_http = true', "project", "allow_http"),
    ],
)
def test_a_configuration_that_cannot_be_is_an_error_with_its_file(
    tmp_path: Path, text: str, level: Level, key: str
) -> None:
    with pytest.raises(InputError) as caught:
        webhook_of([layer(tmp_path, text, level)], {"A": "https://a.example"})
    assert key in caught.value.what
    assert caught.value.where == str(tmp_path / f"{level}.toml")


def test_the_url_can_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text(f"https://a.example/{SECRET}\n")
    hook = webhook_of([layer(tmp_path, f'url_file = "{tmp_path / "url"}"')], {})
    assert hook is not None
    assert (hook.url, hook.host) == (f"https://a.example/{SECRET}", "a.example")


def test_what_may_pass_is_tried_again_and_what_may_not_is_not() -> None:
    body: dict[str, Any] = {"event": "ends"}
    with Hook(answers=[500, 429]) as hook:
        deliver(Webhook(f"{hook.url}/{SECRET}"), body)
        assert hook.bodies == [body] * 3
    for status in (302, 400, 404):
        with Hook(answers=[status]) as hook, pytest.raises(Undelivered) as caught:
            deliver(Webhook(f"{hook.url}/{SECRET}"), body)
        assert len(hook.bodies) == 1
        assert SECRET not in caught.value.what + caught.value.where + caught.value.hint


def test_a_dead_a_slow_and_a_failing_endpoint_give_up_in_bounded_time() -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        dead = Webhook(f"http://127.0.0.1:{taken.getsockname()[1]}/{SECRET}", timeout_s=0.2)
        with pytest.raises(Undelivered) as caught:
            deliver(dead, {})
        assert SECRET not in caught.value.what + caught.value.where
    with Hook(hang_s=1.0) as hook, pytest.raises(Undelivered):
        deliver(Webhook(hook.url, timeout_s=0.1, attempts=2), {})
    with Hook(answers=[503] * 9) as hook, pytest.raises(Undelivered):
        deliver(Webhook(hook.url, timeout_s=0.2, attempts=2), {})
    assert len(hook.raw) == 2
