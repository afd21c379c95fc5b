"""`just bench [NAME…]`: every benchmark, or those named. Ratios within one run; nothing here can fail on a slow machine."""

from __future__ import annotations

import runpy
import sys

NAMES = ("planner", "journal", "ssh", "diagnose_log", "viewer")


def main() -> int:
    wanted = sys.argv[1:] or list(NAMES)
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in wanted:
        print(f"\n== {name}", flush=True)
        sys.argv = [f"bench/{name}.py"]
        try:
            runpy.run_module(f"bench.{name}", run_name="__main__")
        except SystemExit as stop:
            if stop.code:
                return int(stop.code) if isinstance(stop.code, int) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
