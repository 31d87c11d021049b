"""The verb `identify`: which recording it is and whose, without naming a party."""

import sys
from typing import TYPE_CHECKING, Any

import click

from keybound.cli import credentials, pipes, signed
from keybound.cli.terminal import (
    as_json,
    emit,
    false_alarms,
    model,
    open_registry,
    options,
    progress_bar,
    registry,
    require,
    speed,
    tell_rate,
)

if TYPE_CHECKING:
    from keybound.types import Detection
    from keybound.watermark.agreement import Compared
    from keybound.watermark.identification import Identified


@click.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path())
@options(speed, false_alarms)
@options(require, credentials.trusted, signed.sign, registry, model, as_json)
def identify(
    recordings: tuple[str, ...],
    speed: float,
    false_alarms: float,
    require: str,
    trusted: str | None,
    signing: tuple[str, str] | None,
    registry: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Tell which recording each of RECORDINGS is, and whose. Exit status 0 if all are, 1 if not.

    Each mark gets a line: its identifier, the party and the record, the grade, where it is. The
    identifier that a recording spells names its record; a recording that is too short to spell one,
    and a marked stretch that no identifier explains, is compared with all records by its audio. An
    identifier on audio that neither holds the seal of its record nor matches it is copied: the
    grade is then present. A C2PA manifest in the file gets a line that says whether it and the mark
    agree. A recording may be - for standard input. Each audio track of a video is a recording; one
    that is named is enough.
    """
    from keybound.watermark import agreement, files, identification, statements
    from keybound.watermark.candidates import Known
    from keybound.watermark.claims import Options
    from keybound.watermark.options import DetectOptions
    from keybound.watermark.watermarker import Watermarker

    signer = signed.prepared(signing, recordings)
    pipes.check(recordings)
    marker = Watermarker(model)
    how, missed = DetectOptions(false_alarms, speed / 100), 0
    with open_registry(registry, reads=True) as opened:
        known = Known(opened)
        for path in recordings:
            with pipes.tracks(path) as (source, numbers):
                asked, found = Options(speed=speed / 100), []
                for n in numbers:
                    own = files.analyse(
                        marker, source, how, track=n, progress=progress_bar("analysing")
                    )
                    marks = identification.identify(marker.card, own, known, asked)
                    beside = agreement.of_marks(source, own.detection, marks, opened, trusted)
                    found.append((own.detection, marks, beside))
            named = False
            for number, (heard, marks, beside) in enumerate(found, 1):
                tell_rate(heard.false_alarms, false_alarms)
                if signer is not None and signing is not None:
                    signed.check_tracks(len(found))
                    said = [statements.of_identified(one, heard) for one in marks]
                    said = said or [statements.of_nobody(heard)]
                    signed.write(marker.card, path, heard, said, signer, signing[1])
                named = named or any(one.reaches(require) for one in marks)
                track = number if len(found) > 1 else None
                _print(path, track, marks, heard, beside, len(known.unread), as_json)
            missed += not named
    sys.exit(1 if missed else 0)


def _print(
    path: str,
    track: int | None,
    marks: "list[Identified]",
    found: "Detection",
    beside: "Compared | None",
    untried: int,
    as_json: bool,
) -> None:
    """Print a line for each mark, or one that says that there is none; one for a manifest.

    `untried` keys could not be read: what was marked with them is not known.
    """
    from keybound.watermark.plain import identified_as_plain

    which: dict[str, Any] = {"path": path} | ({} if track is None else {"track": track})
    name = path if track is None else f"{path}, track {track}"
    manifest = {"manifest": None if beside is None else beside.as_plain()}
    for one in marks:
        emit(which | identified_as_plain(one) | manifest, f"{name}: {in_words(one)}", as_json)
    if not marks:
        words = _of_nobody(untried) if found.present else "no mark found"
        row: dict[str, Any] = which | {"identifier": None, "party": None, "record": None}
        grade = "present" if found.present else "none"
        emit(row | {"grade": grade, "words": words} | manifest, f"{name}: {words}", as_json)
    if beside is not None and not as_json:
        click.echo(f"{name}: {beside.words}")


def _of_nobody(untried: int) -> str:
    """Return in words that a mark is of no recording, as far as keys could be tried."""
    if not untried:
        return "marked, but not by a recording of this registry"
    keys = "1 key was not tried" if untried == 1 else f"{untried} keys were not tried"
    return f"marked, but nothing found of a recording of this registry; {keys}"


def in_words(one: "Identified") -> str:
    """Return what was identified as a line."""
    where = ", ".join(f"{span.start_s:.1f} to {span.end_s:.1f} s" for span in one.spans)
    which = "" if one.record is None else f"record {one.record}, "
    return f"{one.grade}: {which}{one.words}" + (f" ({where})" if where else "")
