"""When telemetry is on, where it goes, and what a missing package or collector means: a line, a note, never a failure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from notify.webhook_server import Hook
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from watching import LOOK, make_home, notes, run

from opsagent.config import Layer, Level, read_layer
from opsagent.journal.state import RunState
from opsagent.telemetry.export import exporter
from opsagent.telemetry.settings import Settings, settings_of
from opsagent_tools.errors import InputError, OpsError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_home(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def layer(tmp_path: Path, text: str, level: Level = "user") -> Layer:
    path = tmp_path / f"{level}.toml"
    path.write_text("[telemetry]\n" + text)
    return read_layer(level, path)


@pytest.mark.parametrize(
    ("env", "table", "wanted"),
    [
        ({}, "", None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, "", Settings()),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x:4318/v1/traces"}, "", Settings()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318", "OTEL_SDK_DISABLED": "true"}, "", None),
        ({}, 'endpoint = "http://y:4318"', Settings("http://y:4318")),
        (
            {},
            'endpoint = "http://y:4318"\ncontent = true\nservice_name = "ops"',
            Settings("http://y:4318", True, "ops"),
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318",
                "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "false",
            },
            'endpoint = "http://y:4318"\ncontent = true',
            Settings(),
        ),
    ],
)
def test_off_unless_an_endpoint_is_named(
    tmp_path: Path, env: dict[str, str], table: str, wanted: Settings | None
) -> None:
    assert settings_of([layer(tmp_path, table)] if table else [], env) == wanted


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ('endpiont = "x"', "user"),
        ("endpoint = 4318", "user"),
        ('endpoint = "http://x"', "project"),
        ("content = 1", "user"),
    ],
)
def test_a_configuration_that_cannot_be_is_an_error(tmp_path: Path, text: str, level: Level) -> None:
    with pytest.raises(InputError):
        settings_of([layer(tmp_path, text, level)], {})


def test_without_the_package_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with pytest.raises(OpsError) as caught:
        exporter(Settings("http://127.0.0.1:1"), RunState)
    assert "[otel]" in caught.value.hint


def test_a_collector_gets_spans_and_metrics_of_a_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hook() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        code, events = run(home, LOOK)
    assert (code, notes(events)) == (0, [])
    got: dict[str, Any] = dict(zip(collector.paths, collector.raw, strict=True))
    traces = ExportTraceServiceRequest.FromString(got["/v1/traces"])
    names = [span.name for r in traces.resource_spans for s in r.scope_spans for span in s.spans]
    assert sorted(names) == ["execute_tool ssh_exec", "invoke_agent opsagent", "step look"]
    metrics = ExportMetricsServiceRequest.FromString(got["/v1/metrics"])
    found = {m.name for r in metrics.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert found == {"gen_ai.execute_tool.duration", "gen_ai.invoke_agent.duration"}


def test_a_collector_that_is_down_is_a_note(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hook() as gone:
        url = gone.url
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    code, events = run(home, LOOK)
    assert code == 0
    assert notes(events) == ["telemetry: spans and metrics could not be delivered"]
    assert "invoke_agent" not in json.dumps(events)
