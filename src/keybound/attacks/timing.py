"""Timing: the clip faster, slower, higher, shorter, or with holes in it.

`stretch`, `speed`, `crop` and `trim` change the length and say what it becomes. Knows nothing of
marks, keys or networks.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.signal import correlate
from scipy.signal.windows import hann

from keybound.attacks.rates import Samples, fit, resample

Long = NDArray[np.float64]

HOP_S = 0.02  # frames of two hops, half overlapped; two periods of a low voice
REACH_S = 0.01  # a frame may come from so far before or after its own time: one such period
NEARER = 1e-6  # of correlation: where all offsets are alike (silence), the true one is taken
PACKET_S = 0.02


def stretch(samples: Samples, sample_rate: int, *, tempo: float) -> Samples:
    """Play `tempo` times as fast with the pitch kept; the length is divided by `tempo`.

    WSOLA (Verhelst and Roelands, 1993): frames of 40 ms taken from where, within 10 ms of their
    place, they best go on from the frame before.
    """
    hop, reach = round(HOP_S * sample_rate), round(REACH_S * sample_rate)
    frame = 2 * hop
    length = max(round(samples.size / tempo), 1)
    frames = math.ceil(length / hop) + 1  # centred on 0, one hop, two hops ... of the outcome
    window = hann(frame, sym=False)
    end = math.ceil(frames * hop * tempo) + 2 * (frame + reach)
    padded = fit(np.pad(samples, (hop + reach, 0)), end).astype(np.float64)
    stretched = np.zeros((frames + 1) * hop)
    start = reach  # of the first frame, in the padded clip
    for index in range(frames):
        if index > 0:
            going_on = padded[start + hop : start + hop + frame]
            first = round(index * hop * tempo)  # the earliest start; the true one is `reach` later
            start = first + _best_start(padded[first : first + 2 * reach + frame], going_on, reach)
        stretched[index * hop :][:frame] += window * padded[start : start + frame]
    return stretched[hop : hop + length].astype(np.float32)


def _best_start(around: Long, wanted: Long, middle: int) -> int:
    """Return where in `around` the most similar piece to `wanted` begins."""
    products = correlate(around, wanted, "valid", "fft")
    energies = np.cumsum(np.concatenate([[0.0], around**2]))
    norms = np.sqrt((energies[wanted.size :] - energies[: -wanted.size]) * np.sum(wanted**2))
    correlation = products / (norms + 1e-9)
    correlation[middle] += NEARER
    return int(np.argmax(correlation))


def speed(samples: Samples, sample_rate: int, *, factor: float) -> Samples:
    """Play `factor` times as fast, the pitch with it; the length is divided by `factor`."""
    played = resample(samples, sample_rate * factor, sample_rate)
    return fit(played, max(round(samples.size / factor), 1))


def pitch(samples: Samples, sample_rate: int, *, semitones: float) -> Samples:
    """Raise or lower the pitch with the duration kept: stretched, then played faster."""
    factor = 2 ** (semitones / 12)
    stretched = stretch(samples, sample_rate, tempo=1 / factor)
    return resample(stretched, sample_rate * factor, sample_rate)


def crop(samples: Samples, sample_rate: int, *, keep: float) -> Samples:
    """Keep the middle of the clip: `keep` times its length remain."""
    del sample_rate
    length = max(round(keep * samples.size), 1)
    start = (samples.size - length) // 2
    return samples[start : start + length]


def trim(samples: Samples, sample_rate: int, *, trim_s: float) -> Samples:
    """Cut `trim_s` off the start, or the first half of a clip that lasts less than twice that."""
    return samples[min(round(trim_s * sample_rate), samples.size // 2) :]


def packet_loss(samples: Samples, sample_rate: int, *, loss_percent: float, seed: int) -> Samples:
    """Lose packets of 20 ms, each with the same chance; silence replaces them."""
    packet = round(PACKET_S * sample_rate)
    packets = -(-samples.size // packet)
    arrived = np.random.default_rng(seed).uniform(0, 100, packets) >= loss_percent
    return samples * np.repeat(arrived, packet)[: samples.size]
