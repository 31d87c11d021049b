"""Copy attacks and collusion: what was added put on another recording, taken out or combined.

They take several recordings, so they are not in the catalogue. Spectra are 512/128 Hann.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.ndimage
import scipy.optimize
import scipy.signal

Samples = npt.NDArray[np.float32]
Gains = npt.NDArray[np.float64]  # (bins, frames)
Signs = npt.NDArray[np.float64]  # of codes: 1 for a one, -1 for a zero

FLOOR = 1e-5  # of a magnitude: far under the noise of 16-bit audio, so only silence meets it
AROUND = (15, 15)  # bins and frames, half a kilohertz and an eighth of a second
MOST_DB = 3.0  # that a colluder takes for a mark
MOST_WEIGHT = 0.5  # so that no colluder gives most of the copy


def _stft() -> Any:
    return scipy.signal.ShortTimeFFT.from_window("hann", 1.0, 512, 384)


def gains(host: Samples, marked: Samples) -> Gains:
    """Return |marked| / |host| of each bin of the spectrum."""
    before, after = (np.abs(_stft().stft(x.astype(np.float64))) for x in (host, marked))
    return np.asarray((after + FLOOR) / (before + FLOOR))


def scaled(samples: Samples, factors: Gains) -> Samples:
    """Return a recording with its spectrum multiplied by factors."""
    spectrum = _stft().stft(samples.astype(np.float64)) * factors
    return np.asarray(_stft().istft(spectrum, k1=len(samples)), np.float32)


def copied(host: Samples, marked: Samples, other: Samples, kind: str) -> Samples:
    """Return another recording with what was added to a host.

    Kinds: the `gain-field` multiplies its spectrum, the `residual` is added as it is, or
    `residual-levelled`, as loud beside the other as it was beside the host.
    """
    if kind == "gain-field":
        return scaled(other, gains(host, marked))
    if kind == "residual":
        return other + (marked - host)
    return other + float(np.std(other) / (np.std(host) + FLOOR)) * (marked - host)


def in_common(recordings: Sequence[Samples]) -> Gains:
    """Average how levels stand out from those around them, in nepers."""
    levels = [np.log(np.abs(_stft().stft(x.astype(np.float64))) + FLOOR) for x in recordings]
    mean = np.mean(levels, axis=0)
    most = MOST_DB * math.log(10) / 20
    return np.asarray(np.clip(mean - scipy.ndimage.uniform_filter(mean, AROUND), -most, most))


def nearest(own: Signs, theirs: Signs, tried: Sequence[int]) -> tuple[int, Signs]:
    """Return the target with the fewest wrong bits in the best convex combination, and weights."""
    best: tuple[int, float, int, Signs] | None = None
    heavy = 100.0  # makes the weights add up to one
    rows = np.vstack([own.T, np.full(len(own), heavy)])
    for target in tried:
        goal = np.append(theirs[target], heavy)
        found = scipy.optimize.lsq_linear(rows, goal, (0, MOST_WEIGHT), method="bvls")
        weights = found.x / found.x.sum()
        wrong = int(np.sum(np.sign(weights @ own) != theirs[target]))
        if best is None or (wrong, found.cost) < best[:2]:
            best = (wrong, float(found.cost), target, weights)
    assert best is not None
    return best[2], best[3]
