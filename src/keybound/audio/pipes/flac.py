"""FLAC through pipes, coded by libsndfile, which is told that it may seek and hardly does."""

import time
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import soundfile as sf

from keybound.audio import headers
from keybound.audio.arrays import Samples, check_content, check_rate, encodable
from keybound.audio.metadata import flac
from keybound.audio.pipes import raw
from keybound.errors import AudioError
from keybound.types import Floats

READ_S = 0.1
GATHER_S = 0.05  # for which blocks that are there are joined
ENDLESS = 1 << 62  # bytes: what libsndfile is told of a pipe's length


class FlacInput:
    """A FLAC from a pipe, decoded as far as it has come."""

    def __init__(self, stream: BinaryIO, head: bytes) -> None:
        taken, last = bytearray(head[:4]), False
        rest = head[4:]
        while not last:  # blocks of metadata, of which the last says so
            start = rest[:4] + raw.header(stream, 4 - len(rest[:4]), len(taken))
            rest = rest[4:]
            last, size = bool(start[0] & 0x80), int.from_bytes(start[1:], "big")
            body = rest[:size] + raw.header(stream, max(0, size - len(rest)), len(taken))
            rest = rest[size:]
            taken += start + body
        self.metadata = flac.read(bytes(taken))
        self._source = _Unwound(stream, bytes(taken) + rest)
        self._damaged, self._done = False, 0
        try:
            self._file = sf.SoundFile(self._source)
        except (sf.SoundFileError, TypeError) as error:
            self._source.check()
            raise AudioError(f"{raw.NAME} is a damaged flac", hint=raw.HINT) from error
        self._source.check()
        self._file.seekable = lambda: False  # else soundfile seeks after each read, to where it is
        self.sample_rate, self.channels = check_rate(self._file.samplerate), self._file.channels
        self.subtype = str(self._file.subtype)
        self.frames = 0 if headers.is_unknown(self._file.frames) else self._file.frames

    def blocks(self, most: int) -> Iterator[Samples]:
        """Yield (frames, channels) as they come, at most so many at a time."""
        step = max(1, min(most, round(READ_S * self.sample_rate)))
        ended = False
        while not ended:
            made = [self._next(step)]
            until = time.monotonic() + GATHER_S
            while len(made[-1]) == step and (len(made) + 1) * step <= most:
                if time.monotonic() > until:
                    break
                made.append(self._next(step))
            ended = len(made[-1]) < step
            block = np.concatenate(made)
            if len(block):
                check_content(block, raw.NAME)
                self._done += len(block)
                yield block

    def _next(self, frames: int) -> Floats:
        block: Floats = np.zeros((0, self.channels), np.float32)
        try:
            block = self._file.read(frames, dtype="float32", always_2d=True)
        except sf.SoundFileError:
            self._damaged = True
        self._source.check()
        return block

    def check_end(self) -> None:
        """Raise an error where the input ended before its header says, or is damaged."""
        if self._damaged or self._done < self.frames:
            hint = "what was there is written"
            raise AudioError(f"{raw.NAME} is damaged or cut short", hint=hint)
        if not self._done:
            raise AudioError(f"{raw.NAME} holds no samples", hint="at least one frame is needed")

    def output(self, stream: BinaryIO) -> "FlacOutput":
        """Return what writes a recording alike to a pipe."""
        return FlacOutput(stream, self)


class FlacOutput:
    """A FLAC of unknown length that goes into a pipe, with the metadata of its host."""

    def __init__(self, stream: BinaryIO, like: FlacInput) -> None:
        self._sink, self._like, self._begun = raw.Sink(stream), like, False
        self._made = _Forward()
        kind = (like.sample_rate, like.channels, like.subtype)
        self._file = sf.SoundFile(self._made, "w", *kind, format="FLAC")
        self.frames = self.clipped = 0

    def encode(self, samples: npt.NDArray[Any]) -> Samples:
        """Encode (frames, channels), to be sent, and return them as they will be read."""
        levels, beyond = encodable(samples, self._like.subtype)
        self._file.write(levels)
        self.frames += len(samples)
        self.clipped += beyond
        return (levels / 2.0**31).astype(np.float32)

    def close(self) -> None:
        """Send what the encoder holds back."""
        self._file.close()
        self.send()

    def send(self) -> None:
        """Send what is encoded."""
        data = self._made.take()
        if data and not self._begun:
            data, self._begun = flac.with_pieces(data, self._like.metadata.pieces), True
        self._sink.write(data)

    @property
    def sha256(self) -> str:
        """Return the hash of what has gone."""
        return self._sink.sha256


class _Unwound:
    """A pipe as a file to read, for libsndfile, which goes back only while it looks at the head.

    An exception cannot pass through libsndfile: it is kept, and raised by `check`.
    """

    def __init__(self, stream: BinaryIO, head: bytes) -> None:
        self._stream, self._head, self._at = stream, head, 0
        self._error: BaseException | None = None

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most so many: what is there."""
        data = self._head[self._at : self._at + size]
        if not data:
            try:
                data = self._stream.read1(size)  # type: ignore[attr-defined]
            except BaseException as error:
                self._error = error
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place; what was read from the pipe itself cannot be read again."""
        self._at = {0: 0, 1: self._at, 2: ENDLESS}[whence] + offset
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def check(self) -> None:
        """Raise what was raised while libsndfile read."""
        if self._error is not None:
            raise self._error


class _Forward:
    """A file to write, for libsndfile: what goes back, to the header at the end, is left out."""

    def __init__(self) -> None:
        self._data, self._at, self._end = bytearray(), 0, 0

    def write(self, data: bytes) -> int:
        """Take bytes at the end."""
        if self._at == self._end:
            self._data += data
            self._end += len(data)
        self._at += len(data)
        return len(data)

    def read(self, _: int) -> bytes:
        """Return nothing: what was taken is gone."""
        return b""

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        self._at = {0: 0, 1: self._at, 2: self._end}[whence] + offset
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def take(self) -> bytes:
        """Return what was written since the last time."""
        data = bytes(self._data)
        self._data.clear()
        return data
