"""WAV through pipes: the samples are coded by libsndfile, the header is the host's own."""

import io
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy.typing as npt
import soundfile as sf

from keybound.audio.arrays import Samples, check_content, check_rate, encodable
from keybound.audio.formats import DOUBLES
from keybound.audio.pipes import raw
from keybound.errors import AudioError

# By the tag of the format and the bytes of a sample.
SUBTYPES = {
    (1, 1): "PCM_U8", (1, 2): "PCM_16", (1, 3): "PCM_24", (1, 4): "PCM_32",
    (3, 4): "FLOAT", (3, 8): "DOUBLE", (6, 1): "ALAW", (7, 1): "ULAW",
}  # fmt: skip
EXTENSIBLE = 0xFFFE  # the tag stands further behind
STALE = (b"PEAK", b"MD5 ")  # chunks that describe the host's own samples
NO_SIZE = 1 << 62  # what is more than this in RF64 is no size


class WavInput:
    """A WAV from a pipe. Its samples have the bits that a `recordings.Reader` gives."""

    def __init__(self, stream: BinaryIO, head: bytes) -> None:
        self._stream, self._order = stream, ">" if head[:4] == b"RIFX" else "<"
        self._head, form, long_size = bytearray(head), b"", 0
        while True:
            header = raw.header(stream, 8, len(self._head))
            chunk, size = struct.unpack(f"{self._order}4sI", header)
            self._head += b"JUNK" + header[4:] if chunk in STALE else header
            if chunk == b"data":
                break
            body = raw.header(stream, size + size % 2, len(self._head))
            self._head += body
            form = body if chunk == b"fmt " else form
            if chunk == b"ds64" and size >= 16:  # RF64 keeps long sizes here
                (long_size,) = struct.unpack_from("<Q", body, 8)
        self.sample_rate, self.channels, self.subtype, self._align = self._form(form)
        # A program that writes to a pipe promises the most, or nothing, because it cannot know.
        if size >= 0xFFFFF000 or 0x7FFFF000 <= size <= 0x80000000:
            size = long_size if long_size < NO_SIZE else 0
        self.frames = size // self._align
        self._size, self._read = self.frames * self._align, 0  # in bytes; 0: unknown
        self._rest = size - self._size + size % 2  # of a frame, and to an even number

    def _form(self, form: bytes) -> tuple[int, int, str, int]:
        """Return the rate, the channels, the subtype and the bytes of a frame."""
        tag, channels, rate, align = 0, 1, 0, 1
        if len(form) >= 16:
            tag, channels, rate, _, align, _ = struct.unpack_from(f"{self._order}2H2I2H", form)
        if tag == EXTENSIBLE and len(form) >= 26:
            (tag,) = struct.unpack_from(f"{self._order}H", form, 24)
        subtype = SUBTYPES.get((tag, align // max(1, channels)))
        if subtype is None or align % channels:
            what = f"{raw.NAME} has samples of a kind that is not read from a pipe"
            raise AudioError(what, hint="ffmpeg ... -c:a pcm_s16le -f wav - converts them")
        return check_rate(rate), channels, subtype, align

    def blocks(self, most: int) -> Iterator[Samples]:
        """Yield (frames, channels) as they come, at most so many at a time."""
        held = b""
        while came := self._stream.read1(self._wanted(most, len(held))):  # type: ignore[attr-defined]
            self._read += len(came)
            held += came
            whole = len(held) // self._align * self._align
            if whole:
                block = self.decoded(held[:whole])
                check_content(block, raw.NAME)
                yield block
            held = held[whole:]

    def _wanted(self, most: int, held: int) -> int:
        """Return how many bytes to read next; 0 when all that were promised are there."""
        room = min(raw.PIPE_BYTES, max(1, most) * self._align - held)
        return min(room, self._size - self._read) if self._size else room

    def tail(self) -> Iterator[bytes]:
        """Yield what lies behind the sound, chunk by chunk."""
        if not 0 < self._size == self._read:
            return
        yield raw.exactly(self._stream, self._rest)
        while header := raw.exactly(self._stream, 8):
            yield b"JUNK" + header[4:] if header[:4] in STALE else header
            left = int.from_bytes(header[4:], "big" if self._order == ">" else "little")
            left += left % 2
            while left and (part := self._stream.read(min(left, raw.PIPE_BYTES))):
                left -= len(part)
                yield part

    def check_end(self) -> None:
        """Raise an error where the input ended before its header says."""
        if self._read < self._size:
            come = f"{self._read // self._align} of {self.frames} frames"
            hint = "what was there is written"
            raise AudioError(f"{raw.NAME} is cut short: {come}", hint=hint)
        if not self._read:
            raise AudioError(f"{raw.NAME} holds no samples", hint="at least one frame is needed")

    def output(self, stream: BinaryIO) -> "WavOutput":
        """Return what writes a recording alike to a pipe."""
        return WavOutput(stream, bytes(self._head), self)

    def mend(self, file: BinaryIO) -> None:
        """Write the length into the header of a file that holds the recording, all of it."""
        end = file.seek(0, 2)
        for at, size in ((4, end - 8), (len(self._head) - 4, end - len(self._head))):
            file.seek(at)
            file.write(struct.pack(f"{self._order}I", min(size, 0xFFFFFFFF)))

    def decoded(self, data: bytes) -> Samples:
        """Return the samples that bytes hold: (frames, channels)."""
        dtype = "float64" if self.subtype in DOUBLES else "float32"
        with sf.SoundFile(io.BytesIO(data), **self._coding()) as file:
            samples: Samples = file.read(dtype=dtype, always_2d=True)
        return samples

    def encoded(self, levels: npt.NDArray[Any]) -> bytes:
        """Return the bytes of samples."""
        made = io.BytesIO()
        with sf.SoundFile(made, "w", **self._coding()) as file:
            file.write(levels)
        return made.getvalue()

    def _coding(self) -> dict[str, Any]:
        order = "BIG" if self._order == ">" else "LITTLE"
        form = {"samplerate": self.sample_rate, "channels": self.channels}
        return form | {"subtype": self.subtype, "endian": order, "format": "RAW"}


class WavOutput:
    """A WAV that goes into a pipe, with the header of its host."""

    def __init__(self, stream: BinaryIO, head: bytes, like: WavInput) -> None:
        self._sink, self._held, self._like = raw.Sink(stream), head, like
        self.frames = self.clipped = 0

    def encode(self, samples: npt.NDArray[Any]) -> Samples:
        """Encode (frames, channels), to be sent, and return them as they will be read."""
        levels, beyond = encodable(samples, self._like.subtype)
        data = self._like.encoded(levels)
        self._held += data
        self.frames += len(samples)
        self.clipped += beyond
        return self._like.decoded(data)

    def send(self) -> None:
        """Send what is encoded."""
        data, self._held = self._held, b""
        self._sink.write(data)

    def close(self) -> None:
        """Send what lies behind the sound of the host: all samples have gone."""
        for data in self._like.tail():
            self._sink.write(data)

    @property
    def sha256(self) -> str:
        """Return the hash of what has gone."""
        return self._sink.sha256
