"""`curl` against the simulated HTTP servers: options as people use them with servers, curl's own words and exit codes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from opsagent_lab.network import Request, Response
from opsagent_lab.program import Killed, Process, Registry

_VALUES = {
    "-m": "max-time", "--max-time": "max-time", "--connect-timeout": "connect-timeout", "-w": "write-out",
    "--write-out": "write-out", "-o": "output", "--output": "output", "-H": "header", "--header": "header", "-d": "data",
    "--data": "data", "--data-raw": "data", "--data-binary": "data", "-X": "request", "--request": "request",
    "--retry": "retry", "--retry-delay": "retry-delay", "--noproxy": "noproxy", "-A": "agent", "--user-agent": "agent",
    "--resolve": "resolve", "--json": "json", "--url": "url", "-u": "user", "-K": "config", "--config": "config",
}  # fmt: skip
_FLAGS = {
    "s": "silent", "S": "show-error", "f": "fail", "N": "no-buffer", "L": "location", "i": "include", "k": "insecure",
    "v": "verbose", "I": "head", "g": "globoff", "4": "ipv4",
}  # fmt: skip
_LONG = {
    "--silent": "silent", "--show-error": "show-error", "--fail": "fail", "--no-buffer": "no-buffer",
    "--location": "location",
    "--include": "include", "--insecure": "insecure", "--fail-with-body": "fail-with-body", "--retry-connrefused": "x",
    "--head": "head", "--compressed": "x", "--no-progress-meter": "no-progress", "--globoff": "globoff", "--ipv4": "ipv4",
}  # fmt: skip


@dataclass
class Wish:
    """What the command line asks for."""

    given: dict[str, list[str]] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    urls: list[str] = field(default_factory=list)

    def last(self, name: str, default: str = "") -> str:
        return self.given.get(name, [default])[-1]


class Failed(Exception):
    """curl ends with a code and its message."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


def curl(process: Process) -> int:
    try:
        wish = _read(process.args)
        for path in wish.given.pop("config", []):
            _configure(process, path, wish)
        if not wish.urls:
            raise Failed(2, "(2) no URL specified\ncurl: try 'curl --help' or 'curl --manual' for more information")
    except Failed as problem:
        process.write_err(f"curl: {problem.words.removeprefix('(2) ')}\n")
        return problem.code
    code = 0
    for url in wish.urls:
        code = _fetch(process, wish, url)
    return code


def _read(args: list[str]) -> Wish:
    wish, todo = Wish(), list(args)
    while todo:
        word = todo.pop(0)
        if word in _VALUES:
            if not todo:
                raise Failed(2, f"option {word}: requires parameter\ncurl: try 'curl --help' for more information")
            wish.given.setdefault(_VALUES[word], []).append(todo.pop(0))
        elif word in _LONG:
            wish.flags.add(_LONG[word])
        elif word.startswith("--"):
            raise Failed(2, f"option {word}: is unknown\ncurl: try 'curl --help' for more information")
        elif word.startswith("-") and len(word) > 1:
            _cluster(word, todo, wish)
        else:
            wish.urls.append(word)
    wish.urls += wish.given.get("url", [])
    return wish


def _configure(process: Process, path: str, wish: Wish) -> None:
    """Options from a file or from stdin, one a line: `header = "Authorization: Bearer …"`."""
    if path == "-":
        text = process.stdin.read().decode("utf-8", "replace")
    else:
        try:
            text = process.files.text(process.path(path))
        except OSError as problem:
            raise Failed(26, f"(26) Failed to open {path}") from problem
    for line in text.splitlines():
        name, _, value = line.strip().lstrip("-").partition(" ")
        if not name or name.startswith("#"):
            continue
        value = value.strip().removeprefix("=").strip().strip('"').replace('\\"', '"').replace("\\\\", "\\")
        more = _read([f"--{name}", value] if value else [f"--{name}"])
        for key, values in more.given.items():
            wish.given.setdefault(key, []).extend(values)
        wish.flags |= more.flags


def _cluster(word: str, todo: list[str], wish: Wish) -> None:
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        if f"-{letter}" in _VALUES:
            value = letters or (todo.pop(0) if todo else "")
            wish.given.setdefault(_VALUES[f"-{letter}"], []).append(value)
            return
        if letter not in _FLAGS:
            raise Failed(2, f"option {word}: is unknown\ncurl: try 'curl --help' for more information")
        wish.flags.add(_FLAGS[letter])


def _body(process: Process, wish: Wish) -> bytes | None:
    parts = wish.given.get("data", []) + wish.given.get("json", [])
    if not parts:
        return None
    out = []
    for part in parts:
        if part.startswith("@"):
            if part == "@-":
                out.append(process.stdin.read())
                continue
            try:
                out.append(process.files.read(process.path(part[1:])))
            except OSError as problem:
                raise Failed(26, f"(26) Failed to open {part[1:]}") from problem
        else:
            out.append(part.encode())
    return b"&".join(out)


def _fetch(process: Process, wish: Wish, url: str) -> int:
    started = process.now
    outer = process.alarm
    limit = float(wish.last("max-time", "0") or 0)
    state = {"status": 0, "bytes": 0}
    code = 0
    try:
        if limit:
            process.alarm = min(limit, outer) if outer is not None else limit
        _talk(process, wish, url, state)
    except Failed as problem:
        code = problem.code
        if "silent" not in wish.flags or "show-error" in wish.flags:
            process.write_err(f"curl: {problem.words}\n")
    except Killed:
        if not limit or (outer is not None and outer <= limit):
            raise
        code = 28
        if "silent" not in wish.flags or "show-error" in wish.flags:
            spent = round(limit * 1000) + 1
            process.write_err(
                f"curl: (28) Operation timed out after {spent} milliseconds with {state['bytes']} bytes received\n"
            )
    finally:
        spent_s = process.now - started
        process.alarm = None if outer is None else max(0.0, outer - spent_s)
    if wish.last("write-out"):
        process.write_out(_write_out(wish.last("write-out"), state, process.now - started, url))
    return code


def _talk(process: Process, wish: Wish, url: str, state: dict[str, int]) -> None:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    name, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if parts.scheme not in ("http", "https"):
        raise Failed(1, f'(1) Protocol "{parts.scheme}" not supported')
    try:
        listener = process.world.connect(process.host, name, port)
    except LookupError as problem:
        raise Failed(6, f"(6) Could not resolve host: {name}") from problem
    except TimeoutError as problem:
        wait = float(wish.last("connect-timeout", "0") or 0) or float(wish.last("max-time", "0") or 0) or 134.0
        process.alarm = None
        process.sleep(wait)
        raise Failed(
            28, f"(28) Failed to connect to {name} port {port} after {wait * 1000:.0f} ms: Timeout was reached"
        ) from problem
    if listener is None:
        raise Failed(7, f"(7) Failed to connect to {name} port {port} after 0 ms: Couldn't connect to server")
    if parts.scheme == "https":
        raise Failed(35, "(35) OpenSSL/3.0.17: error:0A00010B:SSL routines::wrong version number")
    if listener.service is None:
        process.sleep(3600.0)
        raise Failed(52, "(52) Empty reply from server")
    body = _body(process, wish)
    method = wish.last("request") or ("HEAD" if "head" in wish.flags else "POST" if body is not None else "GET")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    request = Request(method, path, _headers(wish, body), body or b"")
    _print(process, wish, listener.service(process, request), state)


def _headers(wish: Wish, body: bytes | None) -> dict[str, str]:
    headers = {"user-agent": "curl/7.88.1", "accept": "*/*"}
    if body is not None:
        headers["content-type"] = "application/x-www-form-urlencoded"
    if wish.given.get("json"):
        headers["content-type"] = headers["accept"] = "application/json"
    for item in wish.given.get("header", []):
        key, _, value = item.partition(":")
        headers[key.strip().lower()] = value.strip()
    return headers


def _print(process: Process, wish: Wish, response: Response, state: dict[str, int]) -> None:
    state["status"] = response.status
    if "fail" in wish.flags and response.status >= 400:
        raise Failed(22, f"(22) The requested URL returned error: {response.status}")
    output, kept = wish.last("output"), bytearray()
    if "include" in wish.flags or "head" in wish.flags:
        lines = [f"HTTP/1.1 {response.status}", *(f"{k}: {v}" for k, v in response.headers.items())]
        process.write_out("\r\n".join(lines) + "\r\n\r\n")
    if "head" not in wish.flags:
        for chunk in response.chunks():
            state["bytes"] += len(chunk)
            if output:
                kept += chunk
            else:
                process.write_out(chunk)
    if output and output != "/dev/null":
        process.files.write(process.path(output), bytes(kept))
    if "fail-with-body" in wish.flags and response.status >= 400:
        raise Failed(22, f"(22) The requested URL returned error: {response.status}")


def _write_out(form: str, state: dict[str, int], seconds: float, url: str) -> str:
    values = {
        "http_code": f"{state['status']:03d}", "response_code": f"{state['status']:03d}", "time_total": f"{seconds:.6f}",
        "time_starttransfer": f"{seconds:.6f}", "time_connect": "0.000210", "size_download": str(state["bytes"]),
        "url_effective": url, "exitcode": "0",
    }  # fmt: skip
    for key, value in values.items():
        form = form.replace("%{" + key + "}", value)
    form = form.replace("%{json}", json.dumps(values))
    return form.replace("\\n", "\n").replace("\\t", "\t").replace("%%", "%")


PROGRAMS: Registry = {"curl": curl}
