"""Which record each recording of a corpus is, found where the registry is.

Workers may be on other machines and open no registry: they send a sketch of what they heard, where
the mark of a party with records is in it. The records it is compared with are found by the position
of the seal, as one recording's are, and read when they are needed: of a million records only the
numbers are held.
"""

import base64
from array import array
from collections.abc import Sequence
from pathlib import Path

from keybound.batch.journal import Row
from keybound.batch.worker import HEARD, in_words
from keybound.crypto.keys import Key
from keybound.errors import KeyBoundError
from keybound.provenance import origin
from keybound.provenance.matching import Sketch
from keybound.provenance.origin import MOST_AT_SPEEDS, Origin
from keybound.provenance.registry import Registry
from keybound.seal.search import Sealed

ByPosition = dict[int | None, "array[int]"]  # the numbers of records by position


class Origins:
    """The records of a registry, as they are when a party is first met."""

    def __init__(self, registry: Path) -> None:
        self.registry = registry
        self._parties: dict[str, tuple[Key, ByPosition]] = {}

    def settle(self, row: Row) -> Row:
        """Put what the records say in the place of what a worker heard; the grade follows."""
        told = row.pop(HEARD)
        sketch = Sketch.parse(base64.b64decode(told["sketch"]))
        try:
            found = self._trace(row["party"], sketch, Sealed(**told["placed"]), row["tries"])
        except KeyBoundError as error:  # such as a record that was changed
            return {"status": "failed", "error": in_words(error), "took_s": row["took_s"]}
        grade = told["grades"][found.match]
        return row | {"grade": grade, "origin": found.match, "record": found.record}

    def _trace(self, party: str, sketch: Sketch, placed: Sealed, tries: int) -> Origin:
        with Registry(self.registry) as known:
            key, places = self._known(known, party)
            numbers = candidates(places, placed)
            if numbers is None:
                return Origin("unclear")
            entries = [known.record(number) for number in numbers]
        return origin.trace(sketch, placed, entries, key=key, tries=tries)

    def _known(self, known: Registry, party: str) -> tuple[Key, ByPosition]:
        if party not in self._parties:
            one = known.get(party)
            places: ByPosition = {}
            for number, position in known.positions(one):
                places.setdefault(position, array("q")).append(number)
            self._parties[party] = one.key(), places
        return self._parties[party]


def candidates(places: ByPosition, placed: Sealed) -> Sequence[int] | None:
    """Choose the records of the position, or else all of them; None where those are too many."""
    if placed.holds and placed.position in places:
        return places[placed.position]
    if sum(map(len, places.values())) > MOST_AT_SPEEDS:
        return None
    return sorted(number for own in places.values() for number in own)
