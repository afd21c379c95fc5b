"""Stands for `python -m sglang.launch_server` where there is no GPU: prints a real server's log, then answers as it did.

Run by a wrapper that the tests write. Environment: PRETEND_LOG (a recorded log), PRETEND_SEED, PRETEND_DELAY (seconds a
line), PRETEND_BIND ("no": never listen, as when the port is taken and somebody else answers), and of a pretended card
PRETEND_GPU (folder in which each process notes what it holds) and PRETEND_MIB. PRETEND_KILL: pattern of the line at
which the kernel kills the scheduler; PRETEND_WAIT: at which it is waited for until somebody does.
PRETEND_ENDS: exit code after the last line of a log that does not get ready (137: it kills itself, as SGLang does).

It answers like a model with random weights: tokens without end, none of them text.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TEXT = re.sub(
    r"\b31[01]00\b", sys.argv[sys.argv.index("--port") + 1], Path(os.environ["PRETEND_LOG"]).read_text(errors="replace")
)
"""With the port of this start in the place of the recorded one."""
SEED = int(os.environ["PRETEND_SEED"])


def number(name: str) -> int:
    found = re.findall(rf"\b{name}=(\d+)", TEXT)
    return int(found[-1]) if found else 0


def told(path: str) -> Any:
    """What a GET brings back; None for 404."""
    context = number("context_len")
    info = {
        "random_seed": SEED, "version": "0.5.11", "model_path": sys.argv[2], "tp_size": 1,
        "max_total_num_tokens": number("max_total_num_tokens"),
        "max_req_input_len": context - 6,
        "internal_states": [{"effective_max_running_requests_per_dp": number("max_running_requests")}],
    }  # fmt: skip
    answers = {"/health": {}, "/health_generate": {}, "/server_info": info, "/model_info": {"model_path": sys.argv[2]},
               "/v1/models": {"data": [{"id": sys.argv[2], "max_model_len": context}]}}  # fmt: skip
    return answers.get(path)


def chat(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    tokens = 12 + sum(len(m["content"].split()) for m in body["messages"])
    context = number("context_len")
    if tokens >= context:
        words = f"The input ({tokens} tokens) is longer than the model's context length ({context} tokens)."
        return 400, {"object": "error", "message": words, "type": "BadRequest", "param": None, "code": 400}
    said = {"role": "assistant", "content": None, "reasoning_content": None, "tool_calls": None}
    usage = {"prompt_tokens": tokens, "completion_tokens": body["max_tokens"]}
    return 200, {"choices": [{"index": 0, "message": said, "finish_reason": "length"}], "usage": usage}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        value = told(self.path)
        self.answer(404 if value is None else 200, value or {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/generate":
            return self.answer(200, {"text": "", "output_ids": [151_000] * body["sampling_params"]["max_new_tokens"]})
        status, value = chat(body)
        if body.get("stream") and status == 200:
            rows = [{"choices": [{"delta": {"content": ""}, "finish_reason": end}]} for end in (None, None, "length")]
            rows.append({"choices": [], "usage": value["usage"]})
            self.send_response(200)
            self.end_headers()
            lines = [*map(json.dumps, rows), "[DONE]"]
            self.wfile.write("".join(f"data: {line}\n\n" for line in lines).encode())
            return None
        return self.answer(status, value)

    def answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 512


def at(name: str, line: str) -> bool:
    pattern = os.environ.get(name)
    return bool(pattern) and re.search(pattern or "", line) is not None


def hold(pid: int) -> None:
    """A process of ours holds memory of the card from now on, for as long as it lives."""
    if os.environ.get("PRETEND_GPU"):
        Path(os.environ["PRETEND_GPU"], str(pid)).write_text(os.environ.get("PRETEND_MIB", "16000"))


def play(port: int, worker: subprocess.Popen[bytes]) -> ThreadingHTTPServer | None:
    """Print the log, line by line; the server, once it listens."""
    server = None
    for line in TEXT.splitlines():
        if at("PRETEND_WAIT", line):
            worker.wait()
        if at("PRETEND_KILL", line):
            worker.kill()
            worker.wait()
        if "Load weight begin" in line and worker.poll() is None:
            hold(worker.pid)
        if "Uvicorn running on" in line and os.environ.get("PRETEND_BIND") != "no":
            server = Server(("127.0.0.1", port), Answers)
        print(re.sub(r"random_seed=\d+", f"random_seed={SEED}", line), flush=True)
        time.sleep(float(os.environ["PRETEND_DELAY"]))
        if "fired up and ready" in line:
            break
    return server


def main() -> None:
    port = int(sys.argv[sys.argv.index("--port") + 1])
    worker = subprocess.Popen(["sglang::scheduler", "600"], executable="/bin/sleep")
    server = play(port, worker)
    ends = os.environ.get("PRETEND_ENDS")
    if server is not None:
        server.serve_forever()
    elif ends == "137":
        worker.kill()
        os.kill(os.getpid(), signal.SIGKILL)
    elif ends:
        sys.exit(int(ends))  # and leaves its worker behind
    else:
        time.sleep(600)


main()
