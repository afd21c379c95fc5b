"""A webhook: where it is, and delivering one JSON body to it. It gives up in bounded time and never raises for the network.

[notify]
url_env = "OPSAGENT_NOTIFY_URL"   # the variable that holds the URL; it is often a secret, so no file of ours says it
url_file = "~/.config/opsagent/notify-url"
on = ["waits", "ends"]
timeout_s = 3
attempts = 3
allow_http = false                # true: plain http to other machines, too
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from opsagent.config import Layer, strongest
from opsagent.models.retry import RetryPolicy, retry_after
from opsagent_tools.errors import InputError, OpsError

if TYPE_CHECKING:
    from tenacity import RetryCallState

KEYS = ("url_env", "url_file", "on", "timeout_s", "attempts", "allow_http")
OWNER_ONLY = ("url_file", "allow_http")
"""Keys that a project's file may not set."""
KINDS = ("waits", "ends")


class Undelivered(OpsError):
    """The webhook did not take it."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where to send, what, and for how long to try."""

    url: str
    on: tuple[str, ...] = KINDS
    timeout_s: float = 3.0
    """Of one attempt."""
    attempts: int = 3

    @property
    def host(self) -> str:
        """All of the URL that may be shown."""
        return urlsplit(self.url).hostname or ""

    @property
    def patience_s(self) -> float:
        """The longest that one delivery takes."""
        return min(30.0, self.timeout_s * self.attempts)


def webhook_of(layers: Sequence[Layer], env: Mapping[str, str]) -> Webhook | None:
    """The webhook of the strongest layer that has a `[notify]` table; None when none has.

    Raises InputError for keys and values that cannot be, OpsError when the URL is missing or not allowed.
    """
    chosen = strongest(layers, "notify", KEYS, OWNER_ONLY, "put it into ~/.config/opsagent/opsagent.toml")
    return None if chosen is None else _read(chosen.notify, chosen.origin, env)


def _read(table: Mapping[str, Any], where: str, env: Mapping[str, str]) -> Webhook:
    on = table.get("on", list(KINDS))
    if not isinstance(on, list) or not on or any(kind not in KINDS for kind in on):
        raise InputError("`on` of [notify] is a list of `waits` and `ends`", where=where)
    numbers = {"timeout_s": (3, 60), "attempts": (3, 10)}
    for key, (default, most) in numbers.items():
        value = table.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= most:
            raise InputError(f"`{key}` of [notify] is a number up to {most}", where=where)
    url = _url(table, where, env)
    _allowed(url, bool(table.get("allow_http", False)), where)
    return Webhook(url, tuple(on), float(table.get("timeout_s", 3)), int(table.get("attempts", 3)))


def _url(table: Mapping[str, Any], where: str, env: Mapping[str, str]) -> str:
    variable, file = str(table.get("url_env") or ""), str(table.get("url_file") or "")
    if bool(variable) == bool(file):
        raise InputError("[notify] needs `url_env` or `url_file`, one of them", where=where)
    if variable:
        if not env.get(variable, "").strip():
            raise OpsError(
                f"notifications are off: {variable} is not set", where=where, hint=f"export {variable}=https://…"
            )
        return env[variable].strip()
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OpsError(
            f"notifications are off: {file} cannot be read", where=where, hint="one line: https://…"
        ) from error


def _allowed(url: str, plain_http: bool, where: str) -> None:
    """https anywhere, http on loopback; anything else would show the news (and a token in the path) to the network."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and host and (plain_http or _loopback(host)):
        return
    raise OpsError(
        "notifications are off: the webhook's URL is neither https nor http on loopback", where=where,
        hint="use https, or set allow_http = true in your own opsagent.toml",
    )  # fmt: skip


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Again(Exception):
    """This attempt failed in a way that may pass."""

    def __init__(self, what: str, wait_s: float | None = None) -> None:
        super().__init__(what)
        self.wait_s = wait_s


def deliver(hook: Webhook, body: Mapping[str, Any]) -> None:
    """POST the body as JSON; what may pass is tried again. Raises Undelivered, without the URL in its words."""
    import httpx2
    from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay

    policy, rng = RetryPolicy(first_s=0.3, most_s=hook.timeout_s), random.Random()

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.wait_s if isinstance(error, _Again) else None
        return min(asked if asked is not None else policy.backoff(state.attempt_number, rng), hook.timeout_s)

    stop = stop_after_attempt(hook.attempts) | stop_after_delay(hook.patience_s)
    try:
        with httpx2.Client(timeout=hook.timeout_s, follow_redirects=False) as client:
            for attempt in Retrying(stop=stop, wait=wait, retry=retry_if_exception_type(_Again), reraise=True):
                with attempt:
                    _post(client, hook, body)
    except _Again as error:
        raise Undelivered(f"{error} (tried {hook.attempts} times at most)", where=hook.host) from error


def _post(client: Any, hook: Webhook, body: Mapping[str, Any]) -> None:
    import httpx2

    try:
        answer = client.post(hook.url, json=dict(body), headers={"User-Agent": "opsagent"})
    except httpx2.TimeoutException as error:
        raise _Again("the webhook did not answer in time") from error
    except httpx2.HTTPError as error:
        raise _Again(f"the webhook cannot be reached ({type(error).__name__})") from error
    if answer.status_code == 429 or answer.status_code >= 500:
        raise _Again(
            f"the webhook answered {answer.status_code}", retry_after(answer.headers, lambda: datetime.now(UTC))
        )
    if answer.status_code >= 300:
        raise Undelivered(f"the webhook answered {answer.status_code}", where=hook.host, hint="is the URL right?")
