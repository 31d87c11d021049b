"""Verification: one recording against the claims of several parties, a verdict for each.

A verdict holds all evidence. Someone who may ask often and sees distances or p-values can use them
to find a mark that passes (docs/security.md, the oracle): others get the grade alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from keybound.crypto import keystream
from keybound.errors import KeyBoundError
from keybound.identity.reading import Reading
from keybound.model.networks import Card
from keybound.provenance.origin import UNTRACED
from keybound.provenance.parties import Party
from keybound.provenance.records import Entry
from keybound.seal import search
from keybound.types import Analysis
from keybound.watermark import candidates
from keybound.watermark.candidates import Candidate, Known, Prepared
from keybound.watermark.claims import USUAL, Claim, Options, Untried, party_claim
from keybound.watermark.verdict import GRADES, Evidence, Verdict, conclude
from keybound.watermark.weighing import Case, weigh_candidate, weigh_case, weigh_reading


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
            made.append(weigh_reading(prepared, under, known, reading, entry, options, len(named)))
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
    mask, or that of the options. Masks are never tried in turn. Raise an error where a key with
    records cannot be read, and no other verifies the recording.
    """
    held = candidates.to_search(known.registry, versions)
    among = case.tries * sum(count for _, count in held)
    made, told, unread = list[Evidence](), UNTRACED, list[KeyBoundError]()
    for one, _ in held:
        try:
            claim = case.claim if one.key_id == case.claim.key.id else party_claim(one, case.bits)
        except KeyBoundError as error:
            unread.append(error)
            continue
        tries = case.tries * len(versions)
        compared = candidates.search(
            prepared, known.registry, one, claim.key, tries=tries, among=among
        )
        told = compared.origin if told.match == "none" else told
        for own in candidates.of_audio(compared, known):
            made.append(weigh_candidate(prepared, replace(case, claim=claim), own, options))
    if unread and not any(conclude(prepared.found, own, case.bits).verified for own in made):
        raise unread[0]
    for reason in unread:
        known.leave_out(reason)
    if made or not alone:
        return made
    return [_unrecorded(prepared, replace(case, origin=told), known, options)]


def _unrecorded(prepared: Prepared, case: Case, known: Known, options: Options) -> Evidence:
    """Return the evidence of a claim where no record is the recording's.

    A key may be used without its registry too: where the payload agrees, the usual positions are
    searched. Else it may spell an identifier whose record was forgotten: those of the usual
    positions are searched that were given and have no record, fewer where there are many parties.
    A record of the position where a seal is found says whether it was moved there.
    """
    at: Sequence[int] = [] if options.position is None else [options.position]
    own = weigh_case(prepared, replace(case, positions=at), options)
    if options.position is None and prepared.found.present:
        usual: Sequence[int] = range(keystream.USUAL)
        if not own.passes:
            left = known.registry.unrecorded(case.claim.key.id, keystream.USUAL)
            usual = left[: keystream.USUAL // case.tries]
        own = weigh_case(prepared, replace(case, positions=usual), options)
    if own.seal.searched == "none":  # of a registered party, records say where to look
        own = replace(own, seal=replace(own.seal, searched="record"))
    if not own.seal.holds:
        return own
    party = known.registry.get(case.claim.name, case.claim.key.id)
    placed = known.registry.records(party, own.seal.position)
    compared = candidates.compare(prepared, placed, case.claim.key, tries=case.tries)
    return replace(own, origin=compared.origin)


def best(verdicts: Iterable[Verdict]) -> str:
    """Return the highest grade among verdicts."""
    return max((verdict.grade for verdict in verdicts), key=GRADES.index)
