"""Tables of the paper's attacks: robustness, attribution, false positives, longer clips, chains.

Each function takes the evidence and returns a table, or None where there are no rows for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keybound.attacks import SUITES
from keybound.benchmark.report import paper
from keybound.benchmark.report.columns import (
    THEIRS,
    USUAL,
    Block,
    Line,
    accepted,
    attack_lines,
    attack_names,
    from_paper,
    in_families,
    known,
    measured,
    of_method,
    right,
    stack_of_attacks,
    suite,
    table,
    under,
)
from keybound.benchmark.report.grid import grid
from keybound.benchmark.report.labels import (
    PUBLISHED,
    counted,
    in_order,
    label,
    short,
    thresholds,
    titled,
)
from keybound.benchmark.report.layout import Table
from keybound.benchmark.report.summaries import SECOND, Evidence, natural

MANY = 12  # pairs beyond this number stand in a square, not in a list


def with_published(
    e: Evidence,
    methods: Sequence[str],
    wanted: Mapping[str, int | None],
    columns: Mapping[str, str],
    published: Mapping[str, Mapping[str, Sequence[float]]],
    digits: int = 3,
) -> list[Block]:
    """Return the columns of the first method, the paper's of it, and those of other methods.

    `wanted` has for each measure the place of the paper's figure to compare it with.
    """
    told = {m: {a: of[m] for a, of in published.items()} for m in next(iter(published.values()))}
    places = {label: place for label, place in wanted.items() if place is not None}
    ours = told.pop("keybound")
    beside = {a: {label: of[place] for label, place in places.items()} for a, of in ours.items()}
    labels = tuple(wanted)
    return [
        of_method(e, labels, methods[0], beside=beside, printed=digits),
        from_paper(THEIRS, columns, ours, digits),
        *(of_method(e, labels, method) for method in methods[1:]),
        *(
            from_paper(f"{titled(peer)}, published", columns, figures, digits)
            for peer, figures in told.items()
        ),
    ]


def robustness(e: Evidence) -> Table | None:
    """Return DA and BA under the paper's attacks, beside the paper and its peers."""
    if not (methods := under(e, paper.ATTACKS)):
        return None
    columns = {"DA": f"detection accuracy, {PUBLISHED}", "BA": f"bit accuracy, {PUBLISHED}"}
    wanted = {"DA shipped": 0, "DA 1 %": 0, "BA": 1}
    return table(
        "robustness",
        "Robustness",
        "Detection accuracy (DA) and bit accuracy (BA) under the paper's attacks; "
        f"{counted(e, methods)}.",
        [attack_names(), *with_published(e, methods, wanted, columns, paper.ROBUSTNESS)],
        in_families(e, suite(e, methods)),
        thresholds(e, methods),
    )


def attribution(e: Evidence) -> Table | None:
    """Return how often the rule V_A accepts the owner's own clips."""
    if not (methods := under(e, paper.ATTACKS)):
        return None
    columns, wanted = {"V_A": f"true-accept rate, {PUBLISHED}"}, {"V_A shipped": 0, "V_A 1 %": 0}
    rho = ", ".join(f"{titled(m)} {e.rho(m)} of {e.bits(m) or '?'} bits" for m in methods)
    return table(
        "attribution",
        "Attribution",
        "True-accept rate of the rule V_A: presence at the threshold, and at most ρ wrong bits "
        f"({rho}).",
        [attack_names(), *with_published(e, methods, wanted, columns, paper.ATTRIBUTION)],
        in_families(e, suite(e, methods)),
        thresholds(e, methods),
    )


def false_positives(e: Evidence) -> Table | None:
    """Return what the thresholds let through under each attack, and whether scores still part."""
    methods = under(e, paper.ATTACKS)
    columns = {
        "DA": f"at 1 % clean, {PUBLISHED}",
        "FPR": f"realised, {PUBLISHED}",
        "matched": f"DA matched at 1 %, {PUBLISHED}",
    }
    before = ("DA shipped", "FPR shipped", "DA 1 %", "FPR 1 %")
    after = ("matched 1 %", "matched 0.1 %", "lowest marked", "highest unmarked")

    def attacks(method: str) -> list[str]:
        """Return the paper's attacks; of another method than ours, those that rows speak of."""
        every = suite(e, [method])
        return every if method == "keybound" else known(e, [method], every)

    return table(
        "false-positives",
        "False-positive control",
        "What thresholds set beforehand let through under each attack, and detection at thresholds "
        "set on equally attacked unmarked clips.",
        [
            attack_names(),
            measured(before, group="set beforehand"),
            measured(after, group="set on the same attack"),
            from_paper(THEIRS, columns, paper.FALSE_POSITIVES, ours=True),
        ],
        stack_of_attacks(e, methods, attacks),
        thresholds(e, methods),
    )


def lengths(e: Evidence) -> Table | None:
    """Return DA, FPR and BA by the length of the clips."""
    all_lengths = sorted({s for m, a, s in e.clips if m in e.methods and a != "quality"})
    methods = [m for m in e.marked_methods if any(k[0] == m and k[2] != SECOND for k in e.clips)]

    def attacks(method: str) -> list[str]:
        return in_order({a for m, a, s in e.clips if m == method and s != SECOND} - {"quality"})

    wanted = ("DA", "FPR", "BA")
    return table(
        "lengths",
        "Longer clips",
        "Detection, false positives and bit accuracy by the length of the clip, since users have "
        "more than a second.",
        [attack_names(), *(measured(wanted, seconds=s, group=f"{s:g} s") for s in all_lengths)],
        stack_of_attacks(e, methods, attacks),
        thresholds(e, methods),
    )


def compound(e: Evidence) -> Table | None:
    """Return chains of attacks: the paper's four, what stands in for them, and any other."""
    chains = {a for m in e.marked_methods for a in e.attacks(m) if "+" in a}
    if not (methods := under(e, chains)):
        return None
    wanted = {"DA shipped": 0, "DA 1 %": 0, "BA": None, "V_A shipped": None}
    column = {"DA": f"detection accuracy, {PUBLISHED}"}
    figures = {
        chain: {"keybound": (ours,), "audioseal": (theirs,)}
        for chain, (ours, theirs) in paper.COMPOUND.items()
    }
    named = []
    for chain in paper.COMPOUND:
        swapped = chain.replace("encodec-6", "lyra-6")
        named += [chain, *([swapped] if swapped != chain and swapped in chains else [])]
    squared = catalogue_pairs(e)
    rest = sorted(chains - {*named} - {*(squared if len(squared) > MANY else ())}, key=natural)
    lines = attack_lines(e, named)
    return table(
        "compound",
        "Compound attacks",
        "One attack after the other; noise is at 20 dB in the paper's chains.",
        [attack_names("Chain"), *with_published(e, methods, wanted, column, figures, 2)],
        lines + (["Other chains", *attack_lines(e, rest)] if rest else []),
        thresholds(e, methods),
    )


def catalogue_pairs(e: Evidence) -> list[str]:
    """Return the measured chains of two attacks of the paper's table."""
    found = {a for m in e.marked_methods for a in e.attacks(m)}
    return [pair for pair in SUITES["pairs"] if pair in found]


def pairs(e: Evidence) -> Table | None:
    """Return every pair of the catalogue as a square, when more than a few were measured."""
    found = catalogue_pairs(e)
    method = next((m for m in e.marked_methods if any(e.rows(m, a) for a in found)), None)
    if method is None or len(found) <= MANY:
        return None
    there = {part for pair in found for part in pair.split("+")}
    attacks = [attack for attack in paper.ATTACKS if attack in there]
    rows: list[Any] = []
    for told, value in {"BA": right(), "V_A": accepted(USUAL)}.items():
        rows.append(f"{told}, by first attack")
        for a in attacks:
            of = (Line("", e, method, e.rows(method, f"{a}+{then}")) for then in attacks)
            rows.append((short(a), *map(value, of)))
    heads = (f"then: {short(a)} | followed by {label(a)} | 2" for a in attacks)
    return grid(
        "pairs",
        "Every pair of the catalogue",
        f"Bit accuracy and attribution of {titled(method)} under one attack (rows) followed by "
        "another (columns).",
        "\n".join(["First | the attack that comes first", *heads]),
        rows,
    )
