"""Tables of made rows, and the lines in them, for the tests of tables."""

from made_rows import Row

from keybound.benchmark.report import layout
from keybound.benchmark.report.layout import Cell, Table
from keybound.benchmark.report.tables import make_tables


def clip(
    attack: str, number: int, marked: float, unmarked: float, errors: int, **more: object
) -> Row:
    row: Row = {"method": "keybound", "version": "1", "attack": attack, "clip": number}
    row |= {"seconds": 1.0, "seed": 0, "bits": 16, "marked": marked, "unmarked": unmarked}
    return row | {"errors": errors} | more


def named(rows: list[Row], name: str) -> Table:
    return next(table for table in make_tables(rows)[0] if table.name == name)


def line(table: Table, label: str) -> dict[str, Cell]:
    """Give the cells of the first line with this label, by group and column."""
    heads = [f"{c.group}: {c.label}" if c.group else c.label for c in table.columns]
    for row in table.rows:
        if not isinstance(row, str) and row[0].text == label:
            return {
                head: cell for head, cell in zip(heads, layout.spread(row), strict=True) if cell
            }
    raise AssertionError(f"no line {label!r} in {table.name}")
