"""Spans and metrics of a run in OpenTelemetry, with the GenAI semantic conventions. Off unless an endpoint is named.

`spans.py` folds the journal's events into spans and measurements; `export.py` sends them (the extra `opsagent[otel]`).
"""
