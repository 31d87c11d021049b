"""The work on one input of a corpus, in any process. Knows no manifest and no executor.

A worker gets a key as a reference, a file or the name of an environment variable, and never the key
itself. It hands a marked file over, finished, to the process that reserved its position, which
publishes it with its record. To verify and identify it opens the registry itself.
"""

import contextlib
import dataclasses
import os
import time
import warnings
from pathlib import Path

from keybound import output as outputs
from keybound.audio.headers import is_unknown
from keybound.audio.recordings import sndfile_name
from keybound.audio.silence import silence
from keybound.batch.job import Claimant, Job, Task, read_key
from keybound.batch.journal import Row, Stamp
from keybound.batch.results import COLUMNS, MARK
from keybound.crypto.keys import Key
from keybound.errors import KeyBoundError, KeyFileError, KeyFileWarning, explain
from keybound.output import Part
from keybound.provenance.certificates import Signer
from keybound.provenance.registry import Registry
from keybound.seal.search import SealSearch
from keybound.types import Detection
from keybound.watermark import files, identification, verification
from keybound.watermark.candidates import Known
from keybound.watermark.claims import Claim, Options
from keybound.watermark.identification import Identified
from keybound.watermark.options import EmbedOptions
from keybound.watermark.plain import identified_as_plain
from keybound.watermark.reservation import FOUND_S, LEAST_S, NONCE_BYTES, Reservation
from keybound.watermark.signing import Prepared, prepare
from keybound.watermark.verdict import GRADES, Verdict
from keybound.watermark.watermarker import Watermarker

HANDED = "handed"  # in an entry of a worker: a finished part, with the record as it is exported


class Worker:
    """The networks and the keys in one process, each loaded once; call it with tasks."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.marker = Watermarker(job.model)
        self.keys: dict[str, Key] = {}
        self._known: Known | None = None
        self._signer: Signer | None = None

    def __call__(self, task: Task) -> Row:
        """Do one task and return its entry for the journal, whatever happens."""
        begun, source = time.perf_counter(), Stamp.of(task.source)
        row: Row = {"status": "ok"}
        try:
            verbs = {"embed": self._embed, "detect": self._detect}
            verbs |= {"verify": self._verify, "identify": self._identify}
            row |= verbs[self.job.verb](task)
        except Exception as error:
            row |= {"status": "failed", "error": in_words(error)}
        row["took_s"] = round(time.perf_counter() - begun, 3)
        return {"source": source, "size": None, "pid": os.getpid(), "row": row}

    def _key(self, one: Claimant) -> Key:
        if one.key not in self.keys:
            with warnings.catch_warnings():  # which the parent has given
                warnings.simplefilter("ignore", KeyFileWarning)
                self.keys[one.key] = read_key(one.key)
        key = self.keys[one.key]
        if key.id != one.key_id:
            what = f"{one.key} holds key {key.id}, not key {one.key_id}"
            raise KeyFileError(what, hint="the key of a batch must stay the same")
        return key

    def _claim(self, one: Claimant, task: Task) -> Claim:
        payload = task.payload if task.payload is not None else one.payload
        assert payload is not None
        return Claim(one.name, self._key(one), payload, one.rho)

    @property
    def known(self) -> Known | None:
        """Return the registry, opened when it is first needed."""
        if self._known is None and self.job.registry is not None:
            self._known = Known(Registry(self.job.registry))
        return self._known

    def _detect(self, task: Task) -> Row:
        found = files.detect(self.marker, task.source, self.job.how)
        return _columns(found) | {"seconds": _seconds(task.source, found)}

    def _verify(self, task: Task) -> Row:
        """Return the row of the verdict on the claimant, or on the nearest of all of them."""
        analysis = files.analyse(self.marker, task.source, self.job.how)
        whose = self.job.claimants if task.who is None else (self.job.claimants[task.who],)
        claims = [self._claim(one, task) for one in whose]
        asked = Options(task.nonce, speed=self.job.how.speed)
        known = self.known if any(one.name for one in whose) else None
        if task.who is None and known is not None:
            verdicts, unread = verification.judge_any(
                self.marker.card, analysis, claims, known, asked
            )
        else:
            only = verification.judge(self.marker.card, analysis, claims, known, asked)
            verdicts, unread = {whose[0].name: only[0]}, []
        name, verdict = min(verdicts.items(), key=lambda pair: _nearness(pair[1]))
        row = _columns(verdict) | {"seconds": _seconds(task.source, analysis.detection)}
        row |= {"untried": self.job.untried + len(unread)} if task.who is None else {}
        theirs = verdict.rule_holds or verdict.seal.holds or verdict.spelled is not None
        row["party"] = (name or None) if theirs or task.who is not None else None
        row["origin"] = verdict.origin.match if theirs else None
        row["record"] = verdict.origin.record if theirs else None
        return row

    def _identify(self, task: Task) -> Row:
        """Return the row of the best of the marks that were identified, and all of them."""
        assert self.known is not None
        analysis = files.analyse(self.marker, task.source, self.job.how)
        asked = Options(speed=self.job.how.speed)
        marks = identification.identify(self.marker.card, analysis, self.known, asked)
        found = analysis.detection
        row = _columns(found) | {"seconds": _seconds(task.source, found)}
        row["grade"] = "present" if found.present else "none"
        row["identified"] = [_mark(one) for one in marks]
        if marks:
            best = marks[0]
            row |= _columns(best.verdict) if best.verdict is not None else {}
            row |= {"party": best.party, "record": best.record, "grade": best.grade}
            row |= {"bound": best.bound}
            row["spans"] = [dataclasses.asdict(span) for span in best.spans]
            row["origin"] = None if best.verdict is None else best.verdict.origin.match
            row["identifier"] = best.identifier
        return row

    def _embed(self, task: Task) -> Row:
        assert task.output is not None
        assert task.who is not None
        one = self.job.claimants[task.who]
        output = Path(task.output)
        row: Row = {"party": one.name or None, "position_recurs": task.position is None}
        handed: Row = {}

        def hand_over(part: Part, written: files.Written) -> None:
            handed["record"] = None
            if one.name:  # a registered party
                stamped = given.stamped(self.marker.card, written)
                handed["record"] = stamped.to_bytes().decode()
            handed["part"] = str(part.path)
            part.hand_over()

        # A registered party's output without a record is somebody else's.
        ours = task.fresh and (task.record is not None or not one.name)
        if ours and output.exists() and (made := self._made(task, one)):
            return row | made
        outputs.check(output, source=task.source, replace=task.replace, parent=False)
        output.parent.mkdir(parents=True, exist_ok=True)
        signature = self._signature(task)
        given = self._given(one, task, files.seconds_of(task.source))
        written = files.embed(
            self.marker,
            task.source,
            output,
            given.options,
            rho=one.rho,
            replace=task.replace,
            sign=None if signature is None else signature.signing(given, self.job.issuer),
            appear=hand_over,
        )
        assert written.verdict is not None  # as it was checked
        row |= {HANDED: handed, "clipped": written.clipped, "position": written.position}
        row["not_carried"] = ", ".join(written.not_carried) or None
        issued = None if given.issued is None else given.issued.name
        row |= _columns(written.verdict) | {"seconds": written.seconds}
        row["manifest"] = None if written.manifest is None else written.manifest.id
        return row | {"identifier": issued}

    def _signature(self, task: Task) -> Prepared | None:
        """Return how the output is to be signed; raise an error where it cannot be."""
        asked = self.job.signs
        if asked is None or task.output is None:
            return None
        if self._signer is None:
            with warnings.catch_warnings():  # which the parent has given
                warnings.simplefilter("ignore", KeyFileWarning)
                self._signer = asked.signer()
        return prepare(self._signer, asked.source_type, task.source, task.output)

    def _given(self, one: Claimant, task: Task, seconds: float) -> Reservation:
        """Return how a recording is marked: a second try marks the same samples.

        A short one that its audio finds has its serial, which nothing else uses, as nonce.
        """
        claim, nonce = self._claim(one, task), task.nonce
        issued = None if seconds < LEAST_S else task.issued
        if FOUND_S <= seconds < LEAST_S and task.issued is not None and self.job.fingerprint:
            nonce = nonce or task.issued.serial.to_bytes(NONCE_BYTES, "big")
        options = EmbedOptions(
            claim.key,
            claim.payload,
            nonce,
            _position(task),
            identifier=None if issued is None else issued.identifier,
            excerpt=self.job.excerpt,
        )
        job = self.job
        return Reservation(one.name, options, issued, job.declared, job.fingerprint)

    def _made(self, task: Task, one: Claimant) -> Row | None:
        """Return the row of an output that a killed try finished; None where it is not that."""
        assert task.output is not None
        try:
            analysis = files.analyse(self.marker, task.output)
        except KeyBoundError:
            return None
        seconds = _seconds(task.output, analysis.detection)
        given = self._given(one, task, seconds)
        options = given.options
        verdict = self.marker.judge(
            analysis,
            key=options.key,
            payload=options.payload,
            nonce=options.nonce,
            rho=one.rho,
            search=SealSearch((_position(task),)),
            identifier=options.identifier,
        )
        if not verdict.rule_holds:
            return None
        issued = None if given.issued is None else given.issued.name
        row = _columns(verdict) | {"seconds": seconds, "record": task.record}
        row["manifest"] = task.manifest
        return row | {"identifier": issued}


def _nearness(verdict: Verdict) -> tuple[int, int]:
    """Return a sort key: the claimant with the highest grade, then with the nearest code."""
    return -GRADES.index(verdict.grade), verdict.distance


def _columns(result: Detection | Verdict) -> Row:
    """Return the columns of the results that a detection or verdict fills, as plain values."""
    made: Row = {}
    for column in dataclasses.fields(result):
        if column.name in COLUMNS:
            value = getattr(result, column.name)
            if column.name == "spans":
                value = [dataclasses.asdict(span) for span in value]
            made[column.name] = value
    if isinstance(result, Verdict):
        made |= {"grade": result.grade, "seal_p": result.seal.p}
        made["searched"] = result.seal.searched
        made |= {"position": result.seal.position} if result.seal.holds else {}
        made["identifier"] = None if result.spelled is None else result.spelled.name
        made["origin"] = None
    return made


def _mark(one: Identified) -> Row:
    """Return a mark that was identified as plain values."""
    made = identified_as_plain(one)
    return {name: made[name] for name in MARK}


def _position(task: Task) -> int:
    """Return the position that the registry gave, else a usual one by the name of the task.

    Either way a second try makes the same output.
    """
    if task.position is not None:
        return task.position
    return int(task.name[:8], 16) % len(SealSearch().positions)


def _seconds(path: str | os.PathLike[str], found: Detection) -> float:
    """Return the length of a file by soundfile, else by the frames of the detection."""
    import soundfile

    with contextlib.suppress(soundfile.SoundFileError), silence():
        told = soundfile.info(sndfile_name(path))
        if told.frames and not is_unknown(told.frames):
            return float(told.duration)
    return len(found.frame_presence) * found.frame_s


def in_words(error: BaseException) -> str:
    """Return an error with its hint in one line."""
    message, hint = explain(error)
    return message + (f" ({hint})" if hint else "")
