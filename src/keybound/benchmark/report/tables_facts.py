"""Tables of facts: which attacks, how fast, which weights, and what was not run."""

from typing import Any

import numpy as np

from keybound.attacks import attack as find
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import paper
from keybound.benchmark.report.descriptions import Description
from keybound.benchmark.report.grid import Rows, grid
from keybound.benchmark.report.labels import in_order, label, titled
from keybound.benchmark.report.layout import EMPTY, Cell, Table
from keybound.benchmark.report.summaries import Evidence
from keybound.errors import AttackError
from keybound.model.networks import shipped

BESIDE = "audioseal"  # whose speed is the measure of the others


def configuration(e: Evidence, d: Description) -> Table | None:
    """Return the attacks that rows name, with the nominal parameters of the code."""
    named = {a for m in e.marked_methods for a in e.attacks(m, None)}
    named |= {attack for _, attack in e.reasons}
    rows: Rows = []
    otherwise = []
    for attack in in_order(a for a in named if a != "clean" and "+" not in a):
        try:
            summary, nominal = definition(attack)
        except AttackError:
            continue
        otherwise += [attack] if measured_otherwise(e, attack, nominal) else []
        words = ", ".join(f"{key} {value}" for key, value in nominal.items())
        theirs = paper.CONFIGURATION.get(attack, EMPTY)
        rows.append((label(attack), summary, words or "none", Cell(theirs, kind="published")))
    told = f"Rows measured with other parameters than these: {', '.join(otherwise)}."
    return grid(d, rows, {"differing": told if otherwise else ""})


def definition(attack: str) -> tuple[str, Row]:
    """Return an attack's summary and the parameters that do not depend on chance."""
    known = find(attack)
    first, second = (known.draw(np.random.default_rng(seed), None) for seed in (0, 1))
    return known.summary, {key: value for key, value in first.items() if second[key] == value}


def measured_otherwise(e: Evidence, attack: str, nominal: Row) -> bool:
    """Return whether a row of an attack names other parameters than its nominal ones."""
    drawn = (
        row.get("parameters", {})
        for (_, named, _), rows in e.clips.items()
        if named == attack
        for row in rows
    )
    return any(one.get(key, value) != value for one in drawn for key, value in nominal.items())


def speed(e: Evidence, d: Description) -> Table | None:
    """Return how many times real time each method runs."""
    methods = e.in_suite("speed")
    found = {
        (method, row.get("seconds"), row["verb"]): row
        for method in methods
        for row in e.suite("speed", method).rows
    }
    rows: Rows = []
    runs = {(method, seconds) for method, seconds, _ in found}
    for method, seconds in sorted(runs, key=lambda run: (run[1] or 0, methods.index(run[0]))):
        cells: list[Any] = [titled(method), None if seconds is None else float(seconds)]
        for verb in (one["verb"] for one in d.each):
            row, other = (found.get((m, seconds, verb)) for m in (method, BESIDE))
            times = row["times_real_time"] if row else None
            cells += [times, times / other["times_real_time"] if times and other else None]
        trained = all(row.get("trained", True) for row in e.suite("speed", method).rows)
        rows.append((*cells, "trained" if trained else "random: speed needs no training"))
    return grid(d, rows)


def weights(e: Evidence, d: Description) -> Table | None:
    """Return which weights the rows of each method are of, and whether those are shipped."""
    by_method: dict[str, list[Row]] = {}
    for (method, _, _), clips in e.clips.items():
        by_method.setdefault(method, []).extend(clips)
    for (_, method), suite in e.suites.items():
        by_method.setdefault(method, []).extend(suite)
    ours = shipped().card.weights
    lines: Rows = []
    for method in (*e.methods, *sorted(set(by_method) - set(e.methods))):
        own = by_method.get(method, [])
        for version in sorted({str(row["version"]) for row in own if row.get("version")}):
            said = "shipped" if version.partition("+")[0] == ours else "not the shipped ones"
            told = said if method.startswith("keybound") else ""
            lines.append((titled(method), version, told, len(own)))
    return grid(d, lines)


def not_run(e: Evidence, d: Description) -> Table | None:
    """Return what was not run, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (method, what), reason in e.reasons.items():
        if not e.rows(method, what):
            reasons.setdefault((method, reason), []).append(label(what) if what else "everything")
    lines = [
        (titled(method), ", ".join(sorted(whats)), reason)
        for (method, reason), whats in sorted(reasons.items())
    ]
    return grid(d, lines)
