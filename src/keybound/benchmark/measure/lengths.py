"""Bit accuracy by length: the longer a piece, the less often is what is read from it wrong.

Pieces are cut from the joined recordings of a speaker, marked and attacked.
"""

from collections.abc import Iterable

import numpy as np

from keybound.benchmark.measure.plan import Case
from keybound.benchmark.measure.rows import Row

LENGTHS = dict.fromkeys((1.0, 2.0, 3.0, 10.0, 30.0), 100)  # seconds, and pieces at most
ATTACKS = ("clean", "noise-10", "lyra-6")


def measure(case: Case, face: Row) -> Row:
    """Return how many bits of an attacked piece are wrong, and whether it is attributed."""
    marker = case.method.marker
    assert marker is not None
    found = marker.detect(case.attacked(face["attack"]), case.method.rate)
    verdict = marker.attribute(found, key=case.secret.key, payload=case.secret.payload)
    return {"errors": verdict.distance, "bits": verdict.bits, "verified": verdict.rule_holds}


def table(rows: Iterable[Row]) -> str:
    """Return bit accuracy, share attributed and number of pieces by length and attack."""
    parts: dict[tuple[float, str], list[Row]] = {}
    for row in rows:
        parts.setdefault((row["seconds"], row["attack"]), []).append(row)
    lines = ["| attack | seconds | BA | verified | trials |", "| --- | --- | --- | --- | --- |"]
    for (seconds, name), of in sorted(parts.items(), key=lambda part: part[0][0]):
        right = round(float(np.mean([1 - row["errors"] / row["bits"] for row in of])), 4)
        verified = round(float(np.mean([row["verified"] for row in of])), 4)
        lines.append(f"| {name} | {seconds:g} | {right} | {verified} | {len(of)} |")
    return "\n".join(lines)
