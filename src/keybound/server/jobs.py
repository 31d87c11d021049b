"""What a worker does with a recording: detect, look up who issued it, identify, verify, mark.

Keys are read here and nowhere else in a service; none of them is in an answer. Knows no HTTP.
"""

import contextlib
import json
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from keybound.audio import containers, recordings
from keybound.crypto.signing import SigningKey
from keybound.errors import AudioError, KeyFileError, RecordError, RegistryError
from keybound.identity.reading import read_public
from keybound.output import Part
from keybound.provenance.certificates import Signer
from keybound.provenance.records import Entry
from keybound.provenance.registry import Registry
from keybound.provenance.signed_verdicts import Finding
from keybound.server.limits import Limits
from keybound.server.makers import Maker
from keybound.types import Analysis
from keybound.watermark import agreement, files, identification, statements, verification
from keybound.watermark.candidates import Known
from keybound.watermark.claims import Claim, party_claim
from keybound.watermark.options import DetectOptions
from keybound.watermark.plain import as_plain, identified_as_plain, verdict_as_plain
from keybound.watermark.signing import Credentials, Prepared, prepare
from keybound.watermark.verdict import GRADES
from keybound.watermark.watermarker import Watermarker

Answer = dict[str, Any]
# What is wrong with the registry is no business of whoever asks, and may name its files.
INTERNAL = (RegistryError, KeyFileError, RecordError)


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
class Bench:
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

    def analysed(self, path: str, false_alarms: float) -> Analysis:
        """Return the analysis of a file."""
        how = DetectOptions(false_alarms)
        with self.limited():
            return files.analyse(self.marker, path, how, longest_s=self.setup.longest_s)

    def claim(self, party: str) -> Claim:
        """Return the claim of a party, with its newest key."""
        return party_claim(self.known.get(party), self.marker.card.bits)

    def answered(
        self, path: str, found: Analysis, answer: Answer, said: Sequence[Finding]
    ) -> Answer:
        """Return an answer, with a signed verdict where there is something to sign."""
        made: Answer = {"answer": answer, "seconds": _seconds(found)}
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


def detect(bench: Bench, path: str, false_alarms: float) -> Answer:
    """Return the detection in a file, and whether it claims an identifier of this registry."""
    how = DetectOptions(false_alarms=false_alarms)
    with bench.limited():
        found = files.detect(bench.marker, path, how, longest_s=bench.setup.longest_s)
    claims = read_public(found) if found.present else []
    issuer = bench.registry.issuer if bench.registry is not None and claims else None
    own = issuer is not None and any(one.issuer == issuer for one in claims)
    with bench.limited():
        manifest = agreement.of_file(path, found, claims, trusted=bench.setup.trusted)
    return {"found": as_plain(found, claims, manifest), "own": own}


def look_up(bench: Bench, path: str, false_alarms: float) -> Answer:
    """Return what the records of public identifiers say, by identifier: no free fields."""
    found = bench.analysed(path, false_alarms)
    made = identification.identify_public(bench.marker.card, found, Known(bench.known))
    named = [(one, entry) for one, entry in made if entry is not None]
    said = {one.identifier: public_record(entry, claimed=one.claimed) for one, entry in named}
    kept = [(one.identifier, entry.stamped.record.manifest) for one, entry in named]
    ids = {name: manifest.id for name, manifest in kept if manifest is not None}
    return {"records": said, "manifests": ids, "seconds": _seconds(found)}


def public_record(entry: Entry, *, claimed: bool) -> Answer:
    """Return what a record says to everybody."""
    record = entry.stamped.record
    told = record.declared
    created = record.created.isoformat(timespec="seconds").replace("+00:00", "Z")
    said = {"provider": told.provider, "system": told.system, "system_version": told.system_version}
    return said | {"created": created, "link": told.link, "claimed": claimed}


def identify(
    bench: Bench, path: str, false_alarms: float, grade_only: bool, signed: bool
) -> Answer:
    """Return which recording it is and whose, for each mark; or the highest grade alone."""
    found = bench.analysed(path, false_alarms)
    made = identification.identify(bench.marker.card, found, Known(bench.known))
    usual = "present" if found.detection.present else "none"
    answer: Answer = {"grade": max([usual, *(one.grade for one in made)], key=GRADES.index)}
    said = [statements.of_identified(one, found.detection) for one in made]
    said = said or [statements.of_nobody(found.detection)]
    if grade_only:
        said = [Finding(answer["grade"], bound=said[0].bound)]  # the best comes first
    else:
        answer["marks"] = [identified_as_plain(one) for one in made]
        trusted = bench.setup.trusted
        beside = agreement.of_marks(path, found.detection, made, bench.known, trusted)
        answer["manifest"] = None if beside is None else beside.as_plain()
    return bench.answered(path, found, answer, said if signed else [])


def verify(
    bench: Bench, path: str, false_alarms: float, party: str, grade_only: bool, signed: bool
) -> Answer:
    """Return whether it is this party's mark; or the grade alone."""
    claim = bench.claim(party)
    found = bench.analysed(path, false_alarms)
    (verdict,) = verification.judge(bench.marker.card, found, [claim], Known(bench.known))
    said = statements.of_verdict(party, verdict)
    if grade_only:
        answer: Answer = {"grade": verdict.grade}
        said = Finding(verdict.grade, party, bound=said.bound)
    else:
        answer = {"party": party} | verdict_as_plain(verdict)
    return bench.answered(path, found, answer, [said] if signed else [])


def embed(
    bench: Bench,
    path: str,
    maker: dict[str, Any],
    least_s: float = 0.0,
    c2pa: bool = False,
) -> Answer:
    """Mark a file, verify the mark and add its record if it has one, all in the file's folder.

    One that is shorter than `least_s` is refused. With `c2pa` it is signed.
    """
    card = bench.marker.card
    with bench.limited():
        length_s = files.seconds_of(path, bench.setup.longest_s)
        suffix = recordings.suffix_of(Path(path))
    if suffix in containers.MUXERS:
        raise AudioError(f"{path} is a video", hint="keybound embed marks videos")
    output = Path(path).with_name(f"marked{suffix}")
    signature = bench.signature(path, output) if c2pa else None
    given = Maker(**maker).give(bench.registry, card.bits, length_s)
    sign = None if signature is None else signature.signing(given.reserved, bench.known.issuer)
    record: list[int] = []

    def appear(part: Part, made: files.Written) -> None:
        check_length(made.seconds, least_s)
        if given.known is None:
            part.publish()
            return
        with bench.unlimited():
            record.append(given.known.appear(given.reserved.stamped(card, made), part))

    with bench.limited():
        options, rho = given.reserved.options, given.whose.rho
        made = files.embed(bench.marker, path, output, options, rho=rho, sign=sign, appear=appear)
    answer: Answer = {"output": str(output), "identifier": given.identifier}
    answer["record"] = record[0] if record else None
    return answer | {"manifest": None if made.manifest is None else made.manifest.id}


def check_length(seconds: float, least_s: float) -> None:
    """Raise an error for a recording that is too short to be sure of its mark."""
    if seconds < least_s:
        what = f"the recording has {seconds:.2f} s, too little to be sure of its mark"
        raise AudioError(what, hint=f"{least_s:g} s or more")


def _seconds(found: Analysis) -> float:
    return len(found.detection.frame_presence) * found.detection.frame_s


JOBS: dict[str, Callable[..., Answer]] = {
    "detect": detect,
    "look up": look_up,
    "identify": identify,
    "verify": verify,
    "embed": embed,
}
