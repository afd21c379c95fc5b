"""curl and wget: where they go, what they send, what they write."""

from __future__ import annotations

import posixpath
import re

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.simple import apply, unknown
from opsagent.gate.commands.tables import rules
from opsagent.gate.grammar import Parsed
from opsagent.gate.guards import paths
from opsagent.gate.guards.urls import fetch
from opsagent.gate.trace import Trace


def _bodies(parsed: Parsed, t: Trace) -> bool:
    """Bodies that are sent: `@FILE` is read and leaves the host. Returns whether there is one."""
    found = False
    for each in parsed.given:
        value = each.value or ""
        if each.option.meaning == "upload":
            found = True
            paths.read(t, value)
            t.say("R3", "fetch.upload", f"sends the file {value}")
        elif each.option.meaning in ("body", "raw"):
            found = True
            place = re.search(r"(?:^|=|;\s*)[@<]([^;,]+)", value) if each.option.meaning == "body" else None
            if place and place[1] != "-":
                paths.read(t, place[1])
    return found


def curl(argv: tuple[str, ...], t: Trace) -> None:
    parsed = rules("curl").parse(argv[1:])
    unknown(parsed, "curl", t)
    apply(parsed.given, "curl", t)
    operators(parsed.operands, t)
    body = _bodies(parsed, t)
    method = (parsed.values("-X", "--request") or [""])[-1].upper()
    if not method:
        method = "HEAD" if parsed.has("-I", "--head") else "POST" if body and not parsed.has("-G", "--get") else "GET"
    for each in parsed.values("-H", "--header", "-w", "--write-out", "-b", "--cookie"):
        if each.startswith("@"):
            paths.read(t, each[1:])
        if re.search(r"%output\{", each):
            t.say("R2", "curl.output", "writes a file by its format")
    urls = [*parsed.operands, *parsed.values("--url")]
    for url in (_resolved(url, parsed, t) for url in urls):
        fetch(t, url, method=method, body=body and method not in ("GET", "HEAD"))
    if parsed.has("-G", "--get") and body and not all(_near(url) for url in urls):
        t.say("R2", "fetch.query", "sends data in the URL")
    if parsed.has("-O", "--remote-name", "--remote-name-all", "-J"):
        _remote_name(parsed, urls, t)
    if not urls:
        t.say("R0" if argv[1:] in (("-V",), ("-h",)) else "R2", "curl.no-url", "curl without a URL")


def _resolved(url: str, parsed: Parsed, t: Trace) -> str:
    """The URL with the address that --resolve or --connect-to sends it to."""
    for each in parsed.values("--resolve"):
        found = re.fullmatch(r"[+]?([^:]+):[0-9]+:\[?([0-9a-fA-F.:]+?)\]?(,.*)?", each)
        if found is None:
            t.say("R2", "curl.resolve", f"--resolve {each}")
        elif re.match(rf"([a-z]+://)?{re.escape(found[1])}(?=[:/]|$)", url):
            address = f"[{found[2]}]" if ":" in found[2] else found[2]
            return url.replace(found[1], address, 1)
    for each in parsed.values("--connect-to"):
        parts = each.rsplit(":", 2)
        target = parts[-2].rsplit(":", 1)[-1] if len(parts) == 3 else ""
        if target:
            fetch(t, f"http://{target}/")
    return url


def _near(url: str) -> bool:
    from opsagent.gate.guards.urls import local

    return local(re.sub(r"^[a-z]+://", "", url).split("/")[0].rsplit("@", 1)[-1].split(":")[0])


def _remote_name(parsed: Parsed, urls: list[str], t: Trace) -> None:
    folder = (parsed.values("--output-dir") or [""])[-1]
    for url in urls:
        paths.write(t, posixpath.join(folder, url.rsplit("/", 1)[-1] or "index.html"))
    t.say("R1", "curl.save", "saves what it fetches")


def wget(argv: tuple[str, ...], t: Trace) -> None:
    words = [w for w in argv[1:] if w not in ("-nv", "-nc", "-nd", "-nH", "-np")]
    words = [("-qO" + w[3:]) if w.startswith("-qO") else w for w in words]
    parsed = rules("wget").parse(words)
    unknown(parsed, "wget", t)
    apply(parsed.given, "wget", t)
    operators(parsed.operands, t)
    body = _bodies(parsed, t)
    method = (parsed.values("--method") or ["POST" if body else "GET"])[-1].upper()
    for url in parsed.operands:
        fetch(t, url, method=method, body=body)
    named = parsed.values("-O", "--output-document")
    if not named and not parsed.has("--spider"):
        folder = (parsed.values("-P", "--directory-prefix") or [""])[-1]
        for url in parsed.operands:
            paths.write(t, posixpath.join(folder, url.rsplit("/", 1)[-1] or "index.html"))
        t.say("R1", "wget.save", "saves what it fetches")
    if parsed.has("-r", "-m", "--recursive", "--mirror"):
        t.say("R2", "wget.recursive", "fetches a whole site")


COMMANDS: dict[str, Checker] = {"curl": curl, "wget": wget, "wget2": wget}
