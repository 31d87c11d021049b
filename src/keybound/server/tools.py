"""What a worker of a service is started with, and what it has at hand for a job.

Keys are read by workers and nowhere else in a service. Knows no HTTP.
"""

import contextlib
import json
import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from keybound.audio import containers
from keybound.crypto.signing import SigningKey
from keybound.errors import AudioError
from keybound.provenance.certificates import Signer
from keybound.provenance.registry import Registry
from keybound.provenance.signed_verdicts import Finding
from keybound.server.limits import Limits
from keybound.types import Analysis
from keybound.watermark import files, statements
from keybound.watermark.claims import Claim, readable_claim
from keybound.watermark.options import DetectOptions
from keybound.watermark.signing import Credentials, Prepared, prepare
from keybound.watermark.watermarker import Watermarker

Answer = dict[str, Any]


class Setup(NamedTuple):
    """What a worker is started with, as JSON in the first line of its input."""

    model: str | None
    longest_s: float
    decoded_bytes: int
    worker_bytes: int
    place: str | None = None  # of the registry
    signer: str | None = None  # file of the key that signs verdicts
    signs: Credentials | None = None  # what marked files are signed with
    trusted: str | None = None  # certificates as PEM, under which signers of manifests are trusted

    @classmethod
    def within(cls, limits: Limits, model: str | None, place: str | None = None) -> "Setup":
        """Return what a worker of a service with these limits is started with."""
        most = limits.longest_s, limits.decoded_bytes, limits.worker_bytes
        return cls(model, *most, place)

    @classmethod
    def parse(cls, line: bytes) -> "Setup":
        """Return what the first line of the input says."""
        made = cls(*json.loads(line))
        return made if made.signs is None else made._replace(signs=Credentials(*made.signs))


@dataclass(frozen=True)
class Tools:
    """What a worker has at hand: networks, and a registry where the service has one."""

    setup: Setup
    marker: Watermarker
    registry: Registry | None
    signer: SigningKey | None = None
    certified: Signer | None = None  # who signs marked files

    @property
    def known(self) -> Registry:
        """Return the registry."""
        assert self.registry is not None  # the service asks only where it has one
        return self.registry

    def tracks(self, path: str, *, signed: bool = False) -> range:
        """Return the numbers of the tracks of a file, from 0; one, unless it is a video.

        A signed verdict is on one recording.
        """
        with self.limited():
            count = containers.count_tracks(Path(path))
        if signed and count > 1:
            what = f"{path} has several tracks, and a signed verdict is on one"
            raise AudioError(what, hint="send each track as a file of its own")
        return range(count)

    def analysed(self, path: str, track: int, false_alarms: float) -> Analysis:
        """Return the analysis of a track of a file."""
        how, most = DetectOptions(false_alarms), self.setup.longest_s
        with self.limited():
            return files.analyse(self.marker, path, how, track=track, longest_s=most)

    def claim(self, party: str) -> Claim:
        """Return the claim of a party, with its newest key that can be read."""
        return readable_claim(self.known.versions(party), self.marker.card.bits)

    def answered(
        self, path: str, found: Analysis, answer: Answer, said: Sequence[Finding]
    ) -> Answer:
        """Return an answer, with a signed verdict where there is something to sign."""
        made: Answer = {"answer": answer, "seconds": seconds_of(found)}
        if said:
            assert self.signer is not None  # the service asks only where it has one
            own = statements.signed(self.marker.card, path, found.detection, said, self.signer)
            made["signed"] = own.to_bytes().decode()
        return made

    def signature(self, path: str, output: Path) -> Prepared:
        """Return how a marked file is to be signed; raise an error where it cannot be."""
        assert self.certified is not None  # the service asks only where it signs
        assert self.setup.signs is not None
        with self.limited():
            return prepare(self.certified, self.setup.signs.source_type, path, output)

    @contextlib.contextmanager
    def limited(self, most: int | None = None) -> Iterator[None]:
        """Limit how large a file may become while audio is decoded; ffmpeg inherits it.

        The file of a registry may be larger.
        """
        before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        soft = self.setup.decoded_bytes if most is None else most
        most = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))

    def unlimited(self) -> contextlib.AbstractContextManager[None]:
        """Lift that limit, for the registry."""
        return self.limited(resource.getrlimit(resource.RLIMIT_FSIZE)[1])


def seconds_of(found: Analysis) -> float:
    """Return the length of what was analysed."""
    return len(found.detection.frame_presence) * found.detection.frame_s
