"""Tables whose rows need functions of their own: worst figures, keys, other audio, seals, pairs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from keybound.benchmark.measure.samples import Sample
from keybound.benchmark.measure.seals import P_LEVELS
from keybound.benchmark.report import layout, paper, tables_attacks
from keybound.benchmark.report.descriptions import METERS, Description
from keybound.benchmark.report.grid import Rows, grid, stacked
from keybound.benchmark.report.labels import label, thresholds, titled
from keybound.benchmark.report.layout import BLANK, EMPTY, Cell, Table, between, power
from keybound.benchmark.report.summaries import CLEAN, SHIPPED, Evidence, natural
from keybound.benchmark.report.values import Line, estimate, value
from keybound.crypto.codes import bound

TRANSPLANTS = ("residual", "gain-field")


def glance(e: Evidence, d: Description) -> Table | None:
    """Return the worst figures of our method beside the paper's worst."""
    method = next((m for m in e.marked_methods if e.rows(m, "clean")), None)
    if method is None:
        return None
    hit = {a: e.of(method, a) for a in paper.suite_of(e.attacks(method))}
    rows: Rows = []
    for measure in ("DA", "BA", "V_A", "FPR"):
        values = {a: value(e, Line(method, of), measure) for a, of in hit.items()}
        found = {a: figure for a, figure in values.items() if figure is not None}
        theirs = paper.column(paper.ROBUSTNESS["keybound"], measure)
        if found:
            rows.append(_worst(measure, found, theirs))
    means = {"PESQ": ("pesq", 2), "STOI": ("stoi", 3), "SNR, dB": ("snr_db", 1)}
    for name, (key, digits) in means.items():
        ours = e.of(method, "quality").mean(key).value
        if ours is not None:
            theirs = paper.TABLES["quality"]["keybound"][METERS[key]]
            cells = (layout.against(ours, theirs, digits), "mean", layout.published(theirs, digits))
            rows.append((name, *cells, Cell("mean", kind="published")))
    rate = paper.TABLES["security"]["keybound"]["V_A"]
    for kind, beside in zip(TRANSPLANTS, (rate, None), strict=True):
        ours = e.suite("transplant", method).where(attack=kind).verified().value
        if ours is not None:
            told, cell = kind.replace("-", " "), layout.against(ours, beside, lower_is_better=True)
            rows.append((f"Transplant V_A, {told}", cell, Cell(), beside, BLANK))
    return grid(d, rows, {"method": titled(method), "attacks": str(len(hit))})


def _worst(measure: str, found: dict[str, float], theirs: dict[str, float]) -> tuple[Any, ...]:
    """Return a line: the worst figure of ours and of the paper's, and where they are."""
    high = measure == "FPR"
    at, there = ((max if high else min)(d, key=d.__getitem__) for d in (found, theirs))
    ours = layout.against(found[at], theirs[there], lower_is_better=high)
    where = Cell(_place(theirs, there), kind="published")
    told = f"{'Highest' if high else 'Lowest'} {measure}"
    return told, ours, _place(found, at), theirs[there], where


def _place(figures: Mapping[str, float], at: str) -> str:
    """Return the attack of a figure, or that all share it."""
    shared = [a for a, value in figures.items() if round(value, 3) == round(figures[at], 3)]
    if len(shared) == len(figures):
        return "every attack"
    return label(at) + (f" and {len(shared) - 1} more" if len(shared) > 1 else "")


def tries(keys: Sample, reader: str) -> Sample:
    """Return one row for each decoding: a clip has one right key and several wrong ones."""
    rows = [
        {"presence": row["presence"], "errors": int(errors)}
        for row in keys.rows
        if row.get(reader) is not None
        for errors in np.atleast_1d(row[reader])
    ]
    return replace(keys, rows=rows)


def wrong_key(e: Evidence, d: Description) -> Table | None:
    """Return reading with the right key, without one and with wrong ones, beside beta."""
    readers = d.names["reader"]

    def line(method: str, reader: str) -> tuple[Any, ...]:
        keys, wrong = e.suite("keys", method), reader == "wrong"
        mean, rate = keys.accuracy(reader), tries(keys, reader).verified()
        right = EMPTY if mean.value is None else layout.number(mean.value)
        right += f" ± {layout.number(float(np.std(mean.values)))}" if wrong and mean.values else ""
        bits = e.bits(method) or keys.rows[0]["bits"]
        beta = power(bound(bits, keys.rho)) if wrong else EMPTY
        theirs = paper.TABLES["wrong-key"][reader]["BA"] if method == "keybound" else EMPTY
        cells = (rate.value, between(rate.interval, 4), beta, theirs)
        return (readers[reader], right, f"{rate.trials:,}", *cells)

    methods = [m for m in e.in_suite("keys") if e.keyed(m)]
    return grid(d, stacked(methods, lambda m: [line(m, reader) for reader in readers]))


def tolerance(e: Evidence, d: Description) -> Table | None:
    """Return V_A under each attack and the bound beta by the wrong bits that are forgiven."""
    measured = {m: paper.suite_of(e.attacks(m)) for m in e.marked_methods}
    method = next((m for m, attacks in measured.items() if attacks), None)
    if method is None:
        return None
    rhos = [int(one["most"]) for one in d.each]

    def by_rho(of: Sample) -> list[float | None]:
        return [of.verified(rho=rho).value for rho in rhos]

    bits = e.bits(method)
    rows: Rows = []
    if bits:
        rows.append(("β, the bound on a wrong key", *(power(bound(bits, rho)) for rho in rhos)))
    if wrong := tries(e.suite("keys", method), "wrong"):
        rates = (layout.figure(rate, 4) for rate in by_rho(wrong))
        rows.append(("V_A of wrong keys, measured", *rates))
    for kind in TRANSPLANTS:
        if moved := e.suite("transplant", method).where(attack=kind):
            rows.append((f"V_A of the {kind} transplant", *by_rho(moved)))
    rows.append("V_A of the owner")
    rows += [(label(attack), *by_rho(e.of(method, attack))) for attack in measured[method]]
    return grid(d, rows, {"method": titled(method), "bits": str(bits), "rho": str(e.rho(method))})


def beta(e: Evidence, d: Description) -> Table | None:
    """Return the bound beta by payload length, at each measured length and the paper's."""
    measured = {m: e.bits(m) for m in (*e.methods, *e.study("bits/"))}
    rows = []
    lengths = {int(one["bits"]) for one in d.each} | {n for n in measured.values() if n}
    for bits in sorted(lengths):
        having = ", ".join(titled(m) for m, n in measured.items() if n == bits)
        theirs = paper.TABLES["beta"].get(str(bits))
        told = power(theirs["β"]) if theirs else EMPTY
        rows.append((str(bits), power(bound(bits, 2)), told, having or EMPTY))
    return grid(d, rows if e.marked_methods else [])


def other_audio(e: Evidence, d: Description) -> Table | None:
    """Return false positives on unmarked audio that is not clean read speech."""
    methods = e.in_suite("null")

    def lines(method: str) -> Rows:
        every = e.suite("null", method)
        named = [row | {"named": _source(row)} for row in every.rows]
        parts = replace(every, rows=named).by("named")
        parts.sort(key=lambda part: natural(part[0]))
        parts += [("all of it", every)] if len(parts) > 1 else []
        return [(source, *_scored(of)) for source, of in parts]

    return grid(d, stacked(methods, lines), {"thresholds": thresholds(e, methods)})


def _source(row: dict[str, Any]) -> str:
    attacked = row.get("attack", "clean")
    return str(row["source"]) + ("" if attacked == "clean" else f", {label(attacked)}")


def _scored(of: Sample) -> tuple[Any, ...]:
    windows = replace(of, rows=[{"marked": s} for row in of.rows for s in row["scores"]])
    reason = next((str(row["not_run"]) for row in of.rows if "not_run" in row), None)
    if not windows and reason:
        return (layout.not_run(reason, 7),)
    hours = sum(len(row["scores"]) * row["seconds"] for row in of.rows) / 3600
    rates = [windows.reached(which) for which in (SHIPPED, CLEAN)]
    found = [cell for rate in rates for cell in (rate.value, between(rate.interval, 4))]
    return (f"{len(windows):,}", hours, *found, max(windows.mean("marked").values, default=None))


def false_acceptance(e: Evidence, d: Description) -> Table | None:
    """Return how low p comes under wrong keys, beside what it bounds."""

    def lines(method: str) -> Rows:
        every = e.suite("seal-null", method)
        parts = sorted(every.by("source"), key=lambda part: part[0] != "unmarked")
        rows: Rows = []
        for source, of in [*parts, ("all of them", every)]:
            tries = sum(row["keys"] for row in of.rows)
            below = np.sum([row["below"] for row in of.rows], axis=0)
            rows.append((source, len(of), f"{tries:,}", *(f"{int(count):,}" for count in below)))
        allowed = (f"{tries * level:,.10g}" for level in P_LEVELS)
        return [*rows, ("allowed by p", "", "", *allowed)]

    each = [{"p": f"{p:g}"} for p in P_LEVELS]
    return grid(d, stacked(e.in_suite("seal-null"), lines), each=each)


def pairs(e: Evidence, d: Description) -> Table | None:
    """Return every pair of the catalogue as a square, when more than a few were measured."""
    found = tables_attacks.catalogue_pairs(e)
    method = next(iter(tables_attacks.under(e, found)), None)
    if method is None or len(found) <= tables_attacks.MANY:
        return None
    attacks = paper.suite_of(part for pair in found for part in pair.split("+"))
    short = {a: label(a).partition(" (")[0] for a in attacks}  # without parameters
    rows: Rows = []
    for measure in ("BA", "V_A"):
        rows.append(f"{measure}, by first attack")
        for first in attacks:
            chains = (Line(method, e.of(method, f"{first}+{then}")) for then in attacks)
            rows.append((short[first], *(value(e, line, measure) for line in chains)))
    each = [{"short": short[a], "whole": label(a)} for a in attacks]
    return grid(d, rows, {"method": titled(method)}, each)


def intervals(e: Evidence, d: Description) -> Table | None:
    """Return the paper's figures with intervals, and ours of the same."""
    rows: Rows = []
    for measure, method, what, figure_told, low, high in paper.INTERVALS:
        stands_in = what == "encodec-6" and not e.rows(method, what) and e.rows(method, "lyra-6")
        ours, mark = ("lyra-6", layout.STANDS_IN) if stands_in else (what, "")
        told = d.names["measure"][measure].format(what=ours)
        found = estimate(e, Line(method, Sample([])), told)
        theirs = Cell(between((low, high)), mark=mark, kind="published")
        cells = (found.value, between(found.interval), str(found.trials or EMPTY))
        named = f"{titled(method)}: {measure}, {label(ours)}"
        rows.append((named, *cells, layout.published(figure_told, mark=mark), theirs))
    return grid(d, rows if any(row[1] is not None for row in rows) else [])
