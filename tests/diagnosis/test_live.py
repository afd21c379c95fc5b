"""curl_test and tail_log against simulated servers."""

from __future__ import annotations

import pytest
from diagnosis.lab_host import InLab
from lab_engine.support import Lab, lab

from opsagent_tools import curl_test, tail_log
from opsagent_tools.curl_test import CurlTestArgs
from opsagent_tools.tail_log import TailLogArgs

SPECULATION = (
    *("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "1"),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "2"),
)
GOOD = (
    *("--tp", "2", "--context-length", "32768", *SPECULATION, "--mamba-scheduler-strategy", "extra_buffer"),
    *("--max-running-requests", "4", "--reasoning-parser", "qwen3", "--tool-call-parser", "qwen3_coder"),
    "--enable-metrics",
)


@pytest.fixture(scope="module")
def served() -> Lab:
    it = lab()
    it.until("ready to roll", it.start(*GOOD))
    return it


def test_a_good_server_passes_every_probe(served: Lab) -> None:
    found = curl_test.run(InLab(served), CurlTestArgs(port=30000, concurrency=4))
    assert {p.probe: p.ok for p in found.probes} == dict.fromkeys(
        (
            "health", "arithmetic", "prose", "thinking", "tool_call", "streaming", "long_prompt", "over_limit", "at_once",
        ),
        True,
    )  # fmt: skip
    assert found.ok
    assert not found.degenerate
    assert found.facts["thinks_by_default"] is True
    assert found.facts["max_running_requests"] == 4
    assert found.facts["context_len"] == 32768
    assert found.facts["sglang"] == "0.5.11"


def test_more_at_once_than_the_server_runs_is_a_failed_probe(served: Lab) -> None:
    found = curl_test.run(InLab(served), CurlTestArgs(port=30000, concurrency=6, long_context=False))
    assert [p.probe for p in found.probes if p.ok is False] == ["at_once"]
    assert found.failed


def test_the_bundle_of_a_server_holds_no_secret(served: Lab) -> None:
    found = curl_test.run(InLab(served), CurlTestArgs(port=30000, bundle=True))
    assert found.bundle is not None
    assert found.bundle["server_info"]["model_path"] == "/srv/models/m"
    assert found.bundle["metrics"]


def test_nobody_answers() -> None:
    found = curl_test.run(InLab(lab()), CurlTestArgs(port=30000))
    assert not found.ok
    assert [p.probe for p in found.probes] == ["health"]


def test_the_log_of_a_good_start(served: Lab) -> None:
    found = tail_log.run(InLab(served), TailLogArgs(path="/root/server.log"))
    assert (found.state, found.verdict, found.cause) == ("ready", "healthy", None)
    assert found.facts.limits.max_running_requests == 4
    assert found.facts.args["tp_size"] == 2


def test_the_log_of_a_refused_start() -> None:
    it = lab()
    flags = [word for word in GOOD if word not in ("--mamba-scheduler-strategy", "extra_buffer")]
    it.ended(it.start(*flags))
    found = tail_log.run(InLab(it), TailLogArgs(server={"log": "/root/server.log"}))
    assert (found.state, found.cause) == ("failed", "spec-needs-extra-buffer")
    assert found.diagnosis.fix.flags == {"--mamba-scheduler-strategy": "extra_buffer"}


def test_garbage_is_called_so_and_forgiven_when_expected() -> None:
    it = lab()
    it.until("ready to roll", it.start(*GOOD, "--load-format", "dummy"))
    angry = curl_test.run(InLab(it), CurlTestArgs(port=30000, long_context=False))
    assert angry.degenerate
    assert angry.cause == "degenerate-output"
    calm = curl_test.run(InLab(it), CurlTestArgs(port=30000, long_context=False, expect_degenerate=True))
    assert calm.degenerate
    assert calm.ok
