"""Tables of the paper's attacks: robustness, attribution, false positives, longer clips, chains."""

from collections.abc import Mapping, Sequence

from keybound.attacks import SUITES
from keybound.benchmark.report import columns, labels, paper
from keybound.benchmark.report.columns import THEIRS, Block, attack_table, from_paper, measured
from keybound.benchmark.report.grid import Rows, grid
from keybound.benchmark.report.labels import PUBLISHED, counted, in_order, label, titled
from keybound.benchmark.report.layout import Table
from keybound.benchmark.report.summaries import SECOND, Evidence, natural

MANY = 12  # pairs beyond this number stand in a square, not in a list


def with_published(
    e: Evidence,
    methods: Sequence[str],
    wanted: Mapping[str, int | None],
    heads: Mapping[str, str],
    published: Mapping[str, Mapping[str, Sequence[float]]],
    digits: int = 3,
) -> list[Block]:
    """Return the columns of the first method, the paper's of it, and those of other methods.

    `wanted` has for each measure the place of the paper's figure to compare it with.
    """
    told = {m: {a: of[m] for a, of in published.items()} for m in next(iter(published.values()))}
    ours = told.pop("keybound")
    beside = {
        a: {label: of[place] for label, place in wanted.items() if place is not None}
        for a, of in ours.items()
    }
    labels = tuple(wanted)
    return [
        measured(e, labels, methods[0], beside=beside, printed=digits),
        from_paper(THEIRS, heads, ours, digits),
        *(measured(e, labels, method) for method in methods[1:]),
        *(
            from_paper(f"{titled(peer)}, published", heads, figures, digits)
            for peer, figures in told.items()
        ),
    ]


def robustness(e: Evidence) -> Table | None:
    """Return DA and BA under the paper's attacks, beside the paper and its peers."""
    if not (methods := columns.under(e, paper.ATTACKS)):
        return None
    heads = {"DA": f"detection accuracy, {PUBLISHED}", "BA": f"bit accuracy, {PUBLISHED}"}
    wanted = {"DA shipped": 0, "DA 1 %": 0, "BA": 1}
    return attack_table(
        "Detection accuracy (DA) and bit accuracy (BA) under the paper's attacks; "
        f"{counted(e, methods)}.",
        with_published(e, methods, wanted, heads, paper.ROBUSTNESS),
        columns.in_families(columns.suite(e, methods)),
        labels.thresholds(e, methods),
    )


def attribution(e: Evidence) -> Table | None:
    """Return how often the rule V_A accepts the owner's own clips."""
    if not (methods := columns.under(e, paper.ATTACKS)):
        return None
    heads, wanted = {"V_A": f"true-accept rate, {PUBLISHED}"}, {"V_A shipped": 0, "V_A 1 %": 0}
    rho = ", ".join(f"{titled(m)} {e.rho(m)} of {e.bits(m) or '?'} bits" for m in methods)
    return attack_table(
        "True-accept rate of the rule V_A: presence at the threshold, and at most ρ wrong bits "
        f"({rho}).",
        with_published(e, methods, wanted, heads, paper.ATTRIBUTION),
        columns.in_families(columns.suite(e, methods)),
        labels.thresholds(e, methods),
    )


def false_positives(e: Evidence) -> Table | None:
    """Return what the thresholds let through under each attack, and whether scores still part."""
    methods = columns.under(e, paper.ATTACKS)
    heads = {
        "DA": f"at 1 % clean, {PUBLISHED}",
        "FPR": f"realised, {PUBLISHED}",
        "matched": f"DA matched at 1 %, {PUBLISHED}",
    }
    before = ("DA shipped", "FPR shipped", "DA 1 %", "FPR 1 %")
    after = ("matched 1 %", "matched 0.1 %", "lowest marked", "highest unmarked")

    def attacks(method: str) -> list[str]:
        """Return the paper's attacks; of another method than ours, those that rows speak of."""
        every = columns.suite(e, [method])
        return every if method == "keybound" else columns.known(e, [method], every)

    return attack_table(
        "What thresholds set beforehand let through under each attack, and detection at thresholds "
        "set on equally attacked unmarked clips.",
        [
            measured(e, before, group="set beforehand"),
            measured(e, after, group="set on the same attack"),
            from_paper(THEIRS, heads, paper.FALSE_POSITIVES, ours=True),
        ],
        columns.stack_of_attacks(methods, attacks),
        labels.thresholds(e, methods),
    )


def lengths(e: Evidence) -> Table | None:
    """Return DA, FPR and BA by the length of the clips."""
    attacked = {key for key in e.clips if key[0] in e.methods and key[1] != "quality"}
    longer = [(method, attack) for method, attack, seconds in attacked if seconds != SECOND]
    methods = [m for m in e.marked_methods if m in dict(longer)]
    return attack_table(
        "Detection, false positives and bit accuracy by the length of the clip, since users have "
        "more than a second.",
        [
            measured(e, ("DA", "FPR", "BA"), seconds=seconds, group=f"{seconds:g} s")
            for seconds in sorted({seconds for _, _, seconds in attacked})
        ],
        columns.stack_of_attacks(methods, lambda m: in_order({a for n, a in longer if n == m})),
        labels.thresholds(e, methods),
    )


def compound(e: Evidence) -> Table | None:
    """Return chains of attacks: the paper's four, what stands in for them, and any other."""
    chains = {a for m in e.marked_methods for a in e.attacks(m) if "+" in a}
    if not (methods := columns.under(e, chains)):
        return None
    wanted = {"DA shipped": 0, "DA 1 %": 0, "BA": None, "V_A shipped": None}
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
    lines: columns.Lines = [("", chain) for chain in named]
    lines += ["Other chains", *(("", chain) for chain in rest)] if rest else []
    return attack_table(
        "One attack after the other; noise is at 20 dB in the paper's chains.",
        with_published(e, methods, wanted, {"DA": f"detection accuracy, {PUBLISHED}"}, figures, 2),
        lines,
        labels.thresholds(e, methods),
        first="Chain",
    )


def catalogue_pairs(e: Evidence) -> list[str]:
    """Return the measured chains of two attacks of the paper's table."""
    found = {a for m in e.marked_methods for a in e.attacks(m)}
    return [pair for pair in SUITES["pairs"] if pair in found]


def pairs(e: Evidence) -> Table | None:
    """Return every pair of the catalogue as a square, when more than a few were measured."""
    found = catalogue_pairs(e)
    method = next(iter(columns.under(e, found)), None)
    if method is None or len(found) <= MANY:
        return None
    there = {part for pair in found for part in pair.split("+")}
    attacks = [attack for attack in paper.ATTACKS if attack in there]
    short = {a: label(a).partition(" (")[0] for a in attacks}  # without parameters
    rows: Rows = []
    for measure in ("BA", "V_A"):
        value = columns.MEASURES[measure]
        rows.append(f"{measure}, by first attack")
        for first in attacks:
            chains = (e.of(method, f"{first}+{then}") for then in attacks)
            rows.append((short[first], *map(value, chains)))
    heads = (f"then: {short[a]} | followed by {label(a)} | 2" for a in attacks)
    return grid(
        f"Bit accuracy and attribution of {titled(method)} under one attack (rows) followed by "
        "another (columns).",
        "\n".join(["First | the attack that comes first", *heads]),
        rows,
    )
