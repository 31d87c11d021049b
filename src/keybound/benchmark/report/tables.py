"""Tables: every table that rows give, in order, and the two files that hold them.

A pure function of the rows: no dates, no machine, so the same rows always give the same bytes and
CI can make them again. A table without rows is left out and named in the index, never filled.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import tables_facts as facts
from keybound.benchmark.report import tables_special as special
from keybound.benchmark.report import tables_suites as suites
from keybound.benchmark.report.descriptions import DESCRIPTIONS, Description
from keybound.benchmark.report.layout import Table, check, latex, markdown
from keybound.benchmark.report.summaries import Evidence, gather
from keybound.benchmark.report.tables_attacks import attack_table

# What makes the rows of a table that neither blocks nor parts describe, by its name.
MAKERS: dict[str, Callable[[Evidence, Description], Table | None]] = {
    "glance": special.glance,
    "other-audio": special.other_audio,
    "wrong-key": special.wrong_key,
    "tolerance": special.tolerance,
    "beta": special.beta,
    "collusion": suites.collusion,
    "sealed": suites.sealed,
    "false-acceptance": special.false_acceptance,
    "quality": suites.quality,
    "excerpts": suites.excerpts,
    "pairs": special.pairs,
    "intervals": special.intervals,
    "attack-intervals": suites.attack_intervals,
    "configuration": facts.configuration,
    "speed": facts.speed,
    "weights": facts.weights,
    "not-run": facts.not_run,
}
PREAMBLE = """% Made from the rows by `keybound bench tables`: do not edit.
% Needs booktabs, graphicx and amssymb."""


def make_table(evidence: Evidence, name: str) -> Table | None:
    """Return a table as it is described, or None where it has no rows."""
    described = DESCRIPTIONS[name]
    make = MAKERS.get(name, attack_table if described.blocks else suites.suite_table)
    table = make(evidence, described)
    return table and check(table)


def make_tables(rows: Iterable[Row]) -> tuple[list[Table], list[str]]:
    """Return every table that the rows have, and the titles of those without rows."""
    evidence = gather(rows)
    made = {name: make_table(evidence, name) for name in DESCRIPTIONS}
    empty = [DESCRIPTIONS[name].title for name, table in made.items() if table is None]
    return [table for table in made.values() if table is not None], empty


def render(rows: Iterable[Row]) -> dict[str, str]:
    """Return the text of each file of tables."""
    rows = list(rows)
    tables, empty = make_tables(rows)
    older = gather(rows).older
    index = [f"- [{table.title}](#{anchor(table.title)})" for table in tables]
    index += [f"- {title}: no rows yet" for title in empty]
    head = "# Tables\n\nMade from the rows by `keybound bench tables`: do not edit.\n"
    if older:
        head += f"\n{older:,} rows of earlier versions are left out.\n"
    parts = [head, "\n".join(index) + "\n", *(markdown(table) for table in tables)]
    without = [f"% {title}: no rows yet" for title in empty]
    source = [*(latex(table) for table in tables)]
    return {
        "tables.md": "\n".join(parts),
        "tables.tex": "\n".join(["\n".join([PREAMBLE, *without]) + "\n", *source]),
    }


def anchor(title: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    kept = (letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")


def write_tables(rows: Iterable[Row], folder: Path) -> list[Path]:
    """Write the files of tables into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in render(rows).items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
        written.append(folder / name)
    return written


def check_tables(rows: Iterable[Row], folder: Path) -> list[str]:
    """Return the files of tables that are absent or differ from those of the rows."""
    return [
        name
        for name, text in render(rows).items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != text.encode()
    ]
