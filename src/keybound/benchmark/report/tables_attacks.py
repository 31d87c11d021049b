"""Tables of the paper's attacks: robustness, attribution, false positives, and longer clips.

Each function takes the evidence and gives a table, or None where there are no rows for it.
"""

from keybound.benchmark.report import paper
from keybound.benchmark.report.blocks import (
    Block,
    from_paper,
    heads,
    in_families,
    measured,
    stack,
    suite,
    under,
)
from keybound.benchmark.report.labels import PUBLISHED, counted, notes_for, thresholds, titled
from keybound.benchmark.report.layout import Table
from keybound.benchmark.report.summaries import SECOND, Evidence, natural


def robustness(e: Evidence) -> Table | None:
    """Lay out DA and BA under the paper's attacks, beside the paper and its peers."""
    methods = under(e, (attack for _, attack, _ in paper.SUITE))
    if not methods:
        return None
    pairs = {a: figures["keybound"] for a, figures in paper.ROBUSTNESS.items()}
    beside = {a: {"DA shipped": da, "DA 1 %": da, "BA": ba} for a, (da, ba) in pairs.items()}
    wanted = ("DA shipped", "DA 1 %", "BA")
    columns = {"DA": f"detection accuracy, {PUBLISHED}", "BA": f"bit accuracy, {PUBLISHED}"}
    blocks = [measured(e, methods[0], wanted, beside=beside)]
    blocks.append(from_paper("KeyBound, paper", columns, pairs))
    blocks += [measured(e, method, wanted) for method in methods[1:]]
    for peer in paper.PEERS:
        figures = {a: of[peer] for a, of in paper.ROBUSTNESS.items()}
        blocks.append(from_paper(f"{titled(peer)}, published", columns, figures))
    rows = in_families(blocks, suite(e, methods))
    return Table(
        "robustness",
        "Robustness",
        "Detection accuracy (DA) and bit accuracy (BA) under the paper's attacks; "
        f"{counted(e, methods)}.",
        heads(blocks),
        tuple(rows),
        notes_for(rows, thresholds(e, methods)),
    )


def attribution(e: Evidence) -> Table | None:
    """Lay out how often the rule V_A accepts the owner's own clips."""
    methods = under(e, (attack for _, attack, _ in paper.SUITE))
    if not methods:
        return None
    ours = {a: of["keybound"] for a, of in paper.ATTRIBUTION.items()}
    beside = {a: {"V_A shipped": rate, "V_A 1 %": rate} for a, rate in ours.items()}
    wanted = ("V_A shipped", "V_A 1 %")
    columns = {"V_A": f"true-accept rate, {PUBLISHED}"}
    blocks = [measured(e, methods[0], wanted, beside=beside)]
    blocks.append(from_paper("KeyBound, paper", columns, {a: (r,) for a, r in ours.items()}))
    blocks += [measured(e, method, wanted) for method in methods[1:]]
    for peer in paper.PEERS:
        figures = {a: (of[peer],) for a, of in paper.ATTRIBUTION.items()}
        blocks.append(from_paper(f"{titled(peer)}, published", columns, figures))
    rows = in_families(blocks, suite(e, methods))
    rho = ", ".join(f"{titled(m)} {e.rho(m)} of {e.bits(m) or '?'} bits" for m in methods)
    return Table(
        "attribution",
        "Attribution",
        "True-accept rate of the rule V_A: presence at the threshold, and at most ρ wrong bits "
        f"({rho}).",
        heads(blocks),
        tuple(rows),
        notes_for(rows, thresholds(e, methods)),
    )


def false_positives(e: Evidence) -> Table | None:
    """Lay out what the thresholds let through under each attack, and whether scores still part."""
    methods = under(e, (attack for _, attack, _ in paper.SUITE))
    if not methods:
        return None
    wanted = ("DA shipped", "FPR shipped", "DA 1 %", "FPR 1 %")
    parting = ("matched 1 %", "matched 0.1 %", "lowest marked", "highest unmarked")
    columns = {
        "DA": f"at 1 % clean, {PUBLISHED}",
        "FPR": f"realised, {PUBLISHED}",
        "matched": f"DA matched at 1 %, {PUBLISHED}",
    }
    theirs = "KeyBound, paper"

    def blocks(method: str) -> list[Block]:
        figures = paper.FALSE_POSITIVES if method == "keybound" else {}
        return [
            measured(e, method, wanted, group="set beforehand", stacked=True),
            measured(e, method, parting, group="set on the same attack"),
            from_paper(theirs, columns, figures),
        ]

    rows = stack(methods, blocks, lambda method: shown(e, method))
    return Table(
        "false-positives",
        "False-positive control",
        "What thresholds set beforehand let through under each attack, and detection at thresholds "
        "set on equally attacked unmarked clips.",
        heads(blocks(methods[0])),
        tuple(rows),
        notes_for(rows, thresholds(e, methods)),
    )


def shown(e: Evidence, method: str) -> list[str]:
    """Give the paper's attacks; of another method than ours, those that rows speak of."""
    if method == "keybound":
        return suite(e, [method])
    return [a for a in suite(e, [method]) if e.rows(method, a) or (method, a) in e.reasons]


def lengths(e: Evidence) -> Table | None:
    """Lay out DA, FPR and BA by the length of the clips."""
    all_lengths = sorted({s for m, a, s in e.clips if m in e.methods and a != "quality"})
    methods = [m for m in e.marked_methods if any(k[0] == m and k[2] != SECOND for k in e.clips)]
    if not methods:
        return None

    def blocks(method: str) -> list[Block]:
        wanted = ("DA", "FPR", "BA")
        return [measured(e, method, wanted, seconds=s, group=f"{s:g} s") for s in all_lengths]

    def attacks(method: str) -> list[str]:
        longer = {a for m, a, s in e.clips if m == method and s != SECOND and a != "quality"}
        rank = {attack: place for place, (_, attack, _) in enumerate(paper.SUITE)}
        return sorted(longer, key=lambda a: (rank.get(a, len(rank)), natural(a)))

    rows = stack(methods, blocks, attacks)
    return Table(
        "lengths",
        "Longer clips",
        "Detection, false positives and bit accuracy by the length of the clip, since users have "
        "more than a second.",
        heads(blocks(methods[0])),
        tuple(rows),
        notes_for(rows, thresholds(e, methods)),
    )
