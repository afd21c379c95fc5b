"""From a loaded server to a listening one: the uvicorn lines, the warm-up, the busy port, and the end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from opsagent_lab.engine import http
from opsagent_lab.engine.launch import Launch, Limits, Say
from opsagent_lab.engine.serving import Server
from opsagent_lab.network import Request, Response
from opsagent_lab.program import SIGKILL, SIGTERM, Killed, Process

if TYPE_CHECKING:
    from opsagent_lab.engine.launcher import Run


def serve_until_stopped(run: Run, launch: Launch, limits: Limits) -> int:
    """Bind, warm up, serve. Returns the exit code, or raises Killed when the server kills its own tree."""
    p = run.process
    again = bool(p.sim.memo.get("serving"))
    engine = p.world.settings.get("engine", {})
    server = Server(launch, limits, run.log, lambda: p.now, first_answer_s=float(engine.get("first_answer_s", 0)))
    if not again:
        for text in (f"Started server process [{p.sim.pid}]", "Waiting for application startup."):
            run.line(Say(f"INFO:     {text}"))
        if launch.shape.architecture.startswith("Qwen3"):
            run.line(Say("Using fallback token IDs for yes/no (9693/2152)"))
        run.line(Say("INFO:     Application startup complete."))

    def service(client: Process, request: Request) -> Response:
        return http.serve(server, client, request)

    if not p.listen(launch.settings.host, launch.settings.port, service):
        return _busy(run, launch)
    if again:
        server.ready, server.cold = True, bool(p.sim.memo.get("cold", False))
    else:
        s = launch.settings
        run.line(Say(f"INFO:     Uvicorn running on http://{s.host}:{s.port} (Press CTRL+C to quit)"))
        if s.warmup:
            _warm_up(run, launch, server)
        server.ready = True
        p.sim.memo["serving"] = True
        run.line(Say("The server is fired up and ready to roll!"))
    run.past = None
    return _loop(run, server)


def _warm_up(run: Run, launch: Launch, server: Server) -> None:
    """The warm-up thread asks the server's own port, as a client would."""
    p = run.process
    if run.past is not None:
        run.past += 14.0
        server.cold = False
        return
    p.sleep(1.0)
    http.serve(server, p, Request("GET", "/model_info"))
    p.sleep(13.0 if launch.shape.hybrid else 6.0)
    path, body = warm_request(launch)
    http.serve(server, p, Request("POST", path, {"content-type": "application/json", "x-lab-warmup": "1"}, body))
    server.served = 0


def warm_request(launch: Launch) -> tuple[str, bytes]:
    if launch.shape.vision is not None:
        message = {"role": "user", "content": "Describe the image."}
        return "/v1/chat/completions", json.dumps({"messages": [message], "max_tokens": 8}).encode()
    options = {"temperature": 0, "max_new_tokens": 8}
    return "/generate", json.dumps({"text": "The capital city of France is", "sampling_params": options}).encode()


def _busy(run: Run, launch: Launch) -> int:
    """Somebody else has the port: found out only now, after everything was loaded."""
    p, s = run.process, launch.settings
    run.line(
        Say(
            f"ERROR:    [Errno 98] error while attempting to bind on address ('{s.host}', {s.port}): address already in use"
        )
    )
    run.line(Say("INFO:     Waiting for application shutdown."))
    owner = p.world.connect(p.host, "127.0.0.1", s.port)
    if owner is not None and owner.service is not None:
        answer = owner.service(p, Request("GET", "/model_info"))
        if answer.status == 200:
            path, body = warm_request(launch)
            response = owner.service(p, Request("POST", path, {"content-type": "application/json"}, body))
            for _ in response.chunks():
                pass
            run.line(Say("The server is fired up and ready to roll!"))
            run.line(Say("INFO:     Application shutdown complete."))
            return 3
    for _ in range(60):
        p.sleep(2.0)
    run.line(Say("Initialization failed. warmup error: AssertionError: res.status_code=404"))
    raise Killed(SIGKILL)


def _loop(run: Run, server: Server) -> int:
    """Serve until a signal comes or a scheduler is gone."""
    p = run.process
    asked: list[int] = []
    p.on_signal(SIGTERM, asked.append)
    p.on_signal(2, asked.append)
    while True:
        if asked:
            return _stop(run, server)
        if not server.stuck and run.dead_child() is not None:
            _child_died(run, server)
        p.sim.memo["cold"] = server.cold
        p.sleep(2.0)


def _child_died(run: Run, server: Server) -> None:
    """From 0.5.10 on a watchdog ends the server; 0.5.9 stays up and answers nothing any more."""
    server.stuck = True
    dead = run.dead_child()
    if dead is None or server.launch.settings.version == "0.5.9":
        return
    at = run.children.index(dead)
    name = f"scheduler_{at}" if at < server.launch.settings.tp else "detokenizer"
    run.line(Say(f"Subprocess {name} (pid={dead.pid}) crashed with exit code -9. Triggering SIGQUIT for cleanup..."))
    run.line(Say("SIGQUIT received. signum=None, frame=None. It usually means one child failed."))
    raise Killed(SIGKILL)


def _stop(run: Run, server: Server) -> int:
    """Before the first request uvicorn ends cleanly; afterwards SGLang drains and kills its own tree."""
    p = run.process
    if server.served == 0:
        for text in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
            run.line(Say(f"INFO:     {text}"))
        run.line(Say(f"INFO:     Finished server process [{p.sim.pid}]"))
        return 0
    server.draining = True
    run.line(Say("SIGTERM received. signum=15 frame=None. Draining requests and shutting down..."))
    while True:
        p.sleep(5.0)
        left = server.running + len(server.queue)
        run.line(
            Say(
                f"Gracefully exiting... Remaining number of requests {left}. Remaining requests "
                f"remaining_rids={[f'{i:032x}' for i in range(left)]}."
            )
        )
        if left == 0:
            raise Killed(SIGKILL)
