"""Blocks: groups of columns that tables of attacks share.

A block has its columns and gives their cells for an attack. Measured blocks read rows, published
blocks the paper's data.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from keybound.benchmark.measure.metrics import threshold_at
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import paper
from keybound.benchmark.report.labels import TOO_MANY, label, paper_name, titled
from keybound.benchmark.report.layout import (
    OVER,
    STANDS_IN,
    Cell,
    Column,
    against,
    figure,
    name,
    not_run,
    published,
)
from keybound.benchmark.report.summaries import (
    CLEAN,
    NOMINAL,
    SECOND,
    SHIPPED,
    Evidence,
    accuracy,
    attributed,
    numbers,
    reached,
)


@dataclass(frozen=True)
class Look:
    """What a figure is found from: the rows of a method under an attack at one length."""

    evidence: Evidence
    method: str
    rows: Sequence[Row]
    seconds: float

    def threshold(self, which: str) -> float | None:
        """Give a threshold of the method at this length."""
        return self.evidence.threshold(self.method, which, self.seconds)


Value = Callable[[Look], float | None]


@dataclass(frozen=True)
class Measure:
    """A figure of a method under an attack: how it is told, and how it is found."""

    help: str
    find: Value
    digits: int = 3


@dataclass(frozen=True)
class Block:
    """Neighbouring columns of one source."""

    columns: tuple[Column, ...]
    cells: Callable[[str], list[Cell]]


def _share(which: str, side: str = "marked") -> Value:
    return lambda look: reached(look.rows, look.threshold(which), side).value


def _usual(side: str) -> Value:
    return lambda look: (
        reached(look.rows, look.evidence.usual(look.method, look.seconds), side).value
    )


def _verified(which: str) -> Value:
    return lambda look: (
        attributed(look.rows, look.threshold(which), look.evidence.rho(look.method)).value
    )


def _mean(measure: str) -> Value:
    return lambda look: numbers(look.rows, measure).value


def _matched(rate: float) -> Value:
    def find(look: Look) -> float | None:
        scores = numbers(look.rows, "unmarked").values
        return reached(look.rows, threshold_at(scores, rate)).value if scores else None

    return find


MEASURES = {
    "DA shipped": Measure(
        "detection accuracy: share of marked clips whose presence score reaches the threshold that "
        "the method ships with",
        _share(SHIPPED),
    ),
    "DA 1 %": Measure(
        "detection accuracy at the paper's threshold: 1 % false positives on clean unmarked clips",
        _share(CLEAN),
    ),
    "FPR shipped": Measure(
        "share of equally attacked unmarked clips that reach the shipped threshold",
        _share(SHIPPED, "unmarked"),
    ),
    "FPR 1 %": Measure(
        "share of equally attacked unmarked clips that reach the paper's threshold",
        _share(CLEAN, "unmarked"),
    ),
    "BA": Measure(
        "bit accuracy: share of payload bits read rightly with the key",
        lambda look: accuracy(look.rows).value,
    ),
    "V_A shipped": Measure(
        "share of marked clips that verify: presence at the shipped threshold, and at most ρ wrong "
        "bits",
        _verified(SHIPPED),
    ),
    "V_A 1 %": Measure(
        "share of marked clips that verify, presence at the paper's threshold", _verified(CLEAN)
    ),
    "matched 1 %": Measure(
        "detection accuracy at a threshold set for 1 % false positives under the same attack",
        _matched(NOMINAL),
    ),
    "matched 0.1 %": Measure(
        "detection accuracy at a threshold set for 0.1 % false positives under the same attack; "
        "below 1,000 clips: none",
        _matched(NOMINAL / 10),
    ),
    "lowest marked": Measure(
        "lowest presence score of a marked clip",
        lambda look: min(numbers(look.rows, "marked").values, default=None),
    ),
    "highest unmarked": Measure(
        "highest presence score of an unmarked clip",
        lambda look: max(numbers(look.rows, "unmarked").values, default=None),
    ),
    "DA": Measure(
        "detection accuracy at the shipped threshold, or the paper's where none is shipped",
        _usual("marked"),
    ),
    "V_A": Measure(
        "share of marked clips that verify: presence at the same threshold, and at most ρ wrong "
        "bits",
        lambda look: (
            attributed(
                look.rows,
                look.evidence.usual(look.method, look.seconds),
                look.evidence.rho(look.method),
            ).value
        ),
    ),
    "FPR": Measure(
        "false-positive rate at the same threshold",
        _usual("unmarked"),
    ),
    "PESQ": Measure("wideband PESQ of the attacked marked clip to its host", _mean("pesq"), 2),
    "STOI": Measure("intelligibility of the attacked marked clip to its host", _mean("stoi")),
    "SI-SNR raw": Measure("scale-invariant SNR to the host, dB", _mean("si_snr_raw_db"), 1),
    "SI-SNR": Measure("the same after alignment by a whole lag, dB", _mean("si_snr_db"), 1),
}


def measured(
    e: Evidence,
    method: str,
    labels: Sequence[str],
    *,
    seconds: float = SECOND,
    group: str | None = None,
    beside: Mapping[str, Mapping[str, float]] | None = None,
    printed: int = 3,
    stacked: bool = False,
) -> Block:
    """Make the columns of a measured method.

    `beside` has the paper's figures, attack -> label -> figure, to compare with. Columns at a
    shipped threshold are left away where a method ships none, unless methods are `stacked` in
    the same columns.
    """
    if e.threshold(method, SHIPPED) is None and not stacked:
        labels = [label for label in labels if not label.endswith("shipped")]
    named = titled(method) if group is None else group
    columns = tuple(Column(label, MEASURES[label].help, named) for label in labels)

    def cells(attack: str) -> list[Cell]:
        rows, reason = e.rows(method, attack, seconds), e.reasons.get((method, attack))
        if not rows and reason is not None:
            return [not_run(reason, len(labels))] if labels else []
        figures = (beside or {}).get(paper_name(attack), {})
        look = Look(e, method, rows, seconds)
        return [_cell(label, MEASURES[label].find(look), figures, printed) for label in labels]

    return Block(columns, cells)


def _cell(label: str, value: float | None, figures: Mapping[str, float], printed: int) -> Cell:
    digits = MEASURES[label].digits
    if label.startswith("FPR") and value is not None and value > TOO_MANY:
        return figure(value, kind="over", mark=OVER)
    return against(value, figures.get(label), digits, printed=min(printed, digits))


def from_paper(
    group: str,
    columns: Mapping[str, str],
    table: Mapping[str, Sequence[float]],
    digits: int | Sequence[int] = 3,
) -> Block:
    """Make columns of published figures, from attack -> figures in the order of the columns."""
    each = [digits] * len(columns) if isinstance(digits, int) else digits

    def cells(attack: str) -> list[Cell]:
        figures = table.get(paper_name(attack))
        if figures is None:
            return [Cell(kind="published")] * len(columns)
        mark = STANDS_IN if attack != paper_name(attack) else ""
        return [published(value, n, mark) for value, n in zip(figures, each, strict=True)]

    return Block(tuple(Column(label, text, group) for label, text in columns.items()), cells)


def lines(blocks: Sequence[Block], attacks: Sequence[str]) -> list[tuple[Cell, ...]]:
    """Give the lines of attacks: their names, then the cells of each block."""
    return [
        (name(label(attack)), *(cell for block in blocks for cell in block.cells(attack)))
        for attack in attacks
    ]


def heads(blocks: Sequence[Block], first: str = "Attack") -> tuple[Column, ...]:
    """Give the columns of blocks behind the one with the names."""
    told = Column(first, "what happened to the clip between marking and reading", words=True)
    return (told, *(column for block in blocks for column in block.columns))


def in_families(blocks: Sequence[Block], attacks: Sequence[str]) -> list[tuple[Cell, ...] | str]:
    """Give the lines of attacks under headings of the paper's families."""
    families = {attack: family for family, attack, _ in paper.SUITE}
    found: list[tuple[Cell, ...] | str] = []
    current = ""
    for attack in attacks:
        if families.get(attack, "Others") != current:
            current = families.get(attack, "Others")
            found.append(current)
        found += lines(blocks, [attack])
    return found


def stack(
    methods: Sequence[str],
    blocks: Callable[[str], list[Block]],
    attacks: Callable[[str], Sequence[str]],
) -> list[tuple[Cell, ...] | str]:
    """Give the lines of several methods below each other; of one alone, in families."""
    if len(methods) == 1:
        return in_families(blocks(methods[0]), attacks(methods[0]))
    found: list[tuple[Cell, ...] | str] = []
    for method in methods:
        found += [titled(method), *lines(blocks(method), attacks(method))]
    return found


def under(e: Evidence, attacks: Iterable[str]) -> list[str]:
    """Give the methods that were measured under any of these attacks."""
    wanted = set(attacks)
    return [m for m in e.marked_methods if any(e.rows(m, attack) for attack in wanted)]


def suite(e: Evidence, methods: Sequence[str]) -> list[str]:
    """Give the attacks of the paper's table, and what stands in for them where it was measured."""
    return [
        attack
        for _, attack, _ in paper.SUITE
        if attack not in paper.STAND_IN
        or any(e.rows(m, attack) or (m, attack) in e.reasons for m in methods)
    ]
