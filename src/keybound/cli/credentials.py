"""The options of `embed` that sign with C2PA, and what they come to."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keybound.cli.terminal import options, say
from keybound.provenance.credentials import SOURCE_TYPES

if TYPE_CHECKING:
    from keybound.provenance.certificates import Signer
    from keybound.provenance.credentials import Signing
    from keybound.watermark.reservation import Reservation

signing = options(
    click.option(
        "--c2pa",
        "pair",
        nargs=2,
        type=click.Path(),
        metavar="CERT KEY",
        help="Sign OUTPUT with C2PA, with these PEM files; implies --public.",
    ),
    click.option(
        "--source-type",
        type=click.Choice(SOURCE_TYPES),
        default=SOURCE_TYPES[0],
        show_default=True,
        help="With --c2pa: what the recording is, as IPTC's digital source type.",
    ),
)


def _trusted(_: click.Context, __: click.Parameter, path: str | None) -> str | None:
    from keybound.provenance import certificates

    return None if path is None else certificates.read_trusted(path)


trusted = click.option(
    "--trust",
    "trusted",
    type=click.Path(),
    callback=_trusted,
    help="PEM file of certificates under which signers of C2PA manifests are trusted.",
)


@dataclass(frozen=True)
class Prepared:
    """What is known of a signature before the recording is marked."""

    signer: "Signer"
    kind: str
    source_type: str
    host: Path

    def signing(self, given: "Reservation", issuer: int | None) -> "Signing":
        """Return what signs a recording that is marked with a reservation."""
        from keybound.provenance.credentials import Signing

        named = None
        if given.issued is not None and issuer is not None:
            named = issuer, given.issued.serial
        how = self.signer, self.kind, self.source_type
        return Signing(*how, given.declared, named, self.host)


def prepare(pair: tuple[str, str], source_type: str, host: str, output: str) -> Prepared:
    """Return how an output is to be signed; raise an error where it cannot be."""
    from keybound.audio import formats, recordings
    from keybound.provenance import certificates, credentials

    signer = certificates.read(*pair)
    with recordings.Reader(host) as file:
        kind, _ = formats.kind_of(Path(output), file, file.frames, file.channels)
    media_type = credentials.media_type(kind)
    credentials.check(signer)
    return Prepared(signer, media_type, source_type, Path(host))


def tell(issued: str | None, manifest: str) -> None:
    """Print what was signed."""
    if issued is None:
        say("too short for an identifier: signed without a soft binding")
    say(f"signed, manifest {manifest}")
