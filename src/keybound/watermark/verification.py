"""Verification: one recording against the claims of several parties, a verdict for each.

A verdict holds all evidence. Someone who may ask often and sees distances or p-values can use them
to find a mark that passes (docs/security.md, the oracle): others get the grade alone.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from keybound.crypto import codes, keystream
from keybound.errors import KeyBoundError
from keybound.identity.frame import PERIOD
from keybound.identity.reading import Reading, differing
from keybound.model.networks import Card
from keybound.provenance.origin import UNTRACED, Origin
from keybound.provenance.parties import Party
from keybound.provenance.records import Entry
from keybound.seal import search
from keybound.seal.search import Ask, Found, SealSearch
from keybound.seal.tiles import Spot
from keybound.types import Analysis
from keybound.watermark import candidates
from keybound.watermark.candidates import Candidate, Known, Prepared
from keybound.watermark.claims import USUAL, Claim, Options, Untried, party_claim
from keybound.watermark.verdict import GRADES, LAYERS, Evidence, Verdict, conclude, weigh

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


def judge(
    card: Card,
    analysis: Analysis,
    claims: Sequence[Claim],
    known: Known | None = None,
    options: Options = USUAL,
    *,
    record: Entry | None = None,
    progress: search.Progress = lambda *_: None,
) -> list[Verdict]:
    """Return the verdict on each claim.

    With an open registry the recording is looked for among its records: by the identifier that it
    spells, else by its audio. `record` names one in place of that. Without either, seals are
    searched for at the usual positions, or at the one of the options.
    """
    prepared = Prepared(analysis)
    named = [] if known is None or record is not None else list(known.named(prepared))
    evidence = [
        _best(prepared, _case(card, one, claims), known, named, record, options, progress)
        for one in claims
    ]
    return _concluded(prepared, card, evidence, len(claims))


def judge_any(
    card: Card,
    analysis: Analysis,
    claims: Sequence[Claim],
    known: Known,
    options: Options = USUAL,
) -> tuple[dict[str, Verdict], list[Untried]]:
    """Return the verdict on each party by its name, and the parties whose records do not hold.

    Raise the first reason if that is so of all.
    """
    prepared, evidence = Prepared(analysis), dict[str, Evidence]()
    named, untried, reasons = list(known.named(prepared)), list[Untried](), list[KeyBoundError]()
    for one in claims:
        try:
            case = _case(card, one, claims)
            evidence[one.name] = _best(prepared, case, known, named, None, options)
        except KeyBoundError as error:
            reasons.append(error)
            untried.append(Untried(one.name, error.message))
    if reasons and not evidence:
        raise reasons[0]
    verdicts = _concluded(prepared, card, list(evidence.values()), len(claims))
    return dict(zip(evidence, verdicts, strict=True)), untried


def _case(card: Card, one: Claim, claims: Sequence[Claim]) -> Case:
    return Case(one, card.bits, card.rho if one.rho is None else one.rho, len(claims))


def _concluded(
    prepared: Prepared, card: Card, evidence: Sequence[Evidence], tries: int
) -> list[Verdict]:
    chance = max(one.chance for one in evidence)  # parties may differ in rho
    return [
        conclude(prepared.found, one, card.bits, tries=tries, chance=chance) for one in evidence
    ]


def _best(
    prepared: Prepared,
    case: Case,
    known: Known | None,
    named: Sequence[tuple[Reading, Entry | None]],
    record: Entry | None,
    options: Options,
    progress: search.Progress = lambda *_: None,
) -> Evidence:
    """Return the evidence of the best of the records that a recording may be."""
    made = _claimed(prepared, case, known, named, record, options, progress)
    return max(made, key=lambda own: _strength(prepared, case, own))


def _strength(prepared: Prepared, case: Case, own: Evidence) -> tuple[int, bool, int]:
    """Return what the best of several records has most of."""
    grade = conclude(prepared.found, own, case.bits).grade
    return GRADES.index(grade), own.spelled is not None, -own.distance


def _claimed(
    prepared: Prepared,
    case: Case,
    known: Known | None,
    named: Sequence[tuple[Reading, Entry | None]],
    record: Entry | None,
    options: Options,
    progress: search.Progress,
) -> list[Evidence]:
    """Return the evidence of each record that a recording may be; without one, of the claim."""
    if record is not None:
        compared = candidates.compare(prepared, [record], case.claim.key, tries=case.tries)
        carried = None if known is None else known.carried(record.stamped.record)
        own = Candidate(record, carried, match=compared.found[0][0], origin=compared.origin)
        return [weigh_candidate(prepared, case, own, options)]
    if known is None:
        at = range(keystream.USUAL) if options.position is None else [options.position]
        return [weigh_case(prepared, replace(case, positions=at), options, progress)]
    made = []
    versions = {one.key_id: one for one in known.registry.versions(case.claim.name)}
    for reading, entry in named:
        if entry is not None and entry.stamped.record.party == case.claim.name:
            under = replace(case, claim=_under(case, versions, entry))
            made.append(weigh_reading(prepared, under, known, reading, entry, options))
    if any(conclude(prepared.found, one, case.bits).verified for one in made):
        return made
    made += _by_audio(prepared, case, known, tuple(versions.values()), options, alone=not made)
    return made


def _under(case: Case, versions: dict[str, Party], entry: Entry) -> Claim:
    """Return the claim with the key that a record names."""
    record = entry.stamped.record
    if record.key == case.claim.key.id:
        return case.claim
    if record.key not in versions:
        what = f"record {entry.number} names key {record.key}, which party {record.party!r} lacks"
        raise KeyBoundError(what, hint="keybound party list shows its keys")
    return party_claim(versions[record.key], case.bits)


def _by_audio(
    prepared: Prepared,
    case: Case,
    known: Known,
    versions: Sequence[Party],
    options: Options,
    *,
    alone: bool,
) -> list[Evidence]:
    """Return the evidence of each record of a party whose audio it is.

    Without one it is that of the claim `alone`, unless an identifier was read: it has the fixed
    mask, or that of the options. Masks are never tried in turn.
    """
    entries = {one.key_id: known.registry.records(one) for one in versions}
    among = case.tries * sum(map(len, entries.values()))
    made, told = [], UNTRACED
    for one in versions:
        if not entries[one.key_id]:
            continue
        claim = case.claim if one.key_id == case.claim.key.id else party_claim(one, case.bits)
        tries = case.tries * len(versions)
        compared = candidates.compare(
            prepared, entries[one.key_id], claim.key, tries=tries, among=among
        )
        told = compared.origin if told.match == "none" else told
        for own in candidates.of_audio(compared, known):
            made.append(weigh_candidate(prepared, replace(case, claim=claim), own, options))
    if made or not alone:
        return made
    return [_unrecorded(prepared, replace(case, origin=told), known, options)]


def _unrecorded(prepared: Prepared, case: Case, known: Known, options: Options) -> Evidence:
    """Return the evidence of a claim where no record is the recording's.

    A key may be used without its registry too: where the payload agrees, the usual positions are
    searched. A record of the position where a seal is found says whether it was moved there.
    """
    at: Sequence[int] = [] if options.position is None else [options.position]
    own = weigh_case(prepared, replace(case, positions=at), options)
    if options.position is None and prepared.found.present and own.passes:
        usual = range(keystream.USUAL)
        own = weigh_case(prepared, replace(case, positions=usual), options)
    if own.seal.searched == "none":  # of a registered party, records say where to look
        own = replace(own, seal=replace(own.seal, searched="record"))
    if not own.seal.holds:
        return own
    party = known.registry.get(case.claim.name, case.claim.key.id)
    placed = known.registry.records(party, own.seal.position)
    compared = candidates.compare(prepared, placed, case.claim.key, tries=case.tries)
    return replace(own, origin=compared.origin)


def weigh_reading(
    prepared: Prepared,
    case: Case,
    known: Known,
    reading: Reading,
    entry: Entry,
    options: Options = USUAL,
) -> Evidence:
    """Return the evidence of the record that an identifier named."""
    own = known.of_reading(prepared, reading, entry, case.claim.key, case.tries)
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
    among = 1 if candidate is None else min(candidate.same, candidates.MOST_SAME)
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
        nonce, share = record.nonce, 2 * share  # half of the chance is for the starts it names
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
        named, among = [(0, start_s) for start_s in starts], candidate.same if candidate else 1
        there = search.at_record(prepared.sounds, ask, named, options.speed, among)
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


def best(verdicts: Iterable[Verdict]) -> str:
    """Return the highest grade among verdicts."""
    return max((verdict.grade for verdict in verdicts), key=GRADES.index)
