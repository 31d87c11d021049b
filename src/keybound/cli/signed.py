"""Signed verdicts on the command line: the option --sign, and how one is checked."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keybound import output
from keybound.cli.terminal import emit, say
from keybound.crypto.signing import SigningKey
from keybound.errors import NotGenuineError, RecordError
from keybound.provenance import signed_verdicts

if TYPE_CHECKING:
    from keybound.model.networks import Card
    from keybound.provenance.signed_verdicts import Finding
    from keybound.types import Detection

sign = click.option(
    "--sign",
    "signing",
    nargs=2,
    type=click.Path(),
    metavar="KEY OUTPUT",
    help="Sign the verdict with the signing key in the file KEY, to the new file OUTPUT.",
)


def prepared(
    signing: tuple[str, str] | None, recordings: Sequence[str], anyone: bool = False
) -> SigningKey | None:
    """Return the signing key; refuse what cannot be signed or written, before the work."""
    if signing is None:
        return None
    if anyone:
        raise click.UsageError("--sign is for one claim, not for --any")
    if len(recordings) > 1 or "-" in recordings:
        raise click.UsageError("--sign is for one recording in a file")
    output.check(signing[1], kind=RecordError, exists_hint="choose another name")
    key = SigningKey.read(signing[0])
    _ = key.public  # refused here where the package for it is missing
    return key


def check_tracks(count: int) -> None:
    """Refuse to sign a verdict on one of several tracks."""
    if count > 1:
        what = "a video of several tracks gets no signed verdict"
        raise RecordError(what, hint="sign that of each track as a file of its own")


def write(
    card: "Card", path: str, found: "Detection", said: "Sequence[Finding]", key: SigningKey, to: str
) -> None:
    """Write a signed verdict to a new file."""
    from keybound.watermark import statements

    made = statements.signed(card, path, found, said, key)
    with output.writing(to, kind=RecordError, exists_hint="choose another name") as part:
        part.write_bytes(made.to_bytes())
    say(f"wrote {to}, signed as {made.public.hex()}")


def check(data: bytes, public: bytes, as_json: bool) -> None:
    """Print whether a signed verdict holds, and what it says; exit with status 1 if not."""
    made = signed_verdicts.parse(data)
    shown = {"by": "signature", "signer": made.public.hex()} | made.verdict.members()
    try:
        made.check(public)
    except NotGenuineError as error:
        words = error.message + (f" ({error.hint})" if error.hint else "")
        emit({"holds": False, "error": words} | shown, words, as_json)
        sys.exit(1)
    told = ", ".join(in_words(one) for one in made.verdict.found)
    text = f"signature holds: {told}; file {made.verdict.file}, weights "
    text += f"{made.verdict.detector[:8]}-{made.verdict.embedder[:8]}, "
    text += f"signed {shown['created']} by {shown['signer']}"
    emit({"holds": True} | shown, text, as_json)


def in_words(one: "Finding") -> str:
    """Return a conclusion in words."""
    whose = "" if one.party is None else f" for {one.party}"
    which = "" if one.record is None else f", record {one.record}"
    bound = "" if one.bound is None else f" (bound {one.bound:.2g})"
    return f"{one.grade}{whose}{which}{bound}"


def contents(path: str) -> bytes:
    """Return the bytes of a file that holds a record or a signed verdict."""
    try:
        with Path(path).open("rb") as file:
            return file.read(signed_verdicts.FILE_MAX + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RecordError(f"record {path!r} cannot be read: {reason}") from error
