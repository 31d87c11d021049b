"""What is done to one input of a corpus, in whatever process. Knows no manifest and no engine.

A key comes to a worker as a reference, a file or the name of an environment variable, and never
as itself. A marked copy is handed over, finished, to the process that has the registry and lets it
appear with its record.
"""

import base64
import contextlib
import dataclasses
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keybound import output as outputs
from keybound.audio.recordings import sndfile_name
from keybound.audio.silence import silence
from keybound.batch.journal import COLUMNS, Row, Stamp
from keybound.crypto.keys import Key
from keybound.errors import KeyBoundError, KeyFileError, KeyFileWarning, explain
from keybound.output import Part
from keybound.provenance.matching import Sketch
from keybound.provenance.origin import MATCHES, Origin
from keybound.seal.search import Places
from keybound.types import Analysis, Detection
from keybound.watermark import files, verification
from keybound.watermark.claims import Claim, Options
from keybound.watermark.verdict import Verdict
from keybound.watermark.watermarker import Watermarker

ENV = "env:"
HANDED = "handed"  # in an entry of a worker: a finished part, with the record as it is exported
HEARD = "heard"  # what is compared with the records, where the registry is


@dataclass(frozen=True)
class Whose:
    """A claimant without its secret: `key` names a key file, or env: and a variable's name."""

    name: str
    key: str
    fingerprint: str
    payload: int | None  # None: each row has its own
    rho: int | None
    drawn: int = 0  # positions of seals that are in use
    recorded: bool = False  # whether there are records of it to compare with
    masks: tuple[tuple[int, bytes], ...] = ()  # of records: positions, and nonces of their masks


@dataclass(frozen=True)
class Job:
    """What is the same for every input: all that a worker needs, and nothing secret."""

    verb: str  # embed, detect or verify
    model: str | None
    whose: tuple[Whose, ...]
    rolling: bool = False  # the code that is embedded
    untried: int = 0  # registered parties that cannot be tried


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
        """Do one task, whatever happens, and give its entry for the journal."""
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

    def _key(self, one: Whose) -> Key:
        if one.key not in self.keys:
            with warnings.catch_warnings():  # which the parent has given
                warnings.simplefilter("ignore", KeyFileWarning)
                self.keys[one.key] = read_key(one.key)
        key = self.keys[one.key]
        if key.fingerprint != one.fingerprint:
            what = f"{one.key} holds key {key.fingerprint}, not key {one.fingerprint}"
            raise KeyFileError(what, hint="the key of a batch must stay the same")
        return key

    def _claim(self, one: Whose, task: Task) -> Claim:
        payload = task.payload if task.payload is not None else one.payload
        assert payload is not None
        return Claim(one.name, self._key(one), payload, one.rho, one.drawn)

    def _detect(self, task: Task) -> Row:
        found = files.detect(self.marker, task.source)
        return _columns(found) | {"seconds": _seconds(task.source, found)}

    def _verify(self, task: Task) -> Row:
        """Give the verdict on the claimant, or of all of them the one that comes nearest."""
        heard = files.analyse(self.marker, task.source)
        whose = self.job.whose if task.who is None else (self.job.whose[task.who],)
        claims = [self._claim(one, task) for one in whose]
        masks = {one.name: one.masks for one in whose}
        asked = Options(task.nonce)
        verdicts = verification.judge(self.marker.card, heard, claims, {}, asked, masks=masks)
        verdict, one = min(zip(verdicts, whose, strict=True), key=lambda pair: _nearness(pair[0]))
        row = _columns(verdict) | {"seconds": _seconds(task.source, heard.detection)}
        row |= {"untried": self.job.untried} if task.who is None else {}
        theirs = verdict.rule_holds or verdict.placed.holds
        row["party"] = (one.name or None) if theirs or task.who is not None else None
        if theirs:
            row["origin"] = "none"
            row |= {HEARD: _sketched(heard, verdict)} if one.recorded else {}
        return row

    def _embed(self, task: Task) -> Row:
        assert task.output is not None
        assert task.who is not None
        one = self.job.whose[task.who]
        output = Path(task.output)
        row: Row = {"party": one.name or None, "position_recurs": task.position is None}
        handed: Row = {}

        def hand_over(part: Part, written: files.Written) -> None:
            handed["record"] = self._record(written, one, task)
            handed["part"] = str(part.path)
            part.hand_over()

        # A registered party's output without a record is somebody else's.
        ours = task.fresh and (task.record is not None or not one.name)
        if ours and output.exists() and (made := self._made(task, one)):
            return row | made
        outputs.check(output, source=task.source, replace=task.replace, parent=False)
        output.parent.mkdir(parents=True, exist_ok=True)
        claim = self._claim(one, task)
        verdict, written = files.embed(
            self.marker,
            task.source,
            output,
            key=claim.key,
            payload=claim.payload,
            nonce=task.nonce,
            position=_position(task),
            rolling=self.job.rolling,
            rho=one.rho,
            replace=task.replace,
            appear=hand_over,
        )
        row |= {HANDED: handed, "clipped": written.clipped, "position": written.position}
        row["not_carried"] = ", ".join(written.not_carried) or None
        return row | _columns(verdict) | {"seconds": written.seconds}

    def _made(self, task: Task, one: Whose) -> Row | None:
        """Take an output that a try killed at the last moment left behind, if it is that."""
        assert task.output is not None
        try:
            heard = files.analyse(self.marker, task.output)
        except KeyBoundError:
            return None
        claim = self._claim(one, task)
        how: Any = {"key": claim.key, "payload": claim.payload, "nonce": task.nonce}
        how |= {"rho": one.rho}
        # A rolling code agrees with the fixed one by chance only.
        fixed = self.marker.attribute(heard.detection, **how)
        verdict = self.marker.judge(heard, **how, places=Places((_position(task),)))
        rolls = verdict.distance < fixed.distance
        if not verdict.rule_holds or rolls != self.job.rolling:
            return None
        seconds = _seconds(task.output, heard.detection)
        return _columns(verdict) | {"seconds": seconds, "record": task.record}

    def _record(self, written: files.Written, one: Whose, task: Task) -> str | None:
        """Return the record of an embedding of a registered party, as it is exported."""
        if not one.name or one.payload is None:
            return None
        of: Any = {"party": one.name, "key": self._key(one), "payload": one.payload}
        return files.record(self.marker, written, nonce=task.nonce, **of).to_bytes().decode()


def _nearness(verdict: Verdict) -> tuple[bool, bool, int]:
    """Put the claimant first whose seal or rolling code is there, then the nearest payload."""
    return not verdict.placed.holds, not verdict.rule_holds, verdict.distance


def _sketched(heard: Analysis, verdict: Verdict) -> Row:
    """Return what the records are compared with, and what the grade is after each answer."""
    answers = {match: dataclasses.replace(verdict, origin=Origin(match)) for match in MATCHES}
    return {
        "sketch": base64.b64encode(Sketch.of(heard.levels).to_bytes()).decode(),
        "placed": dataclasses.asdict(verdict.placed),
        "grades": {match: answer.grade for match, answer in answers.items()},
    }


def _columns(result: Detection | Verdict) -> Row:
    """Give of a detection or verdict what the results hold, as plain values."""
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
    return int(task.name[:8], 16) % len(Places().positions)


def _seconds(path: str | os.PathLike[str], found: Detection) -> float:
    """Return the length of a file: what soundfile says, else that of the frames that were heard."""
    import soundfile

    with contextlib.suppress(soundfile.SoundFileError), silence():
        if duration := float(soundfile.info(sndfile_name(path)).duration):
            return duration
    return len(found.frame_presence) * found.frame_s


def in_words(error: BaseException) -> str:
    """Return in a line what went wrong with one input."""
    message, hint = explain(error)
    return message + (f" ({hint})" if hint else "")
