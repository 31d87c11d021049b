"""The verbs `bench speed` and `bench scale`: what embedding and detection cost on this machine."""

import json
import os
from pathlib import Path

import click

from keybound.cli.report import clips_folder, path_option
from keybound.cli.terminal import as_json, options, say


@click.command("speed")
@options(
    click.option(
        "--seconds",
        type=float,
        multiple=True,
        default=[10.0],
        help="Length of audio in seconds (may be repeated).",
    ),
    click.option("--turns", default=9, show_default=True, help="Repetitions; the fastest counts."),
    click.option(
        "--method", "methods", multiple=True, help="Measure this method alone (may be repeated)."
    ),
    path_option("--rows", "File of rows to append the result to."),
    as_json,
)
def speed(
    seconds: tuple[float, ...], turns: int, methods: tuple[str, ...], rows: Path, as_json: bool
) -> None:
    """Print how many times real time KeyBound and its peers run, side by side on this machine."""
    from keybound.benchmark.measure import speed as measured
    from keybound.benchmark.measure.rows import add_missing
    from keybound.benchmark.report.layout import markdown
    from keybound.benchmark.report.summaries import gather
    from keybound.benchmark.report.tables import make_table

    names = methods or measured.NAMES
    found = [row for length_s in seconds for row in measured.measure(length_s, turns, names)]
    table = make_table(gather(found), "speed")
    if as_json:
        click.echo("\n".join(map(json.dumps, found)))
    elif table is not None:
        click.echo(markdown(table))
    if rows:
        say(f"wrote {add_missing(rows, found)} rows to {rows}")


@click.command("scale")
@options(
    clips_folder,
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        multiple=True,
        help="Number of processes to measure with (may be repeated).",
    ),
    as_json,
)
def scale(speech: Path, jobs: tuple[int, ...], as_json: bool) -> None:
    """Print what an hour of audio costs in `keybound batch`."""
    from keybound.benchmark.measure import scale as measured

    found = measured.measure(speech, jobs or (1, os.cpu_count() or 1))
    click.echo("\n".join(map(json.dumps, found)) if as_json else measured.table(found))
