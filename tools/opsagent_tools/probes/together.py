# opsagent probe: together
"""Several HTTP requests at the same time, from one process on the server's own host.

Argument: {url, path, timeout: seconds}. Stdin: {key: API key or "", bodies: [JSON object to POST, …]}.
Answer: {answers: [{status: int, body: str, seconds: float, began: float}], seconds: float, peak: int|null}.

Every request has a connection of its own; all are opened first and sent when the last one is ready. `began` and `seconds`
count from that moment. Status 0: no answer, and body says why; a body is cut at 64 KiB. `peak` is the most requests that
`/v1/loads` said to be running meanwhile; null when it does not answer. Proxies are not used.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

LIMIT = 1 << 16
EACH_S = 0.2


def connect(url: str, timeout: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname or "", parts.port or 443, timeout=timeout)
    return http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout)


def one(
    wanted: dict[str, Any], headers: dict[str, str], body: bytes, start: threading.Barrier, out: dict[str, Any]
) -> None:
    link = connect(wanted["url"], wanted["timeout"])
    failed = ""
    try:
        link.connect()
    except OSError as error:
        failed = str(error)
    start.wait()
    began = out["began"] = time.monotonic()
    try:
        if failed:
            raise OSError(failed)
        link.request("POST", urlsplit(wanted["url"]).path + wanted["path"], body, headers)
        answer = link.getresponse()
        out.update(status=answer.status, body=answer.read(LIMIT).decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException) as error:
        out.update(status=0, body=str(error) or type(error).__name__)
    out["seconds"] = time.monotonic() - began
    link.close()


def running(wanted: dict[str, Any], headers: dict[str, str]) -> int | None:
    """Requests that run now, over all ranks; None when the server does not say."""
    link = connect(wanted["url"], 5.0)
    try:
        link.request("GET", urlsplit(wanted["url"]).path + "/v1/loads", headers=headers)
        answer = link.getresponse()
        said = json.loads(answer.read(LIMIT)) if answer.status == 200 else {}
        return sum(int(rank["num_running_reqs"]) for rank in said["loads"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        link.close()


def main() -> None:
    wanted, given = json.loads(sys.argv[1]), json.loads(sys.stdin.read())
    headers = {"Content-Type": "application/json"}
    if given["key"]:
        headers["Authorization"] = "Bearer " + given["key"]
    rows: list[dict[str, Any]] = [{} for _ in given["bodies"]]
    start = threading.Barrier(len(rows) + 1)
    bodies = [json.dumps(body).encode() for body in given["bodies"]]
    threads = [
        threading.Thread(target=one, args=(wanted, headers, bodies[number], start, row), daemon=True)
        for number, row in enumerate(rows)
    ]
    for thread in threads:
        thread.start()
    start.wait()
    began, peak, asks = time.monotonic(), None, True
    while any(thread.is_alive() for thread in threads):
        seen = running(wanted, headers) if asks else None
        asks = seen is not None
        if seen is not None:
            peak = max(peak or 0, seen)
        time.sleep(EACH_S)
    seconds = max((row["began"] + row["seconds"] for row in rows), default=began) - began
    for row in rows:
        row.update(began=round(row["began"] - began, 3), seconds=round(row["seconds"], 3))
    print(json.dumps({"answers": rows, "seconds": round(seconds, 3), "peak": peak}))


main()
