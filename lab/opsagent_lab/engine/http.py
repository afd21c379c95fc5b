"""The HTTP side of a simulated server: paths, authorisation, statuses and bodies as SGLang's
entrypoints/http_server.py has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from opsagent_lab.engine import chat
from opsagent_lab.engine.answers import answer_text, broken, count_tokens, pieces
from opsagent_lab.engine.info import load, loads, metrics, model_info, models, server_info
from opsagent_lab.engine.serving import Server
from opsagent_lab.network import Request, Response
from opsagent_lab.program import Process

Handler = Callable[[Server, Process, Request], Response]


def reply_json(value: Any, status: int = 200) -> Response:
    return Response(status, {"content-type": "application/json"}, json.dumps(value, ensure_ascii=False).encode())


def error(message: str, kind: str = "BadRequest", status: int = 400) -> Response:
    return reply_json({"object": "error", "message": message, "type": kind, "param": None, "code": status}, status)


def serve(server: Server, client: Process, request: Request) -> Response:
    """Answer one request and log it as uvicorn does. Runs in the client's thread."""
    path = request.path.partition("?")[0]
    response = _authorised(server, request, path) or _route(server, client, request, path)
    server.access(request.client, request.method, path, response.status)
    return response


def _authorised(server: Server, request: Request, path: str) -> Response | None:
    key = server.launch.settings.api_key
    if not key or path.startswith(("/health", "/metrics")):
        return None
    given = next((v for k, v in request.headers.items() if k.lower() == "authorization"), "")
    if given.lower().startswith("bearer ") and given[7:] == key:
        return None
    return reply_json({"error": "Unauthorized"}, 401)


def _route(server: Server, client: Process, request: Request, path: str) -> Response:
    methods = _ROUTES.get(path)
    if methods is None or (path == "/metrics" and not server.launch.settings.metrics):
        return reply_json({"detail": "Not Found"}, 404)
    if (path in _ONLY_BEFORE and server.launch.settings.modern) or (
        path in _ONLY_MODERN and not server.launch.settings.modern
    ):
        return reply_json({"detail": "Not Found"}, 404)
    handler = methods.get(request.method)
    if handler is None:
        return reply_json({"detail": "Method Not Allowed"}, 405)
    if path in _DEPRECATED:
        server.log(
            f"\0Endpoint '{path}' is deprecated and will be removed in a future version. "
            f"Please use '{_DEPRECATED[path]}' instead."
        )
    return handler(server, client, request)


def _health(server: Server, client: Process, _request: Request) -> Response:
    if not server.ready or server.draining:
        return Response(503)
    if server.stuck:
        client.sleep(20)
        server.log(
            "\0Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
            "tic start time: 00:00:00. last_heartbeat time: 00:00:00"
        )
        return Response(503)
    client.sleep(1.0)
    return Response(200)


def _body(request: Request) -> dict[str, Any]:
    kind = next((v for k, v in request.headers.items() if k.lower() == "content-type"), "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise chat.BadRequest(
            "[{'loc': ['header', 'content-type'], 'msg': \"Unsupported Media Type: Only 'application/json' is allowed\", "
            "'type': 'value_error'}]",
            "Bad Request",
        )
    try:
        value = json.loads(request.body)
    except ValueError as problem:
        raise chat.BadRequest(
            f"[{{'type': 'json_invalid', 'loc': ('body', {getattr(problem, 'pos', 0)}), 'msg': 'JSON decode error', "
            f"'input': {{}}, 'ctx': {{'error': '{getattr(problem, 'msg', problem)}'}}}}]",
            "Bad Request",
        ) from problem
    if not isinstance(value, dict):
        raise chat.BadRequest("[{'type': 'model_attributes_type', 'loc': ('body',)}]", "Bad Request")
    return value


def _chat(server: Server, client: Process, request: Request) -> Response:
    try:
        body = _body(request)
        reply = chat.complete(server, body, client.now)
    except chat.BadRequest as refused:
        return error(refused.message, refused.kind)
    steps = chat.run(server, reply, client.sleep, warmup=bool(request.headers.get("x-lab-warmup")))
    if body.get("stream"):
        return Response(200, {"content-type": "text/event-stream"}, chat.chunks(reply, steps, body))
    for _ in steps:
        pass
    return reply_json(chat.whole(server, reply, body))


def _plain(server: Server, client: Process, request: Request, *, openai: bool) -> Response:
    """/v1/completions and /generate."""
    try:
        body = _body(request)
        prompt = str(body.get("prompt" if openai else "text") or "")
        options: Mapping[str, Any] = body if openai else body.get("sampling_params") or {}
        asked = int(options.get("max_tokens" if openai else "max_new_tokens") or (16 if openai else 128))
        tokens = count_tokens(prompt) or 1
        chat.check(server, tokens, asked if openai else None)
    except chat.BadRequest as refused:
        return error(refused.message, refused.kind)
    text = answer_text(prompt)
    said = pieces(broken(text, server.limits.garbage) if server.limits.garbage else text)
    cut = said[: min(asked, max(1, server.limits.max_request_tokens - tokens - 1))]
    finish = "length" if len(cut) < len(said) else "stop"
    reply = chat.Reply(
        f"{server.counter:032x}", server.launch.settings.served_name, int(client.now), "", "".join(cut), None, finish,
        tokens, len(cut), 0,
    )  # fmt: skip
    for _ in chat.run(server, reply, client.sleep, warmup=bool(request.headers.get("x-lab-warmup"))):
        pass
    return reply_json(_completion(reply) if openai else _generated(reply))


def _completion(reply: chat.Reply) -> dict[str, Any]:
    choice = {"index": 0, "text": reply.content, "logprobs": None, "finish_reason": reply.finish, "matched_stop": None}
    return {
        "id": reply.id, "object": "text_completion", "created": reply.created, "model": reply.model, "choices": [choice],
        "usage": chat.usage(reply), "metadata": {"weight_version": "default"},
    }  # fmt: skip


def _generated(reply: chat.Reply) -> dict[str, Any]:
    finish = {"type": reply.finish, "length": reply.completion}
    info = {
        "id": reply.id,
        "finish_reason": finish,
        "prompt_tokens": reply.prompt,
        "completion_tokens": reply.completion,
    }
    ids = [sum(piece.encode()) for piece in pieces(reply.content)]
    return {"text": reply.content, "output_ids": ids, "meta_info": info}


def _ready(server: Server, _client: Process, _request: Request) -> Response:
    return Response(200 if server.ready and not server.draining else 503)


def _text(body: str) -> Response:
    return Response(200, {"content-type": "text/plain; version=0.0.4; charset=utf-8"}, body.encode())


def _flush(_server: Server, _client: Process, _request: Request) -> Response:
    return _text(
        "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting "
        "requests, the operation will not be performed.)\n"
    )


def _abort(server: Server, _client: Process, _request: Request) -> Response:
    server.log("\0Abort request")
    return Response(200)


_DEPRECATED = {"/get_model_info": "/model_info", "/get_server_info": "/server_info", "/get_load": "/v1/loads"}
_ONLY_BEFORE = frozenset({"/get_load"})
_ONLY_MODERN = frozenset({"/ready"})
_ROUTES: dict[str, dict[str, Handler]] = {
    "/health": {"GET": _health},
    "/health_generate": {"GET": _health},
    "/ready": {"GET": _ready},
    "/v1/models": {"GET": lambda s, p, r: reply_json(models(s, p.now))},
    "/model_info": {"GET": lambda s, p, r: reply_json(model_info(s))},
    "/get_model_info": {"GET": lambda s, p, r: reply_json(model_info(s))},
    "/server_info": {"GET": lambda s, p, r: reply_json(server_info(s))},
    "/get_server_info": {"GET": lambda s, p, r: reply_json(server_info(s))},
    "/v1/loads": {"GET": lambda s, p, r: reply_json(loads(s, p.now))},
    "/get_load": {"GET": lambda s, p, r: reply_json(load(s, p.now))},
    "/metrics": {"GET": lambda s, p, r: _text(metrics(s))},
    "/v1/chat/completions": {"POST": _chat},
    "/v1/completions": {"POST": lambda s, p, r: _plain(s, p, r, openai=True)},
    "/generate": {"POST": lambda s, p, r: _plain(s, p, r, openai=False)},
    "/flush_cache": {"GET": _flush, "POST": _flush},
    "/abort_request": {"POST": _abort},
}


def read(chunks: Iterator[bytes]) -> bytes:
    return b"".join(chunks)
