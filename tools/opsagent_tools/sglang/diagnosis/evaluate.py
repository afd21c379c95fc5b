"""Signatures against what the scan found: which of them hold, and which one is the cause."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opsagent_tools.sglang.diagnosis.conditions import CONDITIONS
from opsagent_tools.sglang.diagnosis.scan import Hit, Launch, Scan
from opsagent_tools.sglang.diagnosis.signature import Signature


@dataclass(frozen=True, slots=True)
class Candidate:
    """A signature that holds at a line. `support`: further lines that it rests on."""

    signature: Signature
    hit: Hit
    support: tuple[Hit, ...] = ()

    @property
    def cause(self) -> str:
        return self.signature.cause

    @property
    def order(self) -> tuple[int, int]:
        """Proof before suggestion; then the earliest, because what comes later may be its consequence."""
        return (-self.signature.tier, self.hit.line)


def candidates(scan: Scan) -> list[Candidate]:
    """All signatures that hold, best first."""
    found = []
    for signature in scan.knowledge.signatures:
        for hit in scan.of(signature.line):
            launch = scan.launches[hit.launch]
            if (support := _holds(scan, signature, hit, launch)) is not None:
                found.append(Candidate(signature, hit, support))
                break
    return sorted(found, key=lambda c: c.order)


def choose(scan: Scan, found: list[Candidate]) -> list[Candidate]:
    """The cause and other independent ones, one each, best first; what another explains is dropped."""
    best: dict[str, Candidate] = {}
    for candidate in found:
        best.setdefault(candidate.cause, candidate)
    causes = scan.knowledge.causes
    beaten = {
        loser
        for winner in best.values()
        for loser in (causes[winner.cause].beats if winner.cause in causes else ())
        if loser in best and winner.signature.tier >= min(2, best[loser].signature.tier)
    }
    return [c for c in best.values() if c.cause not in beaten] + [c for c in best.values() if c.cause in beaten]


def _holds(scan: Scan, sign: Signature, hit: Hit, launch: Launch) -> tuple[Hit, ...] | None:
    if hit.args or (hit.noise and not sign.noise):
        return None
    if sign.phase and hit.phase not in sign.phase:
        return None
    if sign.ready is not None and sign.ready != hit.ready:
        return None
    ended = sign.ended if sign.ended is not None else (True if sign.tier == 1 else None)
    if ended is not None and ended == launch.up and not (ended and hit.error):
        return None  # an error in so many words is none of a healthy server's notes, even if a server is up
    if hit.warned and launch.up and hit.line < launch.ready_line and not hit.block:
        return None  # a warning of a start that succeeded
    text = hit.match.string
    if any(re.search(s, text, re.I) for s in sign.but) or not all(re.search(s, text, re.I) for s in sign.with_):
        return None
    support: list[Hit] = []
    for source in sign.near:
        if (beside := _beside(scan, source, hit, sign.span)) is None:
            return None
        support.append(beside)
    if not all(hit.block and any(h.block == hit.block for h in scan.of(source)) for source in sign.block):
        return None
    if any(_beside(scan, source, hit, sign.span) for source in sign.far):
        return None
    for source in sign.seen:
        # What the argument check notes stands before the arguments line, with which a start is counted.
        here = [h for h in scan.of(source) if _together(h, hit) or _noted_before(scan, h, hit)]
        if not here:
            return None
        support.append(here[0])
    if any(_together(h, hit) for source in sign.unseen for h in scan.of(source)):
        return None
    if not all(CONDITIONS[name](scan, hit, launch) for name in sign.where):
        return None
    return tuple(s for s in support if not s.args and s.line != hit.line)


def _together(one: Hit, hit: Hit) -> bool:
    """Of the same server start, as far as one can tell: a line without a time belongs to what stands around it."""
    return one.launch == hit.launch or (one.time is None and abs(one.line - hit.line) <= 40)


def _noted_before(scan: Scan, one: Hit, hit: Hit) -> bool:
    """Printed after the former start had come up or died, and before the arguments line of this one."""
    former = scan.launches.get(hit.launch - 1)
    if former is None or one.launch != former.number:
        return False
    return one.line > max([former.ready_line, *former.fatal_lines])


def _beside(scan: Scan, source: str, hit: Hit, span: int) -> Hit | None:
    """The hit in the same traceback, else the nearest one of the same start within `span` lines.

    When the traceback has frames, other lines count only if they belong to a traceback too: several processes write
    into one log, and what another one was doing meanwhile says nothing about this error.
    """
    hits = [h for h in scan.of(source) if not h.noise]
    same = [h for h in hits if h.block and h.block == hit.block]
    if same:
        return same[0]
    framed = hit.block in scan.blocks and any(r.frames for r in scan.blocks[hit.block].raised)
    around = [h for h in hits if abs(h.line - hit.line) <= span and h.launch == hit.launch and (h.block or not framed)]
    return min(around, key=lambda h: abs(h.line - hit.line), default=None)
