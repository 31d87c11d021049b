"""Music made by synthesis: chords, a plucked melody, a bass and a drum, drawn from a generator.

Knows nothing of marks, keys or networks.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from keybound.attacks.rates import Samples
from keybound.attacks.signal import add_at

LEAD_S = 4.0  # a clip begins anywhere in the first seconds of a piece


def music(samples: Samples, sample_rate: int, *, snr_db: float, seed: int) -> Samples:
    """Add music at `snr_db` below the energy of the clip."""
    rng = np.random.default_rng(seed)
    begin = int(rng.integers(round(LEAD_S * sample_rate)))
    piece = compose(rng, sample_rate, begin + samples.size)
    return add_at(samples, piece[begin:], snr_db)


def compose(rng: np.random.Generator, sample_rate: int, size: int) -> NDArray[np.float64]:
    """Make a piece at one tempo in a minor key: a chord and a bass note a bar, a pluck a beat."""
    beat = round(rng.uniform(0.3, 0.7) * sample_rate)
    scale = np.array([0, 2, 3, 5, 7, 8, 10, 12])
    root_hz = 110 * 2 ** (rng.integers(12) / 12)
    sound = np.zeros(size + 4 * beat)
    for number, start in enumerate(range(0, size, beat)):
        if number % 4 == 0:
            for degree in rng.choice(scale, 3, replace=False):
                tone = _organ(2 * root_hz * 2 ** (degree / 12), 4 * beat, sample_rate, rng)
                sound[start : start + 4 * beat] += 0.3 * tone
            sound[start : start + 4 * beat] += 0.5 * _organ(root_hz / 2, 4 * beat, sample_rate, rng)
        pitch_hz = 4 * root_hz * 2 ** (rng.choice(scale) / 12)
        sound[start : start + 2 * beat] += _pluck(pitch_hz, 2 * beat, sample_rate, rng)
        drum = rng.standard_normal(beat) * np.exp(-np.arange(beat) / (0.03 * sample_rate))
        sound[start : start + beat] += rng.choice([0.0, 0.4, 0.8]) * drum
    return sound[:size]


def _organ(pitch_hz: float, size: int, sample_rate: int, rng: np.random.Generator) -> Samples:
    """Play a sustained tone with falling partials, a vibrato and soft ends."""
    time = np.arange(size) / sample_rate
    phase = 2 * np.pi * pitch_hz * time + 0.3 * np.sin(2 * np.pi * rng.uniform(4, 7) * time)
    partials = range(1, 1 + min(10, int(0.45 * sample_rate / pitch_hz)))
    tone = sum((np.sin(k * phase) / k**1.5 for k in partials), np.zeros(size))
    return np.asarray(tone * np.minimum(1, np.minimum(time, time[::-1]) / 0.05), np.float32)


def _pluck(pitch_hz: float, size: int, sample_rate: int, rng: np.random.Generator) -> Samples:
    """Pluck a string (Karplus and Strong): a burst of noise in a loop that dulls it."""
    period = max(2, round(sample_rate / pitch_hz))
    burst = np.zeros(size)
    burst[:period] = rng.uniform(-1, 1, min(period, size))
    loop = np.concatenate([[1], np.zeros(period - 1), [-0.498, -0.498]])
    return np.asarray(lfilter([1], loop, burst), np.float32)
