"""The verbs of `keybound bench`. The rooms of the benchmark are imported inside the verb."""

import dataclasses
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from keybound.cli.lab import torch_room
from keybound.cli.terminal import as_json, options, progress_bar, say
from keybound.errors import KeyBoundError, missing

PARTS = ("seal", "remover", "average", "forgery", "copy", "quality", "null")  # of sealed evidence


@click.group(no_args_is_help=False)
def bench() -> None:
    """Measure a watermark, and make tables and a report."""


def _path(name: str, text: str, **how: Any) -> Any:
    return click.option(name, type=click.Path(path_type=Path), help=text, **how)


rows_file = _path("--rows", "File of rows.", default="results/rows.jsonl", show_default=True)
clips_folder = _path("--speech", "Folder of test clips.", required=True)
clips_folders = _path("--speech", "Folders of test clips.", required=True, multiple=True)
model = click.option("--model", type=click.Path(), help="KeyBound's weights other than shipped.")
method_name = click.option(
    "--method",
    default="keybound",
    show_default=True,
    help="Method to measure: keybound, a peer, or a name for --model.",
)
seed = click.option(
    "--seed", default=0, show_default=True, help="Seed of keys, payloads and attacks."
)
workers = click.option("--workers", default=0, help="Processes; 0 for one a core.")
attack_names = click.option(
    "--attack", "attacks", multiple=True, help="Measure under these attacks alone."
)


def _rooms() -> tuple[Any, Any]:
    """Return the modules of methods and plans; raise an error where PESQ or STOI is absent."""
    for name in ("pesq", "pystoi"):
        if find_spec(name) is None:
            raise missing(name, "bench")
    from keybound.benchmark import peers
    from keybound.benchmark.measure import plans

    return peers, plans


def _measure(plans: list[Any], rows: Path, workers: int) -> None:
    """Measure what is missing from the rows, and say how many rows came."""
    from keybound.benchmark.measure import run

    first, made = run.begin(plans[0], rows)
    for plan in (first, *plans[1:]):
        made += run.run(plan, rows, progress=progress_bar("measuring"), workers=workers)
    say(f"wrote {made} rows to {rows}")


def _print(
    room: Any, suite: str, speech: tuple[Path, ...], *, model: str, workers: int, **how: Any
) -> None:
    """Measure a suite of KeyBound whose rows are not kept, and print its room's table of them."""
    from keybound.benchmark import peers
    from keybound.benchmark.measure import run
    from keybound.benchmark.measure.plan import Plan

    attacks = how.pop("attacks") or room.ATTACKS
    plan = Plan(peers.chosen("keybound", model), speech, (suite,), attacks, **how)
    rows = run.collect(plan, progress=progress_bar("measuring"), workers=workers)
    click.echo(room.table(list(rows)))


@bench.command("run")
@click.argument("suites", nargs=-1, required=True)
@options(
    clips_folder,
    rows_file,
    method_name,
    model,
    click.option("--seconds", default=1.0, show_default=True, help="Length of a clip."),
    click.option(
        "--set",
        "speech_set",
        metavar="NAME",
        help="Name of another set of speech, with tables of its own.",
    ),
    click.option("--every", is_flag=True, help="All clips of each recording of --set."),
    click.option("--clips", default=300, show_default=True, help="Number of clips."),
    seed,
    workers,
)
def bench_run(
    suites: tuple[str, ...], rows: Path, method: str, model: str | None, workers: int, **how: Any
) -> None:
    """Measure SUITES of attacks (paper, everyday, …), single attacks, security, or negatives.

    Rows that are already there are not measured again. Those of a --set have a table of their own.
    Needs the extra bench: pip install 'keybound[bench]'
    """
    peers, plans = _rooms()
    _measure(plans.of_suites(peers.chosen(method, model), suites, **how), rows, workers)


@bench.command("seals")
@options(
    clips_folders,
    rows_file,
    click.option(
        "--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only these parts."
    ),
    _path("--removers", "Folder of trained removers."),
    model,
    click.option("--rolling", is_flag=True, help="Change the code every second."),
    click.option(
        "--most", type=click.IntRange(min=1), help="Recordings of each length, fewer than usual."
    ),
    seed,
    workers,
)
def bench_seals(rows: Path, model: str | None, rolling: bool, workers: int, **how: Any) -> None:
    """Measure sealed evidence: attacks, removers, forgery, copies, averages, wrong keys, quality.

    Recordings of one speaker are joined to pieces of 3, 10 and 30 s. Rows that are already there
    are not measured again. Needs the extra bench: pip install 'keybound[bench]'
    """
    peers, plans = _rooms()
    make = peers.chosen("keybound", model, rolling=rolling)
    _measure([plans.of_seals(make, **how)], rows, workers)


@bench.command("remove")
@click.argument("networks", type=click.Path(path_type=Path))
@options(
    clips_folder,
    rows_file,
    method_name,
    model,
    _path("--train", "Speech to train removers on first."),
    click.option(
        "--minutes", default=60.0, show_default=True, help="Training time of a remover, at most."
    ),
    click.option("--device", default="cpu", show_default=True, help="cpu or cuda."),
    workers,
)
def bench_remove(
    networks: Path, speech: Path, rows: Path, method: str, model: str, workers: int, **how: Any
) -> None:
    """Attack marked clips with the trained removers in the folder NETWORKS.

    Needs torch: pip install 'keybound[train]'
    """
    torch_room("torch")
    from keybound.benchmark.measure import removal

    peers, plans = _rooms()
    make = peers.chosen(method, model)
    removal.train(make(), networks, say=say, **how)
    _measure([plans.of_removers(make, speech, networks)], rows, workers)


@bench.command("lengths")
@options(
    clips_folders,
    click.option("--seconds", type=float, multiple=True, help="Lengths of pieces."),
    attack_names,
    click.option("--most", default=100, show_default=True, help="Pieces of each length."),
    model,
    workers,
)
def bench_lengths(
    speech: tuple[Path, ...], seconds: tuple[float, ...], most: int, **how: Any
) -> None:
    """Print bit accuracy and share attributed by length, of pieces joined from one speaker."""
    from keybound.benchmark.measure import lengths

    pieces = dict.fromkeys(seconds or lengths.LENGTHS, most)
    _print(lengths, "length", speech, lengths=pieces, **how)


@bench.command("false-alarms")
@options(
    clips_folder,
    click.option("--seconds", type=float, multiple=True, help="Lengths of files."),
    click.option("--stereo", is_flag=True, help="Files of two channels, and each view alone."),
    attack_names,
    model,
    workers,
)
def bench_false_alarms(speech: Path, seconds: tuple[float, ...], **how: Any) -> None:
    """Count unmarked recordings of several lengths that are found marked.

    Take speech that had no part in the calibration.
    """
    from keybound.benchmark.measure import tail

    _print(tail, "false-alarms", (speech,), files_s=seconds or tail.FILES_S, **how)


@bench.command("calibrate")
@click.argument("folder", type=click.Path(path_type=Path))
@options(
    _path("--valid", "Folder of validation speech.", required=True),
    click.option("--evidence", is_flag=True, help="Only what long recordings need."),
    attack_names,
    workers,
)
def bench_calibrate(
    folder: Path, valid: Path, evidence: bool, attacks: tuple[str, ...], workers: int
) -> None:
    """Calibrate the card of the exported weights in FOLDER again, as `keybound export` does."""
    from keybound.benchmark.measure import calibration

    how: Any = {"attacks": attacks or calibration.ATTACKS}
    if evidence:
        found = dataclasses.asdict(calibration.calibrate_evidence(folder, valid, **how))
    else:
        how |= {"progress": progress_bar("measuring"), "workers": workers}
        found = calibration.calibrate(folder, valid, **how)
    click.echo(json.dumps(found, indent=1))


@bench.command("speed")
@options(
    click.option("--seconds", type=float, multiple=True, default=[10.0], help="Length of audio."),
    click.option("--turns", default=9, show_default=True, help="Repetitions; the fastest counts."),
    click.option("--method", "methods", multiple=True, help="Measure these methods alone."),
    _path("--rows", "File of rows to append to."),
    as_json,
)
def bench_speed(
    seconds: tuple[float, ...], turns: int, methods: tuple[str, ...], rows: Path, as_json: bool
) -> None:
    """Print how many times real time KeyBound and its peers run, side by side on this machine."""
    from keybound.benchmark.measure import speed
    from keybound.benchmark.measure.rows import add_missing

    found = [row for s in seconds for row in speed.measure(s, turns, methods or speed.NAMES)]
    click.echo("\n".join(map(json.dumps, found)) if as_json else speed.table(found))
    if rows:
        say(f"wrote {add_missing(rows, found)} rows to {rows}")


@bench.command("scale")
@options(
    clips_folder,
    click.option("--jobs", type=click.IntRange(min=1), multiple=True, help="Processes to try."),
    as_json,
)
def bench_scale(speech: Path, jobs: tuple[int, ...], as_json: bool) -> None:
    """Print what an hour of audio costs in `keybound batch`."""
    from keybound.benchmark.measure import scale

    found = scale.measure(speech, jobs or (1, os.cpu_count() or 1))
    click.echo("\n".join(map(json.dumps, found)) if as_json else scale.table(found))


@bench.command("tables")
@options(
    rows_file,
    click.option("--check", is_flag=True, help="Only say whether the tables agree with the rows."),
)
def bench_tables(rows: Path, check: bool) -> None:
    """Make every table of the paper from the rows, beside them."""
    from keybound.benchmark.measure.rows import read_rows
    from keybound.benchmark.report.tables import check_tables, write_tables

    found = read_rows(rows)
    if not found:
        raise KeyBoundError(f"no rows in {rows}", hint="keybound bench run")
    if not check:
        click.echo("\n".join(map(str, write_tables(found, rows.parent))))
    elif stale := check_tables(found, rows.parent):
        raise KeyBoundError(f"not what the rows give: {', '.join(stale)}")


@bench.command("report")
@options(
    rows_file,
    _path("--out", "The file to write.", default="report.html", show_default=True),
    _path("--speech", "Folder of clips for the gallery."),
)
def bench_report(rows: Path, out: Path, speech: Path | None) -> None:
    """Write one HTML file with tables, plots, spectrograms and audio."""
    from keybound.benchmark.measure.methods import keybound
    from keybound.benchmark.measure.robustness import examples
    from keybound.benchmark.measure.rows import read_rows
    from keybound.benchmark.report.document import write_report

    clips = examples(keybound(), speech) if speech else None
    click.echo(write_report(read_rows(rows), out, clips))
