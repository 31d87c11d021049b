"""The protocol: which clips, keys, payloads and draws of chance a measurement uses.

All of them follow from (seed, clip), so that every method meets the same ones and a run repeats.
"""

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound import audio
from keybound.errors import AudioError
from keybound.keys import Key

Clip = npt.NDArray[np.float32]
Row = dict[str, Any]

P_LEVELS = tuple(10.0**-n for n in range(1, 7))  # under which the p of wrong keys is counted
ENDINGS = (".flac", ".wav", ".ogg", ".opus", ".mp3")


@dataclass(frozen=True)
class Secret:
    """What a clip is marked with."""

    key: Key
    payload: int
    position: int = 0  # of the seal


def secret_of(seed: int, clip: int, bits: int) -> Secret:
    """Give key, payload and position of a clip. They are no secret: a benchmark repeats."""
    key = Key(_digest("key", seed, clip))
    payload = int.from_bytes(_digest("payload", seed, clip)) >> (256 - bits)
    return Secret(key, payload, _digest("position", seed, clip)[0])


def rng_of(seed: int, clip: int, name: str) -> np.random.Generator:
    """Give the chance that belongs to a clip and a named purpose, such as an attack."""
    return np.random.default_rng([seed, clip, zlib.crc32(name.encode())])


def read_clips(
    folder: Path, seconds: float, rate: int, *, every: bool = False, limit: int | None = None
) -> list[Clip]:
    """Cut clips from the recordings of a folder in the order of their names.

    `every` takes all whole clips of each recording, otherwise only the first.
    """
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in ENDINGS)
    if not paths:
        raise AudioError(f"no recordings in {folder}", hint=f"files ending in {', '.join(ENDINGS)}")
    clips: list[Clip] = []
    length = round(seconds * rate)
    for path in paths:
        if limit is not None and len(clips) >= limit:
            break
        recording = audio.read(path)
        mono = audio.resample(audio.to_mono(recording.samples), recording.sample_rate, rate)
        ends = range(length, len(mono) + 1, length)
        clips += [mono[e - length : e].astype(np.float32) for e in (ends if every else ends[:1])]
    return clips[:limit]


def _digest(purpose: str, seed: int, clip: int) -> bytes:
    return hashlib.sha256(f"keybound benchmark {purpose} {seed} {clip}".encode()).digest()
