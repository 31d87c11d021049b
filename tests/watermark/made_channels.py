"""Made recordings of several channels: what is done to them to hide a mark."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[Any]

RATE = 16_000


def late(samples: Samples, delay_s: float) -> Samples:
    count = round(delay_s * RATE)
    return np.concatenate([np.zeros(count, np.float32), samples])[: len(samples)]


def arranged(name: str, marked: Samples, voice: Samples) -> Samples:
    """Do to the channels what hides a mark from their mix."""
    noise = np.random.default_rng(0).normal(0, 0.3, len(marked)).astype(np.float32)
    sounds = {
        "flipped": [marked, -marked],
        "late": [marked, late(marked, 0.005)],
        "almost flipped": [marked, -0.95 * marked],
        "silent": [marked, 0 * marked],
        "beside a louder voice": [marked, 8 * voice],
        "beside loud noise": [noise, marked],
        "one of six": [voice, -voice, late(voice, 0.01), marked, 0.2 * noise, -0.1 * noise],
        "six": [marked, -marked, late(marked, 0.003), 0.5 * marked, 0 * marked, -0.9 * marked],
    }
    return np.stack(sounds[name], axis=1)
