"""Columns of attacks, each with how its cells are found, and the tables made of them.

A table has blocks of columns and lines. A line holds what its cells are found from; a string is a
heading. Measured columns read rows, published ones the paper's data.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from keybound.benchmark.measure.metrics import threshold_at
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import layout, paper, summaries
from keybound.benchmark.report.grid import noted, rate_of_alarms, stacked
from keybound.benchmark.report.labels import label, paper_name, titled
from keybound.benchmark.report.layout import Cell, Column, Table
from keybound.benchmark.report.summaries import CLEAN, NOMINAL, SECOND, SHIPPED, Evidence, numbers

THEIRS = "KeyBound, paper"  # the group of the published figures of KeyBound
USUAL = "usual"  # the shipped threshold, or the paper's where a method ships none
Lines = list["Line | str"]


@dataclass(frozen=True)
class Line:
    """What the cells of a line are found from: its name, a method, rows, an attack."""

    name: str
    e: Evidence
    method: str = ""
    rows: Sequence[Row] = ()
    attack: str = ""
    seconds: float = SECOND
    also: Mapping[str, Any] = field(default_factory=dict)  # what columns of a table ask for

    @property
    def ours(self) -> bool:
        """Return whether the paper's figures of KeyBound stand beside this line."""
        return self.method == "keybound"

    def threshold(self, which: str) -> float | None:
        """Return a threshold of the method at this length."""
        if which == USUAL:
            return self.e.usual(self.method, self.seconds)
        return self.e.threshold(self.method, which, self.seconds)


Value = Callable[[Line], float | None]


@dataclass(frozen=True)
class Block:
    """Neighbouring columns of one source, and their cells in a line."""

    columns: tuple[Column, ...]
    cells: Callable[[Line], Sequence[Cell]]


def share(which: str = USUAL, side: str = "marked") -> Value:
    """Return how many scores reach a threshold: DA of the marked side, FPR of the unmarked."""
    return lambda line: summaries.reached(line.rows, line.threshold(which), side).value


def accepted(which: str = USUAL, score: str = "marked") -> Value:
    """Return how many clips the rule V_A accepts."""
    return lambda line: (
        summaries.attributed(line.rows, line.threshold(which), line.e.rho(line.method), score).value
    )


def mean(measure: str) -> Value:
    """Return the mean of a measure over the rows of a line."""
    return lambda line: numbers(line.rows, measure).value


def right(errors: str = "errors") -> Value:
    """Return the bit accuracy of the rows of a line."""
    return lambda line: summaries.accuracy(line.rows, errors).value


def matched(rate: float) -> Value:
    """Return detection at a threshold that lets this share of equally attacked clips pass."""

    def find(line: Line) -> float | None:
        scores = numbers(line.rows, "unmarked").values
        if not scores:
            return None
        return summaries.reached(line.rows, threshold_at(scores, rate)).value

    return find


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
MEASURES: dict[str, Value] = {
    "DA shipped": share(SHIPPED),
    "DA 1 %": share(CLEAN),
    "DA": share(),
    "FPR shipped": share(SHIPPED, "unmarked"),
    "FPR 1 %": share(CLEAN, "unmarked"),
    "FPR": share(side="unmarked"),
    "BA": right(),
    "V_A shipped": accepted(SHIPPED),
    "V_A 1 %": accepted(CLEAN),
    "V_A": accepted(),
    "matched 1 %": matched(NOMINAL),
    "matched 0.1 %": matched(NOMINAL / 10),
    "lowest marked": lambda line: min(numbers(line.rows, "marked").values, default=None),
    "highest unmarked": lambda line: max(numbers(line.rows, "unmarked").values, default=None),
    "PESQ": mean("pesq"),
    "STOI": mean("stoi"),
    "SI-SNR raw": mean("si_snr_raw_db"),
    "SI-SNR": mean("si_snr_db"),
}
Beside = Mapping[str, Mapping[str, float]]  # attack -> label -> the paper's figure


def measured(
    labels: Sequence[str],
    method: str = "",
    *,
    seconds: float = SECOND,
    group: str | None = None,
    beside: Beside | None = None,
    printed: int = 3,
) -> Block:
    """Return columns of measures under the attack of a line: of its method, or of one for all."""
    named = titled(method) if group is None else group

    def cells(line: Line) -> list[Cell]:
        whose = method or line.method
        rows, reason = (
            line.e.rows(whose, line.attack, seconds),
            line.e.reasons.get((whose, line.attack)),
        )
        if not rows and reason is not None:
            return [layout.not_run(reason, len(labels))] if labels else []
        figures = (beside or {}).get(paper_name(line.attack), {}) if method or line.ours else {}
        look = Line("", line.e, whose, rows, line.attack, seconds)
        return [_cell(label, MEASURES[label](look), figures, printed) for label in labels]

    return Block(tuple(Column(label, HELP[label], named) for label in labels), cells)


def of_method(e: Evidence, labels: Sequence[str], method: str, **how: Any) -> Block:
    """Return the columns of one method, without those at a threshold that it does not ship."""
    if e.threshold(method, SHIPPED) is None:
        labels = [label for label in labels if not label.endswith("shipped")]
    return measured(labels, method, **how)


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

    `ours` leaves them empty in the lines of other methods than ours.
    """
    each = [digits] * len(columns) if isinstance(digits, int) else digits

    def cells(line: Line) -> list[Cell]:
        attack = paper_name(line.attack)
        figures = None if ours and not line.ours else table.get(attack)
        if figures is None:
            return [Cell(kind="published")] * len(columns)
        mark = layout.STANDS_IN if line.attack != attack else ""
        return [layout.published(value, n, mark) for value, n in zip(figures, each, strict=True)]

    return Block(tuple(Column(label, text, group) for label, text in columns.items()), cells)


def attack_names(first: str = "Attack") -> Block:
    """Return the first column of a table of attacks."""
    told = "what happened to the clip between marking and reading"
    return Block((Column(first, told, words=True),), lambda line: [layout.name(line.name)])


def attack_lines(e: Evidence, attacks: Iterable[str], method: str = "") -> Lines:
    """Return the lines of attacks."""
    return [Line(label(attack), e, method, e.rows(method, attack), attack) for attack in attacks]


def in_families(e: Evidence, attacks: Iterable[str], method: str = "") -> Lines:
    """Return the lines of attacks under headings of the paper's families."""
    families = {attack: family for family, attack, _ in paper.SUITE}
    found: Lines = []
    current = ""
    for attack in attacks:
        if families.get(attack, "Others") != current:
            current = families.get(attack, "Others")
            found.append(current)
        found += attack_lines(e, [attack], method)
    return found


def stack_of_attacks(
    e: Evidence, methods: Sequence[str], attacks: Callable[[str], Sequence[str]]
) -> Lines:
    """Return the attacks of several methods below each other; of one alone, in families."""
    lines = in_families if len(methods) == 1 else attack_lines
    return stacked(methods, lambda method: lines(e, attacks(method), method))


def table(
    link: str, title: str, caption: str, blocks: Sequence[Block], lines: Lines, *notes: str
) -> Table | None:
    """Return a table of blocks with the notes that its marks need; None where nothing is in it."""
    rows = [
        line if isinstance(line, str) else tuple(c for b in blocks for c in b.cells(line))
        for line in lines
    ]
    return noted(link, title, caption, [c for b in blocks for c in b.columns], rows, *notes)


def under(e: Evidence, attacks: Iterable[str]) -> list[str]:
    """Return the methods that were measured under any of these attacks."""
    wanted = set(attacks)
    return [m for m in e.marked_methods if any(e.rows(m, attack) for attack in wanted)]


def suite(e: Evidence, methods: Sequence[str]) -> list[str]:
    """Return the attacks of the paper's table, and what stands in for them where measured."""
    return [
        attack
        for attack in paper.ATTACKS
        if attack not in paper.STAND_IN
        or any(e.rows(m, attack) or (m, attack) in e.reasons for m in methods)
    ]


def known(e: Evidence, methods: Iterable[str], attacks: Iterable[str]) -> list[str]:
    """Return those of the attacks that were measured, or of which a row says why not."""
    methods = list(methods)
    return [a for a in attacks if any(e.rows(m, a) or (m, a) in e.reasons for m in methods)]
