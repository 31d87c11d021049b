"""What the formats of recordings hold: which rates, channels and depths, and how they are asked.

Chooses; opens no files. Knows no keys and no networks.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from keybound.errors import AudioError
from keybound.headers import WAVES

KNOWN = "wav, flac, ogg, opus, mp3 and m4a"
MAGIC = (b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS", b"ID3")
READABLE = (*WAVES, "FLAC", "OGG", "MP3")
PCM_BITS = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32}
PERCEPTUAL = ("VORBIS", "OPUS", "MPEG_LAYER_III", "AAC")
_DEEP = ("PCM_24", "PCM_32", "FLOAT", "DOUBLE")
# For each extension the container, its usual subtype, and what comes nearer to some hosts.
_NEAREST: dict[str, tuple[str, str, Mapping[str, str]]] = {
    ".wav": ("WAV", "PCM_16", {s: s for s in _DEEP} | {"PCM_S8": "PCM_U8"}),
    ".flac": ("FLAC", "PCM_16", dict.fromkeys(_DEEP, "PCM_24") | {"PCM_U8": "PCM_S8"}),
    ".ogg": ("OGG", "VORBIS", {}),
    ".oga": ("OGG", "VORBIS", {}),
    ".opus": ("OGG", "OPUS", {}),
    ".mp3": ("MP3", "MPEG_LAYER_III", {}),
    ".m4a": ("M4A", "AAC", {}),
}
_RATES_HZ = {
    "OPUS": (8_000, 12_000, 16_000, 24_000, 48_000),
    "MPEG_LAYER_III": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "AAC": (
        8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 64_000, 88_200,
        96_000,
    ),
}  # fmt: skip
_MAX_CHANNELS = {"MP3": 2, "FLAC": 8, "M4A": 8}
WAV_LIMIT_BYTES = (1 << 32) - (1 << 16)  # sizes in a WAV header have 32 bits; leave room for tags


class Like(Protocol):
    """What must be known of a recording to write another one alike."""

    @property
    def sample_rate(self) -> int: ...
    @property
    def format(self) -> str: ...
    @property
    def subtype(self) -> str: ...
    @property
    def tags(self) -> Mapping[str, str]: ...
    @property
    def bitrate_bps(self) -> int | None: ...


def kind_of(path: Path, like: Like, frames: int, channels: int) -> tuple[str, str]:
    """Choose format and subtype from the extension and the host, if they can hold it."""
    if path.suffix.lower() not in _NEAREST:
        what = f"{path} does not end in the name of a known format"
        raise AudioError(what, hint=f"{KNOWN} can be written")
    kind, subtype, nearer = _NEAREST[path.suffix.lower()]
    alike = like.format == kind or (kind == "WAV" and like.format in WAVES)
    # Of MPEG libsndfile reads more than it writes: there only layer III in an MP3 will do.
    if alike and subtype not in ("OPUS", "MPEG_LAYER_III") and like.subtype != "MPEG_LAYER_III":
        kind, subtype = like.format, like.subtype
    subtype = nearer.get(subtype if alike else like.subtype, subtype)
    sample_bytes = PCM_BITS.get(subtype, 64 if subtype == "DOUBLE" else 32) // 8
    if kind in WAVES and frames * channels * sample_bytes > WAV_LIMIT_BYTES:
        kind = "RF64"
    name = "opus" if subtype == "OPUS" else kind.lower()
    if like.sample_rate not in (rates_hz := _RATES_HZ.get(subtype, (like.sample_rate,))):
        hint = "write flac or wav, or resample to one of " + ", ".join(map(str, rates_hz))
        raise AudioError(f"{name} cannot hold a rate of {like.sample_rate} Hz", hint=hint)
    if channels > (most := _MAX_CHANNELS.get(kind, channels)):
        hint = f"it holds {most}; wav holds more"
        raise AudioError(f"{name} cannot hold {channels} channels", hint=hint)
    return kind, subtype


def encoder_options(
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


def encodable(block: npt.NDArray[Any], subtype: str) -> tuple[npt.NDArray[Any], int]:
    """Limit and round what goes into an integer format; count the samples beyond full scale.

    Left to itself libsndfile rounds down in a WAV and to nearest in a FLAC. Levels shifted to the
    top of 32 bits it only shifts back.
    """
    if subtype in ("FLOAT", "DOUBLE", *PERCEPTUAL):  # these hold peaks above 1.0
        return block, 0
    beyond = int(np.count_nonzero(np.abs(block) > 1.0))
    if subtype not in PCM_BITS:
        return np.clip(block, -1.0, 1.0), beyond
    bits = PCM_BITS[subtype]
    steps = np.float64(2 ** (bits - 1))
    levels = np.clip(np.rint(block * steps), -steps, steps - 1)
    return levels.astype(np.int32) << (32 - bits), beyond
