"""Which record each recording of a corpus is, found in the process that has the registry.

Workers may be on other machines and open no registry: of a recording with the mark of a party that
has records they send a sketch. It is compared with the records of the keystream position of its
seal, which are read when they are needed: of a million records only the numbers are held.
"""

import base64
from array import array
from collections.abc import Sequence

from keybound.batch.journal import Row
from keybound.batch.worker import SKETCH, in_words
from keybound.crypto.keys import Key
from keybound.errors import KeyBoundError
from keybound.provenance import origin
from keybound.provenance.matching import Sketch
from keybound.provenance.origin import MOST_AT_SPEEDS, Origin
from keybound.provenance.registry import Registry
from keybound.seal.search import Sealed

ByPosition = dict[int | None, "array[int]"]  # the numbers of records by position


class Origins:
    """The records of an open registry, as they are when a party is first met."""

    def __init__(self, known: Registry) -> None:
        self.known = known
        self._parties: dict[str, tuple[Key, ByPosition]] = {}

    def settle(self, row: Row) -> Row:
        """Return the row with the grade and origin that the records give, without its sketch."""
        told = row.pop(SKETCH)
        sketch = Sketch.parse(base64.b64decode(told["sketch"]))
        try:
            found = self._trace(row["party"], sketch, Sealed(**told["placed"]), row["tries"])
        except KeyBoundError as error:  # such as a record that was changed
            return {"status": "failed", "error": in_words(error), "took_s": row["took_s"]}
        grade = told["grades"][found.match]
        return row | {"grade": grade, "origin": found.match, "record": found.record}

    def _trace(self, party: str, sketch: Sketch, placed: Sealed, tries: int) -> Origin:
        key, numbers = self._party(party)
        chosen = candidates(numbers, placed)
        if chosen is None:
            return Origin("unclear")
        entries = [self.known.record(number) for number in chosen]
        return origin.trace(sketch, placed, entries, key=key, tries=tries)

    def _party(self, party: str) -> tuple[Key, ByPosition]:
        if party not in self._parties:
            one = self.known.get(party)
            numbers: ByPosition = {}
            for number, position in self.known.positions(one):
                numbers.setdefault(position, array("q")).append(number)
            self._parties[party] = one.key(), numbers
        return self._parties[party]


def candidates(numbers: ByPosition, placed: Sealed) -> Sequence[int] | None:
    """Return the records of the position, or else all of them; None where those are too many."""
    if placed.holds and placed.position in numbers:
        return numbers[placed.position]
    if sum(map(len, numbers.values())) > MOST_AT_SPEEDS:
        return None
    return sorted(number for own in numbers.values() for number in own)
