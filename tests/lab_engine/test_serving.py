"""Whole servers in a small world: what they answer, how they queue, fail, and end."""

from __future__ import annotations

import copy
import json
import threading
from typing import Any

import pytest
from lab_engine.support import Lab, lab, records, replay

from opsagent_lab.clock import LabClock
from opsagent_lab.engine import preloaded
from opsagent_lab.engine.serving import Server
from opsagent_lab.world import World

SPEC = [
    *("--tp", "2", "--context-length", "32768", "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "1"),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "2"),
]
GOOD = [
    *SPEC,
    "--mamba-scheduler-strategy",
    "extra_buffer",
    "--max-running-requests",
    "4",
    "--reasoning-parser",
    "qwen3",
]
QUESTION = {"role": "user", "content": "What is 17*23? Answer with the number only."}
QUIET = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def served() -> Lab:
    it = lab()
    sim = it.start(*GOOD, "--tool-call-parser", "qwen3_coder", "--enable-metrics")
    assert "ready to roll" in it.until("ready to roll", sim)
    return it


def _message(answer: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = answer["choices"][0]["message"]
    return message


def test_arithmetic_without_thinking(served: Lab) -> None:
    answer = served.post({"messages": [QUESTION], "max_tokens": 16, **QUIET})
    assert _message(answer)["content"] == "391"
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_it_thinks_unless_told_not_to(served: Lab) -> None:
    answer = served.post({"messages": [QUESTION], "max_tokens": 2048})
    assert _message(answer)["reasoning_content"]
    assert _message(answer)["content"] == "391"


def test_a_small_limit_is_eaten_by_the_thoughts(served: Lab) -> None:
    answer = served.post({"messages": [QUESTION], "max_tokens": 8})
    assert _message(answer)["content"] is None
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_tool_is_called_with_json_arguments(served: Lab) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}
    ask = {"role": "user", "content": "Weather in Paris? Use the tool."}
    answer = served.post({"messages": [ask], "tools": [tool], **QUIET})
    call = _message(answer)["tool_calls"][0]["function"]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Paris"})


def test_a_stream_ends_with_usage_and_done(served: Lab) -> None:
    body = {"messages": [QUESTION], "stream": True, "stream_options": {"include_usage": True}, **QUIET}
    _code, out, _err = served.call(
        "curl", "-sSN", "-H", "Content-Type: application/json", "-d", json.dumps(body),
        "http://127.0.0.1:30000/v1/chat/completions",
    )  # fmt: skip
    events = [line.removeprefix("data: ") for line in out.splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(e) for e in events[:-1]]
    said = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    assert said == "391"
    assert chunks[-1]["usage"]["completion_tokens"] > 0


def test_a_prompt_over_the_context_is_refused_in_sglangs_words(served: Lab) -> None:
    long = {"role": "user", "content": "word " * 33000}
    answer = served.post({"messages": [long], "max_tokens": 4, **QUIET})
    assert answer["code"] == 400
    assert "is longer than the model's context length (32768 tokens)" in answer["message"]


def test_a_needle_in_a_long_prompt_is_found(served: Lab) -> None:
    text = (
        "filler words here. " * 3000
        + "The secret code is QX-4417. "
        + "more filler. " * 2000
        + "What is the secret code?"
    )
    answer = served.post({"messages": [{"role": "user", "content": text}], "max_tokens": 32, **QUIET})
    assert "QX-4417" in _message(answer)["content"]


def test_more_requests_than_places_all_end(served: Lab) -> None:
    answers: list[dict[str, Any]] = []
    body = {"messages": [{"role": "user", "content": "Count from 1 to 60."}], "max_tokens": 300, **QUIET}
    threads = [threading.Thread(target=lambda: answers.append(served.post(body))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert all(_message(a)["content"].startswith("1, 2, 3") for a in answers)
    assert "#running-req: 5" not in served.log()


def test_a_request_without_a_place_waits_for_one() -> None:
    launched = replay(records()["tp2-seed2-mrr4"])
    assert launched.launch is not None
    assert launched.limits is not None
    server = Server(launched.launch, launched.limits, lambda _line: None, lambda: 0.0)
    for _ in range(4):
        server.enter(10, lambda _s: None)
    waiting, entered = threading.Event(), threading.Event()

    def pause(_seconds: float) -> None:
        waiting.set()
        threading.Event().wait(0.001)

    def fifth() -> None:
        server.enter(10, pause)
        entered.set()

    thread = threading.Thread(target=fifth)
    thread.start()
    assert waiting.wait(60)
    assert (server.running, len(server.queue), entered.is_set()) == (4, 1, False)
    server.leave(10, 5)
    thread.join(60)
    assert (server.running, len(server.queue), entered.is_set()) == (4, 0, True)


def test_server_info_has_limits_identity_and_the_key() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    it.until("ready to roll", it.start("--api-key", "sk-0123456789abcdef", "--max-running-requests", "2"))
    denied = it.call("curl", "-sS", "-w", "%{http_code}", "http://127.0.0.1:30000/server_info")
    assert denied[1].endswith("401")
    told = it.call(
        "curl", "-sS", "-H", "Authorization: Bearer sk-0123456789abcdef", "http://127.0.0.1:30000/server_info"
    )
    info = json.loads(told[1])
    assert info["api_key"] == "sk-0123456789abcdef"
    assert f"random_seed={info['random_seed']}" in it.log()
    assert f"max_total_num_tokens={info['max_total_num_tokens']}," in it.log()
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 2


def test_metrics_and_loads(served: Lab) -> None:
    _code, text, _err = served.call("curl", "-sS", "http://127.0.0.1:30000/metrics")
    assert "sglang:spec_accept_length" in text
    loads = json.loads(served.call("curl", "-sS", "http://127.0.0.1:30000/v1/loads")[1])
    assert loads["loads"][0]["max_total_num_tokens"] > 100_000


def test_059_with_two_ranks_is_healthy_and_wrong() -> None:
    it = lab(version="0.5.9")
    it.until("ready to roll", it.start("--tp", "2", "--mamba-scheduler-strategy", "extra_buffer"))
    health = it.call("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:30000/health")
    assert health[1] == "200"
    content = _message(it.post({"messages": [QUESTION], **QUIET}))["content"]
    assert "391" not in content
    assert len(content.split()) > 3


def test_dummy_weights_repeat_one_token() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    it.until("ready to roll", it.start("--load-format", "dummy"))
    words = _message(it.post({"messages": [QUESTION], "max_tokens": 64, **QUIET}))["content"].split()
    assert len(set(words)) <= 2


def test_the_first_answer_may_be_slow() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1, settings={"engine": {"first_answer_s": 45}})
    it.until("ready to roll", it.start())
    body = json.dumps({"messages": [QUESTION], **QUIET})
    words = ("-H", "Content-Type: application/json", "-d", body, "http://127.0.0.1:30000/v1/chat/completions")
    first = it.call("curl", "-sS", "-m", "20", *words)
    assert first[0] == 28
    assert "Operation timed out after 20001 milliseconds with 0 bytes received" in first[2]
    assert it.call("curl", "-sS", "-m", "60", *words)[0] == 0


def test_a_stopped_server_gives_everything_back() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    sim = it.start()
    it.until("ready to roll", sim)
    it.post({"messages": [QUESTION], **QUIET})
    assert it.world.gpu_used_mib(it.host.gpus[0]) > 20_000
    it.world.signal(it.host, sim.pid, 15)
    assert it.ended(sim) == 137
    assert "Gracefully exiting" in it.log()
    assert it.host.processes == {}
    assert it.world.gpu_used_mib(it.host.gpus[0]) < 100
    assert it.call("curl", "-sS", "http://127.0.0.1:30000/health")[0] == 7


def test_nothing_fell_over(served: Lab) -> None:
    assert served.world.bugs == []


def test_a_server_that_was_there_before_answers_at_once_and_has_a_past() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1, speed=100.0)
    words = ["/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "/srv/models/m", "--port", "30001"]
    began = it.world.now()
    sim = preloaded.start(it.world, it.host, words, log="/root/server.log", unit="old.service")
    for _ in range(10_000):
        if it.world.connect(it.host, "127.0.0.1", 30001):
            break
        threading.Event().wait(0.005)
    code, out, _err = it.call("curl", "-sS", "http://127.0.0.1:30001/v1/models")
    assert code == 0
    assert json.loads(out)["data"][0]["id"] == "/srv/models/m"
    assert sim.started == pytest.approx(began - 86_400, abs=60)
    assert "ready to roll" in it.log()
    assert it.world.gpu_used_mib(it.host.gpus[0]) > 20_000


def test_a_restored_lab_goes_on_serving_as_the_same_server() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    sim = it.start()
    it.until("ready to roll", sim)
    seed = json.loads(it.call("curl", "-sS", "http://127.0.0.1:30000/server_info")[1])["random_seed"]
    it.world.closing = True
    saved = copy.deepcopy(it.host)
    world = World({"gpu": saved}, LabClock(3000.0, epoch=it.world.now()), it.world.registry)
    again = Lab(world, saved)
    entry = saved.processes[sim.pid]
    world.spawn(saved, list(entry.argv), sim=entry)
    for _ in range(10_000):
        if world.connect(saved, "127.0.0.1", 30000):
            break
        threading.Event().wait(0.005)
    before = len(again.log())
    info = json.loads(again.call("curl", "-sS", "http://127.0.0.1:30000/server_info")[1])
    assert info["random_seed"] == seed
    assert "Load weight" not in again.log()[before:]
    assert len([p for p in saved.processes.values() if p.title]) == 2


def test_orphans_keep_their_memory_when_the_scenario_says_so() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1, settings={"engine": {"orphans": True}})
    sim = it.start()
    it.until("ready to roll", sim)
    it.world.signal(it.host, sim.pid, 9)
    assert it.ended(sim) == 137
    assert [p.title for p in it.host.processes.values()] == ["sglang::scheduler", "sglang::detokenizer"]
    assert it.world.gpu_used_mib(it.host.gpus[0]) > 20_000
