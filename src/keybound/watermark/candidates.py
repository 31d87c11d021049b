"""Candidates: the records that a recording may be, by the identifier it spells or by its audio.

From an identifier follows the record, which one look-up in the registry finds. Where none is
spelled, the audio is compared with the fingerprints of all records. Knows detections, records and
the registry: no audio, no networks.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from keybound.crypto.keys import Key
from keybound.errors import KeyBoundError, SearchWarning
from keybound.identity import identifier
from keybound.identity.frame import PUBLIC
from keybound.identity.identifier import Identifier
from keybound.identity.permutation import Permutation
from keybound.identity.reading import Reading, read, read_public
from keybound.provenance import origin
from keybound.provenance.matching import Match, Sketch
from keybound.provenance.origin import UNTRACED, Compared, Origin
from keybound.provenance.parties import Party
from keybound.provenance.records import Entry, Record
from keybound.provenance.registry import Registry
from keybound.provenance.scanning import likely
from keybound.seal.sounds import respeed, sounds_of
from keybound.types import Analysis
from keybound.watermark.claims import warn_untried
from keybound.watermark.verdict import Spelled

MOST_SAME = 8  # records that a recording is taken to be, where it is that of several
MOST_BY_AUDIO = 200_000  # records among which a recording is looked for by its audio


class Prepared:
    """What is computed once of a recording, for all claims."""

    def __init__(self, analysis: Analysis) -> None:
        self.found, self.levels = analysis.detection, analysis.levels
        self.sounds = sounds_of(analysis.levels)

    @cached_property
    def sketch(self) -> Sketch:
        """Return the sketch that is compared with records, at the speed that detection found."""
        speed = self.found.speed
        if speed == 1.0:
            return Sketch.of(self.levels)
        levels = {c: respeed(one.astype(np.float32), speed) for c, one in self.levels.items()}
        return Sketch.of({c: one.astype(np.float16) for c, one in levels.items()})

    @property
    def seconds(self) -> float:
        """Return the length of the recording."""
        return len(self.found.frame_presence) * self.found.frame_s


@dataclass(frozen=True)
class Candidate:
    """A record that a recording may be, and what says so.

    `spelled` is the identifier that named it; without one its audio did (`match`), or the caller.
    `among` is how many records are tried, of which it is one.
    """

    entry: Entry
    carried: Identifier | None  # what its codes spell, where a key tells
    spelled: Spelled | None = None
    match: Match | None = None
    origin: Origin = UNTRACED
    among: int = 1

    @property
    def record(self) -> Record:
        """Return the record."""
        return self.entry.stamped.record

    @property
    def is_same(self) -> bool:
        """Return whether the audio is that of the record."""
        return self.match is not None and self.match.decision == "same"


class Known:
    """An open registry with the keys of its identifiers, as they are when it is first asked.

    `unread` says of each key that could not be read, the registry's or a party's, why.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.unread: set[str] = set()

    @cached_property
    def keys(self) -> dict[str, Permutation]:
        """Return the keys of the registry's identifiers by their ids, the newest first.

        One that cannot be read is named in a `KeyFileWarning`, and the others are tried.
        """
        made = {}
        for one in self.registry.key_files():
            try:
                key = one.key("the registry", "restore the registered key file")
                made[key.id] = Permutation(key)
            except KeyBoundError as error:
                self.leave_out(error)
        return made

    def leave_out(self, error: KeyBoundError) -> None:
        """Give a `KeyFileWarning` that a key is not tried."""
        self.unread.add(error.message)
        warn_untried(error)

    def carried(self, record: Record) -> Identifier | None:
        """Return what the codes of a record spell; None without a serial, or without its key."""
        if record.serial is None:
            return None
        if record.public:
            issuer = self.registry.issuer
            return None if issuer is None else identifier.public(record.serial, issuer)
        key = self.keys.get(record.registry_key or "")
        return None if key is None else identifier.keyed(record.serial, key)

    def named(self, prepared: Prepared) -> Iterator[tuple[Reading, Entry | None]]:
        """Yield the identifiers that a recording spells, each with its record.

        A keyed one without a record is none; a public one may be another registry's.
        """
        ids = list(self.keys)
        keyed = list[Reading]()
        for one in read(prepared.found, list(self.keys.values()), self.registry.size):
            entry = self.registry.of_serial(one.serial)
            if entry is not None and one.key is not None:
                record = entry.stamped.record
                if not record.public and record.registry_key == ids[one.key]:
                    keyed.append(one)
                    yield one, entry
        if not _cover(keyed, prepared.seconds):
            yield from self.claimed(prepared)

    def claimed(self, prepared: Prepared) -> Iterator[tuple[Reading, Entry | None]]:
        """Yield the public identifiers that a recording spells, each with its record if any."""
        for one in read_public(prepared.found):
            own = one.issuer == self.registry.issuer
            entry = self.registry.of_serial(one.serial) if own else None
            yield one, entry if entry is not None and entry.stamped.record.public else None

    def spelled(self, one: Reading) -> Spelled:
        """Return a reading as evidence."""
        return evidence(one, len(self.keys), self.registry.size)

    def of_reading(
        self, prepared: Prepared, one: Reading, entry: Entry, key: Key, tries: int, among: int
    ) -> Candidate:
        """Return the record that one of several identifiers named, compared with the audio."""
        compared = origin.compare(prepared.sketch, [entry], key=key, tries=tries)
        return Candidate(
            entry,
            self.carried(entry.stamped.record),
            self.spelled(one),
            compared.found[0][0],
            compared.origin,
            among,
        )


def _cover(readings: Sequence[Reading], seconds: float) -> bool:
    """Return whether identifiers leave no room in a recording for another one."""
    spans = (span for one in readings for span in one.spans)
    return seconds - sum(one.end_s - one.start_s for one in spans) < PUBLIC.least_seconds


def evidence(one: Reading, keys: int, records: int) -> Spelled:
    """Return a reading under so many keys as evidence, in a registry of so many records."""
    public = one.issuer is not None
    chances = one.tries if public else one.tries * max(1, keys) * max(1, records)
    bits = identifier.PUBLIC_CHECK_BITS if public else one.identifier.frame.block_bits
    bound = min(1.0, chances / 2**bits)
    return Spelled(one.serial, public, bound, one.start_s, one.spans, one.fit, one.channel)


def of_audio(compared: Compared, known: Known | None) -> list[Candidate]:
    """Return the records whose audio a recording has, the best match first."""
    same = compared.same[:MOST_SAME]
    return [
        Candidate(
            entry,
            None if known is None else known.carried(entry.stamped.record),
            match=match,
            origin=compared.origin_of(match, entry),
            among=len(same),
        )
        for match, entry in same
    ]


def compare(prepared: Prepared, entries: Sequence[Entry], key: Key, *, tries: int = 1) -> Compared:
    """Return the comparison of a recording with records of a party."""
    if not entries:
        return Compared([], searched=True)
    return origin.compare(prepared.sketch, entries, key=key, tries=tries)


def to_search(registry: Registry, parties: Sequence[Party]) -> list[tuple[Party, int]]:
    """Return the parties that have records, and how many; none, with a warning, of too many."""
    counts = [(party, count) for party in parties if (count := registry.count(party))]
    among = sum(count for _, count in counts)
    if among <= MOST_BY_AUDIO:
        return counts
    told = f"not looked for by its audio among {among:,} records: {MOST_BY_AUDIO:,} at most"
    warnings.warn(told, SearchWarning, stacklevel=3)
    return []


def search(
    prepared: Prepared, registry: Registry, party: Party, key: Key, *, tries: int, among: int
) -> Compared:
    """Return the comparison of a recording with all records of a party, some `among` all."""
    count = registry.count(party)
    if among <= origin.MOST_AT_SPEEDS:
        entries = registry.records(party)
    else:  # very many are never in memory at once
        prints = registry.fingerprints(party)
        entries = tuple(map(registry.record, likely(prints, prepared.sketch, tries * count)))
    return origin.compare(prepared.sketch, entries, key=key, tries=tries, among=among, count=count)
