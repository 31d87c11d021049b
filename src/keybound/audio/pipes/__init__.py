"""WAV and FLAC as they come, from one pipe into another alike. Knows no keys, no networks.

A pipe cannot be rewound, and its end cannot be looked at. So headers are taken from the front, and
what is written keeps the header that it had: as many frames come out as went in. Blocks are as
large as what is there, so that nothing waits and nothing piles up.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy.typing as npt

from keybound import output, stages
from keybound.audio.arrays import Samples
from keybound.audio.pipes import raw
from keybound.audio.pipes.flac import FlacInput
from keybound.audio.pipes.wav import WavInput
from keybound.errors import AudioError


class Output(Protocol):
    """A recording that goes into a pipe, counted when it is encoded; `clipped` was limited.

    `sha256` is the hash of all bytes, when it is closed.
    """

    frames: int
    clipped: int

    def encode(self, samples: npt.NDArray[Any]) -> Samples:
        """Encode (frames, channels), to be sent, and return them as they will be read."""

    def send(self) -> None:
        """Send what is encoded."""

    def close(self) -> None:
        """Send what is still held back: the recording ends here."""

    @property
    def sha256(self) -> str: ...


class Input(Protocol):
    """A recording that comes through a pipe. `frames` is 0 where the header does not tell."""

    sample_rate: int
    channels: int
    frames: int

    def blocks(self, most: int) -> Iterator[Samples]:
        """Yield (frames, channels) as they come, at most so many at a time."""

    def check_end(self) -> None:
        """Raise an error where the input ended before its header says, or is damaged."""

    def output(self, stream: BinaryIO) -> Output:
        """Return what writes a recording alike to a pipe."""


def opened(stream: BinaryIO) -> Input:
    """Return the recording that comes through standard input, by its header."""
    raw.widen(stream)
    head = raw.exactly(stream, 12)
    if not head:
        raise AudioError(f"{raw.NAME} is empty", hint=raw.HINT)
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:] == b"WAVE":
        return WavInput(stream, head)
    if head[:4] == b"fLaC":
        return FlacInput(stream, head)
    raise AudioError(f"{raw.NAME} is neither wav nor flac", hint=raw.HINT)


@contextlib.contextmanager
def spooled(stream: BinaryIO) -> Iterator[Path]:
    """Yield the path of a file with all that comes through standard input, of any format.

    Messages name standard input in place of it.
    """
    with stages.scratch() as folder, output.named(path := folder / "recording", Path(raw.NAME)):
        try:
            with path.open("wb") as file:
                shutil.copyfileobj(stream, file, raw.PIPE_BYTES)
        except OSError as error:
            raise output.unwritable(path, error) from error
        if not path.stat().st_size:
            raise AudioError(f"{raw.NAME} is empty", hint="it has no bytes")
        with path.open("rb+") as file, contextlib.suppress(AudioError):  # others need no length
            own = opened(file)
            if isinstance(own, WavInput) and not own.frames:
                own.mend(file)
        yield path
