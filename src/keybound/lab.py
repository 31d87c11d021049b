"""The verbs of the laboratory: attack, train, export, bench.

Their rooms are imported inside the verb.
"""

import importlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from keybound.errors import KeyBoundError
from keybound.terminal import options, progress_bar, say

SEAL_PARTS = ("seal", "remover", "average", "forgery", "copy", "quality", "null")


@click.command()
@click.argument("name", required=False)
@click.argument("recording", type=click.Path(), required=False)
@click.argument("output", type=click.Path(), required=False)
@click.option("--strength", type=float, help="The attack's dial, such as an SNR in dB.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="What chance is drawn from.")
@click.option("--force", is_flag=True, help="Replace OUTPUT if it exists.")
@click.option("--list", "listing", is_flag=True, help="List the attacks.")
def attack(
    name: str | None,
    recording: str | None,
    output: str | None,
    strength: float | None,
    seed: int,
    force: bool,
    listing: bool,
) -> None:
    """Apply the attack NAME to RECORDING and write OUTPUT.

    Several in a row are joined by a plus: keybound attack mp3+noise in.wav out.wav
    """
    from keybound import files
    from keybound.attacks import ATTACKS

    if listing:
        width = max(map(len, ATTACKS))
        for known, made in ATTACKS.items():
            dial = f"  [--strength: {made.dial}]" if made.dial else ""
            click.echo(f"{known:{width}}  {made.summary}{dial}")
        return
    if not (name and recording and output):
        raise click.UsageError("name an attack, a recording and an output, or --list")
    drawn = files.attack(name, recording, output, strength=strength, seed=seed, replace=force)
    click.echo(json.dumps(drawn))


@click.command()
@click.argument("recipe", type=click.Path())
@options(
    click.option("--speech", type=click.Path(), required=True, help="Folder of speech."),
    click.option("--noise", type=click.Path(), required=True, help="Folder of noise."),
    click.option("--lyra", type=click.Path(), help="Folder of Lyra's weights."),
    click.option("--out", type=click.Path(), required=True, help="Folder for checkpoints."),
    click.option("--resume", is_flag=True, help="Go on from the checkpoint in --out."),
    click.option("--start", type=click.Path(), help="Exported weights to start from."),
    click.option("--minutes", type=float, help="Let the schedule follow the clock."),
    click.option("--device", default="cpu", show_default=True, help="cpu or cuda."),
)
def train(recipe: str, **where: Any) -> None:
    """Train a model by RECIPE.

    Needs torch: pip install 'keybound[train]'
    """
    training = _torch_room("keybound.training.train")
    training.command(recipe, **where)


@click.command()
@click.argument("run", type=click.Path())
@click.argument("out", type=click.Path())
@click.option("--valid", type=click.Path(), required=True, help="Folder to calibrate on.")
@click.option("--attack", "attacks", multiple=True, help="Calibrate under these alone.")
@click.option("--int8", is_flag=True, help="Multiply bytes, on scales fitted to --valid.")
def export(run: str, out: str, valid: str, attacks: tuple[str, ...], int8: bool) -> None:
    """Export the checkpoint RUN to the folder OUT.

    Writes both networks as ONNX, and their card with thresholds calibrated on --valid: clean and
    after each attack of the paper and a few more, or after those named.
    """
    room = _torch_room("keybound.training.export")
    from keybound.attacks import available

    for name in attacks:
        if (why := available(name)) is not None:
            raise KeyBoundError(f"{name} cannot run here: {why}")
    room.export_run(Path(run), Path(out), Path(valid) if int8 else None)
    from keybound.benchmark.measure import calibration

    chosen = ("clean", *attacks) if attacks else calibration.ATTACKS
    click.echo(json.dumps(calibration.calibrate(Path(out), Path(valid), attacks=chosen), indent=1))


def _torch_room(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise _missing(error.name, "train") from error


def _need_meters() -> None:
    """Raise an error that names the extra, before any work, where the quality meters are absent."""
    for name in ("pesq", "pystoi"):
        if find_spec(name) is None:
            raise _missing(name, "bench")


def _missing(package: str | None, extra: str) -> KeyBoundError:
    what = f"this needs {package}, which is not installed"
    return KeyBoundError(what, hint=f"pip install 'keybound[{extra}]'")


@click.group(no_args_is_help=False)
def bench() -> None:
    """Measure a watermark, and make tables and a report."""


rows_file = click.option(
    "--rows", default="results/rows.jsonl", show_default=True, help="Where rows are kept."
)


@bench.command("run")
@click.argument("suites", nargs=-1, required=True)
@options(
    click.option("--speech", type=click.Path(), required=True, help="Folder of test clips."),
    rows_file,
    click.option(
        "--method", default="keybound", show_default=True, help="What is measured, or its name."
    ),
    click.option("--model", type=click.Path(), help="KeyBound's weights other than shipped."),
    click.option("--seconds", default=1.0, show_default=True, help="Length of a clip."),
    click.option("--set", "speech_set", metavar="NAME", help="Speech beside the main set."),
    click.option("--every", is_flag=True, help="All clips of each recording of --set."),
    click.option("--clips", default=300, show_default=True, help="How many."),
    click.option("--seed", default=0, show_default=True, help="What chance is drawn from."),
    click.option("--workers", default=0, help="Processes; 0 for one a core."),
)
def bench_run(suites: tuple[str, ...], speech: str, rows: str, **how: Any) -> None:
    """Measure SUITES of attacks (paper, everyday, …), or single attacks, or security.

    Rows that are already there are not measured again. Those of a --set have a table of their own.
    Needs the extra bench: pip install 'keybound[bench]'
    """
    _need_meters()
    from keybound.benchmark.measure import bench

    where = Path(rows)
    made = bench.measure(suites, Path(speech), where, progress=progress_bar, **how)
    say(f"wrote {made} rows to {where}")


@bench.command("seals")
@options(
    click.option(
        "--speech", type=click.Path(), required=True, multiple=True, help="Folders of test clips."
    ),
    rows_file,
    click.option(
        "--part", "parts", type=click.Choice(SEAL_PARTS), multiple=True, help="Only these parts."
    ),
    click.option("--removers", "networks", type=click.Path(), help="Folder of trained removers."),
    click.option("--model", type=click.Path(), help="KeyBound's weights other than shipped."),
    click.option("--rolling", is_flag=True, help="Let the code follow the key's stream."),
    click.option(
        "--most", type=click.IntRange(min=1), help="Recordings of each length, fewer than usual."
    ),
    click.option("--seed", default=0, show_default=True, help="What chance is drawn from."),
    click.option("--workers", default=0, help="Processes; 0 for one a core."),
)
def bench_seals(speech: tuple[str, ...], rows: str, networks: str | None, **how: Any) -> None:
    """Measure sealed evidence: attacks, removers, forgery, copies, averages, wrong keys, quality.

    Recordings of one speaker are joined to pieces of 3, 10 and 30 s. Rows that are already there
    are not measured again. Needs the extra bench: pip install 'keybound[bench]'
    """
    _need_meters()
    from keybound.benchmark.measure import bench

    where, folder = Path(rows), Path(networks) if networks else None
    given = [Path(one) for one in speech]
    made = bench.seals(given, where, networks=folder, progress=progress_bar, **how)
    say(f"wrote {made} rows to {where}")


@bench.command("remove")
@click.argument("networks", type=click.Path())
@options(
    click.option("--speech", type=click.Path(), required=True, help="Folder of test clips."),
    rows_file,
    click.option("--method", default="keybound", show_default=True, help="What is attacked."),
    click.option("--model", type=click.Path(), help="KeyBound's weights other than shipped."),
    click.option("--train", type=click.Path(), help="Speech to train removers on first."),
    click.option("--minutes", default=60.0, show_default=True, help="Of training, at most."),
    click.option("--device", default="cpu", show_default=True, help="cpu or cuda."),
)
def bench_remove(networks: str, speech: str, rows: str, train: str | None, **how: Any) -> None:
    """Attack marked clips with the trained removers in the folder NETWORKS.

    Needs torch: pip install 'keybound[train]'
    """
    _torch_room("torch")
    from keybound.benchmark.measure import bench

    where, on = Path(rows), Path(train) if train else None
    made = bench.remove(Path(speech), where, Path(networks), train=on, say=say, **how)
    say(f"wrote {made} rows to {where}")


@bench.command("tables")
@rows_file
@click.option("--check", is_flag=True, help="Only say whether the tables agree with the rows.")
def bench_tables(rows: str, check: bool) -> None:
    """Make every table of the paper from the rows, beside them."""
    from keybound.benchmark.measure.run import read_rows
    from keybound.benchmark.report.tables import check_tables, write_tables

    path = Path(rows)
    found = read_rows(path)
    if not found:
        raise KeyBoundError(f"no rows in {path}", hint="keybound bench run")
    if check:
        stale = check_tables(found, path.parent)
        if stale:
            raise KeyBoundError(f"not what the rows give: {', '.join(stale)}")
        return
    for made in write_tables(found, path.parent):
        click.echo(made)


@bench.command("report")
@rows_file
@click.option("--out", default="report.html", show_default=True, help="The file to write.")
@click.option("--speech", type=click.Path(), help="Folder of clips for the gallery.")
def bench_report(rows: str, out: str, speech: str | None) -> None:
    """Write one HTML file with tables, plots, spectrograms and audio."""
    from keybound.benchmark.measure import bench

    click.echo(bench.report(Path(rows), Path(out), Path(speech) if speech else None))
