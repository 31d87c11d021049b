"""Signal attacks: the paper's catalogue of distortions, and the plain ones users meet.

Each function takes mono samples and their rate, with every parameter by name, and is pure: where
there is noise, its seed is a parameter. Knows nothing of marks, keys or networks.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d
from scipy.signal import lfilter

from keybound.attacks.rates import PAPER_RATE_HZ, Samples, fit
from keybound.attacks.rates import resample as to_rate

BUTTERWORTH_Q = math.sqrt(0.5)  # 0.7071: no peak at the cutoff, torchaudio's default
PINK_FLOOR_HZ = 20.0  # below hearing; without a floor long clips spend half the noise there


def noise(samples: Samples, sample_rate: int, *, snr_db: float, seed: int) -> Samples:
    """Add white Gaussian noise at `snr_db` below the mean power of the clip.

    The noise is scaled by its own measured power, so that the ratio holds exactly on each clip.
    Silence stays silence.
    """
    del sample_rate
    white = np.random.default_rng(seed).standard_normal(samples.size)
    return _add_at(samples, white, snr_db)


def pink(samples: Samples, sample_rate: int, *, snr_db: float, seed: int) -> Samples:
    """Add pink noise (power falling by 3 dB an octave from 20 Hz) at `snr_db`, as `noise` does."""
    white = np.random.default_rng(seed).standard_normal(samples.size)
    frequencies_hz = np.fft.rfftfreq(samples.size, 1 / sample_rate)
    audible = frequencies_hz >= PINK_FLOOR_HZ
    shape = np.zeros_like(frequencies_hz)
    shape[audible] = frequencies_hz[audible] ** -0.5
    return _add_at(samples, np.fft.irfft(np.fft.rfft(white) * shape, samples.size), snr_db)


def _add_at(samples: Samples, added: NDArray[np.float64], snr_db: float) -> Samples:
    host_energy = float(np.sum(np.square(samples, dtype=np.float64)))
    added_energy = float(np.sum(np.square(added)))
    if added_energy == 0.0:  # a clip too short to hold one period of pink noise
        return samples
    scale = math.sqrt(host_energy / added_energy) * 10 ** (-snr_db / 20)
    mixed: Samples = (samples + scale * added).astype(np.float32)
    return mixed


def lowpass(samples: Samples, sample_rate: int, *, cutoff_hz: float) -> Samples:
    """Filter with the second-order low-pass of the RBJ cookbook, Q 0.7071.

    A cutoff at or above half the rate leaves the clip as it is: nothing lies above it.
    """
    if cutoff_hz >= sample_rate / 2:
        return samples
    cosine = math.cos(2 * math.pi * cutoff_hz / sample_rate)
    edge = (1 - cosine) / 2
    return _biquad(samples, [edge, 2 * edge, edge], cutoff_hz, sample_rate)


def highpass(samples: Samples, sample_rate: int, *, cutoff_hz: float) -> Samples:
    """Filter with the second-order high-pass of the RBJ cookbook, Q 0.7071.

    A cutoff at or above half the rate leaves silence.
    """
    if cutoff_hz >= sample_rate / 2:
        return np.zeros_like(samples)
    cosine = math.cos(2 * math.pi * cutoff_hz / sample_rate)
    edge = (1 + cosine) / 2
    return _biquad(samples, [edge, -2 * edge, edge], cutoff_hz, sample_rate)


def _biquad(
    samples: Samples, feed_forward: list[float], cutoff_hz: float, sample_rate: int
) -> Samples:
    """Filter with the poles that both cookbook filters share."""
    angle = 2 * math.pi * cutoff_hz / sample_rate
    alpha = math.sin(angle) / (2 * BUTTERWORTH_Q)
    feedback = [1 + alpha, -2 * math.cos(angle), 1 - alpha]
    filtered: Samples = lfilter(feed_forward, feedback, samples.astype(np.float64))
    return filtered


def resample(samples: Samples, sample_rate: int, *, factor: float) -> Samples:
    """Resample to `factor` times the rate and back."""
    middle_hz = sample_rate * factor
    there = to_rate(samples, sample_rate, middle_hz)
    return fit(to_rate(there, middle_hz, sample_rate), samples.size)


def gain(samples: Samples, sample_rate: int, *, factor: float) -> Samples:
    """Scale the amplitude."""
    del sample_rate
    return samples * np.float32(factor)


def polarity(samples: Samples, sample_rate: int) -> Samples:
    """Turn the waveform upside down."""
    del sample_rate
    return -samples


def quantize(samples: Samples, sample_rate: int, *, bits: int) -> Samples:
    """Round to signed integers of `bits` bits, clipping what lies outside -1 to 1."""
    del sample_rate
    steps = 2 ** (bits - 1)
    levels: Samples = np.clip(np.round(samples * np.float32(steps)), -steps, steps - 1)
    return levels / np.float32(steps)


def smoothing(samples: Samples, sample_rate: int, *, window: int) -> Samples:
    """Replace each sample by the mean of the `window` samples around it.

    `window` counts samples at 16 kHz; at another rate the odd number that lasts about as long is
    taken (21 at 48 kHz for the paper's 7).
    """
    half = round((window * sample_rate / PAPER_RATE_HZ - 1) / 2)
    smoothed: Samples = uniform_filter1d(samples, 2 * half + 1, mode="constant")
    return smoothed


def echo(samples: Samples, sample_rate: int, *, delay_s: float, decay: float) -> Samples:
    """Add one copy of the clip, `delay_s` late and `decay` times as loud.

    A clip shorter than the delay ends before its echo comes.
    """
    delay = round(delay_s * sample_rate)
    echoed = samples.copy()
    echoed[delay:] += np.float32(decay) * samples[: max(samples.size - delay, 0)]
    return echoed
