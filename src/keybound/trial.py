"""Trials: one recording put to what several parties claim, and the grade that others may be told.

A verdict tells its holder everything; whoever may ask often and sees distances or p-values climbs
by them to a mark that passes (docs/security.md, the oracle). What is served to others is the grade.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keybound import origin
from keybound.evidence import Detection
from keybound.parties import Claim
from keybound.records import Entry
from keybound.search import Places
from keybound.verdict import GRADES, Verdict
from keybound.watermark import Watermarker

KNOWN_REACH_S = 3600.0  # where the position is known, a cut is looked for further on


def judge(
    marker: Watermarker,
    found: Detection,
    claims: Sequence[Claim],
    entries: Mapping[str, Sequence[Entry]],
    *,
    nonce: bytes = b"",
    position: int | None = None,
    speed: float = 0.0,
    sealed: bool = False,
) -> list[Verdict]:
    """Judge a detection for each claim, with the records (`entries`) of each by its name.

    Among several claims the seal is looked for of those whose payload agrees, and of all of them if
    it must be `sealed`.
    """
    verdicts = []
    for one in claims:
        places = Places(range(max(one.drawn, len(Places().positions))), speed=speed)
        if position is not None:
            places = Places((position,), reach_s=KNOWN_REACH_S, speed=speed)
        how: dict[str, Any] = {"key": one.key, "payload": one.payload, "nonce": nonce}
        how |= {"rho": one.rho, "tries": len(claims)}
        verdict = marker.judge(found, **how)
        if verdict.verified or len(claims) == 1 or sealed:
            verdict = marker.judge(found, **how, places=places)
            assert found.levels is not None  # else the seal could not have been looked for
            own = entries.get(one.name, ())
            traced = origin.trace(found.levels, verdict.seal, own, key=one.key, tries=len(claims))
            verdict = dataclasses.replace(verdict, origin=traced)
        verdicts.append(verdict)
    bound = max(verdict.bound for verdict in verdicts)  # parties may differ in rho
    return [dataclasses.replace(verdict, bound=bound) for verdict in verdicts]


def best(verdicts: Iterable[Verdict]) -> str:
    """Give the highest grade among verdicts: all that others need to be told."""
    return max((verdict.grade for verdict in verdicts), key=GRADES.index)
