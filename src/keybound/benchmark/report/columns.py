"""Columns of tables of attacks: blocks that are measured or published.

Measured blocks read rows, published ones the paper's figures. Their cells are found from the method
and the attack of a line.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from keybound.benchmark.report import layout, paper
from keybound.benchmark.report.descriptions import MEASURES, Block, Head, fill
from keybound.benchmark.report.grid import cell
from keybound.benchmark.report.labels import FAR, titled
from keybound.benchmark.report.layout import Cell, Column
from keybound.benchmark.report.summaries import SECOND, SHIPPED, Evidence
from keybound.benchmark.report.values import Line, value

MAIN = "test clips"


@dataclass(frozen=True)
class Columns:
    """Neighbouring columns of one source, and their cells in the line of a method and attack."""

    heads: Sequence[Column]
    cells: Callable[[str, str], Sequence[Cell]]


def columns_of(e: Evidence, block: Block, methods: Sequence[str]) -> Iterator[Columns]:
    """Return the columns of a block: one group of them, or one for each of whom it is of."""
    if block.paper:
        tables = paper.BY_METHOD.get(block.paper, {"keybound": paper.TABLES.get(block.paper, {})})
        peers = [method for method in tables if method != "keybound"]
        for method in ("keybound",) if block.of == "keybound" else peers:
            yield published(block, method, tables[method])
    elif block.of == "lengths":
        attacked = {s for m, a, s in e.clips if m in e.methods and a != "quality"}
        for seconds in sorted(attacked):
            yield measured(e, replace(block, group=f"{seconds:g} s"), seconds=seconds)
    elif block.of == "sets":
        for name, of in {MAIN: e, **speech_sets(e)}.items():
            yield on_speech(e, block, name, of)
    else:
        whose = {"first": methods[:1], "others": methods[1:]}.get(block.of, ("",))
        yield from (measured(e, block, method) for method in whose)


def measured(e: Evidence, block: Block, method: str = "", seconds: float = SECOND) -> Columns:
    """Return columns of measures: of the method of each line, or of one for all.

    Columns of one method leave out those at a threshold that it does not ship. Figures of KeyBound
    are compared with the paper's.
    """
    kept = [MEASURES[name] for name in block.measures]
    if method and e.threshold(method, SHIPPED) is None:
        kept = [head for head in kept if not head.column.label.endswith("shipped")]
    tables = paper.BY_METHOD.get(block.compare, {"keybound": paper.TABLES.get(block.compare, {})})

    def cells(line_method: str, attack: str) -> list[Cell]:
        whose = method or line_method
        of, reason = e.of(whose, attack, seconds), e.reasons.get((whose, attack))
        if not of and reason is not None:
            return [layout.not_run(reason, len(kept))] if kept else []
        compared = tables["keybound"] if method or whose == "keybound" else {}
        figures = compared.get(paper.stands_for(attack), {})
        return [_measured_cell(e, head, Line(whose, of), figures, block.printed) for head in kept]

    group = block.group or titled(method)
    return Columns([replace(head.column, group=group) for head in kept], cells)


def _measured_cell(
    e: Evidence, head: Head, line: Line, figures: dict[str, Any], printed: int
) -> Cell:
    found = value(e, line, head.value)
    theirs = figures.get(head.column.label.removesuffix(" shipped").removesuffix(" 1 %"))
    if theirs is None or not head.form.isdecimal():
        return cell(found, head.form)
    return cell((found, theirs), f"{head.form}@{min(printed, int(head.form))}")


def published(block: Block, method: str, table: paper.Figures) -> Columns:
    """Return columns of published figures; a line of a method of its own shows its own alone."""
    digits = block.digits or [3] * len(block.columns)

    def cells(line_method: str, attack: str) -> list[Cell]:
        theirs = paper.stands_for(attack)
        figures = None if line_method not in ("", method) else table.get(theirs)
        if figures is None:
            return [layout.BLANK] * len(block.columns)
        mark = layout.STANDS_IN if attack != theirs else ""
        pairs = zip(block.columns, digits, strict=True)
        return [layout.published(figures[name], n, mark) for name, n in pairs]

    group = "KeyBound, paper" if method == "keybound" else f"{titled(method)}, published"
    return Columns([Column(k, fill(text), group) for k, text in block.columns.items()], cells)


def speech_sets(e: Evidence) -> dict[str, Evidence]:
    """Return the sets of speech beside the main one that have clips of one second."""
    return {name: of for name, of in e.sets.items() if any(s == SECOND for _, _, s in of.clips)}


def on_speech(e: Evidence, block: Block, name: str, of: Evidence) -> Columns:
    """Return the columns of a set of speech, beside the figures of the main set.

    Thresholds are those of the main set, since a user has no others.
    """
    heads = [MEASURES[measure] for measure in block.measures]

    def cells(method: str, attack: str) -> list[Cell]:
        main = e.of(method, attack)
        here = replace(main, rows=of.rows(method, attack))
        found = []
        for head in heads:
            ours, beside = (value(e, Line(method, rows), head.value) for rows in (here, main))
            plain = cell(ours, head.form)
            found.append(below(ours, beside) if head.form.isdecimal() else plain)
        return found

    return Columns([replace(head.column, group=name) for head in heads], cells)


def below(figure: float | None, main: float | None, digits: int = 3) -> Cell:
    """Return a figure, marked where it is far below that on the main set, as both are printed."""
    found = layout.figure(figure, digits)
    if figure is None or main is None:
        return found
    far = round(round(main, digits) - round(figure, digits), 9) > FAR
    return replace(found, mark=layout.BELOW, kind="behind") if far else found
