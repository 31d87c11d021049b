"""Signatures of C2PA on what is marked: who signs, and how, known before a recording is marked.

Knows certificates, files and reservations: no networks, no HTTP.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from keybound.audio import formats, recordings
from keybound.errors import AudioError
from keybound.provenance import certificates, credentials
from keybound.provenance.certificates import Signer
from keybound.provenance.credentials import SOURCE_TYPES, Signing
from keybound.watermark.reservation import Reservation
from keybound.watermark.videos import is_video


class Credentials(NamedTuple):
    """What is signed with: PEM files, as plain values that go to other processes.

    `source_type` is what recordings are said to be, as IPTC's digital source type, `stamped_by` the
    address of a time stamping authority.
    """

    certificates: str
    key: str
    source_type: str = SOURCE_TYPES[0]
    stamped_by: str | None = None

    def signer(self) -> Signer:
        """Read who signs."""
        return certificates.read(self.certificates, self.key, self.stamped_by)

    def tried(self) -> Signer:
        """Read who signs; raise an error where c2pa does not sign with these files."""
        made = self.signer()
        credentials.check(made)
        return made


@dataclass(frozen=True)
class Prepared:
    """What is known of a signature before the recording is marked."""

    signer: Signer
    kind: str  # media type of the output
    source_type: str
    host: Path

    def signing(self, given: Reservation, issuer: int | None) -> Signing:
        """Return what signs a recording that is marked with a reservation."""
        named = None
        if given.issued is not None and issuer is not None:
            named = issuer, given.issued.serial
        how = self.signer, self.kind, self.source_type
        return Signing(*how, given.declared, named, self.host)


def prepare(
    signer: Signer,
    source_type: str,
    host: str | os.PathLike[str],
    output: str | os.PathLike[str],
) -> Prepared:
    """Return how an output is to be signed; raise an error where it cannot be."""
    if is_video(output):
        raise AudioError("videos cannot be signed with C2PA", hint=credentials.SIGNED_HINT)
    with recordings.Reader(host) as file:
        kind, _ = formats.kind_of(Path(output), file, file.frames, file.channels)
    return Prepared(signer, credentials.media_type(kind), source_type, Path(host))
