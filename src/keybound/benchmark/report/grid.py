"""Grids: descriptions and values in, tables of cells out.

The forms of the columns say how values are printed. Knows nothing of what is measured.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keybound.benchmark.report import layout
from keybound.benchmark.report.descriptions import Description, fill
from keybound.benchmark.report.labels import NOTES, TOO_MANY, titled
from keybound.benchmark.report.layout import Cell, Column, Table

Rows = list[Any]  # of headings, which are strings, and of tuples: a name and values


def grid(
    d: Description,
    rows: Iterable[Any],
    words: Mapping[str, str] | None = None,
    each: Sequence[Mapping[str, str]] | None = None,
) -> Table | None:
    """Return a described table of values; `words` fill the braces of its caption and notes.

    A row is a heading, or its name and values, which the form of their column prints.
    """
    heads = d.heads(each)
    forms = [head.form for head in heads]

    def line(name: str, *values: Any) -> tuple[Cell, ...]:
        # A cell may span several columns.
        pairs = zip(values, forms[1:], strict=False)
        return (Cell(name, kind="name"), *(cell(value, form) for value, form in pairs))

    made = [row if isinstance(row, str) else line(*row) for row in rows]
    return noted(d, [head.column for head in heads], made, words or {})


def cell(value: Any, form: str) -> Cell:
    """Return a value as its form prints it; a pair is our figure and the paper's."""
    digits, _, printed = form.rstrip("p<†").partition("@")
    kind = "published" if form.endswith("p") else ""
    if isinstance(value, Cell):
        return value
    if isinstance(value, str | int):
        return Cell(str(value), kind=kind)
    if form.endswith("†"):
        return rate_of_alarms(value, int(digits))
    if isinstance(value, tuple):
        ours, theirs = value
        how: Any = {"printed": int(printed), "lower_is_better": form.endswith("<")}
        return layout.against(ours, theirs, int(digits), **how)
    return layout.figure(value, int(digits), kind=kind)


def noted(
    d: Description, columns: Sequence[Column], rows: Sequence[Any], words: Mapping[str, str]
) -> Table | None:
    """Return a table with the notes that its marks need; None where it has headings alone."""
    cells = [cell for row in rows if not isinstance(row, str) for cell in row]
    if not cells:
        return None
    seen = {cell.mark for cell in cells} | {cell.text for cell in cells}
    needed = [note for mark, note in NOTES.items() if mark in seen and not d.unmarked]
    notes = [note for text in d.notes for note in fill(text, words).splitlines()]
    caption = fill(d.caption, words)
    return Table(d.name, d.title, caption, tuple(columns), tuple(rows), (*needed, *notes))


def rate_of_alarms(value: float | None, digits: int = 3) -> Cell:
    """Return a cell of a false-positive rate, marked where it is too high."""
    over = value is not None and value > TOO_MANY
    return layout.figure(value, digits, **{"mark": layout.OVER, "kind": "over"} if over else {})


def stacked(methods: Sequence[str], lines: Callable[[str], Iterable[Any]]) -> Rows:
    """Return the lines of several methods below each other, each under its name."""
    found: Rows = []
    for method in methods:
        found += [titled(method)] if len(methods) > 1 else []
        found += lines(method)
    return found
