"""Bit accuracy by length: the longer a piece, the less often is what is read from it wrong.

Pieces are cut from the joined recordings of a speaker, marked and attacked.
"""

from collections.abc import Sequence

from keybound.benchmark.measure.plan import Case
from keybound.benchmark.measure.rows import Row, table_of
from keybound.benchmark.measure.samples import Sample

LENGTHS = dict.fromkeys((1.0, 2.0, 3.0, 10.0, 30.0), 100)  # seconds, and pieces at most
ATTACKS = ("clean", "noise-10", "lyra-6")


def measure(case: Case, face: Row) -> Row:
    """Return how many bits of an attacked piece are wrong, and whether it is attributed."""
    found = case.marker.detect(case.attacked(face["attack"]), case.method.rate)
    verdict = case.marker.attribute(found, key=case.secret.key, payload=case.secret.payload)
    return {"errors": verdict.distance, "bits": verdict.bits, "verified": verdict.rule_holds}


def table(rows: Sequence[Row]) -> str:
    """Return bit accuracy, share attributed and number of pieces by length and attack."""
    order = list(dict.fromkeys(row["attack"] for row in rows))
    parts = Sample(rows).by("seconds", "attack")
    parts.sort(key=lambda part: (part[0][0], order.index(part[0][1])))
    return table_of(
        ("attack", "seconds", "BA", "verified", "trials"),
        (
            (name, f"{s:g}", of.accuracy().value, of.share("verified"), len(of))
            for (s, name), of in parts
        ),
    )
