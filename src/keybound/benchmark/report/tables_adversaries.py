"""Tables of attacks of 2025 and 2026: combined copies, and gradient steps through the detector."""

from dataclasses import replace
from typing import Any

import numpy as np

from keybound.benchmark.measure.samples import USUAL, Rate, Sample
from keybound.benchmark.report.grid import Rows, grid, stacked
from keybound.benchmark.report.labels import thresholds
from keybound.benchmark.report.layout import Table, power
from keybound.benchmark.report.summaries import Evidence
from keybound.crypto.codes import bound

COMBINATIONS = {
    "mean": "equal weights",
    "drawn": "weights towards a party that is drawn",
    "nearest": "weights towards the easiest of many parties",
}
GOALS = {
    "remove": "remove the mark",
    "create": "mark an unmarked clip for a party",
    "replace": "replace the mark by a party's",
}


def verified(of: Sample, errors: str) -> float | None:
    """Return how many rows V_A accepts by some count of errors; of a list by the least of it."""
    known = [row for row in of.rows if row.get(errors) is not None]
    best = [{**row, "errors": int(np.min(row[errors]))} for row in known]
    return replace(of, rows=best).verified().value


def any_of(of: Sample, flag: str) -> float | None:
    """Return the share of rows with anything true in a list."""
    return Sample([{flag: any(r[flag])} for r in of.rows if r.get(flag) is not None]).share(flag)


def collusion(e: Evidence) -> Table | None:
    """Return whom combined copies of one host are attributed to."""
    methods = e.in_suite("collusion")

    def line(copies: int, kind: str, of: Sample) -> tuple[Any, ...]:
        cut = of.cuts[USUAL]
        present = [r for r in of.rows if cut is not None and r["presence"] >= cut]
        others = Rate(sum(r["accepted"] for r in present), sum(r["parties"] for r in of.rows))
        cells = (of.reached().value, verified(of, "errors"), verified(of, "target_errors"))
        seals = (any_of(of, "holds"), of.share("target_holds"))
        return (str(copies), COMBINATIONS[kind], len(of), *cells, others.value, *seals)

    def lines(method: str) -> Rows:
        parts = dict(e.suite("collusion", method).by("copies", "attack"))
        order = sorted(parts, key=lambda part: (part[0], [*COMBINATIONS].index(part[1])))
        return [line(copies, kind, parts[copies, kind]) for copies, kind in order]

    betas = {bound(bits, e.rho(m)) for m in methods if (bits := e.bits(m))}
    return grid(
        "Copies of one host, each marked for another party, in a convex combination. A party "
        "without a copy is framed where V_A accepts it; by chance each is accepted in β = "
        f"{', '.join(power(beta) for beta in sorted(betas))}.",
        """
        Copies | how many were combined
        Weights | of the combination | words
        clips | hosts
        DA | share of combinations in which any mark is present | 3
        V_A: a copy's | share in which at least one of the copies' parties verifies | 3
        V_A: framed | share in which the party that was aimed at verifies | 3
        V_A: others | share of all parties without a copy that verify | 4
        seal: a copy's | share in which at least one of the copies' seals is accepted | 3
        seal: framed | share in which the seal of the party aimed at is accepted | 3""",
        stacked(methods, lines),
        thresholds(e, methods),
    )


def gradient(e: Evidence) -> Table | None:
    """Return what gradient steps through the public detector do to a mark and leave of its seal."""
    methods = e.in_suite("gradient")

    def line(goal: str, budget: int, of: Sample) -> tuple[Any, ...]:
        low, high = np.quantile([row["usual"] for row in of.rows], [0.01, 0.99])
        inside = [low <= row["presence"] <= high for row in of.rows]
        cells = (of.reached().value, float(np.mean(inside)), verified(of, "errors"))
        seals = (of.share("holds"), verified(of, "forged_errors"), of.share("forged_holds"))
        return (GOALS[goal], f"{budget}", len(of), *cells, *seals, of.mean("pesq").value)

    def lines(method: str) -> Rows:
        parts = dict(e.suite("gradient", method).by("attack", "budget"))
        order = sorted(parts, key=lambda part: ([*GOALS].index(part[0]), -part[1]))
        return [line(goal, budget, parts[goal, budget]) for goal, budget in order]

    return grid(
        "Steps of Adam on the waveform down the gradient of the public detector.",
        """
        Goal | what the attacker wants
        budget, dB | energy of what is added under that of the clip
        clips | how many
        DA | share in which a mark is present | 3
        usual | share whose presence lies between the 1st and 99th percentile of clips, clean \
and after MP3 at 32 kbps: unmarked ones after a removal, else marked ones | 3
        owner: V_A | share in which the party verifies whose mark was there before | 3
        owner: seal | share in which its seal is accepted | 3
        forged: V_A | share in which the party verifies that the attacker names | 3
        forged: seal | share in which its seal is accepted | 3
        PESQ | of the outcome against the clip before the steps | 2""",
        stacked(methods, lines),
        thresholds(e, methods),
    )
