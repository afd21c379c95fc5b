"""Sending spans and metrics: OTLP over HTTP, with providers of this run only (nothing global is set)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opsagent import __version__
from opsagent.journal.state import RunState
from opsagent.telemetry.settings import Settings
from opsagent.telemetry.spans import Instruments, SpanFold
from opsagent_tools.errors import OpsError

SEND_S = 3
"""Seconds that one export may take, retries included: so long the end of a run may wait for a dead collector, twice."""


@dataclass
class Remembering:
    """An exporter of the SDK that remembers whether something could not be sent: flushing does not say it."""

    inner: Any
    failed: bool = False

    def export(self, *args: Any, **kwargs: Any) -> Any:
        result = self.inner.export(*args, **kwargs)
        self.failed = self.failed or result.name != "SUCCESS"
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def exporter(settings: Settings, state: Callable[[], RunState]) -> SpanFold:
    """The observer that sends. Raises OpsError, in one line, when the packages are not there."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise OpsError(
            "telemetry is off: OpenTelemetry is not installed", hint="in opsagent's own folder: pip install '.[otel]'"
        ) from error
    quiet()
    base = settings.endpoint.rstrip("/")
    spans = Remembering(OTLPSpanExporter(endpoint=f"{base}/v1/traces" if base else None, timeout=SEND_S))
    metrics = Remembering(OTLPMetricExporter(endpoint=f"{base}/v1/metrics" if base else None, timeout=SEND_S))
    return fold(settings, spans, metrics, state)


def fold(settings: Settings, spans: Any, metrics: Any, state: Callable[[], RunState]) -> SpanFold:
    """The fold of a run's events onto these two exporters; closing it sends what is left."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": settings.service_name, "service.version": __version__})
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(spans))
    meters = MeterProvider([PeriodicExportingMetricReader(metrics)], resource=resource, shutdown_on_exit=False)

    def flush() -> list[str]:
        for provider in (tracers, meters):
            provider.shutdown()  # it sends what is left
        lost = [what for what, sent in (("spans", spans), ("metrics", metrics)) if getattr(sent, "failed", False)]
        return [f"telemetry: {' and '.join(lost)} could not be delivered"] if lost else []

    name = "opsagent"
    instruments = Instruments.of(meters.get_meter(name, __version__))
    return SpanFold(tracers.get_tracer(name, __version__), instruments, state, settings.content, flush)


def quiet() -> None:
    """The SDK logs each failed export; we say it once, in the journal."""
    log = logging.getLogger("opentelemetry")
    log.addHandler(logging.NullHandler())
    log.propagate = False
