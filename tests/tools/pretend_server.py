"""Stands for `python -m sglang.launch_server` where there is no GPU: prints a real server's log, then answers /server_info.

Run by a wrapper that the tests write; the environment has PRETEND_LOG (a recorded log), PRETEND_SEED, PRETEND_DELAY
(seconds a line) and PRETEND_BIND ("no": never listen, as when the port is taken and somebody else answers).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"random_seed": int(os.environ["PRETEND_SEED"]), "version": "0.5.11"}).encode()
        self.send_response(200 if self.path == "/server_info" else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


def main() -> None:
    port = int(sys.argv[sys.argv.index("--port") + 1])
    subprocess.Popen(["sleep", "600"])  # a worker
    server = None
    for line in Path(os.environ["PRETEND_LOG"]).read_text(errors="replace").splitlines():
        if "Uvicorn running on" in line and os.environ.get("PRETEND_BIND") != "no":
            server = HTTPServer(("127.0.0.1", port), Answers)
        print(re.sub(r"random_seed=\d+", f"random_seed={os.environ['PRETEND_SEED']}", line), flush=True)
        time.sleep(float(os.environ["PRETEND_DELAY"]))
        if "fired up and ready" in line:
            break
    if server is None:
        time.sleep(600)
    else:
        server.serve_forever()


main()
