"""Tables of what a key is worth: wrong keys, V_A and beta by rho, beta by payload length.

Each function takes the evidence and gives a table, or None where there are no rows for it.
"""

import numpy as np

from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import paper
from keybound.benchmark.report.blocks import suite
from keybound.benchmark.report.labels import PUBLISHED, label, notes_for, titled
from keybound.benchmark.report.layout import (
    Cell,
    Column,
    Table,
    between,
    figure,
    name,
    number,
    power,
)
from keybound.benchmark.report.summaries import Evidence, accuracy, attributed, bound

RHOS = (0, 1, 2, 3, 4)
LENGTHS = (8, 16, 24, 32, 64)
Lines = list[tuple[Cell, ...] | str]


def wrong_key(e: Evidence) -> Table | None:
    """Lay out reading with the right key, without one and with wrong ones, beside beta."""
    methods = [m for m in e.in_suite("keys") if e.keyed(m)]
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        keys, rho = e.suite("keys", method), e.rho(method)
        rows += [titled(method)] if len(methods) > 1 else []
        readers = {"right": "Right key", "zero": "No key (zero mask)", "wrong": "Wrong keys"}
        for setting, told in readers.items():
            mean, wrong = accuracy(keys, setting), setting == "wrong"
            rate = attributed(tries(keys, setting), e.usual(method), rho, "presence")
            deviation = f" ± {number(float(np.std(mean.values)))}" if wrong else ""
            beta = power(bound(e.bits(method) or keys[0]["bits"], rho)) if wrong else "–"
            theirs = paper.WRONG_KEY[setting] if method == "keybound" else "–"
            rows.append(
                (
                    name(told),
                    Cell("–" if mean.value is None else number(mean.value) + deviation),
                    Cell(f"{rate.trials:,}"),
                    figure(rate.value, 4),
                    Cell(between(rate.interval, 4)),
                    Cell(beta),
                    Cell(theirs, kind="published"),
                )
            )
    return Table(
        "wrong-key",
        "Right key, no key, wrong keys",
        "Bit accuracy of clean marked clips, and how often the rule V_A accepts, beside its bound "
        "β.",
        (
            Column("Decoding", "what the reader holds", words=True),
            Column("BA", "bit accuracy; ± the deviation over clips of the mean over wrong keys"),
            Column("tries", "clips, or clips times wrong keys"),
            Column("V_A", "share of tries accepted, presence at the shipped threshold"),
            Column("95 % CI", "Clopper–Pearson interval of V_A"),
            Column("β", "the bound on how often a wrong key is accepted"),
            Column("BA, paper", PUBLISHED),
        ),
        tuple(rows),
        notes_for(rows),
    )


def tries(keys: list[Row], setting: str) -> list[Row]:
    """Give one row for each decoding: a clip has one right key and several wrong ones."""
    return [
        {"presence": row["presence"], "errors": int(errors)}
        for row in keys
        if row.get(setting) is not None
        for errors in np.atleast_1d(row[setting])
    ]


def tolerance(e: Evidence) -> Table | None:
    """Lay out V_A under each attack and the bound beta for rho from 0 to 4."""
    method = next((m for m in e.marked_methods if suite_rows(e, m)), None)
    if method is None:
        return None
    bits, cut = e.bits(method), e.usual(method)
    rows: Lines = []
    if bits:
        betas = (Cell(power(bound(bits, rho))) for rho in RHOS)
        rows.append((name("β, the bound on a wrong key"), *betas))
    wrong = tries(e.suite("keys", method), "wrong")
    if wrong:
        rates = (attributed(wrong, cut, rho, "presence").value for rho in RHOS)
        rows.append((name("V_A of wrong keys, measured"), *(figure(rate, 4) for rate in rates)))
    for kind in ("residual", "gain-field"):
        moved = [row for row in e.suite("transplant", method) if row["attack"] == kind]
        if moved:
            rates = (attributed(moved, cut, rho, "presence").value for rho in RHOS)
            rows.append((name(f"V_A of the {kind} transplant"), *map(figure, rates)))
    rows.append("V_A of the owner")
    for attack in suite_rows(e, method):
        rates = (attributed(e.rows(method, attack), cut, rho).value for rho in RHOS)
        rows.append((name(label(attack)), *map(figure, rates)))
    return Table(
        "tolerance",
        "V_A and β by tolerance",
        f"How often {titled(method)} accepts when ρ wrong bits of {bits} are forgiven, and what a "
        f"wrong key gets; it ships with ρ = {e.rho(method)}.",
        (
            Column("Setting", "what was verified", words=True),
            *(Column(f"ρ = {rho}", f"at most {rho} wrong bits forgiven") for rho in RHOS),
        ),
        tuple(rows),
        notes_for(rows),
    )


def suite_rows(e: Evidence, method: str) -> list[str]:
    """Give the attacks of the paper's table that a method has rows of."""
    return [attack for attack in suite(e, [method]) if e.rows(method, attack)]


def beta(e: Evidence) -> Table | None:
    """Lay out the bound beta by payload length, at each measured length and the paper's."""
    if not e.marked_methods:
        return None
    measured = {m: e.bits(m) for m in (*e.methods, *e.study("bits/"))}
    rows = []
    for bits in sorted({*LENGTHS, *(n for n in measured.values() if n)}):
        having = ", ".join(titled(m) for m, n in measured.items() if n == bits)
        theirs = power(paper.BETA[bits]) if bits in paper.BETA else "–"
        cells = [name(str(bits)), Cell(power(bound(bits, 2))), Cell(theirs, kind="published")]
        rows.append((*cells, Cell(having or "–")))
    return Table(
        "beta",
        "β by payload length",
        "Bound on how often a wrong key is accepted at ρ = 2; arithmetic, not a measurement.",
        (
            Column("Bits", "length of the payload", words=True),
            Column("β", "2^−n times the number of codes within 2 bits"),
            Column("β, paper", PUBLISHED),
            Column("methods", "measured methods with this length", words=True),
        ),
        tuple(rows),
    )
