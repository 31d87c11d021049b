"""Columns of tables of attacks: blocks of measured or published figures, and lines of attacks.

A line is a method and an attack, which the cells of the blocks are found from; a string is a
heading. Measured blocks read rows, published ones the paper's data.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keybound.benchmark.measure.samples import Sample
from keybound.benchmark.report import layout, paper
from keybound.benchmark.report.grid import noted, rate_of_alarms, stacked
from keybound.benchmark.report.labels import label, paper_name, titled
from keybound.benchmark.report.layout import Cell, Column, Table
from keybound.benchmark.report.summaries import CLEAN, NOMINAL, SECOND, SHIPPED, Evidence

THEIRS = "KeyBound, paper"  # the group of the published figures of KeyBound
Line = tuple[str, str]  # a method, "" where every column has its own, and an attack
Lines = list[Line | str | tuple[Cell, ...]]  # a tuple of cells is a line that is made already
Beside = Mapping[str, Mapping[str, float]]  # attack -> label -> the paper's figure

TOLD = """
DA shipped | detection accuracy: share of marked clips whose presence score reaches the threshold \
that the method ships with
DA 1 % | detection accuracy at the paper's threshold: 1 % false positives on clean unmarked clips
DA | detection accuracy at the shipped threshold, or the paper's where none is shipped
FPR shipped | share of equally attacked unmarked clips that reach the shipped threshold
FPR 1 % | share of equally attacked unmarked clips that reach the paper's threshold
FPR | false-positive rate at the same threshold
BA | bit accuracy: share of payload bits read rightly with the key
V_A shipped | share of marked clips that verify: presence at the shipped threshold, and at most ρ \
wrong bits
V_A 1 % | share of marked clips that verify, presence at the paper's threshold
V_A | share of marked clips that verify: presence at the same threshold, and at most ρ wrong bits
matched 1 % | detection accuracy at a threshold set for 1 % false positives under the same attack
matched 0.1 % | detection accuracy at a threshold set for 0.1 % false positives under the same \
attack; below 1,000 clips: none
lowest marked | lowest presence score of a marked clip
highest unmarked | highest presence score of an unmarked clip
PESQ | wideband PESQ of the attacked marked clip to its host
STOI | intelligibility of the attacked marked clip to its host
SI-SNR raw | scale-invariant SNR to the host, dB
SI-SNR | the same after alignment by a whole lag, dB
"""
HELP = dict(line.split(" | ") for line in TOLD.strip().splitlines())  # of each measure
DIGITS = {"PESQ": 2, "SI-SNR raw": 1, "SI-SNR": 1}  # of others 3
MEASURES: dict[str, Callable[[Sample], float | None]] = {
    "DA shipped": lambda of: of.reached(SHIPPED).value,
    "DA 1 %": lambda of: of.reached(CLEAN).value,
    "DA": lambda of: of.reached().value,
    "FPR shipped": lambda of: of.reached(SHIPPED, "unmarked").value,
    "FPR 1 %": lambda of: of.reached(CLEAN, "unmarked").value,
    "FPR": lambda of: of.reached(side="unmarked").value,
    "BA": lambda of: of.accuracy().value,
    "V_A shipped": lambda of: of.verified(SHIPPED).value,
    "V_A 1 %": lambda of: of.verified(CLEAN).value,
    "V_A": lambda of: of.verified().value,
    "matched 1 %": lambda of: of.matched(NOMINAL),
    "matched 0.1 %": lambda of: of.matched(NOMINAL / 10),
    "lowest marked": lambda of: min(of.mean("marked").values, default=None),
    "highest unmarked": lambda of: max(of.mean("unmarked").values, default=None),
    "PESQ": lambda of: of.mean("pesq").value,
    "STOI": lambda of: of.mean("stoi").value,
    "SI-SNR raw": lambda of: of.mean("si_snr_raw_db").value,
    "SI-SNR": lambda of: of.mean("si_snr_db").value,
}


@dataclass(frozen=True)
class Block:
    """Neighbouring columns of one source, and their cells in the line of a method and attack."""

    columns: tuple[Column, ...]
    cells: Callable[[str, str], Sequence[Cell]]


def measured(
    e: Evidence,
    labels: Sequence[str],
    method: str = "",
    *,
    seconds: float = SECOND,
    group: str | None = None,
    beside: Beside | None = None,
    printed: int = 3,
) -> Block:
    """Return columns of measures: of the method of each line, or of one for all.

    Columns of one method leave out those at a threshold that it does not ship. `beside` has the
    paper's figures of KeyBound to compare with.
    """
    if method and e.threshold(method, SHIPPED) is None:
        labels = [label for label in labels if not label.endswith("shipped")]

    def cells(line_method: str, attack: str) -> list[Cell]:
        whose = method or line_method
        of, reason = e.of(whose, attack, seconds), e.reasons.get((whose, attack))
        if not of and reason is not None:
            return [layout.not_run(reason, len(labels))] if labels else []
        compared = beside if method or whose == "keybound" else None
        figures = (compared or {}).get(paper_name(attack), {})
        return [_cell(label, MEASURES[label](of), figures, printed) for label in labels]

    named = titled(method) if group is None else group
    return Block(tuple(Column(label, HELP[label], named) for label in labels), cells)


def _cell(label: str, value: float | None, figures: Mapping[str, float], printed: int) -> Cell:
    digits = DIGITS.get(label, 3)
    if label.startswith("FPR"):
        return rate_of_alarms(value)
    return layout.against(value, figures.get(label), digits, printed=min(printed, digits))


def from_paper(
    group: str,
    columns: Mapping[str, str],
    table: Mapping[str, Sequence[float]],
    digits: int | Sequence[int] = 3,
    *,
    ours: bool = False,
) -> Block:
    """Return columns of published figures, from attack -> figures in the order of the columns.

    `ours` leaves them empty in the lines of other methods than KeyBound.
    """
    each = [digits] * len(columns) if isinstance(digits, int) else digits

    def cells(method: str, attack: str) -> list[Cell]:
        theirs = paper_name(attack)
        figures = None if ours and method != "keybound" else table.get(theirs)
        if figures is None:
            return [layout.BLANK] * len(columns)
        mark = layout.STANDS_IN if attack != theirs else ""
        return [layout.published(value, n, mark) for value, n in zip(figures, each, strict=True)]

    return Block(tuple(Column(label, text, group) for label, text in columns.items()), cells)


def attack_table(
    caption: str, blocks: Sequence[Block], lines: Lines, *notes: str, first: str = "Attack"
) -> Table | None:
    """Return a table of blocks, a line for each attack; None where nothing is in it."""

    def cells(line: Any) -> Any:
        if isinstance(line, str) or isinstance(line[0], Cell):
            return line
        name = Cell(label(line[1]), kind="name")
        return (name, *(c for block in blocks for c in block.cells(*line)))

    told = "what happened to the clip between marking and reading"
    columns = [Column(first, told, words=True), *(c for block in blocks for c in block.columns)]
    return noted(caption, columns, [cells(line) for line in lines], *notes)


def in_families(attacks: Iterable[str], method: str = "") -> Lines:
    """Return the lines of attacks under headings of the paper's families."""
    families = {attack: family for family, attack, _ in paper.SUITE}
    found: Lines = []
    current = ""
    for attack in attacks:
        if families.get(attack, "Others") != current:
            current = families.get(attack, "Others")
            found.append(current)
        found.append((method, attack))
    return found


def stack_of_attacks(methods: Sequence[str], attacks: Callable[[str], Sequence[str]]) -> Lines:
    """Return the attacks of several methods below each other; of one alone, in families."""
    if len(methods) == 1:
        return in_families(attacks(methods[0]), methods[0])
    return stacked(methods, lambda method: [(method, attack) for attack in attacks(method)])


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
