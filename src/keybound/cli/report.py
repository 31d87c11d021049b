"""The verbs `bench tables` and `bench report`, which read the rows that were measured."""

from pathlib import Path
from typing import Any

import click

from keybound.cli.terminal import options
from keybound.errors import KeyBoundError


def path_option(name: str, text: str, **more: Any) -> Any:
    """Return an option that is a path."""
    return click.option(name, type=click.Path(path_type=Path), help=text, **more)


rows_file = path_option(
    "--rows", "File of measured rows.", default="results/rows.jsonl", show_default=True
)
clips_folder = path_option(
    "--speech", "Folder of recordings of speech to measure on.", required=True
)


@click.command("tables")
@options(
    rows_file,
    click.option(
        "--check",
        is_flag=True,
        help="Write nothing; exit with status 2 where a table differs from the rows.",
    ),
)
def tables(rows: Path, check: bool) -> None:
    """Write every table of the paper from the rows, beside them."""
    from keybound.benchmark.measure.rows import read_rows
    from keybound.benchmark.report.tables import check_tables, write_tables

    found = read_rows(rows)
    if not found:
        raise KeyBoundError(f"no rows in {rows}", hint="keybound bench run")
    if not check:
        click.echo("\n".join(map(str, write_tables(found, rows.parent))))
    elif stale := check_tables(found, rows.parent):
        raise KeyBoundError(f"not what the rows give: {', '.join(stale)}")


@click.command("report")
@options(
    rows_file,
    path_option("--out", "HTML file to write.", default="report.html", show_default=True),
    path_option("--speech", "Folder of speech for the gallery; without it there is no gallery."),
)
def report(rows: Path, out: Path, speech: Path | None) -> None:
    """Write one HTML file with tables, plots, spectrograms and audio."""
    from keybound.benchmark.measure.methods import keybound
    from keybound.benchmark.measure.robustness import examples
    from keybound.benchmark.measure.rows import read_rows
    from keybound.benchmark.report.document import write_report

    clips = examples(keybound(), speech) if speech else None
    click.echo(write_report(read_rows(rows), out, clips))
