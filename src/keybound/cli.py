"""The command line: verbs only. Heavy rooms are imported inside the verb that needs them.

Results go to standard output (`--json` for machines). Messages go to standard error, in lower
case without a full stop, with a hint in brackets where there is one. Keys come from files or from
standard input, never from an argument. Exit status: 0 yes, 1 no, 2 error.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from keybound.errors import KeyBoundError
from keybound.keys import Key
from keybound.registry import Party, Registry, default_path

if TYPE_CHECKING:
    from keybound.watermark import Verdict, Watermarker

F = TypeVar("F", bound=Callable[..., Any])


def number(text: str) -> int:
    """Read a payload: decimal, or 0x and hexadecimal."""
    try:
        return int(text, 0)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number such as 24301 or 0x5eed") from None


def octets(text: str) -> bytes:
    """Read a nonce."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not hexadecimal") from None


def say(message: str) -> None:
    """Tell the user something that is not a result."""
    click.echo(f"keybound: {message}", err=True)


def emit(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print a result for a person, or for a machine."""
    click.echo(json.dumps(result) if as_json else text)


def options(*made: Any) -> Callable[[F], F]:
    """Put several options on a verb, in the order they are to be listed."""

    def dress(verb: F) -> F:
        for option in reversed(made):
            verb = option(verb)
        return verb

    return dress


as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
model = click.option("--model", type=click.Path(), help="A folder of weights other than shipped.")
registry = click.option("--registry", type=click.Path(), help="The registry of parties.")
party_name = click.option("--party", "name", help="A registered party.")
key_file = click.option("--key", "key_file", help="A key file, or - for standard input.")
payload = click.option("--payload", type=number, help="The party's payload: 24301 or 0x5eed.")
nonce = click.option("--nonce", type=octets, default="", help="A nonce for the mask, in hex.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="keybound", message="%(version)s")
def cli() -> None:
    """Mark speech, detect the mark, prove whose it is."""


@cli.command()
@click.argument("path", type=click.Path())
@click.option("--comment", default="", help="A line for people, kept in the file.")
def keygen(path: str, comment: str) -> None:
    """Make a new key in the file PATH, which must not exist yet."""
    key = Key.generate()
    key.write(path, comment=comment)
    say(f"wrote {path}; keep it secret and keep a copy")
    click.echo(key.fingerprint)


@cli.group()
def party() -> None:
    """Register who marks with which key and payload."""


@party.command("add")
@click.argument("name")
@options(
    click.option("--key", "key_file", required=True, help="The party's key file."),
    click.option("--payload", type=number, required=True, help="24301 or 0x5eed."),
    click.option("--bits", default=16, show_default=True, help="Length of the payload."),
    click.option("--rho", default=2, show_default=True, help="Wrong bits that are tolerated."),
    registry,
)
def party_add(
    name: str, key_file: str, payload: int, bits: int, rho: int, registry: str | None
) -> None:
    """Add the party NAME. Its key stays in its file; only the path is kept."""
    path = Path(key_file).absolute()
    key = Key.read(path)
    made = Party(name, payload, bits, rho, path, key.fingerprint, datetime.now(UTC))
    with Registry(registry or default_path()) as parties:
        parties.add(made)
    say(f"registered {name}")


@party.command("list")
@options(registry, as_json)
def party_list(registry: str | None, as_json: bool) -> None:
    """List the parties."""
    with Registry(registry or default_path()) as parties:
        for one in parties.list():
            row = dataclasses.asdict(one)
            row |= {"key_file": str(one.key_file), "created": one.created.isoformat()}
            digits = -(-one.bits // 4)
            text = f"{one.name}\t0x{one.payload:0{digits}x}\t{one.fingerprint}\t{one.key_file}"
            emit(row, text, as_json)


@party.command("remove")
@click.argument("name")
@registry
def party_remove(name: str, registry: str | None) -> None:
    """Remove the party NAME. Its key file stays where it is."""
    with Registry(registry or default_path()) as parties:
        parties.remove(name)
    say(f"removed {name}")


def claimant(
    name: str | None, key_file: str | None, payload: int | None, registry: str | None
) -> tuple[Key, int, int | None]:
    """Give key, payload and rho of a registered party, or of a key and payload named apart."""
    if name is not None:
        if key_file is not None or payload is not None:
            raise click.UsageError("--party brings its own key and payload")
        with Registry(registry or default_path()) as parties:
            one = parties.get(name)
        return one.key(), one.payload, one.rho
    if key_file is None or payload is None:
        raise click.UsageError("say whose mark: --party NAME, or --key FILE and --payload P")
    return Key.read(key_file), payload, None


def load(model: str | None) -> "Watermarker":
    from keybound.watermark import Watermarker

    return Watermarker(model)


@cli.command()
@click.argument("host", type=click.Path())
@click.argument("output", type=click.Path())
@options(party_name, key_file, payload, nonce)
@click.option("--force", is_flag=True, help="Replace OUTPUT if it exists.")
@options(registry, model, as_json)
def embed(
    host: str,
    output: str,
    name: str | None,
    key_file: str | None,
    payload: int | None,
    nonce: bytes,
    force: bool,
    registry: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Mark the recording HOST and write it to OUTPUT.

    OUTPUT is read back and verified before it appears; if the mark cannot be read from it,
    nothing is written.
    """
    from keybound import files

    key, number, rho = claimant(name, key_file, payload, registry)
    marker = load(model)
    verdict, clipped = files.embed(
        marker, host, output, key=key, payload=number, nonce=nonce, rho=rho, replace=force
    )
    if clipped:
        say(f"{clipped} samples were limited to full scale")
    emit(evidence(verdict) | {"output": output, "clipped": clipped}, verdict.words, as_json)


def evidence(verdict: "Verdict") -> dict[str, Any]:
    """Give a verdict as plain values."""
    return dataclasses.asdict(verdict) | {"words": verdict.words}


@cli.command()
@click.argument("recording", type=click.Path())
@click.option("--frames", is_flag=True, help="With --json: the values of every frame too.")
@options(model, as_json)
def detect(recording: str, frames: bool, model: str | None, as_json: bool) -> None:
    """Say whether RECORDING carries a mark, and where. Exit status 0 if so, 1 if not."""
    from keybound import audio

    heard = audio.read(recording)
    found = load(model).detect(heard.samples, heard.sample_rate)
    result: dict[str, Any] = {
        "present": found.present,
        "presence": found.presence,
        "threshold": found.threshold,
        "spans": [dataclasses.asdict(span) for span in found.spans],
    }
    if frames:
        result |= {
            "frame_s": found.frame_s,
            "frame_presence": found.frame_presence.tolist(),
            "frame_logits": found.frame_logits.tolist(),
        }
    lines = [f"{'marked' if found.present else 'no mark found'} (presence {found.presence:.3f})"]
    lines += [f"  {s.start_s:8.2f} s to {s.end_s:8.2f} s  {s.score:.3f}" for s in found.spans]
    emit(result, "\n".join(lines), as_json)
    sys.exit(0 if found.present else 1)


@cli.command()
@click.argument("recording", type=click.Path())
@options(party_name, key_file, payload, nonce)
@click.option("--any", "anyone", is_flag=True, help="Try every registered party.")
@options(registry, model, as_json)
def verify(
    recording: str,
    name: str | None,
    key_file: str | None,
    payload: int | None,
    nonce: bytes,
    anyone: bool,
    registry: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Say whether RECORDING carries this party's mark. Exit status 0 if so, 1 if not."""
    from keybound import audio

    claims: list[tuple[str, Key, int, int | None]]
    if anyone:
        if name or key_file or payload is not None:
            raise click.UsageError("--any tries every party; name none")
        with Registry(registry or default_path()) as parties:
            claims = [(p.name, p.key(), p.payload, p.rho) for p in parties.list()]
        if not claims:
            raise KeyBoundError("no parties are registered", hint="keybound party add")
    else:
        claims = [(name or "", *claimant(name, key_file, payload, registry))]
    heard = audio.read(recording)
    marker = load(model)
    found = marker.detect(heard.samples, heard.sample_rate)
    verified = False
    for who, key, number, rho in claims:
        verdict = marker.judge(
            found, key=key, payload=number, nonce=nonce, rho=rho, tries=len(claims)
        )
        verified |= verdict.verified
        named = {"party": who} if who else {}
        text = f"{who}: {verdict.words}" if who else verdict.words
        emit(named | evidence(verdict), text, as_json)
    sys.exit(0 if verified else 1)


@cli.command()
@click.argument("name", required=False)
@click.argument("recording", type=click.Path(), required=False)
@click.argument("output", type=click.Path(), required=False)
@click.option("--strength", type=float, help="The attack's dial, such as an SNR in dB.")
@click.option("--seed", default=0, show_default=True, help="What chance is drawn from.")
@click.option("--list", "listing", is_flag=True, help="List the attacks.")
def attack(
    name: str | None,
    recording: str | None,
    output: str | None,
    strength: float | None,
    seed: int,
    listing: bool,
) -> None:
    """Apply the attack NAME to RECORDING and write OUTPUT: `attack mp3+noise in.wav out.wav`."""
    from keybound import files
    from keybound.attacks import ATTACKS

    if listing:
        for known, made in ATTACKS.items():
            dial = f"  [--strength: {made.dial}]" if made.dial else ""
            click.echo(f"{known:12} {made.summary}{dial}")
        return
    if not (name and recording and output):
        raise click.UsageError("name an attack, a recording and an output, or --list")
    parameters = files.attack(name, recording, output, strength=strength, seed=seed)
    click.echo(json.dumps(parameters))


@cli.command()
@click.option("--out", default="demo", show_default=True, help="Folder for what the demo makes.")
@model
def demo(out: str, model: str | None) -> None:
    """Mark a shipped clip, attack it, detect and verify it, and draw a picture."""
    from keybound.demo import run

    run(load(model), Path(out))


@cli.command()
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
    """Train a model by RECIPE (needs `pip install keybound[train]`)."""
    training = _torch_room("keybound.training.train")
    training.command(recipe, **where)


@cli.command()
@click.argument("run", type=click.Path())
@click.argument("out", type=click.Path())
@click.option("--valid", type=click.Path(), required=True, help="Folder to calibrate on.")
def export(run: str, out: str, valid: str) -> None:
    """Export the checkpoint RUN to ONNX in the folder OUT, and calibrate it."""
    room = _torch_room("keybound.training.export")
    room.export_run(Path(run), Path(out))
    from keybound.benchmark import card

    click.echo(json.dumps(card.calibrate(Path(out), Path(valid)), indent=1))


def _torch_room(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        what = f"this needs {error.name}"
        raise KeyBoundError(what, hint="pip install 'keybound[train]'") from error


def main() -> None:
    """Run the command line; every refusal is one line and exit status 2."""
    try:
        cli.main(standalone_mode=False)
    except KeyBoundError as error:
        say(error.message + (f" ({error.hint})" if error.hint else ""))
        sys.exit(2)
    except click.ClickException as error:
        say(error.format_message()[:1].lower() + error.format_message()[1:].rstrip("."))
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        say("stopped")
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; there is nobody to tell
        sys.exit(2)
