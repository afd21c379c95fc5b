"""Whether telemetry is on, and where it goes: the variables that every OpenTelemetry program reads, else `[telemetry]`.

[telemetry]
endpoint = "http://localhost:4318"   # OTLP over HTTP; /v1/traces and /v1/metrics are added
content = false                      # true: arguments and results of calls, and the model's words, go there too
service_name = "opsagent"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsagent.config import Layer, strongest
from opsagent_tools.errors import InputError

KEYS = ("endpoint", "content", "service_name")
OWNER_ONLY = ("endpoint", "content")
"""Keys that a project's file may not set."""
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@dataclass(frozen=True, slots=True)
class Settings:
    """Where spans and metrics go; `endpoint` '' leaves it to the SDK, which reads the variables itself."""

    endpoint: str = ""
    content: bool = False
    service_name: str = "opsagent"


def settings_of(layers: Sequence[Layer], env: Mapping[str, str]) -> Settings | None:
    """None: telemetry is off. The strongest layer with a `[telemetry]` table counts; variables win over files.

    Raises InputError for keys and values that cannot be.
    """
    hint = "put it into ~/.config/opsagent/opsagent.toml, or set OTEL_EXPORTER_OTLP_ENDPOINT"
    chosen = strongest(layers, "telemetry", KEYS, OWNER_ONLY, hint)
    table = chosen.telemetry if chosen else {}
    content = table.get("content", False)
    endpoint, name = table.get("endpoint", ""), table.get("service_name", "opsagent")
    if not isinstance(content, bool) or not isinstance(endpoint, str) or not isinstance(name, str):
        raise InputError("[telemetry]: endpoint and service_name are texts, content is true or false",
                         where=chosen.origin if chosen else "")  # fmt: skip
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    named = any(env.get(variable) for variable in ENDPOINTS)
    if not named and not endpoint:
        return None
    wanted = env.get(CONTENT, "").lower()
    return Settings(
        "" if named else endpoint, wanted == "true" if wanted else content, env.get("OTEL_SERVICE_NAME") or name
    )
