"""The verb `verify`: whether a recording carries a party's mark."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from keybound.cli import pipes, records, signed
from keybound.cli.parties import claim
from keybound.cli.terminal import (
    as_json,
    emit,
    false_alarms,
    key_file,
    model,
    nonce,
    open_registry,
    options,
    party_name,
    payload,
    position,
    progress_bar,
    registry,
    require,
    say,
    speed,
    tell_rate,
)
from keybound.watermark.claims import Claim, Untried, readable_claim, triable

if TYPE_CHECKING:
    from keybound.watermark.verdict import Verdict


@click.command()
@click.argument("recording", type=click.Path())
@options(party_name, key_file, payload, nonce, position)
@options(speed, false_alarms)
@click.option("--any", "anyone", is_flag=True, help="Try every registered party.")
@click.option(
    "--record",
    "record",
    type=click.Path(),
    help="Exported record to compare RECORDING with, in place of the registry.",
)
@click.option(
    "--grade-only",
    is_flag=True,
    help="Print the grade alone, without the figures that would help a forger.",
)
@options(require, signed.sign, registry, model, as_json)
def verify(
    recording: str,
    name: str | None,
    key_file: str | None,
    payload: int | None,
    nonce: bytes,
    position: int | None,
    speed: float,
    false_alarms: float,
    anyone: bool,
    record: str | None,
    grade_only: bool,
    require: str,
    signing: tuple[str, str] | None,
    registry: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Verify that RECORDING carries a party's mark. Exit status 0 if so, 1 if not.

    The grade is none, present (some mark), attributed (the payload agrees) or sealed (the keyed
    pattern is found with p < 1e-6, or the identifier of a record on its audio). The record of a
    party's recording is found by the identifier that it spells, else by its audio, and tells where
    its seal is and whether the audio is the one that was marked: a mark moved to other audio (copy
    attack) does not count. RECORDING may be - for standard input. Of a video each audio track is
    verified, and one that carries the mark is enough.

    With --any the parties whose mark it is come first, then one line on the others. A party that
    cannot be tried, for example because its key file is missing, is named; if none can be tried,
    the exit status is 2.
    """
    from keybound.watermark import files, statements, verification
    from keybound.watermark.candidates import Known
    from keybound.watermark.claims import Options
    from keybound.watermark.options import DetectOptions
    from keybound.watermark.watermarker import Watermarker

    signer = signed.prepared(signing, (recording,), anyone)
    pipes.check((recording,), key_file)
    marker = Watermarker(model)
    bits = marker.card.bits
    told = None
    if record is not None:
        told = records.tell(record, payload, nonce, position)
        payload, nonce, position = told.payload if name is None else None, told.nonce, told.position
    asked = Options(nonce, position, speed / 100)
    claims: list[Claim] = []
    untried: list[Untried] = []
    if anyone and not (name is None and key_file is None and payload is None and record is None):
        raise click.UsageError("--any tries every party; name none")
    kept = anyone or name is not None
    with open_registry(registry, reads=True) if kept else nullcontext() as opened:
        if anyone and opened is not None:
            versions = opened.versions
            claims, untried = triable(
                opened.list(), lambda one: readable_claim(versions(one.name), bits)
            )
        else:
            named = None if told is None else told.entry.stamped.record.key
            choose = partial(readable_claim, key_id=named)
            claims = [claim(name, key_file, payload, opened, bits, choose)]
        if told is not None:
            records.check(claims[0], told)
        for one in untried:
            say(f"not tried: {one.error}")
        how = DetectOptions(false_alarms, speed / 100)
        with pipes.tracks(recording) as (source, numbers):
            analyses = [
                files.analyse(marker, source, how, track=n, progress=progress_bar("analysing"))
                for n in numbers
            ]
        known = None if opened is None else Known(opened)
        answers: list[Answer] = []
        for number, found in enumerate(analyses, 1):
            tell_rate(found.detection.false_alarms, false_alarms)
            track, missed = number if len(analyses) > 1 else None, list(untried)
            if anyone and known is not None:
                own, unread = verification.judge_any(marker.card, found, claims, known, asked)
                for one in unread:
                    say(f"not tried: {one.error}")
                missed += unread
            else:
                verdicts = verification.judge(
                    marker.card,
                    found,
                    claims,
                    known,
                    asked,
                    record=None if told is None else told.entry,
                    progress=progress_bar("searching"),
                )
                own = {claims[0].name: verdicts[0]}
                if signer is not None and signing is not None:
                    signed.check_tracks(len(analyses))
                    said = [statements.of_verdict(claims[0].name, verdicts[0])]
                    signed.write(marker.card, recording, found.detection, said, signer, signing[1])
            answers.append(Answer(track, own, missed))
    every = [verdict for answer in answers for verdict in answer.verdicts.values()]
    if grade_only:
        grade = verification.best(every)
        emit({"grade": grade}, grade, as_json)
    for answer in [] if grade_only else answers:
        if anyone:
            _print_all(answer, as_json)
        else:
            _print_one(answer, as_json)
    sys.exit(0 if any(one.reaches(require) for one in every) else 1)


class Answer(NamedTuple):
    """The verdicts on a recording by the party's name, on one of several tracks from 1."""

    track: int | None
    verdicts: "dict[str, Verdict]"
    untried: Sequence[Untried]

    @property
    def which(self) -> dict[str, Any]:
        """Return the track as plain values."""
        return {} if self.track is None else {"track": self.track}

    @property
    def prefix(self) -> str:
        """Return the track in words."""
        return "" if self.track is None else f"track {self.track}: "


def _print_one(answer: Answer, as_json: bool) -> None:
    """Print the verdict on a single party."""
    from keybound.watermark.plain import verdict_as_plain

    ((who, verdict),) = answer.verdicts.items()
    named = answer.which | ({"party": who} if who else {})
    text = f"{who}: {verdict.words}" if who else verdict.words
    emit(named | verdict_as_plain(verdict), answer.prefix + text, as_json)


def _print_all(answer: Answer, as_json: bool) -> None:
    """Print the verdicts on all parties, those whose mark it is first.

    As text all others are one line, but those whose record or moved seal it is; as JSON each has
    its own, and so has each party that could not be tried.
    """
    from keybound.watermark.plain import verdict_as_plain
    from keybound.watermark.verdict import GRADES

    _, verdicts, untried = answer
    ranked = sorted(verdicts, key=lambda who: -GRADES.index(verdicts[who].grade))
    others = [who for who in ranked if not _theirs(verdicts[who])]
    for who in ranked if as_json else (who for who in ranked if who not in others):
        words = f"{answer.prefix}{who}: {verdicts[who].words}"
        emit(answer.which | {"party": who} | verdict_as_plain(verdicts[who]), words, as_json)
    if as_json:
        for one in untried:
            emit(answer.which | {"party": one.name, "error": one.error}, "", as_json)
    elif others or untried:
        matched = any(one.verified for one in verdicts.values())
        rest = _on_others([verdicts[who] for who in others], matched)
        names = ", ".join(one.name for one in untried)
        missed = f"{_parties(len(untried))} could not be tried: {names}" if untried else ""
        click.echo(answer.prefix + "; ".join(filter(None, (rest, missed))))


def _theirs(verdict: "Verdict") -> bool:
    """Return whether the mark, the seal or the audio is a party's."""
    named = verdict.spelled is not None
    return verdict.verified or named or verdict.seal.holds or verdict.origin.match == "same"


def _on_others(verdicts: "Sequence[Verdict]", matched: bool) -> str:
    """Return in a line that a recording carries nothing of some parties, as far as was searched."""
    if not verdicts:
        return ""
    first, count = verdicts[0], len(verdicts)
    unsearched = next((one.unsearched for one in verdicts if one.unsearched), "")
    if not first.present:
        mark = f"no mark found ({first.lacks})"
        return f"{mark}, nor a seal of {_parties(count)}{unsearched}"
    if matched:
        others = "1 other" if count == 1 else f"{count} others"
        return f"nothing found of {others}{unsearched}" if unsearched else f"not by {others}"
    if unsearched:
        return f"marked, but nothing found of {_parties(count)}{unsearched}"
    return f"marked, but not by {_parties(count)}"


def _parties(count: int) -> str:
    return "1 party" if count == 1 else f"{count} parties"
