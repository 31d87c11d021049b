"""Trials: one recording put to what several parties claim, and the grade that others may be told.

A verdict tells its holder everything; whoever may ask often and sees distances or p-values climbs
by them to a mark that passes (docs/security.md, the oracle). What is served to others is the grade.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keybound import codes, hostmac, origin
from keybound.evidence import Detection
from keybound.keys import Key
from keybound.parties import Claim
from keybound.records import Entry
from keybound.search import Places, find
from keybound.verdict import GRADES, Verdict
from keybound.watermark import Watermarker

KNOWN_REACH_S = 3600.0  # where the position is known, a cut is looked for further on
FEW = 20  # parties whose seals are all looked for in what is marked


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
    own_mask: bool = False,
) -> list[Verdict]:
    """Judge a detection for each claim, with the records (`entries`) of each by its name.

    Among many claims the seal is looked for of those whose payload agrees, and of all of them if it
    must be `sealed`. With `own_mask` each recording has the mask of its position.
    """
    verdicts = []
    # A code that rolls agrees with no payload before its seal is found.
    closely = len(claims) == 1 or sealed or (found.present and len(claims) <= FEW)
    for one in claims:
        places = places_of(one.drawn, position, speed)
        how: dict[str, Any] = {"key": one.key, "payload": one.payload, "nonce": nonce}
        how |= {"rho": one.rho, "tries": len(claims)}
        own = entries.get(one.name, ())
        if own_mask:
            verdict = _unmask(marker, found, how, own, places, position)
        else:
            verdict = marker.judge(found, **how)
            if verdict.verified or closely:
                verdict = marker.judge(found, **how, places=places)
        if closely or verdict.verified or verdict.seal.holds:
            assert found.levels is not None  # else the seal could not have been looked for
            traced = origin.trace(found.heard, verdict.placed, own, key=one.key, tries=len(claims))
            verdict = dataclasses.replace(verdict, origin=traced)
        verdicts.append(verdict)
    bound = max(verdict.bound for verdict in verdicts)  # parties may differ in rho
    return [dataclasses.replace(verdict, bound=bound) for verdict in verdicts]


def places_of(drawn: int, position: int | None, speed: float) -> Places:
    """Say where a seal is looked for: at its position if that is known, else at all in use."""
    if position is not None:
        return Places((position,), reach_s=KNOWN_REACH_S, speed=speed)
    return Places(range(max(drawn, len(Places().positions))), speed=speed)


def _unmask(
    marker: Watermarker,
    found: Detection,
    how: dict[str, Any],
    entries: Sequence[Entry],
    places: Places,
    position: int | None,
) -> Verdict:
    """Judge a recording with a mask of its own, where something says which: seal, record, caller.

    Masks are never tried in turn: whoever learned one of them could use it on any host.
    """
    assert found.levels is not None
    key, tries = how["key"], how["tries"]

    def code_at(position: int) -> codes.Bits:
        nonce = codes.position_nonce(position)
        return codes.encode(how["payload"], key, marker.card.bits, nonce)

    seal = find(found.heard, key, code_at, places, tries)
    if seal.holds or position is not None:
        nonce = codes.position_nonce(seal.position if position is None else position)
        return dataclasses.replace(marker.judge(found, **how | {"nonce": nonce}), seal=seal)
    traced = origin.trace(found.heard, seal, entries, key=key, tries=tries)
    known = [one for one in entries if traced.match == "same" and one.number == traced.record]
    verdict = marker.judge(
        found, **how | {"nonce": known[0].stamped.record.nonce if known else b""}
    )
    if known:
        return dataclasses.replace(verdict, seal=seal)
    bits = marker.card.bits
    return dataclasses.replace(verdict, seal=seal, verified=False, distance=bits, mask_known=False)


def judge_host(
    marker: Watermarker,
    found: Detection,
    key: Key,
    *,
    nonce: bytes = b"",
    position: int | None = None,
    speed: float = 0.0,
) -> Verdict:
    """Judge a detection whose payload is to speak for its host: the key alone is needed.

    The payload is the one that the mark carries, and what it is compared with is the recording.
    Where it does not speak for it, the recording is called other audio: also if it was cut.
    """
    assert found.levels is not None
    bits = marker.card.bits
    read = [mark.code_logits for mark in found.marks] or [found.code_logits]
    tried = []
    for logits in read:
        payload = codes.from_bits(codes.decode(logits, key, nonce))
        bound = hostmac.check(found.levels, payload, key, bits, nonce, tries=len(read))
        tried.append((bound.p, payload, bound))
    _, payload, bound = min(tried, key=lambda one: one[0])
    places = places_of(0, position, speed)
    verdict = marker.judge(found, key=key, payload=payload, nonce=nonce, places=places)
    there = verdict.present or verdict.seal.holds
    match = ("same" if bound.holds else "other") if there else "none"
    return dataclasses.replace(
        verdict,
        verified=found.present and bound.holds,
        distance=bound.distance,
        bound=hostmac.ACCEPTED_P,
        origin=origin.Origin(match, p=bound.p, agreement=1 - bound.distance / bits),
    )


def best(verdicts: Iterable[Verdict]) -> str:
    """Give the highest grade among verdicts: all that others need to be told."""
    return max((verdict.grade for verdict in verdicts), key=GRADES.index)
