"""curl_test over real HTTP on loopback: garbage by its kind, content and thoughts apart, requests that run together."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsagent_tools import curl_test, probes
from opsagent_tools.clock import FastClock
from opsagent_tools.curl_test import CurlTestArgs, CurlTestResult
from opsagent_tools.host import Command, Completed, Sink
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.sglang.diagnosis.degenerate import Judged, judge, repeated_token
from opsagent_tools.tool import Context

Chat = Callable[[dict[str, Any]], dict[str, Any]]
FLUENT = "A bicycle stays upright because the rider steers into a fall. The wheels then move back under the weight."


def message(content: str, *, reasoning: str = "", finish: str = "stop", tokens: int = 40) -> dict[str, Any]:
    """A whole answer in the shape of SGLang's chat completions."""
    said = {"role": "assistant", "content": content or None, "reasoning_content": reasoning or None, "tool_calls": None}
    usage = {"prompt_tokens": 20, "completion_tokens": tokens}
    return {"choices": [{"index": 0, "message": said, "finish_reason": finish}], "usage": usage}


def sensible(body: dict[str, Any]) -> dict[str, Any]:
    asked = body["messages"][-1]["content"]
    counting = re.search(r"numbers from (\d+) to (\d+)", asked)
    if counting:
        return message(", ".join(map(str, range(int(counting[1]), int(counting[2]) + 1))), tokens=120)
    return message("391" if "17*23" in asked else FLUENT)


@dataclass
class Fake:
    """A server on loopback; `chat` answers, `ids` is what /generate made, `together` how many must be there at once."""

    chat: Chat = sensible
    ids: list[int] | None = None
    limit: int = 4
    together: int = 0
    key: str = ""
    waiting: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))
    keys: set[str] = field(default_factory=set)
    running: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0
    healthy_after: int = 0
    looks: int = 0

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/health":
            self.looks += 1
            return (200, {}) if self.looks > self.healthy_after else (503, {})
        known: dict[str, Any] = {
            "/health_generate": {},
            "/v1/models": {"data": [{"id": "m", "max_model_len": 8192}]},
            "/model_info": {"model_path": "/srv/m", "tokenizer_path": "/srv/m"},
            "/server_info": {"version": "0.5.11", "max_total_num_tokens": 9000, "api_key": "sk-inner",
                             "internal_states": [{"effective_max_running_requests_per_dp": self.limit}]},
            "/v1/loads": {"loads": [{"dp_rank": 0, "num_running_reqs": self.running, "num_waiting_reqs": 0}]},
        }  # fmt: skip
        return (200, known[path]) if path in known else (404, {"detail": "Not Found"})

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/generate":
            return 200, {"text": "", **({"output_ids": self.ids} if self.ids is not None else {})}
        counting = "numbers from" in body["messages"][-1]["content"]
        if counting and self.together:
            with self.lock:
                self.running += 1
            self.waiting.wait(30)
        answer = self.chat(body)
        return answer.pop("status", 200), answer


@contextlib.contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    fake.waiting = threading.Barrier(max(1, fake.together))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(*fake.get(self.path))

        def do_POST(self) -> None:
            fake.keys.add(self.headers.get("Authorization", ""))
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, value = fake.post(self.path, body)
            if body.get("stream"):
                return self.stream(value)
            return self.answer(status, value)

        def stream(self, value: dict[str, Any]) -> None:
            said = value["choices"][0]["message"]
            deltas = [{"content": part} for part in (said["content"] or "").split(" ")] or [{}]
            rows = [json.dumps({"choices": [{"delta": delta}], "usage": value["usage"]}) for delta in [{}, *deltas]]
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(f"data: {row}\n\n" for row in [*rows, "[DONE]"]).encode())

        def answer(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        request_queue_size = 512

    server = Server(("127.0.0.1", 0), Handler)
    fake.port = int(server.server_address[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()


def ask(fake: Fake, **more: Any) -> CurlTestResult:
    ctx = Context(clock=FastClock(100.0))
    return curl_test.run(LocalHost(), CurlTestArgs(port=fake.port, **{"long_context": False, **more}), ctx)


def kinds(found: CurlTestResult) -> dict[str, str]:
    return {p.probe: p.degenerate for p in found.probes}


def test_tokens_that_are_no_text_are_one_token_repeated() -> None:
    """As an H200 with random weights answered: 220 tokens, cut by the limit, and not one character."""

    def silent(body: dict[str, Any]) -> dict[str, Any]:
        return message("", finish="length", tokens=body["max_tokens"])

    with serving(Fake(silent, ids=[201_337] * 64)) as fake:
        found = ask(fake)
    assert (found.degenerate, found.cause) == (True, "degenerate-output")
    assert kinds(found)["prose"] == "repeated"
    assert kinds(found)["arithmetic"] == "no-text"
    assert "201337" in next(p.detail for p in found.probes if p.probe == "prose")
    assert "thinks_by_default" not in found.facts, "garbage tells nothing of its habits"


@pytest.mark.parametrize("ids", [None, list(range(64))])
def test_tokens_that_are_no_text_and_not_one_token(ids: list[int] | None) -> None:
    with serving(Fake(lambda _b: message("", finish="length", tokens=64), ids=ids)) as fake:
        assert kinds(ask(fake))["prose"] == "no-text"


def test_an_answer_that_ends_at_once_is_empty() -> None:
    with serving(Fake(lambda _b: message("", tokens=1))) as fake:
        assert kinds(ask(fake))["prose"] == "empty"


def test_garbage_in_the_thoughts_is_found_although_the_content_is_fine() -> None:
    def dreaming(body: dict[str, Any]) -> dict[str, Any]:
        answer = sensible(body)
        if "chat_template_kwargs" not in body:
            answer["choices"][0]["message"]["reasoning_content"] = "wait, " * 200
        return answer

    with serving(Fake(dreaming)) as fake:
        found = ask(fake)
    assert [p.probe for p in found.probes if p.ok is False] == ["thinking"]
    assert kinds(found)["thinking"] == "loop"


def test_right_and_then_no_end() -> None:
    def chatty(body: dict[str, Any]) -> dict[str, Any]:
        if "17*23" in body["messages"][-1]["content"]:
            return message("391\n\nQuestion: what is 18*23? Let me see, that would be", finish="length", tokens=64)
        return sensible(body)

    with serving(Fake(chatty)) as fake:
        assert kinds(ask(fake))["arithmetic"] == "no-end"


def test_a_model_that_always_thinks_is_given_the_room_to_answer() -> None:
    def thinker(body: dict[str, Any]) -> dict[str, Any]:
        if "17*23" in body["messages"][-1]["content"] and body["max_tokens"] < 100:
            return message("", reasoning="The user wants a product. I split it into", finish="length", tokens=64)
        return sensible(body)

    with serving(Fake(thinker)) as fake:
        found = ask(fake)
    assert next(p.ok for p in found.probes if p.probe == "arithmetic")


def test_forty_requests_run_at_the_same_time() -> None:
    """The server answers none of them before all forty are there: a link has eight channels, a machine has not."""
    with serving(Fake(limit=40, together=40)) as fake:
        found = ask(fake, concurrency=40)
    last = found.probes[-1]
    assert (last.probe, last.ok) == ("at_once", True), last.detail
    assert found.facts["answered_at_once"] == 40
    assert fake.waiting.n_waiting == 0
    assert not fake.waiting.broken


def test_more_than_the_cap_is_said() -> None:
    with serving(Fake(limit=4096)) as fake:
        found = ask(fake)
    assert found.facts["answered_at_once"] == 256
    assert "256 of 4096" in found.probes[-1].detail


def test_one_of_many_that_fails_is_counted_and_quoted() -> None:
    def busy(body: dict[str, Any]) -> dict[str, Any]:
        if "numbers from 120 " in body["messages"][-1]["content"]:
            return {"status": 503, "message": "the scheduler is gone"}
        return sensible(body)

    with serving(Fake(busy, limit=8)) as fake:
        found = ask(fake)
    assert (found.probes[-1].ok, found.facts["answered_at_once"]) == (False, 7)
    assert "the scheduler is gone" in found.probes[-1].detail


def test_an_answer_to_another_request_is_wrong() -> None:
    def mixed(body: dict[str, Any]) -> dict[str, Any]:
        if "numbers from" in body["messages"][-1]["content"]:
            return message(", ".join(map(str, range(100, 140))))
        return sensible(body)

    with serving(Fake(mixed)) as fake:
        last = ask(fake).probes[-1]
    assert (last.ok, last.degenerate) == (False, "wrong")


class Seen(LocalHost):
    """Keeps every argv."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        self.words += [word for stage in command.stages for word in stage]
        return super().run(command, sink=sink, keep=keep)


def test_the_key_reaches_the_server_and_no_argv() -> None:
    host = Seen()
    with serving(Fake()) as fake:
        found = curl_test.run(host, CurlTestArgs(port=fake.port, api_key="sk-clients", long_context=False))
    assert found.ok
    assert fake.keys == {"Bearer sk-clients"}
    assert not any("sk-clients" in word for word in host.words)


def test_nobody_there() -> None:
    stdin = json.dumps({"key": "", "bodies": [{}, {}]})
    with serving(Fake()) as fake:
        pass
    wanted = {"url": f"http://127.0.0.1:{fake.port}", "path": "/x", "timeout": 5}
    got = probes.ask(LocalHost(), "together", wanted, stdin=stdin)
    assert [row["status"] for row in got["answers"]] == [0, 0]
    assert got["peak"] is None


def test_the_bundle_is_everything_that_a_sick_server_says_without_its_key() -> None:
    with serving(Fake(lambda _b: {"status": 500, "message": "no"})) as fake:
        found = ask(fake, bundle=True)
    assert found.bundle is not None
    assert set(found.bundle) == {"health", "health_generate", "models", "model_info", "server_info", "loads", "metrics"}
    assert found.bundle["loads"]["loads"][0]["num_running_reqs"] == 0
    assert found.bundle["model_info"]["model_path"] == "/srv/m"
    assert found.bundle["server_info"]["api_key"] == "***"
    assert not found.ok
    assert [p.probe for p in found.probes] == ["health", "arithmetic"]


def test_waiting_until_a_started_server_is_up() -> None:
    with serving(Fake(healthy_after=2)) as fake:
        assert ask(fake, up_s=60, bundle=True).ok
        assert fake.looks >= 3


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        ({"content": FLUENT}, Judged()),
        ({"content": "!" * 64}, Judged("exclamation", "content")),
        ({"content": " dolor" * 60}, Judged("loop", "content")),
        ({"content": FLUENT, "reasoning": "!" * 64}, Judged("exclamation", "reasoning")),
        ({"content": "", "reasoning": FLUENT, "finish": "length", "tokens": 64}, Judged()),
        ({"content": "", "reasoning": FLUENT, "tokens": 64}, Judged("empty", "content")),
        ({"content": "", "finish": "length", "tokens": 220}, Judged("no-text", "content")),
        ({"content": " \n", "tokens": 2}, Judged("empty", "content")),
        ({"content": ""}, Judged("empty", "content")),
        ({"content": (FLUENT + " ") * 12, "finish": "length"}, Judged("no-end", "content")),
    ],
)
def test_judging_both_parts(answer: dict[str, Any], want: Judged) -> None:
    found = judge(prompt="How does a bicycle stay upright?", **answer)
    assert found == want or (want.why in ("loop", "no-end") and found.why in ("loop", "no-end"))


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 3), st.integers(8, 60))
def test_a_repeated_token_is_the_last_one_and_most_of_them(head: list[int], token: int, count: int) -> None:
    found = repeated_token([*head, *[token] * count])
    assert found in (token, None)
    if count >= len(head):
        assert found == token
    assert repeated_token(list(range(len(head)))) is None
