"""Origin: which of a party's records a recording is, or that its mark is a copy attack.

A seal gives its keystream position, and the record of that position the fingerprint of the audio. A
seal on other audio than its record was moved there. Knows levels, records and the evidence of the
seal: no audio, no networks, no registry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from keybound.crypto.keys import Key
from keybound.errors import RecordError
from keybound.provenance.matching import SPEED, Match, Sketch, match
from keybound.provenance.records import Entry
from keybound.seal.search import Sealed
from keybound.types import Floats, Levels

MATCHES = ("same", "other", "unclear", "none")
MOST_AT_SPEEDS = 100  # records that a recording is compared with at other speeds too


@dataclass(frozen=True)
class Origin:
    """How a recording compares with the records of a party.

    `match` is `same` (it is the recording of a record), `other` (a copy of none that was compared,
    and would have been found), `unclear`, or `none` (there is no record to compare with). `record`
    is the number of the nearest one and `created` its time; `p` bounds the probability that other
    speech matches any of the `compared` records so well. Where the payload is a content tag, it is
    compared instead of records, and `compared` is 0.
    """

    match: str = "none"
    record: int | None = None
    created: str | None = None
    p: float = 1.0
    agreement: float = 0.0
    compared: int = 0
    differs_s: tuple[tuple[float, float], ...] = ()  # stretches that are not of the record

    @property
    def which(self) -> str:
        """Return the record in words."""
        number = "the record" if self.record is None else f"record {self.record}"
        return f"{number} of {self.created}"

    def words(self, *, sealed: bool, marked: bool) -> str:
        """Return the end of a verdict's sentence; empty where nothing was compared."""
        if self.match != "none" and not self.compared:
            how = "matches" if self.match == "same" else "does not match"
            return f"; its payload {how} this audio (p = {self.p:.2g})"
        if self.match == "same":
            parts = "".join(f"; not {a:.0f} to {b:.0f} s" for a, b in self.differs_s)
            note = "" if sealed or marked else ", without this party's mark"
            return f"; the audio is that of {self.which}{parts}{note}"
        if self.match == "other" and (sealed or marked):
            than = self.which if self.compared == 1 else f"any of its {self.compared} records"
            what = "sealed" if sealed else "marked"
            return f"; {what} by this party, but on other audio than {than}"
        if self.match == "unclear" and (sealed or marked):
            return "; whether the audio is that of a record is unclear"
        return ""


UNTRACED = Origin()


class Compared(NamedTuple):
    """The matches of a recording with records, and whether other speeds were searched."""

    found: list[tuple[Match, Entry]]
    searched: bool

    @property
    def same(self) -> list[tuple[Match, Entry]]:
        """Return the records whose audio it is, the smallest p first."""
        own = [one for one in self.found if one[0].decision == "same"]
        return sorted(own, key=lambda one: one[0].p)

    @property
    def origin(self) -> Origin:
        """Return the origin that they give together."""
        if not self.found:
            return UNTRACED
        best, entry = min(self.found, key=lambda pair: (pair[0].decision != "same", pair[0].p))
        decision = _decide([one for one, _ in self.found], searched=self.searched)
        record = entry.stamped.record
        return Origin(
            match=decision,
            record=entry.number,
            created=_moment(record.created),
            p=best.p,
            agreement=best.agreement,
            compared=len(self.found),
            differs_s=best.differs_s if decision == "same" else (),
        )


def compare(
    recording: Floats | Levels | Mapping[int | None, Levels] | Sketch,
    entries: Sequence[Entry],
    *,
    key: Key,
    tries: int = 1,
    among: int = 0,
) -> Compared:
    """Return the comparison with records. `tries` counts the parties, `among` all their records.

    Other speeds are searched among few records, if none matches at its own. Raise an error where
    the key did not stamp a record.
    """
    for entry in entries:
        check(entry, key)
    few = max(among, len(entries)) <= MOST_AT_SPEEDS
    if not entries:
        return Compared([], few)
    sketch = recording if isinstance(recording, Sketch) else Sketch.of(recording)
    # Half of the chance is for other speeds.
    found = _compare(sketch, entries, 0.0, (2 if few else 1) * tries * len(entries))
    if few and not any(one.settled for one, _ in found):
        found = _compare(sketch, entries, SPEED, tries * len(entries))
    return Compared(found, few)


def trace(
    recording: Floats | Levels | Mapping[int | None, Levels] | Sketch,
    seal: Sealed,
    entries: Sequence[Entry],
    *,
    key: Key,
    tries: int = 1,
    among: int = 0,
) -> Origin:
    """Return which record a recording is.

    Where the seal holds, the records of its position are compared; if there are none, all are, but
    then none of them counts against the seal.
    """
    placed = [one for one in entries if one.stamped.record.position == seal.position]
    if seal.holds and placed:
        return compare(recording, placed, key=key, tries=tries).origin
    found = compare(recording, entries, key=key, tries=tries, among=among).origin
    return UNTRACED if seal.holds and found.match != "same" else found


def _compare(
    sketch: Sketch, entries: Sequence[Entry], speed: float, tries: int
) -> list[tuple[Match, Entry]]:
    prints = ((one.stamped.record.fingerprint, one) for one in entries)
    return [(match(known, sketch, speed=speed, tries=tries), one) for known, one in prints]


def _decide(found: Sequence[Match], *, searched: bool) -> str:
    """Return `other` only if every record is, and a faster or slower copy would have been found."""
    decisions = {one.decision for one in found}
    if "same" in decisions:
        return "same"
    return "other" if decisions == {"other"} and searched else "unclear"


def check(entry: Entry, key: Key) -> None:
    """Raise an error, with the record's number, where the key did not stamp it."""
    try:
        entry.stamped.check(key)
    except RecordError as error:
        if entry.number is None:
            raise
        raise type(error)(f"record {entry.number}: {error.message}", hint=error.hint) from None


def _moment(created: datetime) -> str:
    return created.isoformat(timespec="seconds").replace("+00:00", "Z")
