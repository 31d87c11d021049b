"""Signal attacks: the paper's catalogue of distortions, and the plain ones users meet.

Each function takes mono samples and their rate, with every parameter by name, and is pure: where
there is noise, its seed is a parameter. Knows nothing of marks, keys or networks.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len
from scipy.ndimage import uniform_filter1d
from scipy.signal import fftconvolve, firwin2, hilbert, lfilter, sosfilt

from keybound.attacks.rates import PAPER_RATE_HZ, Samples, fit
from keybound.attacks.rates import resample as to_rate

BUTTERWORTH_Q = math.sqrt(0.5)  # 0.7071: no peak at the cutoff, torchaudio's default
PINK_FLOOR_HZ = 20.0  # below hearing; without a floor long clips spend half the noise there
BARK_CENTRES_HZ = (  # Zwicker's 24 critical bands
    50, 150, 250, 350, 450, 570, 700, 840, 1000, 1170, 1370, 1600,
    1850, 2150, 2500, 2900, 3400, 4000, 4800, 5800, 7000, 8500, 10500, 13500,
)  # fmt: skip
EQUALISER_SPAN_S = 0.064  # of the filter: resolves the lowest bands, 100 Hz wide
ALLPASS_FROM_HZ = 100.0  # the lowest section; the highest stands at 0.45 of the rate


def clean(samples: Samples, sample_rate: int) -> Samples:
    """Leave the clip as it is."""
    del sample_rate
    return samples


def noise(samples: Samples, sample_rate: int, *, snr_db: float, seed: int) -> Samples:
    """Add white Gaussian noise at `snr_db` below the mean power of the clip.

    The noise is scaled by its own measured power, so that the ratio holds exactly on each clip.
    Silence stays silence.
    """
    del sample_rate
    white = np.random.default_rng(seed).standard_normal(samples.size)
    return add_at(samples, white, snr_db)


def pink(samples: Samples, sample_rate: int, *, snr_db: float, seed: int) -> Samples:
    """Add pink noise (power falling by 3 dB an octave from 20 Hz) at `snr_db`, as `noise` does."""
    white = np.random.default_rng(seed).standard_normal(samples.size)
    frequencies_hz = np.fft.rfftfreq(samples.size, 1 / sample_rate)
    audible = frequencies_hz >= PINK_FLOOR_HZ
    shape = np.zeros_like(frequencies_hz)
    shape[audible] = frequencies_hz[audible] ** -0.5
    return add_at(samples, np.fft.irfft(np.fft.rfft(white) * shape, samples.size), snr_db)


def add_at(samples: Samples, added: NDArray[np.floating], snr_db: float) -> Samples:
    """Add something scaled to `snr_db` below the energy of the clip; nothing where it is silent."""
    host_energy = float(np.sum(np.square(samples, dtype=np.float64)))
    added_energy = float(np.sum(np.square(added, dtype=np.float64)))
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


def equalise(samples: Samples, sample_rate: int, *, range_db: float, seed: int) -> Samples:
    """Turn each of 24 bands up or down by a gain drawn evenly from within `range_db`.

    The bands are Zwicker's critical ones, from 50 Hz to 13.5 kHz; a rate that does not hold the
    upper ones goes without them. Linear phase, its delay taken away.
    """
    gains_db = np.random.default_rng(seed).uniform(-range_db, range_db, len(BARK_CENTRES_HZ))
    inside = [n for n, hz in enumerate(BARK_CENTRES_HZ) if hz < sample_rate / 2]
    centres_hz = [0.0, *(BARK_CENTRES_HZ[n] for n in inside), sample_rate / 2]
    gains = 10 ** (gains_db[[inside[0], *inside, inside[-1]]] / 20)
    taps = 2 * round(EQUALISER_SPAN_S / 2 * sample_rate) + 1
    whole: Samples = fftconvolve(samples, firwin2(taps, centres_hz, gains, fs=sample_rate))
    return whole[taps // 2 : taps // 2 + samples.size]


def phase_shift(samples: Samples, sample_rate: int, *, phase_deg: float) -> Samples:
    """Turn the phase of every frequency by the same angle; 180 degrees are the polarity."""
    del sample_rate
    analytic = hilbert(samples.astype(np.float64), next_fast_len(2 * samples.size))
    turned: Samples = np.real(analytic * np.exp(1j * np.deg2rad(phase_deg)))[: samples.size]
    return turned


def allpass(samples: Samples, sample_rate: int, *, sections: int) -> Samples:
    """Bend the phase over the band with all-pass biquads (cookbook, Q 1); magnitudes stay.

    The sections stand from 100 Hz to 0.45 of the rate, evenly on the logarithm.
    """
    angles = 2 * np.pi * np.geomspace(ALLPASS_FROM_HZ / sample_rate, 0.45, sections)
    alpha, middle = np.sin(angles) / 2, -2 * np.cos(angles)
    biquads = np.stack([1 - alpha, middle, 1 + alpha, 1 + alpha, middle, 1 - alpha], axis=1)
    filtered: Samples = sosfilt(biquads / biquads[:, 3:4], samples.astype(np.float64))
    return filtered


def shift(samples: Samples, sample_rate: int, *, delay_s: float) -> Samples:
    """Delay the clip (zeros before it), or cut its start where `delay_s` is negative."""
    delay = round(delay_s * sample_rate)
    silence = np.zeros(min(abs(delay), samples.size), np.float32)
    if delay < 0:
        return np.concatenate([samples[silence.size :], silence])
    return np.concatenate([silence, samples[: samples.size - silence.size]])


def jitter(samples: Samples, sample_rate: int, *, deviation_samples: float, seed: int) -> Samples:
    """Read each sample at a time that is off by a Gaussian of `deviation_samples`."""
    del sample_rate
    at = np.arange(samples.size, dtype=np.float64)
    off = deviation_samples * np.random.default_rng(seed).standard_normal(samples.size)
    return np.interp(at + off, at, samples).astype(np.float32)


def clipping(samples: Samples, sample_rate: int, *, clipped_percent: float) -> Samples:
    """Clip the loudest `clipped_percent` of the samples to the level of the rest."""
    del sample_rate
    level = np.float32(np.percentile(np.abs(samples), 100 - clipped_percent))
    return np.clip(samples, -level, level)
