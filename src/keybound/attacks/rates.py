"""Rates and lengths: work at another sample rate and come back with the same number of samples.

Knows nothing of any attack, nor of marks, keys or networks.
"""

from collections.abc import Callable, Iterable

import numpy as np
import soxr
from numpy.typing import NDArray

Samples = NDArray[np.float32]

LOWEST_RATE_HZ = 8000
PAPER_RATE_HZ = 16000  # the paper states every length in samples at this rate


def fit(samples: Samples, length: int) -> Samples:
    """Cut or zero-pad the end of `samples` so that `length` samples remain."""
    kept = samples[:length]
    return np.pad(kept, (0, length - kept.size))


def resample(samples: Samples, from_hz: float, to_hz: float) -> Samples:
    """Resample with soxr at its high quality, without delay."""
    if from_hz == to_hz:
        return samples
    resampled: Samples = soxr.resample(samples, from_hz, to_hz, quality="HQ")
    return resampled


def next_rate(sample_rate: int, offered: Iterable[int]) -> int:
    """Return the lowest offered rate that holds the clip's band, or the highest there is."""
    rates = sorted(offered)
    return next((rate for rate in rates if rate >= sample_rate), rates[-1])


def at_rate(
    samples: Samples, sample_rate: int, working_hz: int, transform: Callable[[Samples], Samples]
) -> Samples:
    """Apply `transform` to a copy at `working_hz` and bring the outcome back, length kept.

    Going through a lower rate takes the band above its half away, as the real channel does.
    """
    copy = resample(samples, sample_rate, working_hz)
    changed = transform(fit(copy, max(copy.size, 1)))  # a sample or two may resample to none
    return fit(resample(changed, working_hz, sample_rate), samples.size)
