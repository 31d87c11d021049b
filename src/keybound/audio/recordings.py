"""Recordings: read, write, resample. Knows no keys and no networks.

Files go through soundfile, whole or in blocks. What libsndfile passes over in silence is refused or
counted here: a file cut short, a guessed length, samples beyond full scale, an output half written.
"""

import contextlib
import functools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile as sf

from keybound import output, stages
from keybound.audio import containers, ffmpeg, formats, metadata
from keybound.audio.arrays import Samples, check, check_content, check_rate, encodable
from keybound.audio.formats import Like
from keybound.audio.headers import cut_short, head_of, is_unknown, promised_frames
from keybound.audio.metadata import Metadata
from keybound.audio.silence import silence
from keybound.errors import AudioError

# libvorbis puts a whole write on the stack and dies on a long one; small blocks also bound memory.
_BLOCK_FRAMES = 1 << 16


@dataclass(frozen=True, eq=False)
class Recording:
    """Samples (frames, channels) in [-1, 1] with all that is needed to write them back alike.

    `format` and `subtype` are soundfile's words (WAV and PCM_24, OGG and OPUS), or M4A and AAC,
    ADTS and AAC.
    `bitrate_bps` is the mean over the file for MP3, Vorbis, Opus and AAC, otherwise None.
    `endian` is LITTLE or BIG where that is not what the format usually has.
    """

    samples: Samples
    sample_rate: int
    format: str
    subtype: str
    metadata: Metadata = field(default_factory=Metadata)
    bitrate_bps: int | None = None
    endian: str = "FILE"

    @property
    def tags(self) -> Mapping[str, str]:
        """Return what the metadata says in common words: title, artist, ..."""
        return self.metadata.meaning.joined()


class Reader:
    """A file in a format that libsndfile reads, or with ffmpeg an AAC or video, read in blocks.

    The content decides the format, not the name. Samples are float32, or float64 where float32
    would lose bits (PCM_32 and DOUBLE), so that a `Writer` gives the same samples back. A file
    that ends before its header says is an error, never a shorter recording. The frames of a FLAC
    whose header does not say its length are counted first. `track` is that of a video that holds
    several, from 0. A recording that is longer than `longest_s` is refused.
    """

    def __init__(
        self, path: str | os.PathLike[str], track: int = 0, *, longest_s: float = math.inf
    ) -> None:
        self.path = Path(path)
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._open)
            self._track = track
            self._demuxer = demuxer = ffmpeg.demuxer(head := head_of(self.path))
            self._file = file = self._open.enter_context(self._sound(head))
            if file.format not in formats.READABLE:
                raise formats.unreadable(self.path, head, file.format)
            check_rate(file.samplerate)
            self._promised = promised_frames(Path(os.fsdecode(file.name)), file)
            self.sample_rate, self.channels = int(file.samplerate), int(file.channels)
            self._longest_s = longest_s
            if is_unknown(self._promised):
                self._promised = self._counted(head)
            exact = file.format == "W64" or is_unknown(int(file.frames))
            self.frames = self._promised if exact else int(file.frames)
            self._check_length(self.frames)
            kinds = {"mov": "M4A", "aac": "ADTS", "matroska": "MATROSKA"}
            self.format = kinds[demuxer] if demuxer else str(file.format)
            self.subtype = "AAC" if demuxer else str(file.subtype)
            self.endian = str(file.endian)
            undo.pop_all()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @functools.cached_property
    def metadata(self) -> Metadata:
        """Return what the file says beside its sound, read when it is asked for."""
        if self._demuxer == "matroska":
            return Metadata(lost=("metadata",))
        chapters = ffmpeg.chapters(self.path, "mov") if self._demuxer == "mov" else b""
        return metadata.read(self.path, self.format, chapters)

    @property
    def bitrate_bps(self) -> int | None:
        """Return the mean bit rate of a lossy file; None for others."""
        if self.subtype not in formats.PERCEPTUAL or not self.frames:
            return None
        if self._demuxer in containers.READERS:  # there may be pictures too
            seconds = self.frames / self.sample_rate
            return containers.bitrate_bps(self.path, self._demuxer, self._track, seconds)
        size = self.path.stat().st_size - sum(len(one.data) for one in self.metadata.pieces)
        return int(size * 8 * self.sample_rate / self.frames)

    def blocks(self, frames: int) -> Iterator[Samples]:
        """Yield (frames, channels) to the end, so many at a time."""
        dtype = "float64" if self.subtype in formats.DOUBLES else "float32"
        done = 0
        while True:
            try:
                with silence():
                    count = min(self.frames - done, frames)
                    block = self._file.read(count, dtype=dtype, always_2d=True)
            except sf.SoundFileError as error:  # how a FLAC that ends early shows
                raise cut_short(self.path, "is damaged or cut short") from error
            done += len(block)
            if len(block) < frames:
                break
            check_content(block, str(self.path))
            yield block
        if done < self._promised:
            raise cut_short(self.path, f"is cut short: {done} of {self.frames} frames")
        if len(block) or not done:
            check_content(block, str(self.path))
            yield block

    def _check_length(self, frames: int) -> None:
        if frames > self._longest_s * self.sample_rate:
            what = f"{self.path} is longer than {self._longest_s:g} s"
            raise AudioError(what, hint="cut it into shorter recordings")

    def _counted(self, head: bytes) -> int:
        """Return how many frames decode to the end; stop where they are too many."""
        frames = 0
        try:
            with self._sound(head) as file, silence():
                while count := len(file.read(_BLOCK_FRAMES, dtype="int16", always_2d=True)):
                    frames += count
                    self._check_length(frames)
        except sf.SoundFileError as error:
            raise cut_short(self.path, "is damaged or cut short") from error
        return frames

    def _sound(self, head: bytes) -> sf.SoundFile:
        path = self.path
        if self._demuxer is not None:
            folder = self._open.enter_context(stages.scratch())
            path = folder / "decoded.wav"
            ffmpeg.decode(self.path, self._demuxer, path, self._track)
        try:
            with silence():
                file = sf.SoundFile(sndfile_name(path))
        except (sf.SoundFileError, TypeError) as error:  # TypeError: .raw is taken at its word
            raise formats.unreadable(self.path, head) from error
        if is_unknown(file.frames):
            # Else soundfile seeks to where it is after each read, which fails at the end.
            file.seekable = lambda: False
        return file


def sndfile_name(path: str | os.PathLike[str]) -> str | bytes:
    """Return a path as soundfile takes it, which cannot encode a name that is not UTF-8."""
    return os.fspath(path) if os.name == "nt" else os.fsencode(path)


def suffix_of(path: Path) -> str:
    """Return the usual extension of the format that a file has, whatever its name."""
    video = containers.opened(path)
    if video is not None:
        return video.suffix
    with Reader(path) as file:
        return formats.suffix_of(file.format, file.subtype)


def read(path: str | os.PathLike[str]) -> Recording:
    """Read a whole file: see `Reader`."""
    with Reader(path) as file:
        # In blocks: a damaged header may promise more samples than there is memory for.
        samples = np.concatenate(list(file.blocks(_BLOCK_FRAMES << 4)))
        kind = (file.sample_rate, file.format, file.subtype)
        return Recording(samples, *kind, file.metadata, file.bitrate_bps, file.endian)


class Writer:
    """A file that is written in blocks; `clipped` counts the samples beyond full scale.

    Integer formats round to nearest and limit to full scale. `not_carried` names, when the file
    is whole, what the host says beside its sound and this file does not.
    """

    def __init__(self, file: sf.SoundFile, subtype: str) -> None:
        self._file, self._subtype = file, subtype
        self.clipped = self.frames = 0
        self.not_carried: tuple[str, ...] = ()

    def write(self, samples: npt.NDArray[Any]) -> None:
        """Add (frames, channels)."""
        for start in range(0, len(samples), _BLOCK_FRAMES):
            block, beyond = encodable(samples[start : start + _BLOCK_FRAMES], self._subtype)
            self._file.write(block)
            self.clipped += beyond
        self.frames += len(samples)


@contextlib.contextmanager
def writing(
    path: str | os.PathLike[str], like: Like, frames: int, channels: int
) -> Iterator[Writer]:
    """Open a file to write about so many frames as `like` was written.

    Rate and metadata are those of `like`, and so are format and subtype where the name agrees;
    another known extension gets its own format at the nearest bit depth. The path is that of a part
    (`output.staged`): what fails leaves it half written.
    """
    kind, subtype = formats.kind_of(path := Path(path), like, frames, channels)
    options = formats.encoder_options(subtype, like.sample_rate, channels, like.bitrate_bps)
    if subtype == "AAC":
        ffmpeg.find(path, "write")
    with _writable(path) as part:
        sound = part.with_suffix(".wav") if subtype == "AAC" else part
        form = (subtype, like.endian if kind == like.format else "FILE", kind)
        form = ("FLOAT", "FILE", "RF64") if subtype == "AAC" else form
        rate, name = like.sample_rate, sndfile_name(sound)
        with sf.SoundFile(name, "w", rate, channels, *form, **options) as file:
            writer = Writer(file, subtype)
            yield writer
        with silence():
            there = sf.info(name).frames
        if there < writer.frames:  # Opus is silent when the disc is full
            raise OSError("no room left")
        if sound != part:
            bitrate = max(64_000 * channels, like.bitrate_bps or 0)
            ffmpeg.encode(sound, part, bitrate, metadata.chapters_of(like.metadata))
            sound.unlink()  # what fails goes with the stage
        writer.not_carried = metadata.add(part, kind, writer.frames, like.metadata)


def write(path: str | os.PathLike[str], samples: npt.ArrayLike, like: Like) -> int:
    """Write samples as `like` was written and return how many had to be clipped: see `writing`.

    The file appears whole at the end, or not at all, and keeps the mode of the one it replaces.
    """
    checked = check(samples, like.sample_rate)
    with (
        output.writing(path, replace=True, mode=output.mode_of(path)) as part,
        writing(part, like, *checked.shape) as file,
    ):
        file.write(checked)
    return file.clipped


def resample(samples: Samples, from_hz: int, to_hz: int) -> Samples:
    """Resample along the first axis to exactly round(frames * to_hz / from_hz) frames.

    soxr's HQ (20 bits) has a shorter filter, hence less latency in streams, than VHQ at the same
    speed; its error lies far below any mark. Equal rates return the samples themselves.
    """
    if from_hz == to_hz:
        return samples
    import soxr

    frames = round(len(samples) * to_hz / from_hz)
    resampled: npt.NDArray[Any] = samples[:0]
    if frames:
        resampled = soxr.resample(samples, from_hz, to_hz, quality="HQ")[:frames]
    missing = frames - len(resampled)
    return np.pad(resampled, [(0, missing)] + [(0, 0)] * (samples.ndim - 1))


def to_mono(samples: Samples) -> Samples:
    """Average the channels: (frames, channels) to (frames,)."""
    mono: Samples = samples.mean(axis=1)
    return mono


@contextlib.contextmanager
def _writable(part: Path) -> Iterator[Path]:
    """Raise an `AudioError` in place of what the writing of a part raises."""
    try:
        yield part
    except (sf.SoundFileError, OSError) as error:
        raise output.unwritable(part, error) from error
