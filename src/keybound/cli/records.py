"""The verbs of `keybound record`, and the record that `verify --record` names."""

import json
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from keybound import output
from keybound.cli import signed
from keybound.cli.terminal import (
    as_json,
    emit,
    key_file,
    octets,
    open_registry,
    options,
    party_name,
    registry,
    say,
)
from keybound.crypto.keys import Key
from keybound.crypto.signing import PUBLIC_BYTES, SigningKey
from keybound.errors import NotGenuineError, RecordError
from keybound.identity.identifier import written
from keybound.provenance import records, signed_verdicts
from keybound.provenance.records import Entry
from keybound.watermark.claims import Claim

number = click.argument("number", type=click.IntRange(1, (1 << 63) - 1))


@click.group(no_args_is_help=False)
def record() -> None:
    """List, show, export and check the records of what was marked."""


@record.command("list")
@options(party_name, registry, as_json)
def record_list(name: str | None, registry: str | None, as_json: bool) -> None:
    """List the records, of all parties or of one."""
    with open_registry(registry, reads=True) as known:
        whose = [None] if name is None else known.versions(name)  # with each of its keys
        found = [entry for one in whose for entry in known.records(one)]
    entries = sorted(found, key=lambda one: one.number or 0)
    if not entries:
        say("there are no records (keybound embed --party makes one)")
    for entry in entries:
        emit(
            _brief(entry),
            "\t".join("-" if value is None else str(value) for value in _brief(entry).values()),
            as_json,
        )


@record.command("show")
@number
@options(registry, as_json)
def record_show(number: int, registry: str | None, as_json: bool) -> None:
    """Show the record NUMBER; with --json all of it, the fingerprint and a manifest too."""
    entry = _entry(number, registry)
    whole = json.loads(entry.stamped.to_bytes())
    shown = whole["record"] | {"mac": whole["mac"]}
    shown["fingerprint"] = f"{len(entry.stamped.record.fingerprint.data)} bytes"
    if shown["manifest"] is not None:
        shown["manifest"] = shown["manifest"]["id"]
    if shown["serial"] is not None:
        shown["serial"] = written(shown["serial"])
    text = "\n".join(f"{name:16}{value}" for name, value in shown.items() if value is not None)
    emit({"number": number} | whole, f"{'number':16}{number}\n{text}", as_json)


@record.command("export")
@click.argument("what", nargs=-1, required=True, metavar="[NUMBER] PATH")
@click.option("--all", "whole", is_flag=True, help="Export the whole registry, as JSONL.")
@click.option(
    "--sign", "signer", type=click.Path(), help="Sign the record with the signing key in this file."
)
@registry
def record_export(
    what: tuple[str, ...], whole: bool, signer: str | None, registry: str | None
) -> None:
    """Write the record NUMBER to the file PATH, which must not exist yet.

    With --all there is no NUMBER: all records are written, with the parties, the names of their key
    files (no key) and the positions and serials that are used up. keybound record import reads it.
    """
    if whole:
        _export_all(what, signer, registry)
        return
    if len(what) != 2 or not what[0].isdecimal() or not 0 < int(what[0]) < 1 << 63:
        raise click.UsageError("export NUMBER PATH, or --all PATH")
    stamped = _entry(int(what[0]), registry).stamped
    if signer is not None:
        stamped = stamped.sign(SigningKey.read(signer))
    stamped.write(what[1])
    say(f"wrote {what[1]}")


def _export_all(what: tuple[str, ...], signer: str | None, registry: str | None) -> None:
    if len(what) != 1 or signer is not None:
        raise click.UsageError("--all goes with PATH alone")
    count, hint = 0, "choose another name"
    with (
        open_registry(registry, reads=True) as known,
        output.writing(what[0], mode=output.PRIVATE, kind=RecordError, exists_hint=hint) as part,
        part.open("wb") as file,
    ):
        for line in known.exported():
            file.write(line)
            count += line.startswith(b'{"mac":')
    say(f"wrote {count} records to {what[0]}")


@record.command("import")
@click.argument("path", type=click.Path())
@registry
def record_import(path: str, registry: str | None) -> None:
    """Import a registry that was exported with --all, all of it or nothing.

    The MAC of each record is checked where the key of its party is at hand. A record that is here
    already, or whose serial is void here, is refused.
    """
    try:
        with Path(path).open("rb") as file, open_registry(registry) as known:
            made = known.import_lines(file)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RecordError(f"{path!r} cannot be read: {reason}") from error
    say(f"imported {made.records} records, {made.parties} parties, {made.void} void serials")
    if made.unchecked:
        say(f"{made.unchecked} records are not checked: the keys of their parties are not here")


@record.command("forget")
@click.option(
    "--before",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
    required=True,
    help="Records made before this date, in UTC, such as 2026-01-31.",
)
@click.option("--dry-run", is_flag=True, help="Only count them.")
@registry
def record_forget(before: datetime, dry_run: bool, registry: str | None) -> None:
    """Remove old records. Their serials and positions stay void: none is given again.

    A recording whose record is gone is known by its seal alone: verify searches for it under the
    newest key of the party, at positions below 256 or at --position. One under 5 s is not known any
    more if its nonce was random: that went with the record.
    """
    with open_registry(registry) as known:
        count = known.forget(before.replace(tzinfo=UTC), dry_run=dry_run)
    say(f"{'would forget' if dry_run else 'forgot'} {count} records")


@record.command("check")
@click.argument("path", type=click.Path())
@options(party_name, key_file)
@click.option(
    "--public", type=octets, help="Public key of the signer, in hex; no secret is needed."
)
@options(registry, as_json)
def record_check(
    path: str,
    name: str | None,
    key_file: str | None,
    public: bytes | None,
    registry: str | None,
    as_json: bool,
) -> None:
    """Check that the record or signed verdict in PATH is unchanged.

    Exit status 0 if so, 1 if not. What was signed and by whom is printed. The MAC of a record is
    checked with the key of the party, the signature of either with the public key of the signer,
    which must come from the signer and not from the file. A file that is neither is an error,
    status 2.
    """
    if sum(given is not None for given in (name, key_file, public)) != 1:
        raise click.UsageError("check with one of --party, --key and --public")
    if public is not None and len(public) != PUBLIC_BYTES:
        raise click.UsageError(f"a public key has {2 * PUBLIC_BYTES} hex digits")
    if signed_verdicts.is_one(data := signed.contents(path)):
        if public is None:
            raise click.UsageError("a signed verdict has no MAC: check it with --public")
        signed.check(data, public, as_json)
        return
    stamped = records.read(path)
    if public is not None:
        by, check = "signature", partial(stamped.check_signature, public)
    else:
        by, check = (
            "mac",
            partial(stamped.check, _key(name, key_file, stamped.record.key, registry)),
        )
    about = _brief(Entry(None, stamped))
    del about["number"]
    try:
        check()
    except NotGenuineError as error:
        words = error.message + (f" ({error.hint})" if error.hint else "")
        emit({"holds": False, "by": by, "error": words} | about, words, as_json)
        sys.exit(1)
    text = f"{by} holds: payload {about['payload']} of {about['party']}, marked {about['created']}"
    emit({"holds": True, "by": by} | about, text, as_json)


@record.command("keygen")
@click.argument("path", type=click.Path())
def record_keygen(path: str) -> None:
    """Make a signing key in the file PATH, which must not exist yet, and print its public key."""
    made = SigningKey.generate()
    public = made.public.hex()  # refused before anything is written where it cannot be had
    made.write(path)
    say(f"wrote {path}; keep it secret, and publish the public key")
    click.echo(public)


class Told(NamedTuple):
    """What an exported record tells a verifier."""

    entry: Entry
    payload: int
    nonce: bytes
    position: int | None


def tell(path: str, payload: int | None, nonce: bytes, position: int | None) -> Told:
    """Return the record in a file; raise an error where the options disagree with it."""
    entry = Entry(None, records.read(path))
    known = entry.stamped.record
    for what, given, own in (
        ("payload", payload, known.payload),
        ("nonce", nonce or None, known.nonce),
        ("position", position, known.position),
    ):
        if given is not None and given != own:
            raise RecordError(f"the record names another {what}", hint=f"leave --{what} out")
    return Told(entry, known.payload, known.nonce, known.position)


def check(claim: Claim, told: Told) -> None:
    """Raise an error where a record is not of this payload, or not stamped with the claim's key."""
    if claim.payload != told.payload:
        raise RecordError("the record is not of this party's payload")
    told.entry.stamped.check(claim.key)


def _entry(number: int, registry: str | None) -> Entry:
    with open_registry(registry, reads=True) as known:
        return known.record(number)


def _key(name: str | None, key_file: str | None, key_id: str, registry: str | None) -> Key:
    """Return the key in a file, or the key of a party: the one of this id, else the newest."""
    if name is None:
        assert key_file is not None
        return Key.read(key_file)
    with open_registry(registry, reads=True) as known:
        own = known.versions(name)
        return next((one for one in own if one.key_id == key_id), own[0]).key()


def _brief(entry: Entry) -> dict[str, str | int | float | None]:
    one = entry.stamped.record
    return {
        "number": entry.number,
        "party": one.party,
        "created": one.created.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "payload": f"0x{one.payload:0{-(-one.bits // 4)}x}",
        "position": one.position,
        "seconds": round(one.samples / one.rate, 3),
        "identifier": None if one.serial is None else written(one.serial),
    }
