"""How `embed` marks a file or what comes through a pipe, and what it prints of that."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from keybound.cli import pipes
from keybound.cli.terminal import emit, progress_bar, say
from keybound.provenance.registry import Registry

if TYPE_CHECKING:
    from keybound.cli.credentials import Prepared
    from keybound.output import Part
    from keybound.watermark.files import Written
    from keybound.watermark.reservation import Reservation
    from keybound.watermark.watermarker import Watermarker


@dataclass(frozen=True)
class Job:
    """What is marked how: `give` returns the reservation for a recording of so many seconds."""

    marker: "Watermarker"
    known: Registry | None  # where the records are kept
    give: "Callable[[float], Reservation]"
    rho: int | None
    check: bool
    replace: bool


class Done(NamedTuple):
    """A recording that was marked, and the number of its record."""

    made: "Written"
    given: "Reservation"
    record: int | None

    @property
    def identifier(self) -> str | None:
        """Return the serial that it spells."""
        return None if self.given.issued is None else self.given.issued.name


def mark_file(job: Job, host: str, output: str, signing: "Prepared | None" = None) -> Done:
    """Mark a file, and sign it where that is asked for; the record appears with it."""
    from keybound.watermark import files

    given, record = job.give(files.seconds_of(host)), None
    sign = None
    if signing is not None and job.known is not None:
        sign = signing.signing(given, job.known.issuer)

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
            record = job.known.append(given.stamped(job.marker.card, made))
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
    facts: dict[str, Any] = {} if done.record is None else {"record": done.record}
    facts |= {"output": output, "clipped": made.clipped, "position": made.position}
    facts |= {"position_recurs": recurs, "not_carried": made.not_carried}
    facts |= {"identifier": done.identifier}
    facts |= {"manifest": None if made.manifest is None else made.manifest.id}
    err = output == pipes.STANDARD
    if made.verdict is None:
        emit(facts, "marked, not read back", as_json, err=err)
    else:
        emit(verdict_as_plain(made.verdict) | facts, made.verdict.words, as_json, err=err)


def tell(done: Done, *, recurs: bool) -> None:
    """Print what is worth knowing of a recording that was marked."""
    from keybound.crypto import keystream

    made = done.made
    if made.clipped:
        say(f"samples limited to full scale: {made.clipped}")
    if made.not_carried:
        say(f"not carried over: {', '.join(made.not_carried)}")
    if made.position is not None:
        also = f", one of {keystream.USUAL} that recur (--party reserves one for each recording)"
        say(f"sealed at position {made.position}{also if recurs else ''}")
    _tell_record(done)


def _tell_record(done: Done) -> None:
    if done.record is not None:
        spelled = f", identifier {done.identifier}" if done.identifier is not None else ""
        say(f"record {done.record}{spelled}")
