"""Tables of sealed evidence: after attacks, under wrong keys, forged and removed, and its cost."""

from dataclasses import replace
from typing import Any

import numpy as np

from keybound.attacks import SUITES
from keybound.benchmark.measure.samples import Rate, Sample
from keybound.benchmark.measure.seals import P_LEVELS
from keybound.benchmark.report.grid import Rows, grid, stacked
from keybound.benchmark.report.labels import label, titled
from keybound.benchmark.report.layout import Table
from keybound.benchmark.report.summaries import Evidence, natural

ACCEPTED = "p < 1e-6 after correction for every place searched"
KNOWN = f"share accepted, position known: {ACCEPTED}"
SEARCHED = f"share accepted, 256 positions searched: {ACCEPTED}"
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
COSTS = {
    "pesq": ("PESQ", 3),
    "visqol": ("ViSQOL", 3),
    "zimtohrli": ("Zimtohrli", 3),
    "stoi": ("STOI", 4),
    "snr_db": ("SNR", 2),
}
LAYERS = {"code": "rolling code on the audio of its record"}


def clearness(of: Sample) -> tuple[float | None, float | None]:
    """Return the mean and the least of the statistic."""
    z = of.mean("z")
    return z.value, min(z.values, default=None)


def sealed(e: Evidence) -> Table | None:
    """Return by attack and length how many seals hold, and how clearly."""
    methods = e.in_suite("seal")
    every = [row for method in methods for row in e.suite("seal", method).rows]
    lengths = sorted({row["seconds"] for row in every})
    known = SUITES["sealed"]
    order = sorted(
        {row["attack"] for row in every},
        key=lambda a: (known.index(a) if a in known else len(known), natural(a)),
    )

    def line(method: str, attack: str) -> tuple[Any, ...]:
        cells: list[Any] = [label(attack).partition(", in ")[0]]
        for seconds in lengths:
            of = e.suite("seal", method).where(attack=attack, seconds=seconds)
            cells += [of.share("holds"), of.share("holds_256"), *clearness(of)]
        return tuple(cells)

    heads = "".join(
        f"""
        {seconds:g} s: known | {KNOWN} | 3
        {seconds:g} s: of 256 | {SEARCHED} | 3
        {seconds:g} s: z | mean of the statistic at the known position | 1
        {seconds:g} s: least z | the least of it | 1"""
        for seconds in lengths
    )
    return grid(
        "Share of seals that are accepted at p < 1e-6 after each attack, by length; each recording "
        "has a key and a position of its own.",
        "Attack | what happened to the marked recording" + heads,
        stacked(methods, lambda method: [line(method, attack) for attack in order]),
        *(_counted(e.suite("seal", m), titled(m) if len(methods) > 1 else "") for m in methods),
    )


def _counted(every: Sample, whose: str) -> str:
    counts = (
        f"{len({row['clip'] for row in of.rows})} of {seconds:g} s"
        for seconds, of in every.by("seconds")
    )
    layers = every.where(holds=True).by("layer")
    found = ", ".join(f"{len(of)} by the {LAYERS.get(one, one)}" for one, of in layers)
    by_layer = f"; seals that hold: {found}" if len(layers) > 1 else ""
    return f"{whose and whose + ': '}recordings: {', '.join(counts)}{by_layer}."


def false_acceptance(e: Evidence) -> Table | None:
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

    heads = "".join(f"\n< {p:g} | tries below this p" for p in P_LEVELS)
    return grid(
        "How many wrong keys come to a p below each level, the position given and every cut "
        "searched.",
        f"""
        Recordings | what the wrong keys were tried on
        number | how many recordings
        tries | recordings times wrong keys{heads}""",
        stacked(e.in_suite("seal-null"), lines),
    )


def forgery(e: Evidence) -> Table | None:
    """Return what forgers get, and what removers and colluders leave of a seal."""

    def line(told: str, of: Sample, some: float | None = None) -> tuple[Any, ...]:
        shares = (of.share("holds"), of.share("holds_256"), some)
        last = (of.share("verified"), of.mean("pesq").value)
        return (told, f"{of.rows[0]['seconds']:g}", len(of), *shares, *clearness(of), *last)

    def lines(method: str) -> Rows:
        forged = e.suite("seal-forgery", method).by("attack", "seconds")
        removed = e.suite("seal-remover", method).by("network", "budget", "seconds")
        rows = [line(FORGERIES[kind], of) for (kind, _), of in forged]
        for (network, budget, _), of in removed:
            rows.append(line(f"remover {network}, {budget:,} steps", of))
        for kind, told in COLLUSIONS.items():
            if of := e.suite("seal-average", method).where(attack=kind):
                each = [
                    {"seconds": row["seconds"], "holds": holds, "z": z, "verified": verified}
                    for row in of.rows
                    for holds, z, verified in zip(
                        row["holds"], row["z"], row["verified"], strict=True
                    )
                ]
                some = Rate(sum(any(row["holds"]) for row in of.rows), len(of)).value
                named = f"{of.rows[0]['copies']} {told}"
                rows.append(line(named, replace(of, rows=each), some))
        return rows

    return grid(
        "What a forger with the public embedder gets accepted, and what removers and colluders "
        "leave of the seals of a party.",
        f"""
        Attack | what was done
        seconds | length of a recording
        trials | seals looked for
        sealed: known | {KNOWN} | 3
        sealed: of 256 | {SEARCHED} | 3
        sealed: any | share of averages in which at least one seal is accepted | 3
        z | mean of the statistic at the known position | 1
        least z | the least of it | 1
        V_A | share attributed by the rule V_A, without a seal | 3
        PESQ | of what a remover made, against the clean host | 2""",
        stacked(e.in_suite("seal-forgery", "seal-remover", "seal-average"), lines),
        "The p-values of an average are not corrected for its several seals.",
    )


def copies(e: Evidence) -> Table | None:
    """Return what a record's fingerprint says of marks that were copied."""

    def lines(method: str) -> Rows:
        rows: Rows = []
        for (kind, seconds), of in e.suite("seal-copy", method).by("attack", "seconds"):
            shares = (len(of.where(decision=answer)) / len(of) for answer in ANSWERS)
            rows.append((COPYINGS[kind], f"{seconds:g}", len(of), *shares, of.share("holds")))
        return rows

    answers = "".join(f"\nthe fingerprint: {one} | share called {one} | 3" for one in ANSWERS)
    return grid(
        "What the fingerprint in the record says of a mark that was copied to another recording.",
        f"""
        Copied | what was put on the other recording
        seconds | length of the recordings
        trials | how many{answers}
        sealed | share whose seal, without a record, is accepted: {ACCEPTED} | 3""",
        stacked(e.in_suite("seal-copy"), lines),
    )


def cost(e: Evidence) -> Table | None:
    """Return the quality of marked recordings with and without a seal."""

    def lines(method: str) -> Rows:
        rows: Rows = []
        for seconds, of in e.suite("seal-quality", method).by("seconds"):
            cells: list[Any] = [f"{seconds:g} s", len(of)]
            for measure in COSTS:
                bare, sealed = (of.mean(measure + which) for which in ("_unsealed", ""))
                cells += [bare.value, sealed.value]
                both = bare.value is not None and sealed.value is not None
                cells.append(sealed.value - bare.value if both else None)  # type: ignore[operator]
                cells.append(sealed.low)
            rows.append(tuple(cells))
        return rows

    heads = "".join(
        f"""
        {said}: mark | mean with the mark alone | {digits}
        {said}: sealed | mean with mark and seal | {digits}
        {said}: Δ | the difference | {digits}
        {said}: 5 % | 5th percentile with mark and seal | {digits}"""
        for said, digits in COSTS.values()
    )
    return grid(
        "Marked recordings against their hosts, the same mark without its seal and with it.",
        "Length | of the recordings\nnumber | how many recordings" + heads,
        stacked(e.in_suite("seal-quality"), lines),
    )
