"""What a worker does with a recording: detect, look up who issued it, identify, verify, mark.

None of the keys that it uses is in an answer. Knows no HTTP.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from keybound.audio import containers, recordings
from keybound.errors import AudioError, KeyFileError, RecordError, RegistryError
from keybound.identity.reading import read_public
from keybound.output import Part
from keybound.provenance.records import Entry
from keybound.provenance.signed_verdicts import Finding
from keybound.server.makers import Maker
from keybound.server.tools import Answer, Tools, seconds_of
from keybound.types import Analysis
from keybound.watermark import agreement, files, identification, statements, verification
from keybound.watermark.candidates import Known
from keybound.watermark.options import DetectOptions
from keybound.watermark.plain import as_plain, identified_as_plain, verdict_as_plain
from keybound.watermark.verdict import GRADES

# What is wrong with the registry is no business of whoever asks, and may name its files.
INTERNAL = (RegistryError, KeyFileError, RecordError)


def detect(tools: Tools, path: str, false_alarms: float) -> Answer:
    """Return the detection in each track, and whether one claims an identifier of this registry."""
    how, most = DetectOptions(false_alarms=false_alarms), tools.setup.longest_s
    heard, own = [], False
    for track in tools.tracks(path):
        with tools.limited():
            found = files.detect(tools.marker, path, how, track=track, longest_s=most)
        claims = read_public(found) if found.present else []
        issuer = tools.registry.issuer if tools.registry is not None and claims else None
        own = own or (issuer is not None and any(one.issuer == issuer for one in claims))
        with tools.limited():
            manifest = agreement.of_file(path, found, claims, trusted=tools.setup.trusted)
        heard.append(as_plain(found, claims, manifest))
    return {"tracks": heard, "own": own}


def look_up(tools: Tools, path: str, false_alarms: float) -> Answer:
    """Return what the records of public identifiers say, by identifier in each track.

    None of it is a free field. `manifests` are the ids of those that the records keep.
    """
    manifests: dict[str, str] = {}
    tracks, seconds = [], 0.0
    for track in tools.tracks(path):
        found = tools.analysed(path, track, false_alarms)
        made = identification.identify_public(tools.marker.card, found, Known(tools.known))
        said = {}
        for one, entry in made:
            if entry is not None and one.identifier is not None:
                said[one.identifier] = public_record(entry, claimed=one.claimed)
                kept = entry.stamped.record.manifest
                manifests |= {} if kept is None else {one.identifier: kept.id}
        tracks.append(said)
        seconds += seconds_of(found)
    return {"tracks": tracks, "manifests": manifests, "seconds": seconds}


def public_record(entry: Entry, *, claimed: bool) -> Answer:
    """Return what a record says to everybody."""
    record = entry.stamped.record
    told = record.declared
    created = record.created.isoformat(timespec="seconds").replace("+00:00", "Z")
    said = {"provider": told.provider, "system": told.system, "system_version": told.system_version}
    return said | {"created": created, "link": told.link, "claimed": claimed}


def identify(
    tools: Tools, path: str, false_alarms: float, grade_only: bool, signed: bool
) -> Answer:
    """Return which recording it is and whose, for each mark; or the highest grade alone."""
    made = [
        _identify(tools, path, tools.analysed(path, one, false_alarms), grade_only, signed)
        for one in tools.tracks(path, signed=signed)
    ]
    if len(made) == 1:
        return made[0]
    best = made[_best(made)]["answer"]
    answer: Answer = {"grade": best["grade"]}
    if not grade_only:
        own = [(number, one["answer"]["marks"]) for number, one in enumerate(made, 1)]
        answer["marks"] = [{"track": number} | mark for number, marks in own for mark in marks]
        answer["manifest"] = best["manifest"]
    return {"answer": answer, "seconds": sum(one["seconds"] for one in made)}


def _identify(tools: Tools, path: str, found: Analysis, grade_only: bool, signed: bool) -> Answer:
    """Return what `identify` does of one track."""
    made = identification.identify(tools.marker.card, found, Known(tools.known))
    usual = "present" if found.detection.present else "none"
    answer: Answer = {"grade": max([usual, *(one.grade for one in made)], key=GRADES.index)}
    said = [statements.of_identified(one, found.detection) for one in made]
    said = said or [statements.of_nobody(found.detection)]
    if grade_only:
        said = [Finding(answer["grade"], bound=said[0].bound)]  # the best comes first
    else:
        answer["marks"] = [identified_as_plain(one) for one in made]
        trusted = tools.setup.trusted
        beside = agreement.of_marks(path, found.detection, made, tools.known, trusted)
        answer["manifest"] = None if beside is None else beside.as_plain()
    return tools.answered(path, found, answer, said if signed else [])


def verify(
    tools: Tools, path: str, false_alarms: float, party: str, grade_only: bool, signed: bool
) -> Answer:
    """Return whether it is this party's mark, in the best of several tracks; or the grade alone."""
    made = []
    for track in tools.tracks(path, signed=signed):
        found = tools.analysed(path, track, false_alarms)
        made.append(_verify(tools, path, found, party, grade_only, signed))
    best = _best(made)
    if len(made) > 1 and not grade_only:
        made[best]["answer"] = {"track": best + 1} | made[best]["answer"]
    return made[best] | {"seconds": sum(one["seconds"] for one in made)}


def _verify(
    tools: Tools, path: str, found: Analysis, party: str, grade_only: bool, signed: bool
) -> Answer:
    """Return what `verify` does of one track."""
    claims = [tools.claim(party)]
    (verdict,) = verification.judge(tools.marker.card, found, claims, Known(tools.known))
    said = statements.of_verdict(party, verdict)
    if grade_only:
        answer: Answer = {"grade": verdict.grade}
        said = Finding(verdict.grade, party, bound=said.bound)
    else:
        answer = {"party": party} | verdict_as_plain(verdict)
    return tools.answered(path, found, answer, [said] if signed else [])


def _best(made: Sequence[Answer]) -> int:
    """Return which of the answers on several tracks has the highest grade, the first of them."""
    grades = [GRADES.index(one["answer"]["grade"]) for one in made]
    return grades.index(max(grades))


def embed(
    tools: Tools,
    path: str,
    maker: dict[str, Any],
    least_s: float = 0.0,
    c2pa: bool = False,
) -> Answer:
    """Mark a file, verify the mark and add its record if it has one, all in the file's folder.

    One that is shorter than `least_s` is refused. With `c2pa` it is signed.
    """
    card = tools.marker.card
    with tools.limited():
        length_s = files.seconds_of(path, tools.setup.longest_s)
        suffix = recordings.suffix_of(Path(path))
    if suffix in containers.MUXERS:
        raise AudioError(f"{path} is a video", hint="keybound embed marks videos")
    output = Path(path).with_name(f"marked{suffix}")
    signature = tools.signature(path, output) if c2pa else None
    given = Maker(**maker).give(tools.registry, card.bits, length_s)
    sign = None if signature is None else signature.signing(given.reserved, tools.known.issuer)
    record: list[int] = []

    def appear(part: Part, made: files.Written) -> None:
        check_length(made.seconds, least_s)
        if given.known is None:
            part.publish()
            return
        with tools.unlimited():
            record.append(given.known.appear(given.reserved.stamped(card, made), part))

    with tools.limited():
        options, rho = given.reserved.options, given.whose.rho
        made = files.embed(tools.marker, path, output, options, rho=rho, sign=sign, appear=appear)
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
