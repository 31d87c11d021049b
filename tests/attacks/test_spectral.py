"""Spectral attacks: magnitudes kept, phases lost, weak carriers stripped."""

import numpy as np
import pytest
from scipy.signal import ShortTimeFFT
from scipy.signal.windows import hann

from keybound.attacks import spectral


def magnitudes(samples, hop=256):
    frames = ShortTimeFFT(hann(4 * hop, sym=False), hop, fs=1.0)
    return np.abs(frames.stft(samples.astype(np.float64)))


def convergence_db(wanted, found):
    return 20 * np.log10(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("sample_rate", [8000, 16000, 48000])
def test_griffin_lim_keeps_the_magnitudes_and_loses_the_waveform(voice, sample_rate):
    clip = voice(sample_rate)
    attacked = spectral.griffin_lim(clip, sample_rate, iterations=32, seed=0)
    hop = 256 * sample_rate // 16000
    assert convergence_db(magnitudes(clip, hop), magnitudes(attacked, hop)) < -18
    assert abs(np.corrcoef(clip, attacked)[0, 1]) < 0.7


def test_griffin_lim_comes_closer_with_more_iterations(clip):
    wanted = magnitudes(clip)
    errors_db = [
        convergence_db(
            wanted, magnitudes(spectral.griffin_lim(clip, 16000, iterations=count, seed=0))
        )
        for count in (1, 8, 32)
    ]
    assert errors_db == sorted(errors_db, reverse=True)


def test_mel_keeps_the_coarse_envelope_only(clip):
    attacked = spectral.mel(clip, 16000, bands=80, iterations=32, seed=0)
    fine, again = magnitudes(clip), magnitudes(attacked)
    triangles = spectral._mel_triangles(16000, 80)
    coarse = convergence_db(triangles @ fine, triangles @ again)
    assert coarse < -10
    assert coarse < convergence_db(fine, again)


@pytest.mark.parametrize(("sample_rate", "bands"), [(8000, 60), (16000, 80), (48000, 114)])
def test_mel_bands_keep_their_spacing_at_other_rates(sample_rate, bands):
    triangles = spectral._mel_triangles(sample_rate, 80)
    assert triangles.shape == (bands, 2 * (256 * sample_rate // 16000) + 1)
    assert (triangles.max(axis=1) > 0).all()
    peaks_hz = triangles[:40].argmax(axis=1) * 15.625
    wanted_mel = np.arange(1, 41) * 2595 * np.log10(1 + 8000 / 700) / 81
    np.testing.assert_allclose(peaks_hz, 700 * (10 ** (wanted_mel / 2595) - 1), atol=32)


def noise_at_37_db(host):
    carrier = np.random.default_rng(7).standard_normal(host.size)
    return carrier * np.sqrt(np.mean(host**2) / np.mean(carrier**2)) * 10 ** (-37 / 20)


def survival(host):
    """Give how much of a white carrier passes: its projection, and correlation with the rest."""
    carrier = noise_at_37_db(host)
    marked = spectral.denoiser((host + carrier).astype(np.float32), 16000).astype(np.float64)
    passed = marked - spectral.denoiser(host, 16000)
    residual = marked - host
    projection = passed @ carrier / (carrier @ carrier)
    correlation = residual @ carrier / np.sqrt((residual @ residual) * (carrier @ carrier))
    return projection, correlation


def test_the_denoiser_strips_a_weak_white_carrier_from_speech(speech):
    projections, correlations = zip(*(survival(host) for host in speech), strict=True)
    assert np.mean(projections) < 0.3
    assert max(correlations) < 0.3


def test_the_denoiser_strips_a_weak_white_carrier_from_a_synthetic_voice(clip):
    projection, correlation = survival(clip)
    assert projection < 0.3
    assert correlation < 0.3


def test_the_denoiser_is_mild_on_speech(speech):
    pesq = pytest.importorskip("pesq").pesq
    scores = [pesq(16000, host, spectral.denoiser(host, 16000), "wb") for host in speech]
    assert np.mean(scores) > 3.2


def test_digital_silence_does_not_hold_the_gate_open(clip):
    carrier = noise_at_37_db(clip)
    noisy = np.concatenate([np.zeros(16000), clip + carrier]).astype(np.float32)
    quiet = slice(16000 + 3200, 16000 + 4800)  # between two syllables
    attacked = spectral.denoiser(noisy, 16000)
    assert np.std(attacked[quiet]) < 0.2 * np.std(noisy[quiet])
