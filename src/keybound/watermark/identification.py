"""Identification: which recording it is and whose, without naming a party.

Each mark of a recording gets an answer of its own: by the identifier that it spells, else by its
audio, which is compared with all records. What holds is decided in `weighing`.
"""

from dataclasses import dataclass

from keybound.errors import KeyBoundError
from keybound.identity.reading import Reading
from keybound.model.networks import Card
from keybound.provenance.records import Entry
from keybound.types import Analysis, Span
from keybound.watermark import candidates
from keybound.watermark.candidates import Known, Prepared
from keybound.watermark.claims import USUAL, Claim, Options, party_claim
from keybound.watermark.verdict import GRADES, Evidence, Verdict, conclude
from keybound.watermark.weighing import Case, weigh_candidate, weigh_reading


@dataclass(frozen=True)
class Identified:
    """A mark of a recording: which recording it was made in, and whose it is.

    `identifier` is the serial that was read, as ten hex digits; None where the audio alone gave the
    record. `issuer` is the number in a public one. `party` and `record` are those of the registry;
    both are None for a public identifier that is not this registry's. `grade` is that of the
    verdict: a public identifier never counts towards `sealed`. `claimed` says that nothing but an
    identifier, which anyone can copy, speaks for the record: neither its seal nor its audio.
    `spans` is where the mark is; `start_s` is how far into the recording that was marked this one
    begins, where an identifier tells it up to a multiple of 32 s. `bound` is the probability of
    such an answer for a recording that is none of the registry's.
    """

    identifier: str | None
    issuer: int | None
    party: str | None
    record: int | None
    grade: str
    claimed: bool
    spans: tuple[Span, ...]
    start_s: float | None
    bound: float
    words: str
    verdict: Verdict | None = None

    def reaches(self, grade: str) -> bool:
        """Return whether what holds is this grade or a higher one."""
        return GRADES.index(self.grade) >= GRADES.index(grade)


def identify(
    card: Card, analysis: Analysis, known: Known, options: Options = USUAL
) -> list[Identified]:
    """Return what is known of each mark of a recording, the best evidence first.

    Parties whose keys cannot be read are named in a `KeyFileWarning`.
    """
    prepared = Prepared(analysis)
    named = list(known.named(prepared))
    made = [
        _by_identifier(prepared, card, known, one, entry, options, len(named))
        for one, entry in named
    ]
    if prepared.found.present and not any(one.reaches("attributed") for one in made):
        made += _by_audio(prepared, card, known, options)
    return sorted(made, key=lambda one: -GRADES.index(one.grade))


def identify_public(
    card: Card, analysis: Analysis, known: Known
) -> list[tuple[Identified, Entry | None]]:
    """Return what is known of each public identifier of a recording, with the record it names.

    No other record is compared: what this takes depends on the identifiers alone.
    """
    prepared = Prepared(analysis)
    named = list(known.claimed(prepared))
    return [
        (_by_identifier(prepared, card, known, one, entry, USUAL, len(named)), entry)
        for one, entry in named
    ]


def _unverified(reading: Reading, known: Known, entry: Entry | None, why: str) -> Identified:
    """Return an identifier of which nothing can be verified."""
    spelled = known.spelled(reading)
    whose = "" if reading.issuer is None else f" of issuer {reading.issuer}"
    words = f"claims the identifier {spelled.name}{whose}"
    return Identified(
        identifier=spelled.name,
        issuer=reading.issuer,
        party=None if entry is None else entry.stamped.record.party,
        record=None if entry is None else entry.number,
        grade="present",
        claimed=True,
        spans=reading.spans,
        start_s=reading.start_s,
        bound=spelled.bound,
        words=f"{words}, {why}",
    )


def _by_identifier(
    prepared: Prepared,
    card: Card,
    known: Known,
    reading: Reading,
    entry: Entry | None,
    options: Options,
    among: int,
) -> Identified:
    """Return what holds of the record that one of several identifiers named."""
    if entry is None:
        return _unverified(reading, known, None, "of which there is no record here")
    try:
        claim = _claim(known, entry, card.bits)
    except KeyBoundError as error:  # such as a party that was removed
        return _unverified(reading, known, entry, f"which cannot be verified: {error.message}")
    case = Case(claim, card.bits, card.rho if claim.rho is None else claim.rho, 1)
    own = weigh_reading(prepared, case, known, reading, entry, options, among)
    return _identified(prepared, card, entry, own, reading)


def _by_audio(prepared: Prepared, card: Card, known: Known, options: Options) -> list[Identified]:
    """Return the marks of records whose audio it is, among those of all parties."""
    versions = known.registry.versions()
    held = candidates.to_search(known.registry, versions)
    among = sum(count for _, count in held)
    made = []
    for party, _ in held:
        try:
            claim = party_claim(party, card.bits)
        except KeyBoundError as error:
            known.leave_out(error)
            continue
        tries = len(versions)
        compared = candidates.search(
            prepared, known.registry, party, claim.key, tries=tries, among=among
        )
        case = Case(claim, card.bits, card.rho if claim.rho is None else claim.rho, tries)
        for one in candidates.of_audio(compared, known):
            weighed = weigh_candidate(prepared, case, one, options)
            made.append(_identified(prepared, card, one.entry, weighed, None, tries))
    return [one for one in made if one.reaches("attributed")]


def _claim(known: Known, entry: Entry, bits: int) -> Claim:
    """Return the claim of the party that a record names, with the key that it names."""
    record = entry.stamped.record
    return party_claim(known.registry.get(record.party, record.key), bits)


def _identified(
    prepared: Prepared,
    card: Card,
    entry: Entry,
    own: Evidence,
    reading: Reading | None,
    tries: int = 1,
) -> Identified:
    verdict = conclude(prepared.found, own, card.bits, tries=tries)
    spelled, seal = verdict.spelled, verdict.seal
    bound = seal.p if seal.holds else verdict.bound if spelled is None else spelled.bound
    name = entry.stamped.record.party
    return Identified(
        identifier=None if spelled is None else spelled.name,
        issuer=None if reading is None else reading.issuer,
        party=name,
        record=entry.number,
        grade=verdict.grade,
        claimed=verdict.copied,
        spans=verdict.spans if spelled is None else spelled.spans,
        start_s=seal.start_s if seal.holds else None if spelled is None else spelled.start_s,
        bound=bound,
        words=f"{name}: {verdict.words}",
        verdict=verdict,
    )
