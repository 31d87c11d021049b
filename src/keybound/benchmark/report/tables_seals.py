"""Tables of sealed evidence: after attacks, under wrong keys, forged and removed, and its cost.

Each function takes the evidence and gives a table, or None where there are no rows for it.
"""

from collections.abc import Sequence

import numpy as np

from keybound.attacks import SUITES
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.measure.seals import P_LEVELS
from keybound.benchmark.report.labels import label, notes_for, titled
from keybound.benchmark.report.layout import Cell, Column, Table, figure, name
from keybound.benchmark.report.summaries import Evidence, Rate, natural, numbers

ACCEPTED = "p < 1e-6 after correction for every place searched"
FORGERIES = {
    "known-payload": "forged with a known payload: another one, another host, another seal",
    "replay": "the code as anyone reads it, on another host under another seal",
}
COLLUSIONS = {
    "copies": "copies of one host with other payloads and positions, averaged",
    "mixture": "different recordings, averaged",
    "estimate": "recordings, what they share by level taken out of each",
    "reused": "recordings, the same where all have one position and payload",
}
COPYINGS = {
    "gain-field": "the gains of mark and seal",
    "residual": "what was added",
    "residual-levelled": "what was added, as loud beside the other as it was",
}
ANSWERS = ("other", "unclear", "same")
COSTS = {"pesq": ("PESQ", 3), "visqol": ("ViSQOL", 3), "stoi": ("STOI", 4), "snr_db": ("SNR", 2)}
Lines = list[tuple[Cell, ...] | str]


def sealed(e: Evidence) -> Table | None:
    """Lay out by attack and length how many seals hold, and how clearly."""
    methods = e.in_suite("seal")
    if not methods:
        return None
    every = [row for method in methods for row in e.suite("seal", method)]
    lengths = sorted({float(row["seconds"]) for row in every})
    order = list(dict.fromkeys(row["attack"] for row in sorted(every, key=_order)))
    rows: Lines = []
    for method in methods:
        rows += [titled(method)] if len(methods) > 1 else []
        of = e.suite("seal", method)
        for attack in order:
            cells = [name(label(attack).partition(", in ")[0])]
            for seconds in lengths:
                part = [r for r in of if r["attack"] == attack and r["seconds"] == seconds]
                cells += [_held(part), _held(part, "holds_256"), *_clearness(part)]
            rows.append(tuple(cells))
    columns = [Column("Attack", "what happened to the marked recording", words=True)]
    for seconds in lengths:
        group = f"{seconds:g} s"
        columns += [
            Column("known", f"share accepted, position known: {ACCEPTED}", group),
            Column("of 256", f"share accepted, 256 positions searched: {ACCEPTED}", group),
            Column("z", "mean of the statistic at the known position", group),
            Column("least z", "the least of it", group),
        ]
    return Table(
        "sealed",
        "Sealed evidence",
        "Share of seals that are accepted at p < 1e-6 after each attack, by length; each recording "
        "has a key and a position of its own.",
        tuple(columns),
        tuple(rows),
        notes_for(rows, *(_counted(e, method, lengths, methods) for method in methods)),
    )


def _order(row: Row) -> tuple[int, list[tuple[bool, float, str]]]:
    attack = row["attack"]
    known = SUITES["sealed"]
    return known.index(attack) if attack in known else len(known), natural(attack)


def _held(rows: Sequence[Row], which: str = "holds") -> Cell:
    told = [bool(row[which]) for row in rows if row.get(which) is not None]
    return figure(Rate(sum(told), len(told)).value)


def _clearness(rows: Sequence[Row]) -> tuple[Cell, Cell]:
    z = numbers(rows, "z")
    return figure(z.value, 1), figure(min(z.values, default=None), 1)


def _counted(e: Evidence, method: str, lengths: Sequence[float], methods: Sequence[str]) -> str:
    told = []
    for seconds in lengths:
        rows = [row for row in e.suite("seal", method) if row["seconds"] == seconds]
        told.append(f"{len({row['clip'] for row in rows})} of {seconds:g} s")
    whose = f"{titled(method)}: " if len(methods) > 1 else ""
    held = [row for row in e.suite("seal", method) if row["holds"]]
    layers = sorted({row["layer"] for row in held})
    words = {"code": "rolling code on the audio of its record"}
    found = [
        f"{sum(row['layer'] == one for row in held)} by the {words.get(one, one)}" for one in layers
    ]
    by_layer = f"; seals that hold: {', '.join(found)}" if len(layers) > 1 else ""
    return f"{whose}recordings: {', '.join(told)}{by_layer}."


def false_acceptance(e: Evidence) -> Table | None:
    """Lay out how low p comes under wrong keys, beside what it bounds."""
    methods = e.in_suite("seal-null")
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        rows += [titled(method)] if len(methods) > 1 else []
        every = e.suite("seal-null", method)
        parts = {s: [r for r in every if r["source"] == s] for s in _sources(every)}
        for source, of in {**parts, "all of them": every}.items():
            tries, below = _below(of)
            counts = (Cell(f"{count:,}") for count in below)
            rows.append((name(source), Cell(str(len(of))), Cell(f"{tries:,}"), *counts))
        tries, _ = _below(every)
        allowed = (Cell(f"{tries * level:,.10g}") for level in P_LEVELS)
        rows.append((name("allowed by p"), Cell(""), Cell(""), *allowed))
    return Table(
        "false-acceptance",
        "False acceptance of seals",
        "How many wrong keys come to a p below each level, the position given and every cut "
        "searched.",
        (
            Column("Recordings", "what the wrong keys were tried on", words=True),
            Column("number", "how many recordings"),
            Column("tries", "recordings times wrong keys"),
            *(Column(f"< {p:g}", "tries below this p") for p in P_LEVELS),
        ),
        tuple(rows),
        notes_for(rows),
    )


def _sources(rows: Sequence[Row]) -> list[str]:
    return sorted({row["source"] for row in rows}, key=lambda s: (s != "unmarked", s))


def _below(rows: Sequence[Row]) -> tuple[int, list[int]]:
    counts = np.sum([row["below"] for row in rows], axis=0)
    return sum(row["keys"] for row in rows), [int(count) for count in counts]


def forgery(e: Evidence) -> Table | None:
    """Lay out what forgers get, and what removers and colluders leave of a seal."""
    suites = ("seal-forgery", "seal-remover", "seal-average")
    methods = [m for m in e.methods if any(e.suite(suite, m) for suite in suites)]
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        rows += [titled(method)] if len(methods) > 1 else []
        forged = e.suite("seal-forgery", method)
        for kind, seconds in sorted({(row["attack"], row["seconds"]) for row in forged}):
            of = [r for r in forged if (r["attack"], r["seconds"]) == (kind, seconds)]
            rows.append(_line(FORGERIES[kind], of))
        removed = e.suite("seal-remover", method)
        by = ("network", "budget", "seconds")
        for which in sorted({tuple(row[k] for k in by) for row in removed}):
            of = [row for row in removed if tuple(row[k] for k in by) == which]
            rows.append(_line(f"remover {which[0]}, {which[1]:,} steps", of))
        averaged = e.suite("seal-average", method)
        for kind, told in COLLUSIONS.items():
            if of := [row for row in averaged if row["attack"] == kind]:
                rows.append(_averaged(f"{of[0]['copies']} {told}", of))
    return Table(
        "seal-forgery",
        "Forgery and removal of seals",
        "What a forger with the public embedder gets accepted, and what removers and colluders "
        "leave of the seals of a party.",
        (
            Column("Attack", "what was done", words=True),
            Column("seconds", "length of a recording"),
            Column("trials", "seals looked for"),
            Column("known", f"share accepted, position known: {ACCEPTED}", "sealed"),
            Column("of 256", f"share accepted, 256 positions searched: {ACCEPTED}", "sealed"),
            Column("any", "share of averages in which at least one seal is accepted", "sealed"),
            Column("z", "mean of the statistic at the known position"),
            Column("least z", "the least of it"),
            Column("V_A", "share attributed by the rule V_A, without a seal"),
            Column("PESQ", "of what a remover made, against the clean host"),
        ),
        tuple(rows),
        notes_for(rows, "The p-values of an average are not corrected for its several seals."),
    )


def _line(told: str, rows: Sequence[Row]) -> tuple[Cell, ...]:
    return (
        name(told),
        Cell(f"{rows[0]['seconds']:g}"),
        Cell(str(len(rows))),
        _held(rows),
        _held(rows, "holds_256"),
        Cell(),
        *_clearness(rows),
        _held(rows, "verified"),
        figure(numbers(rows, "pesq").value, 2),
    )


def _averaged(told: str, rows: Sequence[Row]) -> tuple[Cell, ...]:
    each = [
        {"holds": holds, "z": z, "verified": verified, "seconds": row["seconds"]}
        for row in rows
        for holds, z, verified in zip(row["holds"], row["z"], row["verified"], strict=True)
    ]
    cells = list(_line(told, each))
    cells[5] = figure(Rate(sum(any(row["holds"]) for row in rows), len(rows)).value)
    return tuple(cells)


def copies(e: Evidence) -> Table | None:
    """Lay out what a record's fingerprint says of marks that were copied."""
    methods = e.in_suite("seal-copy")
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        rows += [titled(method)] if len(methods) > 1 else []
        every = e.suite("seal-copy", method)
        for kind, seconds in sorted({(row["attack"], row["seconds"]) for row in every}):
            of = [r for r in every if (r["attack"], r["seconds"]) == (kind, seconds)]
            said = [sum(row["decision"] == answer for row in of) for answer in ANSWERS]
            cells = (figure(Rate(count, len(of)).value) for count in said)
            rows.append(
                (name(COPYINGS[kind]), Cell(f"{seconds:g}"), Cell(str(len(of))), *cells, _held(of))
            )
    return Table(
        "seal-copy",
        "Copied marks",
        "What the fingerprint in the record says of a mark that was copied to another recording.",
        (
            Column("Copied", "what was put on the other recording", words=True),
            Column("seconds", "length of the recordings"),
            Column("trials", "how many"),
            *(Column(answer, f"share called {answer}", "the fingerprint") for answer in ANSWERS),
            Column("sealed", f"share whose seal, without a record, is accepted: {ACCEPTED}"),
        ),
        tuple(rows),
        notes_for(rows),
    )


def cost(e: Evidence) -> Table | None:
    """Lay out the quality of marked recordings with and without a seal."""
    methods = e.in_suite("seal-quality")
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        rows += [titled(method)] if len(methods) > 1 else []
        every = e.suite("seal-quality", method)
        for seconds in sorted({row["seconds"] for row in every}):
            of = [row for row in every if row["seconds"] == seconds]
            cells = [name(f"{seconds:g} s"), Cell(str(len(of)))]
            for measure, (_, digits) in COSTS.items():
                pair = [numbers(of, f"{measure}{which}").value for which in ("_unsealed", "")]
                change = None if None in pair else pair[1] - pair[0]  # type: ignore[operator]
                cells += [figure(value, digits) for value in (*pair, change)]
            rows.append(tuple(cells))
    columns = [
        Column("Length", "of the recordings", words=True),
        Column("number", "how many recordings"),
    ]
    for said, _ in COSTS.values():
        columns += [
            Column("mark", "mean with the mark alone", said),
            Column("sealed", "mean with mark and seal", said),
            Column("Δ", "the difference", said),
        ]
    return Table(
        "seal-quality",
        "Quality with and without a seal",
        "Marked recordings against their hosts, the same mark without its seal and with it.",
        tuple(columns),
        tuple(rows),
        notes_for(rows),
    )
