"""Recordings: read, write, resample, cut into chunks. Knows no keys and no networks.

Files go through soundfile. What libsndfile passes over in silence is refused or counted here: a
file cut short, a length it only guesses, samples beyond full scale, an output half written.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile as sf
import soxr

from keybound.errors import AudioError
from keybound.headers import WAVES, cut_short, promised_frames

Samples = npt.NDArray[np.float32] | npt.NDArray[np.float64]

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 192_000

_KNOWN = "wav, flac, ogg, opus and mp3"
_MAGIC = (b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS", b"ID3")
_PCM_BITS = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32}
_PERCEPTUAL = ("VORBIS", "OPUS", "MPEG_LAYER_III")
_DEEP = ("PCM_24", "PCM_32", "FLOAT", "DOUBLE")
# For each extension the container, its usual subtype, and what comes nearer to some hosts.
_NEAREST: dict[str, tuple[str, str, Mapping[str, str]]] = {
    ".wav": ("WAV", "PCM_16", {s: s for s in _DEEP} | {"PCM_S8": "PCM_U8"}),
    ".flac": ("FLAC", "PCM_16", dict.fromkeys(_DEEP, "PCM_24") | {"PCM_U8": "PCM_S8"}),
    ".ogg": ("OGG", "VORBIS", {}),
    ".oga": ("OGG", "VORBIS", {}),
    ".opus": ("OGG", "OPUS", {}),
    ".mp3": ("MP3", "MPEG_LAYER_III", {}),
}
_RATES_HZ = {
    "OPUS": (8_000, 12_000, 16_000, 24_000, 48_000),
    "MPEG_LAYER_III": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
}
_MAX_CHANNELS = {"MP3": 2, "FLAC": 8}
_WAV_LIMIT_BYTES = (1 << 32) - (1 << 16)  # sizes in a WAV header have 32 bits; leave room for tags
# libvorbis puts a whole write on the stack and dies on a long one; small blocks also bound memory.
_BLOCK_FRAMES = 1 << 16


@dataclass(frozen=True, eq=False)
class Recording:
    """Samples (frames, channels) in [-1, 1] with all that is needed to write them back alike.

    `format` and `subtype` are soundfile's words (WAV and PCM_24, OGG and OPUS). `bitrate_bps` is
    the mean over the file for MP3, Vorbis and Opus, otherwise None.
    """

    samples: Samples
    sample_rate: int
    format: str
    subtype: str
    tags: Mapping[str, str] = field(default_factory=dict)
    bitrate_bps: int | None = None


def read(path: str | os.PathLike[str]) -> Recording:
    """Read a whole WAV, FLAC, OGG, Opus or MP3 file.

    The content decides the format, not the name. Samples are float32, or float64 where float32
    would lose bits (PCM_32 and DOUBLE), so that `write` gives the same samples back. A file that
    ends before its header says is an error, never a shorter recording.
    """
    path = Path(path)
    head = _head(path)
    try:
        file = sf.SoundFile(path)
    except (sf.SoundFileError, TypeError) as error:  # TypeError: soundfile takes .raw at its word
        if head.startswith(_MAGIC):
            raise cut_short(path, "is damaged, cut short or of an unknown codec") from error
        hint = f"{_KNOWN} can be read; convert others, for example with ffmpeg"
        raise AudioError(f"{path} is not a recording that can be read", hint=hint) from error
    with file:
        if file.format not in (*WAVES, "FLAC", "OGG", "MP3"):
            hint = f"{_KNOWN} are; convert it, for example with ffmpeg"
            raise AudioError(f"{path}: {file.format.lower()} is not supported", hint=hint)
        _check_rate(file.samplerate)
        promised = promised_frames(path, file)
        dtype = "float64" if file.subtype in ("PCM_32", "DOUBLE") else "float32"
        try:
            samples = file.read(dtype=dtype, always_2d=True)  # (frames, channels)
        except sf.SoundFileError as error:  # how a FLAC that ends early shows
            raise cut_short(path, "is damaged or cut short") from error
        if len(samples) < promised:
            raise cut_short(path, f"is cut short: {len(samples)} of {file.frames} frames")
        _check_content(samples, str(path))
        bitrate_bps = None
        if file.subtype in _PERCEPTUAL:
            bitrate_bps = int(path.stat().st_size * 8 * file.samplerate / len(samples))
        kind = (file.samplerate, file.format, file.subtype)
        tags = {name: value for name, value in file.copy_metadata().items() if value}
        return Recording(samples, *kind, tags=tags, bitrate_bps=bitrate_bps)


def write(path: str | os.PathLike[str], samples: npt.ArrayLike, like: Recording) -> int:
    """Write samples as `like` was written and return how many had to be clipped.

    Rate and tags are those of `like`, and so are format and subtype where the extension agrees;
    another known extension gets its own format at the nearest bit depth. Integer formats round to
    nearest and limit to full scale: a sample beyond [-1, 1] counts as clipped. The file appears
    whole or not at all.
    """
    path = Path(path)
    checked = check(samples, like.sample_rate)
    frames, channels = checked.shape
    kind, subtype = _kind(path, like, frames, channels)
    options = _encoder_options(subtype, like.sample_rate, channels, like.bitrate_bps)
    clipped = 0
    with _replacing(path) as part:
        with sf.SoundFile(
            part, "w", like.sample_rate, channels, format=kind, subtype=subtype, **options
        ) as file:
            for name, value in like.tags.items():
                with contextlib.suppress(sf.SoundFileError):  # not every format holds every tag
                    setattr(file, name, value)
            for start in range(0, frames, _BLOCK_FRAMES):
                block, beyond = _encodable(checked[start : start + _BLOCK_FRAMES], subtype)
                file.write(block)
                clipped += beyond
        if sf.info(part).frames < frames:  # Opus reports nothing when the disc is full
            raise OSError("no room left")
    return clipped


def check(samples: npt.ArrayLike, sample_rate: int) -> Samples:
    """Check an array from a caller and return it as floats (frames, channels).

    One dimension is mono; integers are scaled by the full scale of their type (uint8 is centred
    on 128, as in WAV files). An array that is neither float nor an integer of at most 32 bits,
    not finite, empty, or with the channels first is refused. Floats are not copied.
    """
    _check_rate(sample_rate)
    array: npt.NDArray[Any] = np.asarray(samples)
    if array.ndim not in (1, 2):
        hint = "pass (frames,) or (frames, channels)"
        raise AudioError(f"samples have {array.ndim} dimensions, not one or two", hint=hint)
    array = array.reshape(len(array), -1) if array.size else array
    if array.ndim == 2 and array.shape[1] > max(8, array.shape[0]):
        what = f"samples of shape {array.shape} look as if the channels came first"
        raise AudioError(what, hint="pass (frames, channels): samples.T")
    if array.dtype.kind == "f":
        array = array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, copy=False)
    elif array.dtype == np.uint8:
        array = (array.astype(np.float32) - 128) / 128
    elif array.dtype in (np.int8, np.int16):
        array = array.astype(np.float32) / -np.float32(np.iinfo(array.dtype).min)
    elif array.dtype == np.int32:
        array = array / 2.0**31
    else:
        hint = "pass floats in [-1, 1], or uint8, int8, int16 or int32"
        raise AudioError(f"samples of type {array.dtype} have no known full scale", hint=hint)
    _check_content(array, "the array")
    return array


def resample(samples: Samples, from_hz: int, to_hz: int) -> Samples:
    """Resample along the first axis to exactly round(frames * to_hz / from_hz) frames.

    soxr's HQ (20 bits) has a shorter filter, hence less latency in streams, than VHQ at the same
    speed; its error lies far below any mark. Equal rates return the samples themselves.
    """
    if from_hz == to_hz:
        return samples
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


def chunks(length: int, chunk: int, left: int, right: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start, stop, context_start, context_stop) until [0, length) is covered, in order.

    The context adds `left` and `right` frames around a chunk and ends where the recording ends.
    """
    for start in range(0, length, chunk):
        stop = min(start + chunk, length)
        yield start, stop, max(0, start - left), min(length, stop + right)


def _check_rate(sample_rate: int) -> None:
    if sample_rate != int(sample_rate) or not MIN_RATE_HZ <= sample_rate <= MAX_RATE_HZ:
        hint = f"resample to between {MIN_RATE_HZ} and {MAX_RATE_HZ} Hz"
        raise AudioError(f"a sample rate of {sample_rate} Hz is not supported", hint=hint)


def _check_content(samples: npt.NDArray[Any], name: str) -> None:
    if not samples.size:
        raise AudioError(f"{name} holds no samples", hint="at least one frame is needed")
    if not np.isfinite(samples).all():
        hint = "replace NaN and infinity first, for example with numpy.nan_to_num"
        raise AudioError(f"{name} holds samples that are not finite numbers", hint=hint)


def _head(path: Path) -> bytes:
    """Return the first bytes of a file, or say why there are none."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
            raise AudioError(f"{path} is not a file", hint="name one recording")
        with path.open("rb") as raw:
            head = raw.read(16)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AudioError(f"{path} cannot be read: {reason}", hint="check the name") from error
    if not head:
        raise AudioError(f"{path} is empty", hint="the file has no bytes; get it again")
    return head


def _kind(path: Path, like: Recording, frames: int, channels: int) -> tuple[str, str]:
    """Choose format and subtype from the extension and the host, if they can hold it."""
    if path.suffix.lower() not in _NEAREST:
        what = f"{path} does not end in the name of a known format"
        raise AudioError(what, hint=f"{_KNOWN} can be written")
    kind, subtype, nearer = _NEAREST[path.suffix.lower()]
    alike = like.format == kind or (kind == "WAV" and like.format in WAVES)
    # Of MPEG libsndfile reads more than it writes: there only layer III in an MP3 will do.
    if alike and subtype not in ("OPUS", "MPEG_LAYER_III") and like.subtype != "MPEG_LAYER_III":
        kind, subtype = like.format, like.subtype
    subtype = nearer.get(subtype if alike else like.subtype, subtype)
    sample_bytes = _PCM_BITS.get(subtype, 64 if subtype == "DOUBLE" else 32) // 8
    if kind in WAVES and frames * channels * sample_bytes > _WAV_LIMIT_BYTES:
        kind = "RF64"
    name = "opus" if subtype == "OPUS" else kind.lower()
    if like.sample_rate not in (rates_hz := _RATES_HZ.get(subtype, (like.sample_rate,))):
        hint = "write flac or wav, or resample to one of " + ", ".join(map(str, rates_hz))
        raise AudioError(f"{name} cannot hold a rate of {like.sample_rate} Hz", hint=hint)
    if channels > (most := _MAX_CHANNELS.get(kind, channels)):
        hint = f"it holds {most}; wav holds more"
        raise AudioError(f"{name} cannot hold {channels} channels", hint=hint)
    return kind, subtype


def _encoder_options(
    subtype: str, sample_rate: int, channels: int, host_bps: int | None
) -> dict[str, Any]:
    """Ask the lossy encoders for the host's bit rate, or for a good one if that is more.

    `compression_level` runs from 0 (best) to 1. libsndfile makes of it, as measured: for MP3 at a
    constant rate a line from 320 to 32 kbit/s (160 to 8 below 32 kHz, 64 to 8 below 16 kHz), then
    the nearest rate there is; for Opus a line from 256 to 6 kbit/s for each channel; for Vorbis
    its quality scale, where 0.1 is quality 9: about 60 kbit/s for a voice at 16 kHz, 107 at 48.
    """
    host_kbps = (host_bps or 0) / 1_000
    if subtype == "MPEG_LAYER_III":
        top, bottom, good = (320, 32, 96) if sample_rate >= 32_000 else (160, 8, 64)
        if sample_rate < 16_000:
            top, good = 64, 32
        kbps = min(top, max(good * channels, host_kbps))
        return {"compression_level": (top - kbps) / (top - bottom), "bitrate_mode": "CONSTANT"}
    if subtype == "OPUS":
        kbps = min(256, max(64, host_kbps / channels))
        return {"compression_level": (256 - kbps) / 250}
    return {"compression_level": 0.1} if subtype == "VORBIS" else {}


def _encodable(block: Samples, subtype: str) -> tuple[npt.NDArray[Any], int]:
    """Limit and round what goes into an integer format; count the samples beyond full scale.

    Left to itself libsndfile rounds down in a WAV and to nearest in a FLAC. Levels shifted to the
    top of 32 bits it only shifts back.
    """
    if subtype in ("FLOAT", "DOUBLE", *_PERCEPTUAL):  # these hold peaks above 1.0
        return block, 0
    beyond = int(np.count_nonzero(np.abs(block) > 1.0))
    if subtype not in _PCM_BITS:
        return np.clip(block, -1.0, 1.0), beyond
    bits = _PCM_BITS[subtype]
    steps = np.float64(2 ** (bits - 1))
    levels = np.clip(np.rint(block * steps), -steps, steps - 1)
    return levels.astype(np.int32) << (32 - bits), beyond


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; take its place when all went well, else vanish."""
    part = path.parent / f".keybound-{secrets.token_hex(8)}.part"
    try:
        yield part
        if path.exists():
            shutil.copymode(path, part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except (sf.SoundFileError, OSError) as error:
        hint = "check that the folder exists, may be written to and has room"
        raise AudioError(f"{path} cannot be written", hint=hint) from error
    finally:
        with contextlib.suppress(OSError):  # where the folder is none, there is nothing either
            part.unlink()
