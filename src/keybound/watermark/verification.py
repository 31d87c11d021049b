"""Verification: one recording against the claims of several parties, a verdict for each.

A verdict holds all evidence. Someone who may ask often and sees distances or p-values can use them
to find a mark that passes (docs/security.md, the oracle): others get the grade alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.model.networks import Card
from keybound.provenance import content_tag, origin
from keybound.provenance.matching import Sketch
from keybound.provenance.origin import Compared
from keybound.provenance.records import Entry
from keybound.seal import search
from keybound.seal.rolling import Seconds, find_rolls, read_along
from keybound.seal.search import Found
from keybound.seal.sounds import sounds_of
from keybound.types import Analysis
from keybound.watermark.claims import USUAL, Case, Claim, Masks, Options, spots_of
from keybound.watermark.verdict import GRADES, Evidence, Verdict, conclude, weigh

WEIGHING = 50  # windows of a pattern that take as long as to look for the rolling codes of a party
MOST_NAMED = 8  # records that a recording is taken to be, where it is that of several

Begin = tuple[bytes, int, float]  # nonce and position of a roll, seconds of it before a recording


class Prepared:
    """What is computed once of a recording, for all claims."""

    def __init__(self, analysis: Analysis) -> None:
        self.found, self.levels = analysis.detection, analysis.levels
        self.sounds = sounds_of(analysis.levels)

    @cached_property
    def sketch(self) -> Sketch:
        """Return the sketch that is compared with records."""
        return Sketch.of(self.levels)

    @cached_property
    def rolls(self) -> list[Seconds]:
        """Return the seconds of each view, in which rolling codes are searched."""
        return [Seconds(view) for view in self.found.views]


def judge(
    card: Card,
    analysis: Analysis,
    claims: Sequence[Claim],
    entries: Mapping[str, Sequence[Entry]],
    options: Options = USUAL,
    *,
    masks: Masks | None = None,
    progress: search.Progress = lambda *_: None,
) -> list[Verdict]:
    """Return the verdict on each claim, with the records (`entries`) of each by its name.

    Without records, `masks` holds the positions and nonces from them. Seals are searched for first
    at the start of the recording, then at the starts that records name, then everywhere.
    """
    prepared, tries = Prepared(analysis), len(claims)
    cases = []
    for one in claims:
        own = entries.get(one.name, ())
        spots = spots_of(one, own, options, (masks or {}).get(one.name, ()))
        rho = card.rho if one.rho is None else one.rho
        cases.append(Case(one, own, spots, card.bits, rho, tries))
    among = sum(len(one.entries) for one in cases)
    asks = [one.ask for one in cases]
    seals = search.at_start(prepared.sounds, asks, options.speed)
    compared: list[Compared | None] = [
        None if seal.sealed.holds else _compare(prepared, case, among)
        for case, seal in zip(cases, seals, strict=True)
    ]
    for i, case in enumerate(cases):
        if begins := _begins(case, compared[i]):
            named = [(case.spots.index((at, nonce)), start_s) for nonce, at, start_s in begins]
            there = search.at_record(
                prepared.sounds, asks[i], named, options.speed, _count(compared[i])
            )
            before = seals[i].sealed.searched
            seals[i] = seals[i].or_better(there)
            if not there.sealed.holds:
                seals[i] = seals[i].with_searched(before)
    rest = WEIGHING * tries if tries > 1 else 0  # of the work, in windows of a pattern
    windows = 0

    def search_progress(done: int, of: int) -> None:
        nonlocal windows
        windows = of
        progress(done, of + rest)

    seals = search.everywhere(
        prepared.sounds, asks, seals, options.reach_s, options.speed, search_progress
    )
    evidence = []
    for case, seal, with_records in zip(cases, seals, compared, strict=True):
        evidence.append(_weigh(prepared, case, seal, with_records, options))
        progress(windows + rest * len(evidence) // tries, windows + rest)
    chance = max(one.chance for one in evidence)  # parties may differ in rho
    return [
        conclude(prepared.found, one, card.bits, tries=tries, chance=chance) for one in evidence
    ]


def _compare(prepared: Prepared, case: Case, among: int) -> Compared:
    """Return the comparison of a recording with all records of a party."""
    if not case.entries:
        return Compared([], searched=True)
    key = case.claim.key
    return origin.compare(prepared.sketch, case.entries, key=key, tries=case.tries, among=among)


def _count(compared: Compared | None) -> int:
    """Return how many records have this audio."""
    return len(compared.same) if compared else 0


def _begins(case: Case, compared: Compared | None) -> list[Begin]:
    """Return where the records whose audio it is say that a recording begins, at its own speed."""
    begins: dict[Begin, None] = {}
    for found, entry in compared.same[:MOST_NAMED] if compared else ():
        record = entry.stamped.record
        known = record.position is not None and (record.position, record.nonce) in case.spots
        if known and found.speed == 1.0:
            assert record.position is not None
            begins[record.nonce, record.position, found.start_s] = None
    return list(begins)


def _weigh(
    prepared: Prepared, case: Case, seal: Found, compared: Compared | None, options: Options
) -> Evidence:
    """Return the evidence for a party: its seal, its rolling code, its payload, its records.

    The payload is read with the mask that the seal, the rolling code, a record of this audio or the
    options give, else with the fixed one. Masks are never tried in turn: someone who learned one of
    them could use it on any host.
    """
    begins = _begins(case, compared)
    roll = _roll(prepared, case, seal, begins, _count(compared), options)
    held = [(one, case.spots[one.spot]) for one in (seal, roll) if one.sealed.holds]
    placed = held[0][0].sealed if held else roll.sealed
    key = case.claim.key
    if compared is None or held:
        traced = origin.trace(prepared.sketch, placed, case.entries, key=key, tries=case.tries)
    else:
        traced = compared.origin
    nonces = _nonces(case, held, compared, options)
    if options.position is not None:
        begins += [(nonce, options.position, 0.0) for nonce in nonces]
    found = prepared.found
    logits = [mark.code_logits for mark in found.marks] or [found.code_logits]
    read = [codes.decode(one, key, nonce) for nonce in nonces for one in logits]
    readings = len(read) + len(begins) * len(found.views)
    begins += [(nonce, at, one.sealed.start_s) for one, (at, nonce) in held]
    read += [read_along(view, key, *begin) for view in found.views for begin in begins]
    registered = codes.to_bits(case.claim.payload, case.bits)
    distance = min((codes.distance(one, registered) for one in read), default=case.bits)
    return weigh(
        distance,
        max(1, readings),
        case.bits,
        case.rho,
        seal=seal.sealed,
        roll=roll.sealed,
        origin=traced,
        mask_known=bool(read),
    )


def _nonces(
    case: Case,
    held: Sequence[tuple[Found, tuple[int, bytes]]],
    compared: Compared | None,
    options: Options,
) -> list[bytes]:
    """Return the nonces of the masks to read the payload with, chosen by anything but its bits.

    Empty where each recording has a mask of its own and nothing says which.
    """
    if options.nonce:
        return [options.nonce]
    if held:
        return [held[0][1][1]]
    if compared and compared.same:
        own = (entry.stamped.record.nonce for _, entry in compared.same[:MOST_NAMED])
        return list(dict.fromkeys(own))
    if options.position is not None:
        return list(dict.fromkeys(nonce for _, nonce in case.spots))
    return [] if options.own_mask else [b""]


def _roll(
    prepared: Prepared,
    case: Case,
    seal: Found,
    begins: Sequence[Begin],
    records: int,
    options: Options,
) -> Found:
    """Search for a rolling code: where the seal is, else where records say, else at all spots."""
    spots = case.spots
    if seal.sealed.holds:
        own = case.rolls([spots[seal.spot]])
        found = find_rolls(prepared.rolls, own, options.reach_s, case.share * len(spots))
        return Found(replace(found.sealed, searched="seal"), seal.spot)
    best = Found()
    if begins:
        named = [(at, nonce) for nonce, at, _ in begins]
        share = case.share * -(-records // len(named))
        found = find_rolls(prepared.rolls, case.rolls(named), options.reach_s, share)
        best = Found(replace(found.sealed, searched="record"), spots.index(named[found.spot]))
    if best.sealed.holds:
        return best
    return best.or_better(
        find_rolls(prepared.rolls, case.rolls(spots), options.reach_s, case.share)
    )


def judge_host(
    card: Card,
    analysis: Analysis,
    key: Key,
    options: Options = USUAL,
    *,
    progress: search.Progress = lambda *_: None,
) -> Verdict:
    """Return the verdict on a recording whose payload is a content tag: the key alone is needed.

    The payload that the mark carries is compared with the tag of the recording. Where the two do
    not match, the origin is `other`: also if the recording was cut.
    """
    prepared, bits, nonce = Prepared(analysis), card.bits, options.nonce
    found = prepared.found
    read = [mark.code_logits for mark in found.marks] or [found.code_logits]
    tried = []
    for logits in read:
        payload = codes.from_bits(codes.decode(logits, key, nonce))
        bound = content_tag.check(prepared.levels[None], payload, key, bits, nonce, tries=len(read))
        tried.append((bound.p, payload, bound))
    _, payload, bound = min(tried, key=lambda one: one[0])
    claim = Claim("", key, payload, None)
    case = Case(claim, (), spots_of(claim, (), options), bits, card.rho, 1)
    begun = search.at_start(prepared.sounds, [case.ask], options.speed)
    seal = search.everywhere(
        prepared.sounds, [case.ask], begun, options.reach_s, options.speed, progress=progress
    )[0]
    own = _weigh(prepared, case, seal, None, options)
    match = ("same" if bound.holds else "other") if found.present or own.seal.holds else "none"
    spoken = replace(
        own,
        passes=bound.holds,
        distance=bound.distance,
        chance=content_tag.ACCEPTED_P,
        origin=origin.Origin(match, p=bound.p, agreement=1 - bound.distance / bits),
    )
    return conclude(found, spoken, bits)


def best(verdicts: Iterable[Verdict]) -> str:
    """Return the highest grade among verdicts."""
    return max((verdict.grade for verdict in verdicts), key=GRADES.index)
