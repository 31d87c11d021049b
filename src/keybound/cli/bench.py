"""The verbs of `keybound bench`: measure a watermark, and make tables and a report.

The rooms of the benchmark are imported inside the verb.
"""

import dataclasses
import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keybound.cli import report, speed
from keybound.cli.lab import torch_room
from keybound.cli.report import clips_folder, path_option, rows_file
from keybound.cli.terminal import false_alarms, options, progress_bar, say
from keybound.errors import missing

if TYPE_CHECKING:
    from keybound.benchmark.measure.plan import Plan

# Of sealed evidence.
PARTS = ("seal", "remover", "counter", "average", "forgery", "copy", "quality", "null")


@click.group(no_args_is_help=False)
def bench() -> None:
    """Measure a watermark, and make tables and a report."""


clips_folders = path_option(
    "--speech",
    "Folder of recordings of speech to measure on (may be repeated).",
    required=True,
    multiple=True,
)
model = click.option(
    "--model", type=click.Path(), help="Folder of KeyBound's weights other than the shipped ones."
)
method_name = click.option(
    "--method",
    default="keybound",
    show_default=True,
    help="Method to measure: keybound, a peer, or a name for --model.",
)
seed = click.option(
    "--seed", default=0, show_default=True, help="Seed of keys, payloads and attacks."
)
workers = click.option("--workers", default=0, help="Number of processes; 0 for one per core.")
attack_names = click.option(
    "--attack", "attacks", multiple=True, help="Measure under this attack alone (may be repeated)."
)


def _need_meters() -> None:
    """Raise an error that names the extra, before any work, where PESQ or STOI is absent."""
    for name in ("pesq", "pystoi"):
        if find_spec(name) is None:
            raise missing(name, "bench")


def _measure(plans: "list[Plan]", rows: Path, workers: int) -> None:
    """Measure what is missing from the rows, and print how many were added."""
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

    make, attacks = peers.chosen("keybound", model), how.pop("attacks") or room.ATTACKS
    plan = Plan(make, speech, (suite,), attacks, **how)
    rows = run.collect(plan, progress=progress_bar("measuring"), workers=workers)
    click.echo(room.table(list(rows)))


@bench.command("run")
@click.argument("suites", nargs=-1, required=True)
@options(
    clips_folder,
    rows_file,
    method_name,
    model,
    click.option("--seconds", default=1.0, show_default=True, help="Length of a clip in seconds."),
    click.option(
        "--set",
        "speech_set",
        metavar="NAME",
        help="Name of another set of speech, with tables of its own.",
    ),
    click.option(
        "--every",
        is_flag=True,
        help="Take all clips of each recording of --set, not the first alone.",
    ),
    click.option(
        "--joined",
        is_flag=True,
        help="Join all recordings, by speaker, and cut clips that may be longer than each.",
    ),
    click.option("--clips", default=300, show_default=True, help="Number of clips."),
    seed,
    workers,
)
def bench_run(
    suites: tuple[str, ...], rows: Path, method: str, model: str | None, workers: int, **how: Any
) -> None:
    """Measure SUITES of attacks (paper, everyday, …), single attacks, or what is named below.

    Also: quality alone, security, collusion, gradient (needs the extra train) and negatives.
    Rows that are already there are not measured again. Those of a --set have a table of their own.
    Needs the extra bench: pip install 'keybound[bench]'
    """
    _need_meters()
    from keybound.benchmark import peers
    from keybound.benchmark.measure import plans
    from keybound.model.networks import SHIPPED

    if "gradient" in suites:
        export = torch_room("keybound.training.export")
        how["detector"] = partial(export.read_detector, Path(model) if model else SHIPPED)
    _measure(plans.of_suites(peers.chosen(method, model), suites, **how), rows, workers)


@bench.command("seals")
@options(
    clips_folders,
    rows_file,
    click.option(
        "--part",
        "parts",
        type=click.Choice(PARTS),
        multiple=True,
        help="Measure this part alone (may be repeated).",
    ),
    path_option("--removers", "Folder of trained removers, for the part remover."),
    model,
    click.option(
        "--identifier", "issued", is_flag=True, help="Embed keyed identifiers with records."
    ),
    click.option("--most", type=click.IntRange(min=1), help="Limit of recordings of each length."),
    seed,
    workers,
)
def bench_seals(rows: Path, model: str | None, issued: bool, workers: int, **how: Any) -> None:
    """Measure sealed evidence: attacks, removers, forgery, copies, averages, wrong keys, quality.

    Recordings of one speaker are joined to pieces of 3, 10 and 30 s. Rows that are already there
    are not measured again. Needs the extra bench: pip install 'keybound[bench]'
    """
    _need_meters()
    from keybound.benchmark import peers
    from keybound.benchmark.measure import plans

    make = peers.chosen("keybound", model, issued=issued)
    _measure([plans.of_seals(make, **how)], rows, workers)


@bench.command("remove")
@click.argument("networks", type=click.Path(path_type=Path))
@options(
    clips_folder,
    rows_file,
    method_name,
    model,
    path_option("--train", "Folder of speech to train removers on first."),
    click.option(
        "--minutes",
        default=60.0,
        show_default=True,
        help="Limit of the training time of a remover, in minutes.",
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
    from keybound.benchmark import peers
    from keybound.benchmark.measure import plans, removal

    make = peers.chosen(method, model)
    removal.train(make(), networks, say=say, **how)
    _measure([plans.of_removers(make, speech, networks)], rows, workers)


@bench.command("false-alarms")
@options(
    clips_folder,
    click.option(
        "--seconds", type=float, multiple=True, help="Length of files in seconds (may be repeated)."
    ),
    false_alarms,
    click.option(
        "--stereo",
        is_flag=True,
        help="Measure files of two channels, and each channel and the mix alone.",
    ),
    attack_names,
    model,
    workers,
)
def bench_false_alarms(speech: Path, seconds: tuple[float, ...], **how: Any) -> None:
    """Print the share of unmarked recordings of several lengths that are detected as marked.

    --speech must not have been used for calibration.
    """
    from keybound.benchmark.measure import false_alarms as measured

    _print(measured, "false-alarms", (speech,), files_s=seconds or measured.FILES_S, **how)


@bench.command("calibrate")
@click.argument("folder", type=click.Path(path_type=Path))
@options(
    path_option("--valid", "Folder of validation speech.", required=True),
    path_option(
        "--others",
        "Folder of other unmarked speech, such as a synthetic voice, which the thresholds of long "
        "recordings have to bear too (may be repeated).",
        multiple=True,
    ),
    click.option(
        "--evidence",
        is_flag=True,
        help="Calibrate only the threshold for stretches of long recordings.",
    ),
    attack_names,
    workers,
)
def bench_calibrate(
    folder: Path,
    valid: Path,
    others: tuple[Path, ...],
    evidence: bool,
    attacks: tuple[str, ...],
    workers: int,
) -> None:
    """Calibrate the card of the exported weights in FOLDER again, as `keybound export` does."""
    from keybound.benchmark.measure import calibration

    chosen = attacks or calibration.ATTACKS
    if evidence:
        speech = (valid, *others)
        tail = calibration.calibrate_evidence(folder, speech, attacks=chosen, workers=workers)
        click.echo(json.dumps(dataclasses.asdict(tail), indent=1))
        return
    progress = progress_bar("measuring")
    how: Any = {"others": others, "attacks": chosen, "workers": workers}
    found = calibration.calibrate(folder, valid, progress=progress, **how)
    click.echo(json.dumps(found, indent=1))


bench.add_command(speed.speed)
bench.add_command(speed.scale)
bench.add_command(report.tables)
bench.add_command(report.report)
