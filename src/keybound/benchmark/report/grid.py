"""Grids: tables of values, described as data: a line of text for each column, a tuple for each row.

The forms of the columns say how values are printed. Knows nothing of what is measured.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from keybound.benchmark.report import layout
from keybound.benchmark.report.labels import NOTES, TOO_MANY, titled
from keybound.benchmark.report.layout import Cell, Column, Table

Rows = list[Any]  # of headings, which are strings, and of tuples: a name and values


def grid(caption: str, heads: str, rows: Iterable[Any], *notes: str) -> Table | None:
    """Return a table of values; `heads` has lines of columns: GROUP: LABEL; LABEL | HELP | FORM.

    A row is a heading, or its name and values, which the form of their column prints: a number of
    digits, behind it `@` and the digits that the paper printed, `<` where less is better, `p` for
    the paper's own figures; `words` is text flush left. A pair is our figure and the paper's.
    """
    columns: list[Column] = []
    forms = []
    for head in heads.strip().splitlines():
        named, told, form = (*(part.strip() for part in head.split(" | ")), "")[:3]
        group, _, labels = named.rpartition(": ")
        for text in labels.split("; "):
            columns.append(Column(text, told, group, words=form == "words" or not columns))
            forms.append(form)
    made = [row if isinstance(row, str) else tuple(_cells(row, forms)) for row in rows]
    return noted(caption, columns, made, *notes)


def _cells(row: Sequence[Any], forms: Sequence[str]) -> Iterator[Cell]:
    yield Cell(row[0], kind="name")
    for value, form in zip(row[1:], forms[1:], strict=False):  # a cell may span several columns
        digits, _, printed = form.rstrip("p<").partition("@")
        kind = "published" if form.endswith("p") else ""
        if isinstance(value, Cell):
            yield value
        elif isinstance(value, str | int):
            yield Cell(str(value), kind=kind)
        elif isinstance(value, tuple):
            ours, theirs = value
            how: Any = {"printed": int(printed) if printed else None}
            how["lower_is_better"] = form.endswith("<")
            yield layout.against(ours, theirs, int(digits), **how)
        else:
            yield layout.figure(value, int(digits), kind=kind)


def noted(
    caption: str, columns: Sequence[Column], rows: Sequence[Any], *notes: str
) -> Table | None:
    """Return a table with the notes that its marks need; None where it has headings alone."""
    cells = [cell for row in rows if not isinstance(row, str) for cell in row]
    if not cells:
        return None
    seen = {cell.mark for cell in cells} | {cell.text for cell in cells}
    needed = (note for mark, note in NOTES.items() if mark in seen)
    return Table("", "", caption, tuple(columns), tuple(rows), (*needed, *notes))


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
