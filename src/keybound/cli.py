"""The command line: verbs only. Heavy rooms are imported inside the verb that needs them.

Results go to standard output (`--json` for machines). Messages go to standard error, in lower
case without a full stop, with a hint in brackets where there is one; a refusal is one such line.
Keys come from files or from standard input, never from an argument. Exit status: 0 yes, 1 no,
2 error.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from keybound import codes
from keybound.errors import KeyBoundError, KeyFileError
from keybound.keys import Key
from keybound.registry import Party, Registry, default_path

if TYPE_CHECKING:
    from keybound.watermark import Verdict, Watermarker

F = TypeVar("F", bound=Callable[..., Any])

NOBODY = "no party is registered (keybound party add)"


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


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="keybound", message="%(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Mark speech, detect the mark, prove whose it is."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@click.argument("path", type=click.Path())
@click.option("--comment", default="", help="A line for people, kept in the file.")
def keygen(path: str, comment: str) -> None:
    """Make a new key in the file PATH, which must not exist yet."""
    key = Key.generate()
    key.write(path, comment=comment)
    say(f"wrote {path}; keep it secret and keep a copy")
    click.echo(key.fingerprint)


@cli.group(no_args_is_help=False)
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
    if key_file == "-":
        raise click.UsageError("a party needs a key file, not a key on standard input")
    fingerprint = Key.read(key_file).fingerprint
    made = Party(name, payload, bits, rho, Path(key_file), fingerprint, datetime.now(UTC))
    with Registry(registry or default_path()) as parties:
        parties.add(made)
    say(f"registered {name}")


@party.command("list")
@options(registry, as_json)
def party_list(registry: str | None, as_json: bool) -> None:
    """List the parties."""
    with Registry(registry or default_path()) as parties:
        known = parties.list()
    if not known:
        say(NOBODY)
    for one in known:
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


class Claim(NamedTuple):
    """Whose mark it may be: a registered party's, or that of a key and payload named apart."""

    name: str
    key: Key
    payload: int
    rho: int | None  # None: the model's


def claim(
    name: str | None, key_file: str | None, payload: int | None, registry: str | None, bits: int
) -> Claim:
    """Find the one claimant that the options name, for a model of so many bits."""
    if name is not None:
        if key_file is not None or payload is not None:
            raise click.UsageError("--party brings its own key and payload")
        with Registry(registry or default_path()) as parties:
            return party_claim(parties.get(name), bits)
    if key_file is None or payload is None:
        raise click.UsageError("say whose mark: --party NAME, or --key FILE and --payload NUMBER")
    codes.check_payload(payload, bits)
    return Claim("", Key.read(key_file), payload, None)


def party_claim(one: Party, bits: int) -> Claim:
    """Make a claimant of a registered party, if the model holds its payload."""
    if one.bits != bits:
        raise KeyBoundError(
            f"party {one.name!r} has a payload of {one.bits} bits, and this model carries {bits}",
            hint="--model names the weights it was registered for",
        )
    try:
        return Claim(one.name, one.key(), one.payload, one.rho)
    except KeyFileError as error:  # a new key, the hint for others, would not help here
        hint = "restore the key file, or remove the party"
        raise KeyFileError(f"party {one.name!r}: {error.message}", hint=hint) from error


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

    marker = load(model)
    _, key, number, rho = claim(name, key_file, payload, registry, marker.card.bits)
    verdict, clipped = files.embed(
        marker, host, output, key=key, payload=number, nonce=nonce, rho=rho, replace=force
    )
    if clipped:
        say(f"samples limited to full scale: {clipped}")
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

    if frames and not as_json:
        raise click.UsageError("--frames needs --json")
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
    absent = "marked only in parts" if found.spans else "no mark found"
    lines = [f"{'marked' if found.present else absent} (presence {found.presence:.3f})"]
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

    marker = load(model)
    if anyone:
        if name is not None or key_file is not None or payload is not None:
            raise click.UsageError("--any tries every party; name none")
        with Registry(registry or default_path()) as parties:
            claims = [party_claim(one, marker.card.bits) for one in parties.list()]
        if not claims:
            raise KeyBoundError(NOBODY)
    else:
        claims = [claim(name, key_file, payload, registry, marker.card.bits)]
    heard = audio.read(recording)
    found = marker.detect(heard.samples, heard.sample_rate)
    verdicts = [
        marker.judge(found, key=key, payload=number, nonce=nonce, rho=rho, tries=len(claims))
        for _, key, number, rho in claims
    ]
    bound = max(verdict.bound for verdict in verdicts)  # parties may differ in rho
    for who, verdict in zip((one.name for one in claims), verdicts, strict=True):
        verdict = dataclasses.replace(verdict, bound=bound)
        named = {"party": who} if who else {}
        text = f"{who}: {verdict.words}" if who else verdict.words
        emit(named | evidence(verdict), text, as_json)
    sys.exit(0 if any(verdict.verified for verdict in verdicts) else 1)


@cli.command()
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


@cli.command()
@click.option("--out", default="demo", show_default=True, help="Folder for what the demo makes.")
@model
def demo(out: str, model: str | None) -> None:
    """Mark a shipped clip, attack it, verify it, draw it."""
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
    """Train a model by RECIPE.

    Needs torch: pip install 'keybound[train]'
    """
    training = _torch_room("keybound.training.train")
    training.command(recipe, **where)


@cli.command()
@click.argument("run", type=click.Path())
@click.argument("out", type=click.Path())
@click.option("--valid", type=click.Path(), required=True, help="Folder to calibrate on.")
def export(run: str, out: str, valid: str) -> None:
    """Export the checkpoint RUN to the folder OUT.

    Writes both networks as ONNX, and their card with thresholds calibrated on --valid.
    """
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
        refuse(error.message, error.hint)
    except click.ClickException as error:
        refuse(*reworded(error))
    except (click.Abort, KeyboardInterrupt):
        say("stopped")
        sys.exit(130)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        refuse(f"{error.filename}: {reason}" if error.filename else reason)


def refuse(message: str, hint: str | None = None) -> NoReturn:
    """Say why not, in one line whatever names the user gave, and end."""
    line = message + (f" ({hint})" if hint else "")
    say("".join(c if c.isprintable() else "?" for c in line))
    sys.exit(2)


def reworded(error: click.ClickException) -> tuple[str, str | None]:
    """Put click's own words into our form: message and hint."""
    words = re.split(r"\.? \(?(?=Did you|Possible)", error.format_message(), maxsplit=1)
    message, *hints = [text[:1].lower() + text[1:].rstrip(".") for text in words]
    hints = [hint.removesuffix(")") for hint in hints]
    if not hints and isinstance(error, click.UsageError) and error.ctx:
        hints = [f"see {error.ctx.command_path} --help"]
    return message, hints[0] if hints else None
