"""The work on one input of a corpus, in any process. Knows no manifest and no executor.

A worker gets a key as a reference, a file or the name of an environment variable, and never the key
itself. It hands a marked file over, finished, to the process that has the registry, which publishes
it with its record.
"""

import base64
import contextlib
import dataclasses
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from keybound import output as outputs
from keybound.audio.recordings import sndfile_name
from keybound.audio.silence import silence
from keybound.batch.journal import COLUMNS, Row, Stamp
from keybound.crypto.keys import Key
from keybound.errors import KeyBoundError, KeyFileError, KeyFileWarning, explain
from keybound.output import Part
from keybound.provenance.declared import NOTHING, Declared
from keybound.provenance.matching import Sketch
from keybound.provenance.origin import MATCHES
from keybound.seal.search import SealSearch
from keybound.types import Analysis, Detection
from keybound.watermark import files, verification
from keybound.watermark.claims import Claim, Options
from keybound.watermark.options import EXCERPT_S, USUAL, DetectOptions, EmbedOptions
from keybound.watermark.verdict import Verdict
from keybound.watermark.watermarker import Watermarker

ENV = "env:"
HANDED = "handed"  # in an entry of a worker: a finished part, with the record as it is exported
SKETCH = "sketch"  # what the process that has the registry compares with the records


@dataclass(frozen=True)
class Claimant:
    """A claimant without its secret: `key` names a key file, or env: and a variable's name."""

    name: str
    key: str
    key_id: str
    payload: int | None  # None: each row has its own
    rho: int | None
    next_position: int = 0  # of the key's stream: those below it may be in use
    recorded: bool = False  # whether there are records of it to compare with
    masks: tuple[tuple[int, bytes], ...] = ()  # of records: positions, and nonces of their masks


@dataclass(frozen=True)
class Job:
    """What is the same for every input: all that a worker needs, and nothing secret."""

    verb: str  # embed, detect or verify
    model: str | None
    claimants: tuple[Claimant, ...]
    rolling: bool = False  # the code that is embedded
    excerpt: float = EXCERPT_S  # that must be attributable
    how: DetectOptions = USUAL
    untried: int = 0  # registered parties that cannot be tried
    declared: Declared = NOTHING  # of what is embedded, in its record
    fingerprint: bool = True  # whether records keep one


@dataclass(frozen=True)
class Task:
    """One input to work on. `who` is one of the job's claimants, None for all of them."""

    name: str  # a digest of all that decides the result
    source: str
    output: str | None
    who: int | None
    payload: int | None
    nonce: bytes
    fresh: bool  # the output did not exist when this was first begun
    replace: bool
    position: int | None = None  # of the seal, where the registry gave one
    serial: int | None = None  # of the identifier, likewise
    record: int | None = None  # of the output, where it is there already


def read_key(reference: str) -> Key:
    """Read a key from its file, or from the environment variable NAME of `env:NAME`."""
    if not reference.startswith(ENV):
        return Key.read(reference)
    name = reference.removeprefix(ENV)
    text = os.environ.get(name)
    if text is None:
        hint = "it must hold the text of a key file wherever the work is done"
        raise KeyFileError(f"the environment variable {name!r} is not set", hint=hint)
    try:
        return Key.parse(text)
    except KeyFileError as error:
        message = error.message.replace("the key text", f"the environment variable {name!r}")
        raise KeyFileError(message, hint=error.hint) from None


class Worker:
    """The networks and the keys in one process, each loaded once; call it with tasks."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.marker = Watermarker(job.model)
        self.keys: dict[str, Key] = {}

    def __call__(self, task: Task) -> Row:
        """Do one task and return its entry for the journal, whatever happens."""
        begun, source = time.perf_counter(), Stamp.of(task.source)
        row: Row = {"status": "ok"}
        try:
            row |= {"embed": self._embed, "detect": self._detect, "verify": self._verify}[
                self.job.verb
            ](task)
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
        return Claim(one.name, self._key(one), payload, one.rho, one.next_position)

    def _detect(self, task: Task) -> Row:
        found = files.detect(self.marker, task.source, self.job.how)
        return _columns(found) | {"seconds": _seconds(task.source, found)}

    def _verify(self, task: Task) -> Row:
        """Return the row of the verdict on the claimant, or on the nearest of all of them."""
        analysis = files.analyse(self.marker, task.source, self.job.how)
        whose = self.job.claimants if task.who is None else (self.job.claimants[task.who],)
        claims = [self._claim(one, task) for one in whose]
        masks = {one.name: one.masks for one in whose}
        asked = Options(task.nonce, speed=self.job.how.speed)
        verdicts = verification.judge(self.marker.card, analysis, claims, {}, asked, masks=masks)
        verdict, one = min(zip(verdicts, whose, strict=True), key=lambda pair: _nearness(pair[0]))
        row = _columns(verdict) | {"seconds": _seconds(task.source, analysis.detection)}
        row |= {"untried": self.job.untried} if task.who is None else {}
        theirs = verdict.rule_holds or verdict.placed.holds
        row["party"] = (one.name or None) if theirs or task.who is not None else None
        if theirs:
            row["origin"] = "none"
            row |= {SKETCH: _sketched(analysis, verdict)} if one.recorded else {}
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
                stamped = files.record(
                    self.marker,
                    written,
                    options,
                    party=one.name,
                    declared=self.job.declared,
                    fingerprint=self.job.fingerprint,
                )
                handed["record"] = stamped.to_bytes().decode()
            handed["part"] = str(part.path)
            part.hand_over()

        # A registered party's output without a record is somebody else's.
        ours = task.fresh and (task.record is not None or not one.name)
        if ours and output.exists() and (made := self._made(task, one)):
            return row | made
        outputs.check(output, source=task.source, replace=task.replace, parent=False)
        output.parent.mkdir(parents=True, exist_ok=True)
        claim = self._claim(one, task)
        options = EmbedOptions(
            claim.key,
            claim.payload,
            task.nonce,
            _position(task),
            rolling=self.job.rolling,
            excerpt=self.job.excerpt,
        )
        written = files.embed(
            self.marker,
            task.source,
            output,
            options,
            rho=one.rho,
            replace=task.replace,
            appear=hand_over,
        )
        assert written.verdict is not None  # as it was checked
        row |= {HANDED: handed, "clipped": written.clipped, "position": written.position}
        row["not_carried"] = ", ".join(written.not_carried) or None
        return row | _columns(written.verdict) | {"seconds": written.seconds}

    def _made(self, task: Task, one: Claimant) -> Row | None:
        """Return the row of an output that a killed try finished; None where it is not that."""
        assert task.output is not None
        try:
            analysis = files.analyse(self.marker, task.output)
        except KeyBoundError:
            return None
        key, payload = (claim := self._claim(one, task)).key, claim.payload
        nonce, where = task.nonce, SealSearch((_position(task),))
        # A rolling code agrees with the fixed one by chance only.
        fixed = self.marker.attribute(
            analysis.detection, key=key, payload=payload, nonce=nonce, rho=one.rho
        )
        verdict = self.marker.judge(
            analysis, key=key, payload=payload, nonce=nonce, rho=one.rho, search=where
        )
        rolls = verdict.distance < fixed.distance
        if not verdict.rule_holds or rolls != self.job.rolling:
            return None
        seconds = _seconds(task.output, analysis.detection)
        return _columns(verdict) | {"seconds": seconds, "record": task.record}


def _nearness(verdict: Verdict) -> tuple[bool, bool, int]:
    """Return a sort key: a claimant whose seal or rolling code holds, then the nearest payload."""
    return not verdict.placed.holds, not verdict.rule_holds, verdict.distance


def _sketched(analysis: Analysis, verdict: Verdict) -> Row:
    """Return what the records are compared with, and what the grade is after each answer."""
    return {
        "sketch": base64.b64encode(Sketch.of(analysis.levels).to_bytes()).decode(),
        "placed": dataclasses.asdict(verdict.placed),
        "grades": {match: verdict.grade_if(match) for match in MATCHES},
    }


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
        made |= {"grade": result.grade, "seal_p": result.seal.p, "roll_p": result.roll.p}
        made["searched"] = result.seal.searched
        made |= {"position": result.placed.position} if result.placed.holds else {}
        made["origin"] = None  # which a worker cannot know
    return made


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
        if duration := float(soundfile.info(sndfile_name(path)).duration):
            return duration
    return len(found.frame_presence) * found.frame_s


def in_words(error: BaseException) -> str:
    """Return an error with its hint in one line."""
    message, hint = explain(error)
    return message + (f" ({hint})" if hint else "")
