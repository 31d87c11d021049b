"""Tables of what a key is worth: no key and transplants, wrong keys, V_A and beta by rho."""

from dataclasses import replace
from typing import Any

import numpy as np

from keybound.benchmark.measure.samples import Sample
from keybound.benchmark.report import columns, layout, paper
from keybound.benchmark.report.grid import Rows, grid, stacked
from keybound.benchmark.report.labels import PUBLISHED, label, thresholds, titled
from keybound.benchmark.report.layout import BLANK, EMPTY, Cell, Table, number, power, published
from keybound.benchmark.report.summaries import CLEAN, SHIPPED, Evidence
from keybound.crypto.codes import bound

READERS = {"right": "Right key", "zero": "No key (zero mask)", "wrong": "Wrong keys"}
TRANSPLANTS = ("residual", "gain-field")
RHOS = (0, 1, 2, 3, 4)
LENGTHS = (8, 16, 24, 32, 64)


def security(e: Evidence) -> Table | None:
    """Return what a reader without the key gets, and how often a moved carrier verifies."""
    methods = e.in_suite("keys", "transplant")
    if not methods:
        return None
    rows: Rows = []
    for method in methods:
        no_key = e.suite("keys", method).accuracy("zero").value
        theirs = paper.SECURITY["keybound"][1] if method == "keybound" else None
        pairs = (
            (e.suite("transplant", method).where(attack=kind).verified(which).value, told)
            for kind, told in zip(TRANSPLANTS, (theirs, None), strict=True)
            for which in (SHIPPED, CLEAN)
        )
        rows.append((titled(method), no_key if e.keyed(method) else "public", *pairs))
    rows.append("As the paper published them")
    for method, (told, rate) in paper.SECURITY.items():
        first = Cell("public", kind="published") if told is None else published(told)
        rows.append((titled(method), first, BLANK, published(rate), BLANK, BLANK))
    verify = "share of carriers moved onto another host that verify, presence at"
    return grid(
        "Bit accuracy of a reader without the key (0.5 is chance), and how often a mark moved onto "
        "another host still verifies.",
        f"""
        Method | who made the mark
        no-key BA | bit accuracy with a zero mask; public: there is no key | 3
        residual, V_A: shipped | {verify} the shipped threshold | 3<
        residual, V_A: 1 % | {verify} the paper's threshold | 3<
        gain field, V_A: shipped | {verify} the shipped threshold | 3<
        gain field, V_A: 1 % | {verify} the paper's threshold | 3<""",
        rows,
        "Residual: marked − host, added to the next clip unscaled, which needs the clean host. "
        "Gain field: |marked| / |host|, multiplied onto the next clip's spectrum.",
        thresholds(e, methods),
    )


def tries(keys: Sample, reader: str) -> Sample:
    """Return one row for each decoding: a clip has one right key and several wrong ones."""
    rows = [
        {"presence": row["presence"], "errors": int(errors)}
        for row in keys.rows
        if row.get(reader) is not None
        for errors in np.atleast_1d(row[reader])
    ]
    return replace(keys, rows=rows)


def wrong_key(e: Evidence) -> Table | None:
    """Return reading with the right key, without one and with wrong ones, beside beta."""

    def line(method: str, reader: str) -> tuple[Any, ...]:
        keys, wrong = e.suite("keys", method), reader == "wrong"
        mean, rate = keys.accuracy(reader), tries(keys, reader).verified()
        right = EMPTY if mean.value is None else number(mean.value)
        right += f" ± {number(float(np.std(mean.values)))}" if wrong and mean.values else ""
        bits = e.bits(method) or keys.rows[0]["bits"]
        beta = power(bound(bits, keys.rho)) if wrong else EMPTY
        theirs = paper.WRONG_KEY[reader] if method == "keybound" else EMPTY
        interval = layout.between(rate.interval, 4)
        return (READERS[reader], right, f"{rate.trials:,}", rate.value, interval, beta, theirs)

    return grid(
        "Bit accuracy of clean marked clips, and how often the rule V_A accepts, beside its bound "
        "β.",
        f"""
        Decoding | what the reader holds
        BA | bit accuracy; ± the deviation over clips of the mean over wrong keys
        tries | clips, or clips times wrong keys
        V_A | share of tries accepted, presence at the shipped threshold | 4
        95 % CI | Clopper–Pearson interval of V_A
        β | the bound on how often a wrong key is accepted
        BA, paper | {PUBLISHED} | p""",
        stacked(
            [m for m in e.in_suite("keys") if e.keyed(m)],
            lambda method: [line(method, reader) for reader in READERS],
        ),
    )


def tolerance(e: Evidence) -> Table | None:
    """Return V_A under each attack and the bound beta for rho from 0 to 4."""
    measured = {m: [a for a in columns.suite(e, [m]) if e.rows(m, a)] for m in e.marked_methods}
    method = next((m for m, attacks in measured.items() if attacks), None)
    if method is None:
        return None

    def by_rho(of: Sample) -> list[float | None]:
        return [of.verified(rho=rho).value for rho in RHOS]

    bits = e.bits(method)
    rows: Rows = []
    if bits:
        rows.append(("β, the bound on a wrong key", *(power(bound(bits, rho)) for rho in RHOS)))
    if wrong := tries(e.suite("keys", method), "wrong"):
        rates = (layout.figure(rate, 4) for rate in by_rho(wrong))
        rows.append(("V_A of wrong keys, measured", *rates))
    for kind in TRANSPLANTS:
        if moved := e.suite("transplant", method).where(attack=kind):
            rows.append((f"V_A of the {kind} transplant", *by_rho(moved)))
    rows.append("V_A of the owner")
    rows += [(label(attack), *by_rho(e.of(method, attack))) for attack in measured[method]]
    heads = (f"ρ = {rho} | at most {rho} wrong bits forgiven | 3" for rho in RHOS)
    return grid(
        f"How often {titled(method)} accepts when ρ wrong bits of {bits} are forgiven, and what a "
        f"wrong key gets; it ships with ρ = {e.rho(method)}.",
        "\n".join(["Setting | what was verified", *heads]),
        rows,
    )


def beta(e: Evidence) -> Table | None:
    """Return the bound beta by payload length, at each measured length and the paper's."""
    measured = {m: e.bits(m) for m in (*e.methods, *e.study("bits/"))}
    rows = []
    for bits in sorted({*LENGTHS, *(n for n in measured.values() if n)}):
        having = ", ".join(titled(m) for m, n in measured.items() if n == bits)
        theirs = power(paper.BETA[bits]) if bits in paper.BETA else EMPTY
        rows.append((str(bits), power(bound(bits, 2)), theirs, having or EMPTY))
    found = grid(
        "Bound on how often a wrong key is accepted at ρ = 2; arithmetic, not a measurement.",
        f"""
        Bits | length of the payload
        β | 2^−n times the number of codes within 2 bits
        β, paper | {PUBLISHED} | p
        methods | measured methods with this length | words""",
        rows if e.marked_methods else [],
    )
    return found and replace(found, notes=())
