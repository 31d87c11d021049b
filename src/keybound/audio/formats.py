"""What the formats of recordings hold: which rates, channels and depths, and how they are asked.

Chooses; opens no files. Knows no keys and no networks.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from keybound.audio.headers import WAVES, cut_short
from keybound.audio.metadata import Metadata
from keybound.errors import AudioError

KNOWN = "wav, flac, ogg, opus, mp3, m4a, aac, aiff, caf, w64 and au"
MAGIC = (
    b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS", b"ID3", b"FORM", b"caff", b"riff", b".snd",
    b"dns.",
)  # fmt: skip
READABLE = (*WAVES, "FLAC", "OGG", "MP3", "AIFF", "CAF", "W64", "AU")
PCM_BITS = {
    "PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32,
    "ALAC_16": 16,
}  # fmt: skip
DOUBLES = ("PCM_32", "ALAC_32", "DOUBLE")  # what float32 cannot hold
PERCEPTUAL = ("VORBIS", "OPUS", "MPEG_LAYER_III", "AAC")
_PACKED = {"ALAC_20": "PCM_24", "ALAC_24": "PCM_24", "ALAC_32": "PCM_32"}
_DEEP = {s: s for s in ("PCM_24", "PCM_32", "FLOAT", "DOUBLE")} | _PACKED
_UNSIGNED, _SIGNED = {"PCM_S8": "PCM_U8"}, {"PCM_U8": "PCM_S8"}
# For each extension the container, its usual subtype, and what comes nearer to some hosts.
_NEAREST: dict[str, tuple[str, str, Mapping[str, str]]] = {
    ".wav": ("WAV", "PCM_16", _DEEP | _UNSIGNED),
    ".flac": ("FLAC", "PCM_16", dict.fromkeys(_DEEP, "PCM_24") | _SIGNED),
    ".ogg": ("OGG", "VORBIS", {}),
    ".oga": ("OGG", "VORBIS", {}),
    ".opus": ("OGG", "OPUS", {}),
    ".mp3": ("MP3", "MPEG_LAYER_III", {}),
    ".m4a": ("M4A", "AAC", {}),
    ".aac": ("ADTS", "AAC", {}),  # without a container
    ".aif": ("AIFF", "PCM_16", _DEEP | _SIGNED),
    ".aiff": ("AIFF", "PCM_16", _DEEP | _SIGNED),
    ".aifc": ("AIFF", "PCM_16", _DEEP | _SIGNED),
    ".caf": ("CAF", "PCM_16", _DEEP | _SIGNED),
    ".w64": ("W64", "PCM_16", _DEEP | _UNSIGNED),
    ".au": ("AU", "PCM_16", _DEEP | _SIGNED),
    ".snd": ("AU", "PCM_16", _DEEP | _SIGNED),
}
SUFFIXES = tuple(_NEAREST)  # what a folder is searched for
SNDFILE_SUFFIXES = tuple(one for one in _NEAREST if one not in (".m4a", ".aac"))  # without ffmpeg
_RATES_HZ = {
    "OPUS": (8_000, 12_000, 16_000, 24_000, 48_000),
    "MPEG_LAYER_III": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "AAC": (
        8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 64_000, 88_200,
        96_000,
    ),
}  # fmt: skip
_ALAC_FRAMES = 1 << 25  # libsndfile loses its own index of a longer file: PCM has none
_MAX_CHANNELS = {"MP3": 2, "FLAC": 8, "M4A": 8, "ADTS": 8}
WAV_LIMIT_BYTES = (1 << 32) - (1 << 16)  # sizes in headers of WAV and AIFF have 32 bits


class Like(Protocol):
    """What must be known of a recording to write another one alike."""

    @property
    def sample_rate(self) -> int: ...
    @property
    def format(self) -> str: ...
    @property
    def subtype(self) -> str: ...
    @property
    def metadata(self) -> Metadata: ...
    @property
    def endian(self) -> str: ...
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
    elif not alike:
        subtype = nearer.get(like.subtype, subtype)
    # libsndfile's ALAC of more than 16 bits does not give noise back as it was.
    subtype = _PACKED.get(subtype, subtype)
    if subtype == "ALAC_16" and frames > _ALAC_FRAMES:
        subtype = "PCM_16"
    sample_bytes = PCM_BITS.get(subtype, 64 if subtype == "DOUBLE" else 32) // 8
    size_bytes = frames * channels * sample_bytes + like.metadata.size_bytes
    if kind in WAVES and size_bytes > WAV_LIMIT_BYTES:
        kind = "RF64"
    if kind == "AIFF" and size_bytes > WAV_LIMIT_BYTES:
        hint = "wav, w64, caf and flac hold more"
        raise AudioError("aiff cannot hold more than 4 GB", hint=hint)
    name = "opus" if subtype == "OPUS" else kind.lower()
    if like.sample_rate not in (rates_hz := _RATES_HZ.get(subtype, (like.sample_rate,))):
        hint = "write flac or wav, or resample to one of " + ", ".join(map(str, rates_hz))
        raise AudioError(f"{name} cannot hold a rate of {like.sample_rate} Hz", hint=hint)
    if channels > (most := _MAX_CHANNELS.get(kind, channels)):
        hint = f"it holds {most}; wav holds more"
        raise AudioError(f"{name} cannot hold {channels} channels", hint=hint)
    return kind, subtype


def suffix_of(kind: str, subtype: str) -> str:
    """Return the usual extension of a format."""
    kind = "WAV" if kind in WAVES else kind
    usual = [suffix for suffix, (own, _, _) in _NEAREST.items() if own == kind]
    return ".opus" if subtype == "OPUS" else usual[0]


def unreadable(path: Path, head: bytes, kind: str = "") -> AudioError:
    """Return the refusal of a file that begins like this, or is of a format that is not read."""
    if not kind and head.startswith(MAGIC):
        return cut_short(path, "is damaged, cut short or of an unknown codec")
    if kind:
        what, verb = f"{path}: {kind.lower()} is not supported", "are"
    else:
        what, verb = f"{path} is not a recording that can be read", "can be read"
    also = "; mp4, mov, mkv and webm too where ffmpeg is; convert others, for example with it"
    return AudioError(what, hint=f"{KNOWN} {verb}{also}")


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
