"""What is done to one input of a corpus, in whatever process. Knows no manifest and no engine.

A key comes to a worker as a reference, a file or the name of an environment variable, and never
as itself. An output appears whole or not at all.
"""

import base64
import contextlib
import dataclasses
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keybound import files, trial
from keybound.claims import Options
from keybound.corpora.journal import COLUMNS, Row, Stamp
from keybound.errors import CorpusError, KeyBoundError, KeyFileError, explain
from keybound.evidence import Detection
from keybound.keys import Key
from keybound.likeness import Sketch
from keybound.origin import MATCHES, Origin
from keybound.parties import Claim
from keybound.search import Places
from keybound.verdict import Verdict
from keybound.watermark import Watermarker

ENV = "env:"
RECORD = "record"  # in an entry of a worker: the record as it is exported, then its number
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
        wrote = Stamp.of(task.output) if task.output and row["status"] == "ok" else None
        size = wrote.size if wrote else None
        return {"source": source, "size": size, "pid": os.getpid(), "row": row}

    def _key(self, one: Whose) -> Key:
        if one.key not in self.keys:
            self.keys[one.key] = read_key(one.key)
        key = self.keys[one.key]
        if key.fingerprint != one.fingerprint:
            what = f"{one.key} holds key {key.fingerprint}, not key {one.fingerprint}"
            raise KeyFileError(what, hint="the key of a batch must stay the same")
        return key

    def _heard(self, path: str, *, levels: bool = True) -> tuple[Detection, float]:
        """Detect in a file; give the seconds of audio too."""
        found = files.detect(self.marker, path, levels=levels)
        return found, _seconds(path) or len(found.frame_presence) * found.frame_s

    def _claim(self, one: Whose, task: Task) -> Claim:
        payload = task.payload if task.payload is not None else one.payload
        assert payload is not None
        return Claim(one.name, self._key(one), payload, one.rho, one.drawn)

    def _detect(self, task: Task) -> Row:
        found, seconds = self._heard(task.source, levels=False)
        return _columns(found) | {"seconds": seconds}

    def _verify(self, task: Task) -> Row:
        """Give the verdict on the claimant, or of all of them the one that comes nearest."""
        found, seconds = self._heard(task.source)
        whose = self.job.whose if task.who is None else (self.job.whose[task.who],)
        claims = [self._claim(one, task) for one in whose]
        masks = {one.name: one.masks for one in whose}
        asked = Options(task.nonce)
        verdicts = trial.judge(self.marker.card, found, claims, {}, asked, masks=masks)
        verdict, one = min(zip(verdicts, whose, strict=True), key=lambda pair: _nearness(pair[0]))
        row = _columns(verdict) | {"seconds": seconds}
        row |= {"untried": self.job.untried} if task.who is None else {}
        theirs = verdict.rule_holds or verdict.placed.holds
        row["party"] = (one.name or None) if theirs or task.who is not None else None
        if theirs:
            row["origin"] = "none"
            row |= {HEARD: _sketched(found, verdict)} if one.recorded else {}
        return row

    def _embed(self, task: Task) -> Row:
        assert task.output is not None
        assert task.who is not None
        one = self.job.whose[task.who]
        output = Path(task.output)
        row: Row = {"party": one.name or None}
        # A folder of its own with a name that is known: what a kill leaves, the next try removes.
        stage = output.parent / f".keybound-{task.name}"
        try:
            if output.exists():
                if output.samefile(task.source):
                    raise CorpusError(f"{output} is the recording itself")
                if task.fresh and (made := self._made(task, one)):
                    return row | made
                if not task.replace:
                    raise CorpusError(f"{output} exists", hint="--force replaces it")
            stage.mkdir(parents=True, exist_ok=True)
            part = stage / output.name
            claim = self._claim(one, task)
            verdict, written = files.embed(
                self.marker,
                task.source,
                part,
                key=claim.key,
                payload=claim.payload,
                nonce=task.nonce,
                position=_position(task),
                rolling=self.job.rolling,
                rho=one.rho,
                replace=True,
            )
            part.replace(output)
            row |= self._record(written, one, task)
        except KeyBoundError as error:
            message = error.message.replace(f"{stage}{os.sep}", f"{output.parent}{os.sep}")
            raise CorpusError(message, hint=error.hint) from error
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        row |= {"clipped": written.clipped, "position": written.position}
        return row | _columns(verdict) | {"seconds": _seconds(output)}

    def _made(self, task: Task, one: Whose) -> Row | None:
        """Take an output that a try killed at the last moment left behind, if it is that."""
        assert task.output is not None
        try:
            found, seconds = self._heard(task.output)
        except KeyBoundError:
            return None
        claim = self._claim(one, task)
        how: Any = {"key": claim.key, "payload": claim.payload, "nonce": task.nonce}
        how |= {"rho": one.rho}
        fixed = self.marker.judge(found, **how)  # which a rolling code agrees with by chance only
        verdict = self.marker.judge(found, **how, places=Places((_position(task),)))
        rolls = verdict.distance < fixed.distance
        if not verdict.rule_holds or rolls != self.job.rolling:
            return None
        made = files.described(task.output, found, _position(task))
        return _columns(verdict) | {"seconds": seconds} | self._record(made, one, task)

    def _record(self, written: files.Written, one: Whose, task: Task) -> Row:
        """Give the record of an embedding of a registered party, for whoever keeps the registry."""
        if not one.name or one.payload is None:
            return {}
        of: Any = {"party": one.name, "key": self._key(one), "payload": one.payload}
        made = files.record(self.marker, written, nonce=task.nonce, **of)
        return {RECORD: made.to_bytes().decode()}


def _nearness(verdict: Verdict) -> tuple[bool, bool, int]:
    """Put the claimant first whose seal or rolling code is there, then the nearest payload."""
    return not verdict.placed.holds, not verdict.rule_holds, verdict.distance


def _sketched(found: Detection, verdict: Verdict) -> Row:
    """Give what the records are compared with, and what the grade is after each answer."""
    assert found.levels is not None
    answers = {match: dataclasses.replace(verdict, origin=Origin(match)) for match in MATCHES}
    return {
        "sketch": base64.b64encode(Sketch.of(found.heard).to_bytes()).decode(),
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
    """Choose the seal's position by the name of the task: a second try makes the same output."""
    return int(task.name[:8], 16) % len(Places().positions)


def _seconds(path: str | os.PathLike[str]) -> float | None:
    """Give the length of a file that soundfile reads."""
    import soundfile

    with contextlib.suppress(soundfile.SoundFileError):
        return float(soundfile.info(path).duration)
    return None


def in_words(error: BaseException) -> str:
    """Return in a line what went wrong with one input."""
    message, hint = explain(error)
    return message + (f" ({hint})" if hint else "")
