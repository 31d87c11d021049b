"""Dynamics: what a studio, a broadcaster or a phone does to the loudness of speech.

Levels are in decibels below the peak of the clip, so that an attack acts on a quiet recording as
on a loud one. Knows nothing of marks, keys or networks.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d, uniform_filter1d

from keybound.attacks.rates import Samples, fit

Levels = NDArray[np.float64]

BLOCK_S = 0.001  # the level is the highest sample of each millisecond
FAST_S = 0.005  # time constants: the gain follows loud onsets in 5 ms
SLOW_S = 0.05  # and lets go in 50 ms
LOWEST_DB = -120.0  # the level of digital silence
DEEPEST_DB = -40.0  # the expander turns nothing down further
LOOKAHEAD_S = 0.005  # the limiter sees a peak so long before it comes


def compress(samples: Samples, sample_rate: int, *, threshold_db: float, ratio: float) -> Samples:
    """Turn down what rises above the threshold: `ratio` dB more in become one dB more out."""

    def curve(level_db: Levels) -> Levels:
        return -np.maximum(level_db - threshold_db, 0) * (1 - 1 / ratio)

    return _ride(samples, sample_rate, curve, falling_s=FAST_S, rising_s=SLOW_S)


def expand(samples: Samples, sample_rate: int, *, threshold_db: float, ratio: float) -> Samples:
    """Turn down what falls below the threshold: one dB less in becomes `ratio` dB less out."""

    def curve(level_db: Levels) -> Levels:
        return np.maximum(np.minimum(level_db - threshold_db, 0) * (ratio - 1), DEEPEST_DB)

    return _ride(samples, sample_rate, curve, falling_s=SLOW_S, rising_s=FAST_S)


def limit(samples: Samples, sample_rate: int, *, ceiling_db: float) -> Samples:
    """Turn down what would pass the ceiling, in time and smoothly: no sample passes it."""
    ceiling = float(np.abs(samples).max()) * 10 ** (ceiling_db / 20)
    window = 2 * round(LOOKAHEAD_S * sample_rate) + 1
    loudest = maximum_filter1d(np.abs(samples).astype(np.float64), window, mode="nearest")
    needed = np.minimum(1.0, ceiling / np.maximum(loudest, np.finfo(np.float32).tiny))
    # Every gain in the mean around a peak is one that the peak itself asked for.
    limited: Samples = samples * uniform_filter1d(needed, window, mode="nearest")
    return limited


def _ride(
    samples: Samples,
    sample_rate: int,
    curve: Callable[[Levels], Levels],
    *,
    falling_s: float,
    rising_s: float,
) -> Samples:
    """Apply the gain that the curve gives for the level, at the pace of the time constants."""
    peak = float(np.abs(samples).max())
    if peak == 0.0:
        return samples
    block = max(round(BLOCK_S * sample_rate), 1)
    blocks = -(-samples.size // block)
    heights = np.abs(fit(samples, blocks * block)).reshape(blocks, block).max(axis=1)
    level_db = 20 * np.log10(np.maximum(heights / peak, 10 ** (LOWEST_DB / 20)))
    falling, rising = (1 - np.exp(-BLOCK_S / pace_s) for pace_s in (falling_s, rising_s))
    gain_db = np.empty(blocks)
    now_db = 0.0
    for index, wanted_db in enumerate(curve(level_db).tolist()):
        now_db += (falling if wanted_db < now_db else rising) * (wanted_db - now_db)
        gain_db[index] = now_db
    middles = np.arange(blocks) * block + (block - 1) / 2
    gain = 10 ** (np.interp(np.arange(samples.size), middles, gain_db) / 20)
    return samples * gain.astype(np.float32)
