"""The verbs `attack`, `train` and `export`.

Their rooms are imported inside the verb.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import click

from keybound.cli.terminal import options
from keybound.errors import KeyBoundError, missing


@click.command()
@click.argument("name", required=False)
@click.argument("recording", type=click.Path(), required=False)
@click.argument("output", type=click.Path(), required=False)
@click.option(
    "--strength",
    type=float,
    help="Strength of the attack, such as an SNR in dB (--list shows the unit).",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, help="Seed of the random parameters."
)
@click.option("--force", is_flag=True, help="Replace OUTPUT if it is an existing file.")
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

    The parameters are printed as JSON. A plus joins several attacks in a row:
    keybound attack mp3+noise in.wav out.wav
    """
    from keybound.attacks import ATTACKS
    from keybound.watermark import files

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
    click.option(
        "--speech", type=click.Path(), required=True, help="Folder of recordings of speech."
    ),
    click.option(
        "--noise", type=click.Path(), required=True, help="Folder of recordings of noise."
    ),
    click.option(
        "--lyra",
        type=click.Path(),
        help="Folder of the weights of the Lyra codec, for the attack channel.",
    ),
    click.option("--out", type=click.Path(), required=True, help="Folder for checkpoints."),
    click.option("--resume", is_flag=True, help="Continue from the checkpoint in --out."),
    click.option("--start", type=click.Path(), help="Exported weights to start from."),
    click.option(
        "--minutes", type=float, help="Scale the schedule to this many minutes of wall time."
    ),
    click.option("--device", default="cpu", show_default=True, help="cpu or cuda."),
)
def train(recipe: str, **where: Any) -> None:
    """Train a model by the recipe file RECIPE.

    Needs torch: pip install 'keybound[train]'
    """
    training = torch_room("keybound.training.train")
    training.command(recipe, **where)


@click.command()
@click.argument("run", type=click.Path())
@click.argument("out", type=click.Path())
@click.option(
    "--valid", type=click.Path(), required=True, help="Folder of speech to calibrate thresholds on."
)
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    help="Calibrate thresholds under this attack alone (may be repeated).",
)
@click.option(
    "--int8",
    is_flag=True,
    help="Quantise matrix products to 8 bits, with scales fitted on --valid.",
)
def export(run: str, out: str, valid: str, attacks: tuple[str, ...], int8: bool) -> None:
    """Export the checkpoint RUN to the folder OUT.

    Writes both networks as ONNX, and their card with thresholds calibrated on --valid: clean and
    after each attack of the paper and a few more, or after those named.
    """
    room = torch_room("keybound.training.export")
    from keybound.attacks import available

    for name in attacks:
        if (why := available(name)) is not None:
            raise KeyBoundError(f"{name} cannot run here: {why}")
    room.export_run(Path(run), Path(out), Path(valid) if int8 else None)
    from keybound.benchmark.measure import calibration

    chosen = ("clean", *attacks) if attacks else calibration.ATTACKS
    click.echo(json.dumps(calibration.calibrate(Path(out), Path(valid), attacks=chosen), indent=1))


def torch_room(name: str) -> Any:
    """Import a module that needs torch, or raise an error that names the extra."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise missing(error.name, "train") from error
