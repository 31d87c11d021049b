"""Weighing: what speaks for one record, or one claim, of a recording: seal, code and audio.

Knows the prepared recording and keys: no files, no networks, no registry but the record at hand.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from keybound.crypto import codes
from keybound.identity.frame import PERIOD
from keybound.identity.reading import Reading, differing
from keybound.provenance.origin import UNTRACED, Origin
from keybound.provenance.records import Entry
from keybound.seal import search
from keybound.seal.search import Ask, Found, SealSearch
from keybound.seal.tiles import Spot
from keybound.watermark.candidates import Candidate, Known, Prepared
from keybound.watermark.claims import USUAL, Claim, Options
from keybound.watermark.verdict import LAYERS, Evidence, weigh

KNOWN_REACH_S = 3600.0  # where the position is known, cuts are searched further


@dataclass(frozen=True)
class Case:
    """A claim on a recording, and the record that it may be.

    Without one, seals are searched for at `positions`, and `origin` says what the records told.
    """

    claim: Claim
    bits: int
    rho: int
    tries: int  # parties
    candidate: Candidate | None = None
    positions: Sequence[int] = ()
    origin: Origin = UNTRACED


def weigh_reading(
    prepared: Prepared,
    case: Case,
    known: Known,
    reading: Reading,
    entry: Entry,
    options: Options,
    among: int,
) -> Evidence:
    """Return the evidence of the record that one of several identifiers named."""
    own = known.of_reading(prepared, reading, entry, case.claim.key, case.tries, among)
    return weigh_candidate(prepared, case, own, options)


def weigh_candidate(
    prepared: Prepared, case: Case, candidate: Candidate, options: Options = USUAL
) -> Evidence:
    """Return the evidence of a record that a recording may be."""
    return weigh_case(prepared, replace(case, candidate=candidate), options)


def weigh_case(
    prepared: Prepared,
    case: Case,
    options: Options = USUAL,
    progress: search.Progress = lambda *_: None,
) -> Evidence:
    """Return the evidence of a case: its seal, its code, its record.

    The rule V_A is put to the code of a record only where something else than that code says which
    record it is: its audio, its seal or the caller.
    """
    seal = _seal(prepared, case, options, progress).sealed
    distances = _distances(prepared, case, seal, options)
    nearest = min(distances, default=case.bits)
    candidate = case.candidate
    among = 1 if candidate is None else candidate.among
    own = weigh(nearest, among * len(distances), case.bits, case.rho)
    if candidate is None:
        return replace(own, seal=seal, origin=case.origin)
    return replace(own, seal=seal, origin=candidate.origin, spelled=candidate.spelled)


def _seal(prepared: Prepared, case: Case, options: Options, progress: search.Progress) -> Found:
    """Search for the seal: at the start, where the record lies, then everywhere."""
    claim, candidate = case.claim, case.candidate
    positions, nonce, reach_s = case.positions, options.nonce, SealSearch().reach_s
    share, starts = LAYERS * case.tries, list[float]()
    if candidate is not None:
        record = candidate.record
        positions = [] if record.position is None else [record.position]
        nonce, share = record.nonce, share * candidate.among
        share *= 2  # half of the chance is for the starts that the record names
        reach_s = max(reach_s, record.samples / record.rate)
        starts = _starts(prepared, candidate)
    if options.position is not None:
        positions, reach_s = [one for one in positions if one == options.position], KNOWN_REACH_S
    if not positions:
        return Found()
    code = codes.encode(claim.payload, claim.key, case.bits, nonce)
    ask = Ask([Spot(claim.key, code, position) for position in positions], share)
    best = search.at_start(prepared.sounds, [ask], options.speed)[0]
    if starts and not best.sealed.holds:
        named = [(0, start_s) for start_s in starts]
        there = search.at_record(prepared.sounds, ask, named, options.speed)
        before = best.sealed.searched
        best = best.or_better(there)
        best = best if there.sealed.holds else best.with_searched(before)
    return search.everywhere(
        prepared.sounds, [ask], [best], reach_s, options.speed, progress=progress
    )[0]


def _starts(prepared: Prepared, candidate: Candidate) -> list[float]:
    """Return where a recording may begin in its record, at its own speed.

    An identifier tells it up to a multiple of 32 s.
    """
    match = candidate.match
    if match is not None and match.decision == "same":
        return [match.start_s] if match.speed == 1.0 else []
    if candidate.spelled is None:
        return []
    first = candidate.spelled.start_s
    length_s = candidate.record.samples / candidate.record.rate
    least = math.ceil((-prepared.seconds - first) / PERIOD)
    most = math.floor((length_s - first) / PERIOD)
    return [first + PERIOD * n for n in range(least, most + 1)]


def _distances(prepared: Prepared, case: Case, seal: search.Sealed, options: Options) -> list[int]:
    """Return the number of wrong bits of each reading of the code."""
    found, candidate = prepared.found, case.candidate
    if candidate is None:
        return _payloads(prepared, case, options.nonce)
    match, record = candidate.match, candidate.record
    starts = []
    if match is not None and candidate.is_same:
        starts = [match.start_s]
    elif seal.holds:
        starts = [seal.start_s]
    elif candidate.spelled is None:  # the caller named it
        starts = [0.0]
    if record.serial is None:
        return _payloads(prepared, case, record.nonce) if starts else []
    if candidate.carried is None:
        return []
    return [
        int(differing(view, candidate.carried, start_s).sum())
        for view in found.views
        for start_s in starts
    ]


def _payloads(prepared: Prepared, case: Case, nonce: bytes) -> list[int]:
    """Return the wrong bits of the payload of each mark, under the mask of a nonce."""
    found = prepared.found
    registered = codes.to_bits(case.claim.payload, case.bits)
    read = [mark.code_logits for mark in found.marks] or [found.code_logits]
    return [codes.distance(codes.decode(one, case.claim.key, nonce), registered) for one in read]
