"""Identification: which recording it is and whose, without naming a party.

Each mark of a recording gets an answer of its own: by the identifier that it spells, else by its
audio, which is compared with all records. Where identifiers leave marked stretches unexplained,
those are looked for by their audio. What holds is decided in `weighing`.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from keybound.errors import KeyBoundError, SearchWarning
from keybound.identity.reading import Reading
from keybound.model.networks import Card
from keybound.provenance.records import Entry
from keybound.seal.search import NOTHING
from keybound.types import Analysis, Detection, Span
from keybound.watermark import candidates, stretches
from keybound.watermark.candidates import Candidate, Known, Prepared
from keybound.watermark.claims import USUAL, Claim, Options, party_claim
from keybound.watermark.stretches import Place
from keybound.watermark.verdict import GRADES, Evidence, Verdict, conclude
from keybound.watermark.weighing import Case, weigh_candidate

MOST_STRETCHES = 8  # of a recording that are looked for by their audio
NEARLY_ALL = 0.9  # of a stretch: it is not cut to so much of it

Explained = tuple["Identified", list[Place]]  # a mark, and the part of the recording that it is


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
    taken = [place for _, places in made for place in places]
    if prepared.found.present and not (taken and not stretches.left(prepared.found.spans, taken)):
        made += _by_audio(_Search(card, analysis, prepared, known, options), taken)
    return sorted(_merged([one for one, _ in made]), key=lambda one: -GRADES.index(one.grade))


def identify_public(
    card: Card, analysis: Analysis, known: Known
) -> list[tuple[Identified, Entry | None]]:
    """Return what is known of each public identifier of a recording, with the record it names.

    No other record is compared: what this takes depends on the identifiers alone.
    """
    prepared = Prepared(analysis)
    named = list(known.claimed(prepared))
    return [
        (_by_identifier(prepared, card, known, one, entry, USUAL, len(named))[0], entry)
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
) -> Explained:
    """Return what holds of the record that one of several identifiers named, and where."""
    if entry is None:
        return _unverified(reading, known, None, "of which there is no record here"), []
    try:
        claim = _claim(known, entry, card.bits)
    except KeyBoundError as error:  # such as a party that was removed
        return _unverified(reading, known, entry, f"which cannot be verified: {error.message}"), []
    case = Case(claim, card.bits, card.rho if claim.rho is None else claim.rho, 1)
    one = known.of_reading(prepared, reading, entry, claim.key, case.tries, among)
    own = weigh_candidate(prepared, case, one, options)
    made = _identified(prepared.found, card, entry, own, reading)
    if not made.reaches("attributed"):
        return made, []
    places = stretches.explained(prepared, one, own.seal)
    return replace(made, spans=stretches.marked(prepared.found.spans, places)), places


def _by_audio(search: "_Search", taken: Sequence[Place]) -> list[Explained]:
    """Return the marks of records whose audio it is, outside of what is taken.

    Where nothing is, it is compared as a whole first. Then marked stretches that no record explains
    are, the longest first: one by itself if it is less than half of what was compared in vain.
    """
    spans, whole = search.prepared.found.spans, (0.0, search.prepared.seconds)
    parts = [one for one in stretches.left(spans, ()) if 2 * stretches.length(one) < whole[1]]
    waiting = [] if taken else [whole]
    made, vain, explained = list[Explained](), list[Place](), list(taken)
    for number in range(1, MOST_STRETCHES + 2):
        if not waiting:
            waiting = [
                one
                for one in stretches.left(spans, explained)
                if not any(2 * _shared(one, other) >= stretches.length(other) for other in vain)
            ]
        if not waiting:
            break
        if number > MOST_STRETCHES:
            told = f"not looked for by their audio: {len(waiting)} stretches"
            warnings.warn(f"{told}, beyond {MOST_STRETCHES}", SearchWarning, stacklevel=3)
            break
        place = max(waiting, key=stretches.length)
        waiting = []
        share = 2 * MOST_STRETCHES if place is not whole else 2 if parts else 1
        found = search.within(place, share, number)
        own = [one for _, places in found for one in places]
        vain += [] if own else [place]
        made, explained = made + found, explained + own
    return made


def _shared(one: Place, other: Place) -> float:
    """Return the seconds that two places have in common."""
    return sum(map(stretches.length, stretches.within([one], [other])))


def _merged(made: Sequence[Identified]) -> list[Identified]:
    """Return one answer for each record that several stretches are of, with the spans of all."""
    kept = list[Identified]()
    for one in made:
        same = [i for i, other in enumerate(kept) if _is_same(one, other)]
        if same:
            spans = stretches.together([*kept[same[0]].spans, *one.spans])
            kept[same[0]] = replace(kept[same[0]], spans=spans)
        else:
            kept.append(one)
    return kept


def _is_same(one: Identified, other: Identified) -> bool:
    held = one.reaches("attributed") and other.reaches("attributed")
    return held and one.record == other.record


class _Search:
    """A recording while it is looked for by its audio, among the records of all parties."""

    def __init__(
        self, card: Card, analysis: Analysis, prepared: Prepared, known: Known, options: Options
    ) -> None:
        self.card, self.analysis, self.prepared = card, analysis, prepared
        self.known, self.options = known, options
        versions = known.registry.versions()
        self.tries = len(versions)
        held = candidates.to_search(known.registry, versions)
        self.among = sum(count for _, count in held)
        self.parties = []
        for party, _ in held:
            try:
                self.parties.append((party, party_claim(party, card.bits)))
            except KeyBoundError as error:
                known.leave_out(error)

    def within(self, place: Place, share: int, number: int) -> list[Explained]:
        """Return the marks of records whose audio a stretch is, and where they are.

        It is one of so many that `share` the chance of a false answer, and the one of this number.
        """
        heard, start_s = self._cut(self.prepared, 0.0, place)
        made = []
        for party, claim in self.parties:
            compared = candidates.search(
                heard,
                self.known.registry,
                party,
                claim.key,
                tries=self.tries * share,
                among=self.among,
            )
            rho = self.card.rho if claim.rho is None else claim.rho
            case = Case(claim, self.card.bits, rho, self.tries * share)
            for one in candidates.of_audio(compared, self.known):
                counted = replace(one, among=one.among * number)
                made.append(self._weighed(heard, start_s, case, counted))
        return [one for one in made if one[0].reaches("attributed")]

    def _cut(self, heard: Prepared, start_s: float, place: Place) -> tuple[Prepared, float]:
        """Return the recording cut to a place of it, and where it begins; as it is, if nearly all.

        `heard` is what it is cut from, which begins at `start_s`.
        """
        if stretches.length(place) >= NEARLY_ALL * heard.seconds:
            return heard, start_s
        cut, begin_s = stretches.cut(self.analysis, place)
        return Prepared(cut), begin_s

    def _weighed(self, heard: Prepared, start_s: float, case: Case, one: Candidate) -> Explained:
        """Return what holds of a record in the part of a stretch that it explains, and this."""
        match = one.match
        assert match is not None
        places = [(a + start_s, b + start_s) for a, b in stretches.explained(heard, one, NOTHING)]
        part, begin_s = heard, start_s
        if places:
            part, begin_s = self._cut(heard, start_s, (places[0][0], places[-1][1]))
        speed = match.speed * heard.found.speed
        moved = replace(match, start_s=match.start_s + (begin_s - start_s) * speed)
        own = weigh_candidate(part, case, replace(one, match=moved), self.options)
        seal = replace(own.seal, start_s=own.seal.start_s - begin_s * own.seal.speed)
        differs = tuple((a + start_s, b + start_s) for a, b in own.origin.differs_s)
        own = replace(own, seal=seal, origin=replace(own.origin, differs_s=differs))
        whole = self.prepared.found
        found = replace(whole, spans=stretches.marked(whole.spans, places))
        return _identified(found, self.card, one.entry, own, None, self.tries), places


def _claim(known: Known, entry: Entry, bits: int) -> Claim:
    """Return the claim of the party that a record names, with the key that it names."""
    record = entry.stamped.record
    return party_claim(known.registry.get(record.party, record.key), bits)


def _identified(
    found: Detection,
    card: Card,
    entry: Entry,
    own: Evidence,
    reading: Reading | None,
    tries: int = 1,
) -> Identified:
    verdict = conclude(found, own, card.bits, tries=tries)
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
