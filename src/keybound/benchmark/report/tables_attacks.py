"""Tables of attacks: which attacks stand in each, and under which headings.

A line is a method, "" where every column has its own, and an attack; a string is a heading.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from keybound.attacks import ATTACKS, SUITES
from keybound.benchmark.report import paper
from keybound.benchmark.report.columns import below, columns_of, speech_sets
from keybound.benchmark.report.descriptions import Description
from keybound.benchmark.report.grid import noted, stacked
from keybound.benchmark.report.labels import counted, in_order, label, thresholds, titled
from keybound.benchmark.report.layout import Cell, Column, Table
from keybound.benchmark.report.summaries import SECOND, Evidence, natural

FOREIGN = {*SUITES["raw-bench-strict"], *SUITES["audiomarkbench"]} - {*SUITES["everyday"]}
MANY = 12  # pairs beyond this number stand in a square, not in a list
Lines = list[Any]  # of (method, attack), headings, and lines that are made already
Found = tuple[Sequence[str], Lines]  # the methods of a table, the first of them first, and lines


def attack_table(e: Evidence, d: Description) -> Table | None:
    """Return a table of blocks, a line for each attack; None where nothing is in it."""
    methods, lines = LINES[d.name](e)
    if not methods:
        return None
    blocks = [columns for block in d.blocks for columns in columns_of(e, block, methods)]

    def cells(line: Any) -> Any:
        if isinstance(line, str) or isinstance(line[0], Cell):
            return line
        name = Cell(label(line[1]), kind="name")
        return (name, *(c for block in blocks for c in block.cells(*line)))

    told = "what happened to the clip between marking and reading"
    heads = [Column(d.first, told, words=True), *(c for block in blocks for c in block.heads)]
    rho = (f"{titled(m)} {e.rho(m)} of {e.bits(m) or '?'} bits" for m in methods)
    words = {"thresholds": thresholds(e, methods), "clips": counted(e, methods)}
    return noted(d, heads, [cells(line) for line in lines], words | {"rho": ", ".join(rho)})


def under(e: Evidence, attacks: Iterable[str]) -> list[str]:
    """Return the methods that were measured under any of these attacks."""
    wanted = set(attacks)
    return [m for m in e.marked_methods if any(e.rows(m, attack) for attack in wanted)]


def known(e: Evidence, methods: Iterable[str], attacks: Iterable[str]) -> list[str]:
    """Return those of the attacks that were measured, or of which a row says why not."""
    methods = list(methods)
    return [a for a in attacks if any(e.rows(m, a) or (m, a) in e.reasons for m in methods)]


def suite(e: Evidence, methods: Sequence[str]) -> list[str]:
    """Return the attacks of the paper's table, and what stands in for them where measured."""
    stand_ins = known(e, methods, paper.STAND_IN)
    return [a for a in paper.ATTACKS if a not in paper.STAND_IN or a in stand_ins]


def in_families(attacks: Iterable[str], method: str = "") -> Lines:
    """Return the lines of attacks under headings of the paper's families."""
    found: Lines = []
    current = ""
    for attack in attacks:
        if (family := paper.FAMILIES.get(attack, "Others")) != current:
            current = family
            found.append(current)
        found.append((method, attack))
    return found


def stack_of_attacks(methods: Sequence[str], attacks: Callable[[str], Sequence[str]]) -> Lines:
    """Return the attacks of several methods below each other; of one alone, in families."""
    if len(methods) == 1:
        return in_families(attacks(methods[0]), methods[0])
    return stacked(methods, lambda method: [(method, attack) for attack in attacks(method)])


def papers(e: Evidence) -> Found:
    """Return the attacks of the paper's table."""
    methods = under(e, paper.ATTACKS)
    return methods, in_families(suite(e, methods))


def false_positives(e: Evidence) -> Found:
    """Return the paper's attacks by method; of another than ours, those that rows speak of."""

    def attacks(method: str) -> list[str]:
        every = suite(e, [method])
        return every if method == "keybound" else known(e, [method], every)

    methods = under(e, paper.ATTACKS)
    return methods, stack_of_attacks(methods, attacks)


def lengths(e: Evidence) -> Found:
    """Return the attacks on clips of other lengths than a second."""
    attacked = {key for key in e.clips if key[0] in e.methods and key[1] != "quality"}
    longer = [(method, attack) for method, attack, seconds in attacked if seconds != SECOND]
    methods = [m for m in e.marked_methods if m in dict(longer)]
    return methods, stack_of_attacks(methods, lambda m: in_order({a for n, a in longer if n == m}))


def catalogue_pairs(e: Evidence) -> list[str]:
    """Return the measured chains of two attacks of the paper's table."""
    found = {a for m in e.marked_methods for a in e.attacks(m)}
    return [pair for pair in SUITES["pairs"] if pair in found]


def compound(e: Evidence) -> Found:
    """Return chains of attacks: the paper's four, what stands in for them, and any other."""
    chains = {a for m in e.marked_methods for a in e.attacks(m) if "+" in a}
    named = []
    for chain in paper.BY_METHOD["compound"]["keybound"]:
        swapped = chain.replace("encodec-6", "lyra-6")
        named += [chain, *([swapped] if swapped != chain and swapped in chains else [])]
    squared = catalogue_pairs(e)
    rest = sorted(chains - {*named} - {*(squared if len(squared) > MANY else ())}, key=natural)
    lines: Lines = [("", chain) for chain in named]
    lines += ["Other chains", *(("", chain) for chain in rest)] if rest else []
    return under(e, chains), lines


def resynthesis(e: Evidence) -> Found:
    """Return re-synthesis, held out of training first."""
    held = SUITES["held-out"]
    others = [a for a in SUITES["resynthesis"] if a not in (*held, *SUITES["paper"])]
    methods = under(e, (*held, *others))
    lines: Lines = []
    for told, attacks in (("Held out of training", held), ("Other re-synthesis", others)):
        for method in methods:
            whose = f": {titled(method)}" if len(methods) > 1 else ""
            if there := known(e, [method], attacks):
                lines += [told + whose, *((method, attack) for attack in there)]
    return methods, lines


def everyday(e: Evidence) -> Found:
    """Return what users meet: every single attack that no other table shows, by family."""
    elsewhere = {*paper.ATTACKS, *SUITES["held-out"], *SUITES["resynthesis"], *FOREIGN}
    found = {attack for method in e.marked_methods for attack in e.attacks(method)} - elsewhere
    families: dict[str, list[str]] = {}
    for attack in sorted((a for a in found if "+" not in a), key=natural):
        entry = ATTACKS.get(attack.partition("@")[0])
        families.setdefault(entry.family.capitalize() if entry else "Other", []).append(attack)
    lines: Lines = []
    for family, attacks in sorted(families.items()):
        lines += [family] if len(families) > 1 else []
        lines += [("", attack) for attack in attacks]
    return under(e, (attack for attacks in families.values() for attack in attacks)), lines


def foreign(e: Evidence, name: str) -> Found:
    """Return another benchmark's list, once an attack was run that only such lists have."""
    attacks = known(e, e.marked_methods, SUITES[name])
    shown = under(e, FOREIGN.intersection(attacks))
    return under(e, attacks) if shown else [], [("", attack) for attack in attacks]


def damage(e: Evidence) -> Found:
    """Return the single attacks whose damage was measured: one that ruins speech has not won."""
    harm = ("pesq", "stoi", "si_snr_raw_db", "si_snr_db")

    def scored(method: str) -> list[str]:
        single = (attack for attack in e.attacks(method) if "+" not in attack)
        return [a for a in single if any(e.of(method, a).mean(key).values for key in harm)]

    methods = [m for m in e.marked_methods if scored(m)][:1]
    return methods, [(method, a) for method in methods for a in in_order(scored(method))]


def other_speech(e: Evidence) -> Found:
    """Return the attacks on other sets of speech, and the quality of the marked clips there."""
    sets = speech_sets(e)
    found = {method for of in sets.values() for method, _, s in of.clips if s == SECOND}
    methods = sorted(found, key=lambda m: (m != "keybound", m))
    every = (e, *sets.values())

    def across(name: str, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        """Return a line with one cell for each set of speech, over its four columns."""
        return (Cell(name, kind="name"), *(replace(cell, span=4) for cell in cells))

    def quality(method: str, measure: str, digits: int) -> list[Cell]:
        means = [of.of(method, "quality").mean(measure).value for of in every]
        return [below(mean, means[0], digits) for mean in means]

    def lines(method: str) -> Lines:
        order = in_order({attack for of in sets.values() for attack in of.attacks(method)})
        counts = [max(len(of.rows(method, a)) for a in (*order, "quality")) for of in every]
        return [
            across("Clips", [Cell(str(count)) for count in counts]),
            *in_families(order, method),
            "Quality of the marked clips",
            across("PESQ", quality(method, "pesq", 2)),
            across("STOI", quality(method, "stoi", 3)),
        ]

    return methods, stacked(methods, lines)


LINES: dict[str, Callable[[Evidence], Found]] = {
    "robustness": papers,
    "attribution": papers,
    "false-positives": false_positives,
    "resynthesis": resynthesis,
    "compound": compound,
    "everyday": everyday,
    "raw-bench": partial(foreign, name="raw-bench-strict"),
    "audiomarkbench": partial(foreign, name="audiomarkbench"),
    "lengths": lengths,
    "other-speech": other_speech,
    "damage": damage,
}
