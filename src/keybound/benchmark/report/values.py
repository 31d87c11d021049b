"""Values: what a line of a table says, computed from its rows by the words of a description.

`DA shipped`, `mean pesq of quality`, `V_A in transplant where attack=residual`: a name of `VALUES`
with its arguments, of the line's own rows or of those of an attack or a suite of its method.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from keybound.benchmark.measure.samples import USUAL, Mean, Rate, Sample
from keybound.benchmark.report.descriptions import METERS, Head
from keybound.benchmark.report.layout import BLANK, between
from keybound.benchmark.report.summaries import Evidence

PARTS = re.compile(r"(.+?)(?: of (\S+))?(?: in (\S+))?(?: where (\w+)=(.+))?")


@dataclass(frozen=True)
class Line:
    """What a line is about: a method, its rows, facts for its words, the paper's figures."""

    method: str
    of: Sample
    facts: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)


def cells(e: Evidence, line: Line, heads: Sequence[Head]) -> tuple[Any, ...]:
    """Return the values of a line; a pair where the paper's figure is to be compared with."""
    found: list[Any] = []
    for head in heads:
        ours = value(e, line, head.value)
        theirs = line.theirs.get(head.compared) if line.method == "keybound" else None
        found.append((ours, theirs) if "@" in head.form else ours)
    return tuple(found)


def value(e: Evidence, line: Line, told: str) -> Any:
    """Return a value of a line: a number, text, or nothing where there is nothing to tell."""
    told, _, without_key = told.partition(" or ")
    if without_key and not e.keyed(line.method):
        return without_key
    if "{" in told:
        return told.format_map(line.facts)
    if told.startswith("paper "):
        return line.theirs.get(told.removeprefix("paper "), BLANK)
    found = estimate(e, line, told)
    return found.value if isinstance(found, Rate | Mean) else found


def estimate(e: Evidence, line: Line, told: str) -> Any:
    """Return what a value is computed from: a rate or a mean, with its interval."""
    parts = PARTS.fullmatch(told)
    assert parts is not None
    words, attack, suite, key, wanted = parts.groups()
    of = line.of
    if attack is not None:
        of = e.of(line.method, codec(e, line.method) if attack == "codec" else attack)
    elif suite is not None:
        of = e.suite(suite, line.method)
    if key is not None:
        of = replace(of, rows=[row for row in of.rows if str(row.get(key)) == wanted])
    name, *given = words.split()
    return VALUES[name](of, *given)


def codec(e: Evidence, method: str) -> str:
    """Return the codec that a method was measured under: EnCodec, or Lyra in its place."""
    return "encodec-6" if e.rows(method, "encodec-6") else "lyra-6"


def mean(of: Sample, measure: str) -> Mean:
    """Return the mean of a measure, or of the difference of two, `a-b`, where a row has both."""
    first, _, second = measure.partition("-")
    if not second:
        return of.mean(measure)
    pairs: list[Any] = [(row.get(first), row.get(second)) for row in of.rows]
    return Sample([{} if None in p else {measure: p[0] - p[1]} for p in pairs]).mean(measure)


def difference(of: Sample, first: str, second: str) -> float | None:
    """Return the difference of two means."""
    one, other = of.mean(first).value, of.mean(second).value
    return None if one is None or other is None else one - other


def left_out(of: Sample, *measures: str) -> str:
    """Return how many clips each measure could not score, or "none"."""
    counts = {measure: mean(of, measure).left_out for measure in measures}
    return ", ".join(f"{METERS[m]} {count}" for m, count in counts.items() if count) or "none"


def verified_by(of: Sample, errors: str) -> Rate:
    """Return how many rows V_A accepts by some count of errors; of a list by the least of it."""
    known = [row for row in of.rows if row.get(errors) is not None]
    best = [{**row, "errors": int(np.min(row[errors]))} for row in known]
    return replace(of, rows=best).verified()


def any_of(of: Sample, flag: str) -> float | None:
    """Return the share of rows with anything true in a list."""
    return Sample([{flag: any(r[flag])} for r in of.rows if r.get(flag) is not None]).share(flag)


def others(of: Sample) -> Rate:
    """Return how many parties without a copy verify, of all that were tried."""
    cut = of.cuts[USUAL]
    present = [row for row in of.rows if cut is not None and row["presence"] >= cut]
    return Rate(sum(r["accepted"] for r in present), sum(r["parties"] for r in of.rows))


def usual(of: Sample) -> float:
    """Return the share of rows whose presence is that of clips such as theirs."""
    low, high = np.quantile([row["usual"] for row in of.rows], [0.01, 0.99])
    return float(np.mean([low <= row["presence"] <= high for row in of.rows]))


def median(of: Sample, measure: str) -> float | None:
    """Return the median of a measure."""
    values = of.mean(measure).values
    return float(np.median(values)) if values else None


def interval(of: Sample, name: str) -> str:
    """Return the interval of a rate or a mean as text."""
    return between(VALUES[name](of).interval)


VALUES: dict[str, Callable[..., Any]] = {
    "DA": lambda of, which=USUAL: of.reached(which),
    "FPR": lambda of, which=USUAL: of.reached(which, "unmarked"),
    "BA": lambda of, errors="errors": of.accuracy(errors),
    "V_A": lambda of, which=USUAL: of.verified(which),
    "V_A-by": verified_by,
    "matched": lambda of, rate: of.matched(float(rate)),
    "count": len,
    "share": lambda of, flag: of.share(flag),
    "any": any_of,
    "is": lambda of, key, answer: len(of.where(**{key: answer})) / len(of),
    "mean": mean,
    "low": lambda of, measure: of.mean(measure).low,
    "least": lambda of, measure: min(of.mean(measure).values, default=None),
    "most": lambda of, measure: max(of.mean(measure).values, default=None),
    "median": median,
    "difference": difference,
    "left-out": left_out,
    "interval": interval,
    "others": others,
    "usual": usual,
}
