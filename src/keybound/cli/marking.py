"""How `embed` marks a file, a video or what comes through a pipe, and what it prints of that."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from keybound.cli import pipes
from keybound.cli.terminal import emit, open_registry, progress_bar, say
from keybound.provenance.registry import Registry

if TYPE_CHECKING:
    from keybound.output import Part
    from keybound.watermark.files import Written
    from keybound.watermark.options import EmbedOptions
    from keybound.watermark.reservation import Reservation
    from keybound.watermark.signing import Prepared
    from keybound.watermark.videos import Track
    from keybound.watermark.watermarker import Watermarker


@dataclass(frozen=True)
class Job:
    """What is marked how: `give` returns the reservation for a recording of so many seconds."""

    marker: "Watermarker"
    known: Registry | None  # where the records are kept
    place: str | None  # where that is, as --registry names it
    give: "Callable[[float], Reservation]"
    rho: int | None
    check: bool
    replace: bool


class Done(NamedTuple):
    """A recording that was marked, and the number of its record; `track` of several, from 1."""

    made: "Written"
    given: "Reservation"
    record: int | None
    track: int | None = None

    @property
    def identifier(self) -> str | None:
        """Return the serial that it spells."""
        return None if self.given.issued is None else self.given.issued.name


def mark_file(job: Job, host: str, output: str, signature: "Prepared | None" = None) -> Done:
    """Mark a file, and sign it where that is asked for; the record appears with it."""
    from keybound.watermark import files

    given, record = job.give(files.seconds_of(host)), None
    sign = None
    if signature is not None and job.known is not None:
        sign = signature.signing(given, job.known.issuer)

    def appear(part: "Part", made: "Written") -> None:
        nonlocal record
        if job.known is None:
            part.publish()
        else:
            record = job.known.appear(given.stamped(job.marker.card, made), part)

    made = files.embed(
        job.marker,
        host,
        output,
        given.options,
        rho=job.rho,
        check=job.check,
        replace=job.replace,
        progress=progress_bar("embedding"),
        sign=sign,
        appear=appear,
    )
    return Done(made, given, record)


def mark_video(job: Job, host: str, output: str) -> list[Done]:
    """Mark the tracks of a video; their records appear with it."""
    from keybound.watermark import videos

    given: list[Reservation] = []
    records: Sequence[int | None] = []

    def give(seconds: float) -> "EmbedOptions":
        given.append(job.give(seconds))
        return given[-1].options

    def appear(part: "Part", tracks: "Sequence[Track]") -> None:
        nonlocal records
        records = [None] * len(tracks)
        if job.known is None:
            part.publish()
        else:
            own = zip(given, tracks, strict=True)
            stamped = [one.stamped(job.marker.card, track.written) for one, track in own]
            records = job.known.appear_all(stamped, part)

    made = videos.embed(
        job.marker,
        host,
        output,
        give,
        rho=job.rho,
        check=job.check,
        replace=job.replace,
        progress=progress_bar("embedding"),
        appear=appear,
    )
    for number in made.silent:
        say(f"track {number + 1} has no sound: it is copied without a mark")
    several = len(made.tracks) + len(made.silent) > 1
    return [
        Done(one.written, own, record, one.number + 1 if several else None)
        for one, own, record in zip(made.tracks, given, records, strict=True)
    ]


def pass_on(job: Job) -> Done:
    """Mark what comes through standard input on its way to standard output.

    What has gone out has a record, however it ended.
    """
    from keybound.audio.pipes import opened
    from keybound.watermark.pipes import Passing

    out = pipes.audio_out()
    source = opened(pipes.audio_in())
    given = job.give(source.frames / source.sample_rate if source.frames else math.inf)

    def unread(start_s: float, end_s: float, why: str) -> None:
        say(f"the mark cannot be read back from {start_s:.0f} s to {end_s:.0f} s: {why}")

    passing = Passing(
        job.marker,
        source,
        source.output(out),
        given.options,
        rho=job.rho,
        check=job.check,
        unread=unread,
    )

    def done() -> Done:
        made, record = passing.finished(), None
        if job.known is not None and made.samples:
            with open_registry(job.place) as fresh:  # a connection of hours ago may be lost
                record = fresh.append(given.stamped(job.marker.card, made))
        return Done(made, given, record)

    try:
        passing.run()
    except BaseException:
        _tell_record(done())
        raise
    return done()


def show(done: Done, output: str, *, recurs: bool, as_json: bool) -> None:
    """Print the result; on standard error where standard output holds the audio."""
    from keybound.watermark.plain import verdict_as_plain

    made = done.made
    facts: dict[str, Any] = {} if done.track is None else {"track": done.track}
    facts |= {} if done.record is None else {"record": done.record}
    facts |= {"output": output, "clipped": made.clipped, "position": made.position}
    facts |= {"position_recurs": recurs, "not_carried": made.not_carried}
    facts |= {"identifier": done.identifier}
    facts |= {"manifest": None if made.manifest is None else made.manifest.id}
    err = output == pipes.STANDARD
    track = "" if done.track is None else f"track {done.track}: "
    if made.verdict is None:
        emit(facts, f"{track}marked, not read back", as_json, err=err)
    else:
        emit(verdict_as_plain(made.verdict) | facts, track + made.verdict.words, as_json, err=err)


def tell(done: Done, *, recurs: bool) -> None:
    """Print what is worth knowing of a recording that was marked."""
    from keybound.crypto import keystream

    made, track = done.made, "" if done.track is None else f"track {done.track}: "
    if made.clipped:
        say(f"{track}samples limited to full scale: {made.clipped}")
    if made.not_carried:
        say(f"not carried over: {', '.join(made.not_carried)}")
    if made.position is not None:
        also = f", one of {keystream.USUAL} that recur (--party reserves one for each recording)"
        say(f"{track}sealed at position {made.position}{also if recurs else ''}")
    _tell_record(done)


def _tell_record(done: Done) -> None:
    if done.record is not None:
        track = "" if done.track is None else f"track {done.track}: "
        spelled = f", identifier {done.identifier}" if done.identifier is not None else ""
        say(f"{track}record {done.record}{spelled}")
