"""Spectral attacks: what survives when a clip is rebuilt from its short-time spectrum.

All work on the paper's 1024/256 Hann frames, which last 64 ms every 16 ms at 16 kHz; at other
rates the frames last as long, so that the attack is the same and the host keeps its bandwidth.
Knows nothing of marks, keys or networks.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from scipy.signal import istft, stft

from keybound.attacks.rates import PAPER_RATE_HZ, Samples, fit

Magnitudes = NDArray[np.float32]  # (bins, frames)
Spectrum = NDArray[np.complex64]  # (bins, frames)

PAPER_HOP = 256  # samples at 16 kHz; a window spans four hops
MOMENTUM = 0.99  # of the fast Griffin-Lim algorithm, as in librosa and torchaudio
MEL_TOP_HZ = 8000.0  # a number of mel bands means: up to here

# The gate of the denoiser, frozen. On one second of LibriSpeech dev-clean with white noise at
# 37 dB, 0.24 of the noise comes through (its projection), PESQ 3.5 and STOI 0.98 against the host.
FLOOR_PERCENTILE = 10.0  # of the magnitude over time, in each bin: the noise floor
THRESHOLD_DB = 22.0  # above the floor: here the gate is half open
KNEE_DB = 3.0  # the gate is logistic((level - threshold) / knee)
SMOOTH_BINS = 5  # the gate is averaged over so many bins
SMOOTH_FRAMES = 5  # and so many frames, against musical noise
CLOSED_DB = -40.0  # what a closed gate lets through
QUIET = 1e-8  # keeps logarithms finite; 30 dB below the rounding noise of 16 bits in one bin


def griffin_lim(samples: Samples, sample_rate: int, *, iterations: int, seed: int) -> Samples:
    """Throw the phase away and find another one that fits the magnitudes.

    Fast Griffin-Lim (Perraudin et al., 2013) with momentum 0.99, from a random phase.
    """
    magnitudes = np.abs(_analyse(samples, sample_rate))
    return _phase_from(magnitudes, sample_rate, samples.size, iterations, seed)


def mel(samples: Samples, sample_rate: int, *, bands: int, iterations: int, seed: int) -> Samples:
    """Keep only a mel spectrogram of magnitudes and rebuild the clip from it by Griffin-Lim.

    `bands` triangles (HTK scale, unit peak) share the band up to 8 kHz; at other rates their
    spacing stays and their number follows the bandwidth. The pseudo-inverse of the triangles,
    clipped at zero, brings the magnitudes back.
    """
    triangles = _mel_triangles(sample_rate, bands)  # (bands, bins)
    magnitudes = np.abs(_analyse(samples, sample_rate))  # (bins, frames)
    # The pseudo-inverse T' (T T')^-1: the overlaps T T' are few and well conditioned.
    weights = np.linalg.solve(triangles @ triangles.T, triangles @ magnitudes)  # (bands, frames)
    coarse = np.maximum(triangles.T @ weights, 0).astype(np.float32)  # (bins, frames)
    return _phase_from(coarse, sample_rate, samples.size, iterations, seed)


def denoiser(samples: Samples, sample_rate: int) -> Samples:
    """Gate each time-frequency bin against a noise floor estimated from the clip itself.

    The floor of a bin is the 10th percentile of its magnitude over the clip (frames of digital
    silence left out). The gate opens softly around 22 dB above the floor (logistic, knee 3 dB),
    is averaged over 5 bins and 5 frames, and lets -40 dB through where it is closed.
    """
    spectrum = _analyse(samples, sample_rate)
    magnitudes = np.abs(spectrum)  # (bins, frames)
    # Digital silence is no noise to measure: counted, it would hold the gate open everywhere.
    sounding = magnitudes[:, magnitudes.max(axis=0) > QUIET]
    if sounding.shape[1] == 0:
        return samples
    floor = np.percentile(sounding, FLOOR_PERCENTILE, axis=1, keepdims=True)
    level_db = 20 * np.log10((magnitudes + QUIET) / (floor + QUIET))
    gate = 1 / (1 + np.exp((THRESHOLD_DB - level_db) / KNEE_DB))
    gate = uniform_filter(gate, (SMOOTH_BINS, SMOOTH_FRAMES), mode="nearest")
    closed = 10 ** (CLOSED_DB / 20)
    passed = (closed + (1 - closed) * gate).astype(np.float32)
    return _synthesise(spectrum * passed, sample_rate, samples.size)


def _hop(sample_rate: int) -> int:
    return round(PAPER_HOP * sample_rate / PAPER_RATE_HZ)


def _analyse(samples: Samples, sample_rate: int) -> Spectrum:
    """Return the centred short-time spectrum, zeros beyond both ends."""
    hop = _hop(sample_rate)
    # scipy shortens the window for clips below one window; zeros keep the grid instead.
    padded = fit(samples, max(samples.size, 4 * hop))
    spectrum: Spectrum = stft(padded, window="hann", nperseg=4 * hop, noverlap=3 * hop)[2]
    return spectrum


def _synthesise(spectrum: Spectrum, sample_rate: int, length: int) -> Samples:
    hop = _hop(sample_rate)
    samples: Samples = istft(spectrum, window="hann", nperseg=4 * hop, noverlap=3 * hop)[1]
    return fit(samples, length)


def _phase_from(
    magnitudes: Magnitudes, sample_rate: int, length: int, iterations: int, seed: int
) -> Samples:
    """Find a waveform with these magnitudes by fast Griffin-Lim from a random phase."""
    start = np.random.default_rng(seed).uniform(-np.pi, np.pi, magnitudes.shape)
    phasors = np.exp(1j * start).astype(np.complex64)
    previous: Spectrum = np.zeros_like(phasors)
    frames = magnitudes.shape[1]
    for _ in range(iterations):
        estimate = _synthesise(
            magnitudes * phasors, sample_rate, max(length, 4 * _hop(sample_rate))
        )
        rebuilt = _analyse(estimate, sample_rate)[:, :frames]
        leap = rebuilt - np.float32(MOMENTUM / (1 + MOMENTUM)) * previous
        phasors = leap / np.maximum(np.abs(leap), np.float32(1e-16))
        previous = rebuilt
    return _synthesise(magnitudes * phasors, sample_rate, length)


def _mel_triangles(sample_rate: int, bands: int) -> Magnitudes:
    """Return the triangles of a mel filterbank from 0 Hz to half the rate, (bands, bins)."""
    spacing_mel = _mel_of(MEL_TOP_HZ) / (bands + 1)
    top_mel = _mel_of(sample_rate / 2)
    edges_mel = np.linspace(0.0, top_mel, round(top_mel / spacing_mel) + 1)
    edges_hz = 700 * (10 ** (edges_mel / 2595) - 1)
    bins_hz = np.linspace(0.0, sample_rate / 2, 2 * _hop(sample_rate) + 1)
    low, peak, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    rising, falling = (bins_hz - low) / (peak - low), (high - bins_hz) / (high - peak)
    return np.clip(np.minimum(rising, falling), 0, None).astype(np.float32)


def _mel_of(frequency_hz: float) -> float:
    return float(2595 * np.log10(1 + frequency_hz / 700))
