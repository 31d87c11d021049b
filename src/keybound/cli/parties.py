"""The verbs `keygen` and `party`, and the claim that the options of other verbs make."""

import dataclasses
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from keybound.cli.terminal import (
    as_json,
    emit,
    model,
    number,
    open_registry,
    options,
    registry,
    say,
)
from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.errors import KeyBoundError
from keybound.provenance.key_files import KeyFile
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry
from keybound.watermark.claims import NOBODY, Claim, party_claim


@click.command()
@click.argument("path", type=click.Path())
@click.option("--comment", default="", help="Comment line at the head of the key file.")
def keygen(path: str, comment: str) -> None:
    """Write a new random key to the file PATH and print its key id.

    PATH must not exist yet. The file has mode 0600.
    """
    key = Key.generate()
    key.write(path, comment=comment)
    say(f"wrote {path}; keep it secret and keep a copy")
    click.echo(key.id)


@click.group(no_args_is_help=False)
def party() -> None:
    """Register parties, each with a key and a payload."""


@party.command("add")
@click.argument("name")
@options(
    click.option("--key", "key_file", required=True, help="Key file of the party."),
    click.option("--payload", type=number, required=True, help="Payload, such as 24301 or 0x5eed."),
    click.option("--bits", type=int, help="Bits of the payload; by default those of the model."),
    click.option(
        "--rho", default=2, show_default=True, help="Wrong bits that attribution tolerates."
    ),
    registry,
    model,
)
def party_add(
    name: str,
    key_file: str,
    payload: int,
    bits: int | None,
    rho: int,
    registry: str | None,
    model: str | None,
) -> None:
    """Add the party NAME. The registry keeps the path of its key file, not the key.

    Its payload must have as many bits as the model carries.
    """
    from keybound.model.networks import SHIPPED, read_card

    if key_file == "-":
        raise click.UsageError("a party needs a key file, not a key on standard input")
    own = read_card(Path(model) if model else SHIPPED).bits
    bits = own if bits is None else bits
    if bits != own:
        hint = "--model names other weights" if model is None else "leave --bits out"
        raise KeyBoundError(f"the model carries payloads of {own} bits, not {bits}", hint=hint)
    key_id = Key.read(key_file).id
    made = Party(name, payload, bits, rho, Path(key_file), key_id, datetime.now(UTC))
    with open_registry(registry) as parties:
        parties.add(made)
    say(f"registered {name}")


@party.command("list")
@options(registry, as_json)
def party_list(registry: str | None, as_json: bool) -> None:
    """List the parties."""
    with open_registry(registry, reads=True) as parties:
        known = parties.list()
    if not known:
        say(NOBODY)
    for one in known:
        row = dataclasses.asdict(one)
        row |= {"key_file": str(one.key_file), "created": one.created.isoformat()}
        row |= {"since": one.kept.since.isoformat(), "older": [_plain(key) for key in one.older]}
        digits = -(-one.bits // 4)
        text = f"{one.name}\t0x{one.payload:0{digits}x}\t{one.key_id}\t{one.key_file}"
        older = "".join(f"\n\tuntil then\t{key.id}\t{key.path}" for key in one.older)
        emit(row, text + older, as_json)


@party.command("rotate")
@click.argument("name")
@click.option("--key", "key_file", required=True, help="File of the new key.")
@registry
def party_rotate(name: str, key_file: str, registry: str | None) -> None:
    """Give the party NAME a new key: new marks use it.

    Older keys stay: each recording is verified with the key that its record names.
    """
    if key_file == "-":
        raise click.UsageError("a party needs a key file, not a key on standard input")
    with open_registry(registry) as parties:
        made = parties.rotate(name, Path(key_file))
    say(f"{name} has key {made.id} now")


@party.command("remove")
@click.argument("name")
@registry
def party_remove(name: str, registry: str | None) -> None:
    """Remove the party NAME. Its key file stays where it is."""
    with open_registry(registry) as parties:
        parties.remove(name)
    say(f"removed {name}")


def _plain(key: KeyFile) -> dict[str, str]:
    return {"key_file": str(key.path), "key_id": key.id, "since": key.since.isoformat()}


def _newest(versions: Sequence[Party], bits: int) -> Claim:
    return party_claim(versions[0], bits)


def claim(
    name: str | None,
    key_file: str | None,
    payload: int | None,
    known: Registry | None,
    bits: int,
    choose: Callable[[Sequence[Party], int], Claim] = _newest,
) -> Claim:
    """Return the claim that the options make, for a model of so many bits.

    `known` is the open registry where --party is given; `choose` makes a claim with one of the keys
    of that party.
    """
    if known is not None and name is not None:
        if key_file is not None or payload is not None:
            raise click.UsageError("--party brings its own key and payload")
        return choose(known.versions(name), bits)
    if key_file is None or payload is None:
        raise click.UsageError("whose mark? --party NAME, or --key FILE and --payload NUMBER")
    codes.check_payload(payload, bits)
    return Claim("", Key.read(key_file), payload, None)
