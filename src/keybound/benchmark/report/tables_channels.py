"""Tables of channels: re-synthesis, chains and pairs, what users meet, others' lists of attacks.

Each function takes the evidence and gives a table, or None where there are no rows for it.
"""

from collections.abc import Iterable

from keybound.attacks import ATTACKS, SUITES
from keybound.benchmark.report import paper
from keybound.benchmark.report.blocks import Block, from_paper, heads, lines, measured, under
from keybound.benchmark.report.labels import PUBLISHED, label, notes_for, short, thresholds, titled
from keybound.benchmark.report.layout import Cell, Column, Table, figure, name
from keybound.benchmark.report.summaries import Evidence, accuracy, attributed, natural

Lines = list[tuple[Cell, ...] | str]

MANY = 12  # pairs beyond this number stand in a square, not in a list
FOREIGN = {*SUITES["raw-bench-strict"], *SUITES["audiomarkbench"]} - {*SUITES["everyday"]}


def resynthesis(e: Evidence) -> Table | None:
    """Lay out re-synthesis, held out of training first, with what it does to the speech."""
    held = SUITES["held-out"]
    others = [a for a in SUITES["resynthesis"] if a not in (*held, *SUITES["paper"])]
    methods = under(e, (*held, *others))
    if not methods:
        return None
    wanted = ("DA shipped", "DA 1 %", "BA", "V_A shipped", "FPR shipped")
    harm = ("PESQ", "STOI", "SI-SNR raw", "SI-SNR")
    beside = {
        a: {"DA shipped": da, "DA 1 %": da, "BA": ba} for a, (da, ba, *_) in paper.HELD_OUT.items()
    }
    columns = dict.fromkeys(("DA", "BA", *harm), PUBLISHED)
    figures = {a: (*of[:4], paper.HELD_OUT_RAW_DB[a], of[4]) for a, of in paper.HELD_OUT.items()}
    digits = (2, 2, 2, 2, 1, 1)

    def blocks(method: str) -> list[Block]:
        ours = method == "keybound"
        compare = beside if ours else None
        return [
            measured(e, method, wanted, group="mark", beside=compare, printed=2, stacked=True),
            measured(e, method, harm, group="damage"),
            from_paper("KeyBound, paper", columns, figures if ours else {}, digits),
        ]

    rows: Lines = []
    for told, attacks in (("Held out of training", held), ("Other re-synthesis", others)):
        for method in methods:
            shown = known(e, [method], attacks)
            whose = f": {titled(method)}" if len(methods) > 1 else ""
            rows += [told + whose, *lines(blocks(method), shown)] if shown else []
    return Table(
        "resynthesis",
        "Re-synthesis",
        "Codecs, vocoders and denoisers; what is held out stays out of training and of every "
        "choice of weights. Damage is the attacked marked clip against its clean host.",
        heads(blocks(methods[0])),
        tuple(rows),
        notes_for(rows, thresholds(e, methods)),
    )


def known(e: Evidence, methods: Iterable[str], attacks: Iterable[str]) -> list[str]:
    """Give those of the attacks that were measured, or of which a row says why not."""
    methods = list(methods)
    return [a for a in attacks if any(e.rows(m, a) or (m, a) in e.reasons for m in methods)]


def compound(e: Evidence) -> Table | None:
    """Lay out chains of attacks: the paper's four, what stands in for them, and any other."""
    chains = {a for m in e.marked_methods for a in e.attacks(m) if "+" in a}
    methods = under(e, chains)
    if not methods:
        return None
    beside = {a: {"DA shipped": da, "DA 1 %": da} for a, (da, _) in paper.COMPOUND.items()}
    wanted = ("DA shipped", "DA 1 %", "BA", "V_A shipped")
    figures = {a: (ours,) for a, (ours, _) in paper.COMPOUND.items()}
    peer = {a: (theirs,) for a, (_, theirs) in paper.COMPOUND.items()}
    column = {"DA": f"detection accuracy, {PUBLISHED}"}
    blocks = [measured(e, methods[0], wanted, beside=beside, printed=2)]
    blocks.append(from_paper("KeyBound, paper", column, figures, 2))
    blocks += [measured(e, method, wanted) for method in methods[1:]]
    blocks.append(from_paper("AudioSeal, published", column, peer, 2))
    named = []
    for chain in paper.COMPOUND:
        swapped = chain.replace("encodec-6", "lyra-6")
        named += [chain, *([swapped] if swapped != chain and swapped in chains else [])]
    squared = catalogue_pairs(e)
    rest = sorted(chains - {*named} - {*(squared if len(squared) > MANY else ())}, key=natural)
    rows: Lines = [*lines(blocks, named)]
    rows += ["Other chains", *lines(blocks, rest)] if rest else []
    return Table(
        "compound",
        "Compound attacks",
        "One attack after the other; noise is at 20 dB in the paper's chains.",
        heads(blocks, "Chain"),
        tuple(rows),
        notes_for(rows, thresholds(e, methods)),
    )


def catalogue_pairs(e: Evidence) -> list[str]:
    """Give the measured chains of two attacks of the paper's table."""
    found = {a for m in e.marked_methods for a in e.attacks(m)}
    return [pair for pair in SUITES["pairs"] if pair in found]


def pairs(e: Evidence) -> Table | None:
    """Lay out every pair of the catalogue as a square, when more than a few were measured."""
    found = catalogue_pairs(e)
    method = next((m for m in e.marked_methods if any(e.rows(m, a) for a in found)), None)
    if method is None or len(found) <= MANY:
        return None
    there = {part for pair in found for part in pair.split("+")}
    attacks = [attack for _, attack, _ in paper.SUITE if attack in there]
    cut, rho = e.usual(method), e.rho(method)
    rows: Lines = []
    for told in ("BA", "V_A"):
        rows.append(f"{told}, by first attack")
        for first in attacks:
            cells = [name(short(first))]
            for second in attacks:
                of = e.rows(method, f"{first}+{second}")
                share = accuracy(of) if told == "BA" else attributed(of, cut, rho)
                cells.append(figure(share.value, 2))
            rows.append(tuple(cells))
    return Table(
        "pairs",
        "Every pair of the catalogue",
        f"Bit accuracy and attribution of {titled(method)} under one attack (rows) followed by "
        "another (columns).",
        (
            Column("First", "the attack that comes first", words=True),
            *(Column(short(a), f"followed by {label(a)}", "then") for a in attacks),
        ),
        tuple(rows),
        notes_for(rows),
    )


def everyday(e: Evidence) -> Table | None:
    """Lay out what users meet: every single attack that no other table shows."""
    shown = {attack for _, attack, _ in paper.SUITE}
    shown |= {*SUITES["held-out"], *SUITES["resynthesis"], *FOREIGN}
    found = {
        attack
        for method in e.marked_methods
        for attack in e.attacks(method)
        if attack not in shown and "+" not in attack
    }
    families: dict[str, list[str]] = {}
    for attack in sorted(found, key=natural):
        entry = ATTACKS.get(attack.partition("@")[0])
        families.setdefault(entry.family.capitalize() if entry else "Other", []).append(attack)
    told = "Attacks outside the paper's table; PESQ is the attacked marked clip against its host."
    return _listed(e, "everyday", "What users meet", told, families)


def raw_bench(e: Evidence) -> Table | None:
    """Lay out RAW-Bench's strict list of attacks."""
    told = "Its attacks and strengths, in our implementations."
    attacks = known(e, e.marked_methods, SUITES["raw-bench-strict"])
    return _foreign(e, "raw-bench", "RAW-Bench strict", told, attacks)


def audiomarkbench(e: Evidence) -> Table | None:
    """Lay out AudioMarkBench's list of attacks."""
    told = "Its attacks and strengths, in our implementations."
    attacks = known(e, e.marked_methods, SUITES["audiomarkbench"])
    return _foreign(e, "audiomarkbench", "AudioMarkBench", told, attacks)


def _foreign(e: Evidence, link: str, title: str, caption: str, attacks: list[str]) -> Table | None:
    """Lay out another benchmark's list, once an attack was run that only such lists have."""
    run = [a for a in attacks if a in FOREIGN and any(e.rows(m, a) for m in e.marked_methods)]
    return _listed(e, link, title, caption, {"": attacks}) if run else None


def _listed(
    e: Evidence, link: str, title: str, caption: str, families: dict[str, list[str]]
) -> Table | None:
    methods = under(e, (attack for attacks in families.values() for attack in attacks))
    if not methods:
        return None
    wanted = ("DA shipped", "FPR shipped", "DA 1 %", "BA", "V_A shipped", "PESQ")
    blocks = [measured(e, methods[0], wanted)]
    blocks += [measured(e, method, ("DA 1 %", "BA")) for method in methods[1:]]
    rows: Lines = []
    for family, attacks in sorted(families.items()):
        rows += [family] if len(families) > 1 else []
        rows += lines(blocks, attacks)
    notes = notes_for(rows, thresholds(e, methods))
    return Table(link, title, caption, heads(blocks), tuple(rows), notes)
