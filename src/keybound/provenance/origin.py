"""Origin: which of a party's records a recording is, or that it is none of them.

A mark on other audio than its record was moved there. Knows levels and records: no audio, no
networks, no registry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from keybound.crypto.keys import Key
from keybound.errors import RecordError
from keybound.provenance.matching import SPEED, Match, Sketch, match
from keybound.provenance.records import Entry
from keybound.types import Floats, Levels

MOST_AT_SPEEDS = 100  # records that a recording is compared with at other speeds too


@dataclass(frozen=True)
class Origin:
    """How a recording compares with the records of a party.

    `match` is `same` (it is the recording of a record), `other` (a copy of none that was compared,
    and would have been found), `unclear`, or `none` (there is no record to compare with). `record`
    is the number of the nearest one and `created` its time; `p` bounds the probability that other
    speech matches any of the `compared` records so well.
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

    def words(self, *, sealed: bool, marked: bool, spelled: bool = False) -> str:
        """Return the end of a verdict's sentence; empty where nothing was compared.

        `spelled` says that an identifier named the record: anyone may have written it.
        """
        named = spelled and not sealed
        marked = marked or spelled
        if self.match == "same":
            parts = "".join(f"; not {a:.0f} to {b:.0f} s" for a, b in self.differs_s)
            note = "" if sealed or marked else ", without this party's mark"
            return f"; the audio is that of {self.which}{parts}{note}"
        if self.match == "other" and named:
            return f"; it is that of this party's {self.which}, but the audio is not"
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

    found: list[tuple[Match, Entry]]  # of very many, those that it may be
    searched: bool
    compared: int = 0  # records

    @property
    def same(self) -> list[tuple[Match, Entry]]:
        """Return the records whose audio it is, the smallest p first."""
        own = [one for one in self.found if one[0].decision == "same"]
        return sorted(own, key=lambda one: one[0].p)

    @property
    def origin(self) -> Origin:
        """Return the origin that they give together."""
        if not self.found:
            return Origin("unclear", compared=self.compared) if self.compared else UNTRACED
        best, entry = min(self.found, key=lambda pair: (pair[0].decision != "same", pair[0].p))
        return self.origin_of(best, entry)

    def origin_of(self, match: Match, entry: Entry) -> Origin:
        """Return the origin with one of the records as the nearest."""
        decision = _decide([one for one, _ in self.found], searched=self.searched)
        return Origin(
            match=decision,
            record=entry.number,
            created=_moment(entry.stamped.record.created),
            p=match.p,
            agreement=match.agreement,
            compared=self.compared,
            differs_s=match.differs_s if decision == "same" else (),
        )


def compare(
    recording: Floats | Levels | Mapping[int | None, Levels] | Sketch,
    entries: Sequence[Entry],
    *,
    key: Key,
    tries: int = 1,
    among: int = 0,
    count: int = 0,
) -> Compared:
    """Return the comparison with records. `tries` counts the parties, `among` all their records.

    Of `count` records these are the ones that it may be (`scanning`), or all. Other speeds are
    searched among few, if none matches at its own. Raise an error where the key did not stamp one.
    """
    count = max(count, len(entries))
    few = max(among, count) <= MOST_AT_SPEEDS
    if not entries:
        return Compared([], few, count)
    sketch = recording if isinstance(recording, Sketch) else Sketch.of(recording)
    for entry in entries:
        check(entry, key)
    # Half of the chance is for other speeds.
    found = _compare(sketch, entries, 0.0, (2 if few else 1) * tries * count)
    if few and not any(one.settled for one, _ in found):
        found = _compare(sketch, entries, SPEED, tries * count)
    return Compared(found, few, count)


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
