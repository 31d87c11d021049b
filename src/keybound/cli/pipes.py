"""Standard input and output for recordings: what `-` stands for, and when it is refused."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from keybound.errors import AudioError

STANDARD = "-"


def check(recordings: tuple[str, ...], key_file: str | None = None) -> None:
    """Raise an error where several things are to come through standard input."""
    if STANDARD not in recordings:
        return
    if recordings.count(STANDARD) > 1:
        raise click.UsageError("standard input holds one recording, and - names it twice")
    if key_file == STANDARD:
        raise click.UsageError("the recording is on standard input, so --key needs a file")


def audio_in() -> BinaryIO:
    """Return standard input as bytes; raise an error where it is a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        hint = "pipe a recording to it, such as: ffmpeg ... -f wav - | keybound ..."
        raise AudioError("no recording comes through standard input", hint=hint)
    return sys.stdin.buffer


def audio_out() -> BinaryIO:
    """Return standard output as bytes; raise an error where it is a terminal."""
    if sys.stdout is None or sys.stdout.isatty():
        hint = "redirect it to a file or a program, or name a file"
        raise AudioError("audio is not written to a terminal", hint=hint)
    return sys.stdout.buffer


@contextmanager
def recording(name: str) -> Iterator[str]:
    """Yield the path of a recording: its own, or that of what came through standard input."""
    if name != STANDARD:
        yield name
        return
    from keybound.audio import pipes

    with pipes.spooled(audio_in()) as path:
        yield str(path)


@contextmanager
def tracks(name: str) -> Iterator[tuple[str, range]]:
    """Yield the path of a recording and the numbers of its tracks, from 0: those of a video."""
    from keybound.audio import containers

    with recording(name) as path:
        yield path, range(containers.count_tracks(Path(path)))


def named(name: str, track: int, of: int) -> str:
    """Return the name of one of several tracks, from 1; of a single one that of its file."""
    return name if of == 1 else f"{name}, track {track}"


@contextmanager
def destination(name: str, host: str) -> Iterator[str]:
    """Yield the path of an output; what is written there goes to standard output for `-`.

    It then has the format of the host.
    """
    if name != STANDARD:
        yield name
        return
    from keybound import stages
    from keybound.audio import recordings

    out = audio_out()
    with stages.scratch() as folder:
        path = folder / f"marked{recordings.suffix_of(Path(host))}"
        yield str(path)
        with path.open("rb") as made:
            shutil.copyfileobj(made, out)
        out.flush()
