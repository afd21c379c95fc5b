"""Failures that print nothing: no progress for longer than a phase ever takes, told from the times in the log."""

from __future__ import annotations

import re

from opsagent_tools.sglang.diagnosis.evaluate import Candidate
from opsagent_tools.sglang.diagnosis.scan import Hit, Launch, Scan
from opsagent_tools.sglang.diagnosis.signature import Signature
from opsagent_tools.sglang.log.head import parse_head

COLLECTIVE_S = 60.0
"""Setting up collectives takes 1 to 5 s on one host."""
DOWNLOAD_S = 120.0
WARMUP_S = 900.0
"""SGLang gives its own warm-up 600 s; compilations of the first request took 13 s at most."""

_CLOCK = re.compile(r"(?:(\d+) )?(\d\d):(\d\d):(\d\d)(?: ?[AP]M)? \w{3,4} 20\d\d")
_BAR = re.compile(r"\|\s*([\d.]+)([kKMGT]?)i?B?/([\d.]+)([kKMGT]?)i?B?\s*\[((?:\d+:)?\d+:\d+)<")
_SIZE = re.compile(r"\b(\d{5,}|\d+(?:\.\d+)?[KMGT]i?B?)\b")


def stalled(scan: Scan) -> list[Candidate]:
    """Candidates for hangs that show only as time that passes."""
    found = []
    for launch in scan.launches.values():
        if launch.fatal_lines or (launch.ready_line and launch.served_line > launch.ready_line):
            continue
        for detect in (_collective, _download, _warmup):
            if (candidate := detect(scan, launch)) is not None:
                found.append(candidate)
    return found


def _candidate(cause: str, family: str, hit: Hit, *support: Hit) -> Candidate:
    return Candidate(Signature(cause=cause, family=family, line="", tier=2, confidence=0.75), hit, support)


def _hits(scan: Scan, name: str, launch: Launch) -> list[Hit]:
    return [h for h in scan.of(scan.knowledge.watch[name]) if h.launch == launch.number]


def _clocks(scan: Scan, launch: Launch) -> list[tuple[int, float]]:
    """(line, seconds) of everything in the launch that tells the time, in order."""
    told = [(h.line, h.time) for name in scan.knowledge.watch for h in _hits(scan, name, launch) if h.time is not None]
    for hit in _hits(scan, "clock", launch):
        if found := _CLOCK.search(hit.match.string):
            day, hour, minute, second = (int(v or 0) for v in found.groups())
            told.append((hit.line, day * 86400.0 + hour * 3600 + minute * 60 + second))
    last = parse_head(scan.skimmed.last.decode("utf-8", "replace"))
    if last.time is not None and len(scan.launches) == 1:
        told.append((scan.skimmed.lines, last.time))
    elif launch.last_time is not None:
        told.append((launch.last_line, launch.last_time))
    return sorted(told)


def _collective(scan: Scan, launch: Launch) -> Candidate | None:
    began = _hits(scan, "nccl-init", launch)
    if not began or launch.reader.facts.phase not in ("arguments", "processes", "distributed"):
        return None
    clocks = _clocks(scan, launch)
    before = [t for line, t in clocks if line <= began[-1].line]
    after = [t for line, t in clocks if line > began[-1].line]
    start = before[-1] if before else (after[0] if after else None)
    if start is None or not after or after[-1] - start < COLLECTIVE_S:
        return None
    return _candidate("nccl-init-hang", "network", began[-1], *_hits(scan, "not-ready", launch)[-1:])


def _download(scan: Scan, launch: Launch) -> Candidate | None:
    """A bar whose bytes stand still while its own clock runs, or a size on disk that does not change."""
    by_label: dict[str, list[tuple[Hit, float, float]]] = {}
    for hit in _hits(scan, "download-bar", launch):
        if found := _BAR.search(hit.match.string):
            done, total = _bytes(found[1], found[2] or found[4]), _bytes(found[3], found[4])
            if done < total and (found[4] or "B/s" in hit.match.string):
                label = hit.match.string.partition(":")[0].strip()
                by_label.setdefault(label, []).append((hit, done, _elapsed(found[5])))
    for bars in by_label.values():
        hit, done, elapsed = bars[-1]
        since = [b for b in bars if b[1] == done]
        if elapsed - since[0][2] >= DOWNLOAD_S or (done == 0 and elapsed >= DOWNLOAD_S):
            return _candidate("hf-download-stalled", "download", hit, since[0][0])
    sizes = [(h, found[1]) for h in _hits(scan, "download-size", launch) if (found := _SIZE.search(h.match.string))]
    if len(sizes) >= 2 and sizes[0][1] == sizes[-1][1]:
        clocks = [t for line, t in _clocks(scan, launch) if sizes[0][0].line - 3 <= line <= sizes[-1][0].line]
        if (clocks and clocks[-1] - clocks[0] >= DOWNLOAD_S) or (not clocks and len(sizes) >= 3):
            return _candidate("hf-download-stalled", "download", sizes[-1][0], sizes[0][0])
    return None


def _warmup(scan: Scan, launch: Launch) -> Candidate | None:
    """It listens and was never ready, while probes are refused for longer than any warm-up takes."""
    facts, refused = launch.reader.facts, _hits(scan, "not-ready", launch)
    if facts.listening_line is None or facts.ready_line is not None or len(refused) < 3:
        return None
    clocks = [t for line, t in _clocks(scan, launch) if line >= facts.listening_line]
    if len(clocks) < 2 or clocks[-1] - clocks[0] < WARMUP_S or scan.skimmed.batch_line > facts.listening_line:
        return None
    return _candidate("scheduler-hang", "process", refused[-1])


def _bytes(number: str, unit: str) -> float:
    return float(number) * 1000.0 ** " kMGT".index(unit.replace("K", "k") or " ")


def _elapsed(text: str) -> float:
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part)
    return float(seconds)
