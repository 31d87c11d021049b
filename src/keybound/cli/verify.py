"""The verb `verify`: whether a recording carries a party's mark."""

import dataclasses
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from keybound.cli import records
from keybound.cli.parties import claim, lone_key
from keybound.cli.terminal import (
    as_json,
    emit,
    false_alarms,
    from_host,
    key_file,
    model,
    nonce,
    open_registry,
    options,
    own_mask,
    party_name,
    payload,
    position,
    progress_bar,
    registry,
    say,
    speed,
    tell_rate,
)
from keybound.watermark.claims import Claim, Untried, party_claim, triable

if TYPE_CHECKING:
    from keybound.watermark.verdict import Verdict


@click.command()
@click.argument("recording", type=click.Path())
@options(party_name, key_file, payload, from_host, nonce, own_mask, position)
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
@click.option(
    "--require",
    type=click.Choice(["attributed", "sealed"]),
    default="attributed",
    show_default=True,
    help="Lowest grade for exit status 0.",
)
@options(registry, model, as_json)
def verify(
    recording: str,
    name: str | None,
    key_file: str | None,
    payload: int | None,
    from_host: bool,
    nonce: bytes,
    own_mask: bool,
    position: int | None,
    speed: float,
    false_alarms: float,
    anyone: bool,
    record: str | None,
    grade_only: bool,
    require: str,
    registry: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Verify that RECORDING carries a party's mark. Exit status 0 if so, 1 if not.

    The grade is none, present (some mark), attributed (the payload agrees) or sealed (the keyed
    pattern is found with p < 1e-6). A party's records give the mask and the keystream position of a
    recording, and tell whether the audio is the one that was marked: a seal moved to other audio
    (copy attack) does not count.

    With --any the parties whose mark it is come first, then one line on the others. A party that
    cannot be tried, for example because its key file is missing, is named; if none can be tried,
    the exit status is 2.
    """
    from keybound.watermark import files, verification
    from keybound.watermark.claims import Options
    from keybound.watermark.options import DetectOptions
    from keybound.watermark.watermarker import Watermarker

    if own_mask and (nonce or from_host):
        raise click.UsageError("--nonce-from-position excludes --nonce and --payload-from-host")
    marker = Watermarker(model)
    bits = marker.card.bits
    told = None
    if record is not None:
        told = records.tell(record, payload, nonce, position)
        payload, nonce, position = told.payload if name is None else None, told.nonce, told.position
    asked = Options(nonce, position, speed / 100, own_mask)
    claims: list[Claim] = []
    untried: list[Untried] = []
    if from_host:
        key = lone_key(key_file, name, payload, record, anyone)
    elif anyone:
        if name is not None or key_file is not None or payload is not None or record is not None:
            raise click.UsageError("--any tries every party; name none")
        with open_registry(registry) as known:
            claims, untried = triable(known.list(), lambda one: party_claim(one, bits))
            entries, unread = records.entries_of_any(claims, known)
        claims, untried = [one for one in claims if one.name in entries], untried + unread
    else:
        with open_registry(registry) if name is not None else nullcontext() as opened:
            claims = [claim(name, key_file, payload, opened, bits)]
            entries = {claims[0].name: records.entries_of(claims[0], opened, told)}
    for one in untried:
        say(f"not tried: {one.error}")
    how = DetectOptions(false_alarms, speed / 100)
    found = files.analyse(marker, recording, how, progress=progress_bar("analysing"))
    tell_rate(found.detection.false_alarms, false_alarms)
    search = progress_bar("searching")
    if from_host:
        verdicts = [verification.judge_host(marker.card, found, key, asked, progress=search)]
    else:
        verdicts = verification.judge(marker.card, found, claims, entries, asked, progress=search)
    grade = verification.best(verdicts)
    if grade_only:
        emit({"grade": grade}, grade, as_json)
    elif anyone:
        _print_all(dict(zip([one.name for one in claims], verdicts, strict=True)), untried, as_json)
    else:
        who = claims[0].name if claims else ""
        named = {"party": who} if who else {}
        text = f"{who}: {verdicts[0].words}" if who else verdicts[0].words
        emit(named | as_plain(verdicts[0]), text, as_json)
    sys.exit(0 if any(one.reaches(require) for one in verdicts) else 1)


def as_plain(verdict: "Verdict") -> dict[str, Any]:
    """Return a verdict as plain values."""
    return dataclasses.asdict(verdict) | {"grade": verdict.grade, "words": verdict.words}


def _print_all(verdicts: "dict[str, Verdict]", untried: Sequence[Untried], as_json: bool) -> None:
    """Print the verdicts on all parties, those whose mark it is first.

    As text all others are one line, but those whose record or moved seal it is; as JSON each has
    its own, and so has each party that could not be tried.
    """
    from keybound.watermark.verdict import GRADES

    ranked = sorted(verdicts, key=lambda who: -GRADES.index(verdicts[who].grade))
    others = [who for who in ranked if not _theirs(verdicts[who])]
    for who in ranked if as_json else (who for who in ranked if who not in others):
        words = f"{who}: {verdicts[who].words}"
        emit({"party": who} | as_plain(verdicts[who]), words, as_json)
    if as_json:
        for one in untried:
            emit({"party": one.name, "error": one.error}, "", as_json)
    elif others or untried:
        matched = any(one.verified for one in verdicts.values())
        rest = _on_others([verdicts[who] for who in others], matched)
        names = ", ".join(one.name for one in untried)
        missed = f"{_parties(len(untried))} could not be tried: {names}" if untried else ""
        click.echo("; ".join(filter(None, (rest, missed))))


def _theirs(verdict: "Verdict") -> bool:
    """Return whether the mark, the seal or the audio is a party's."""
    return verdict.verified or verdict.placed.holds or verdict.origin.match == "same"


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
