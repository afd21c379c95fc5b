"""What a server says about itself: health, models, limits, loads, metrics; secrets removed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from opsagent_tools.verify.api import Api, Reply

_SECRET = re.compile(r"api_key|password|secret|token$|keyfile", re.I)
_METRIC = re.compile(r"^(sglang[:_]\w+)(?:\{[^}]*\})?\s+([-+\d.eE]+|NaN)$", re.M)


@dataclass(slots=True)
class About:
    """One look at a server. `info` is /server_info without secrets; {} when it does not answer."""

    health: Reply
    health_generate: Reply | None = None
    models: list[dict[str, Any]] = field(default_factory=list)
    model_info: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    loads: Any = None
    metrics: dict[str, float] = field(default_factory=dict)
    metrics_status: int = 0

    @property
    def model_id(self) -> str:
        return str(self.models[0].get("id", "")) if self.models else ""

    @property
    def state(self) -> dict[str, Any]:
        """The scheduler's own state, of the first data-parallel rank."""
        states = self.info.get("internal_states")
        return states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}

    @property
    def context_len(self) -> int | None:
        """Longest request, tokens."""
        for value in (self.models[0].get("max_model_len") if self.models else None, self.info.get("context_length")):
            if isinstance(value, int) and value > 0:
                return value
        longest = self.info.get("max_req_input_len")
        return longest + 6 if isinstance(longest, int) else None

    @property
    def max_running_requests(self) -> int | None:
        for value in (self.state.get("effective_max_running_requests_per_dp"), self.info.get("max_running_requests")):
            if isinstance(value, int) and value > 0:
                return value
        return None

    @property
    def pool_tokens(self) -> int | None:
        value = self.info.get("max_total_num_tokens")
        return value if isinstance(value, int) else None

    @property
    def accept_length(self) -> float | None:
        """Tokens accepted for each step of speculation; 1.0 means that drafts are never accepted."""
        for value in (self.state.get("avg_spec_accept_length"), self.metrics.get("sglang:spec_accept_length")):
            if isinstance(value, int | float) and value > 0:
                return round(float(value), 2)
        return None


def look(api: Api, *, thorough: bool) -> About:
    """Ask everything that is read-only. `thorough`: also loads, metrics and a health check that generates."""
    about = About(api.get("/health", timeout_s=60))
    models = api.get("/v1/models").json
    data = models.get("data") if isinstance(models, dict) else None
    about.models = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
    about.model_info = _first(api, "/model_info", "/get_model_info")
    about.info = _first(api, "/server_info", "/get_server_info")
    if thorough:
        about.health_generate = api.get("/health_generate", timeout_s=90)
        loads = api.get("/v1/loads")
        about.loads = loads.json if loads.ok else None
        metrics = api.get("/metrics")
        about.metrics_status = metrics.status
        if metrics.ok:
            about.metrics = metrics_of(metrics.body)
    return about


def metrics_of(text: str) -> dict[str, float]:
    """SGLang's own figures of a Prometheus page by name, at most 400; of several series with one name the last."""
    return {name: float(value) for name, value in _METRIC.findall(text)[:400]}


def _first(api: Api, *paths: str) -> dict[str, Any]:
    """The first of several names of one route that answers, secrets removed."""
    for path in paths:
        reply = api.get(path)
        value = reply.json
        if reply.ok and isinstance(value, dict):
            cleaned = _clean(value)
            assert isinstance(cleaned, dict)
            return cleaned
        if reply.status not in (404, 405):
            break
    return {}


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: "***" if _SECRET.search(str(k)) and isinstance(v, str) and v else _clean(v) for k, v in value.items()
        }
    if isinstance(value, list):
        return [_clean(v) for v in value]
    return value
