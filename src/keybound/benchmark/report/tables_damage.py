"""Tables about the attacks themselves: what each leaves of the speech, and how each is set.

Each function takes the evidence and gives a table, or None where there are no rows for it.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from keybound.attacks import attack as find
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import paper
from keybound.benchmark.report.blocks import heads, measured
from keybound.benchmark.report.labels import PUBLISHED, label, notes_for
from keybound.benchmark.report.layout import EMPTY, Cell, Column, Table, figure, name
from keybound.benchmark.report.summaries import Evidence, natural, numbers, total_left_out
from keybound.errors import AttackError

HARM = {"pesq": "PESQ", "stoi": "STOI", "si_snr_raw_db": "SI-SNR raw", "si_snr_db": "SI-SNR"}


def damage(e: Evidence) -> Table | None:
    """Lay out what each attack leaves of the speech: one that ruins it has not won."""
    method = next((m for m in e.marked_methods if scored(e, m)), None)
    if method is None:
        return None
    block = measured(e, method, (*HARM.values(), "BA"), group="")
    rows = []
    for attack in in_order(scored(e, method)):
        of = e.rows(method, attack)
        lags = numbers(of, "lag").values
        lag = figure(float(np.median(lags)) if lags else None, 0)
        missing = total_left_out([(told, numbers(of, key)) for key, told in HARM.items()])
        rows.append((name(label(attack)), *block.cells(attack), lag, Cell(missing or "none")))
    return Table(
        "damage",
        "Damage of each attack",
        "Quality of the attacked marked clip against its clean host, with the bit accuracy that "
        "was left. Attacks that change the length of a clip are not scored.",
        (
            *heads([block]),
            Column("lag", "median shift in samples at which clip and host agree best"),
            Column("left out", "clips that a measure could not score", words=True),
        ),
        tuple(rows),
        notes_for(rows),
    )


def scored(e: Evidence, method: str) -> list[str]:
    """Give the single attacks whose damage was measured."""
    return [
        attack
        for attack in e.attacks(method)
        if "+" not in attack and any(numbers(e.rows(method, attack), key).values for key in HARM)
    ]


def configuration(e: Evidence) -> Table | None:
    """Lay out the attacks that rows name, with the nominal parameters of the code."""
    named = {a for m in e.marked_methods for a in e.attacks(m, None)}
    named |= {attack for _, attack in e.reasons}
    rows, otherwise = [], []
    for attack in in_order(a for a in named if a != "clean" and "+" not in a):
        try:
            summary, nominal = definition(attack)
        except AttackError:
            continue
        otherwise += [attack] if measured_otherwise(e, attack, nominal) else []
        words = ", ".join(f"{key} {value}" for key, value in nominal.items())
        theirs = Cell(paper.CONFIGURATION.get(attack, EMPTY), kind="published")
        rows.append((name(label(attack)), Cell(summary), Cell(words or "none"), theirs))
    if not rows:
        return None
    differing = f"Rows measured with other parameters than these: {', '.join(otherwise)}."
    return Table(
        "configuration",
        "Attack configuration",
        "What each attack does, its nominal parameters read from the code, and the paper's words.",
        (
            Column("Attack", "what rows call it", words=True),
            Column("What it does", "from the catalogue of attacks", words=True),
            Column("Parameters", "nominal ones, without what is drawn by chance", words=True),
            Column("Paper", PUBLISHED, words=True),
        ),
        tuple(rows),
        (differing,) if otherwise else (),
    )


def definition(attack: str) -> tuple[str, Row]:
    """Give an attack's summary and the parameters that do not depend on chance."""
    known = find(attack)
    first, second = (known.draw(np.random.default_rng(seed), None) for seed in (0, 1))
    return known.summary, {key: value for key, value in first.items() if second[key] == value}


def measured_otherwise(e: Evidence, attack: str, nominal: dict[str, Any]) -> bool:
    """Say whether a row of an attack names other parameters than its nominal ones."""
    return any(
        row.get("parameters", {}).get(key, value) != value
        for (_, named, _), rows in e.clips.items()
        if named == attack
        for row in rows
        for key, value in nominal.items()
    )


def in_order(attacks: Iterable[str]) -> list[str]:
    """Sort attacks: the paper's in its order, then the rest by name."""
    rank = {attack: place for place, (_, attack, _) in enumerate(paper.SUITE)}
    return sorted(attacks, key=lambda attack: (rank.get(attack, len(rank)), natural(attack)))
