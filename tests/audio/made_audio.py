"""Made recordings: files, tones and refusals for the tests of audio."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound.audio.recordings import Recording
from keybound.errors import AudioError

PCM = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32}
LOSSY = [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]
EXTENSIONS = {"WAVEX": "wav", "RF64": "wav"}


def name_of(kind: str) -> str:
    return "a." + EXTENSIONS.get(kind, kind.lower())


def host(path: Path, kind: str, subtype: str, rate: int = 16_000, channels: int = 1) -> Path:
    """A file made by soundfile alone, of every level that an integer format has at its ends."""
    rng = np.random.default_rng(7)
    if bits := PCM.get(subtype):
        levels = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (700, channels))
        levels[:4] = np.array([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, -1])[:, None]
        samples: Any = (levels << (32 - bits)).astype(np.int32)
    else:
        samples = rng.uniform(
            -1.5 if subtype in ("FLOAT", "DOUBLE") else -0.9, 0.9, (700, channels)
        )
    sf.write(path, samples, rate, format=kind, subtype=subtype)
    return path


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(AudioError) as caught:
        call()
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert not caught.value.message.endswith(".")
    return caught.value.message


def tone(rate: int, channels: int, seconds: float = 1.0) -> np.ndarray:
    time_s = np.arange(int(rate * seconds))[:, None] / rate
    return 0.2 * np.sin(2 * np.pi * time_s * (300 + 170 * np.arange(channels)))


def recording(samples: np.ndarray, rate: int = 16_000, kind: str = "WAV", sub: str = "PCM_16"):
    return Recording(samples, rate, kind, sub)
