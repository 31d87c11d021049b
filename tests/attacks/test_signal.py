"""Signal attacks beside independent implementations and hand-computed values."""

import numpy as np
import pytest
from scipy.signal import butter, lfilter, resample_poly, welch

from keybound.attacks import signal

RATES = [8000, 16000, 44100, 48000]


def snr_db(host, attacked):
    host, attacked = host.astype(np.float64), attacked.astype(np.float64)
    return 10 * np.log10(np.sum(host**2) / np.sum((attacked - host) ** 2))


@pytest.mark.parametrize("kind", [signal.noise, signal.pink])
@pytest.mark.parametrize("wanted_db", [20.0, 10.0, -3.0])
def test_noise_has_the_ratio_asked_for(clip, kind, wanted_db):
    attacked = kind(clip, 16000, snr_db=wanted_db, seed=5)
    assert snr_db(clip, attacked) == pytest.approx(wanted_db, abs=1e-3)


def test_white_noise_is_flat_and_pink_falls_3_db_an_octave():
    host = np.ones(200_000, np.float32)
    for kind, slope in ((signal.noise, 0.0), (signal.pink, -3.01)):
        added = kind(host, 16000, snr_db=0.0, seed=1) - host
        frequencies_hz, power = welch(added, 16000, nperseg=2048)
        band = (frequencies_hz > 100) & (frequencies_hz < 6000)
        octaves = np.log2(frequencies_hz[band])
        fitted = np.polyfit(octaves, 10 * np.log10(power[band]), 1)[0]
        assert fitted == pytest.approx(slope, abs=0.15)


def test_the_lowpass_has_the_cookbook_coefficients(clip):
    # 4 kHz at 16 kHz: w0 = pi/2, so cos w0 = 0 and alpha = sqrt(1/2); divided by a0 = 1 + alpha
    expected = lfilter([0.29289322, 0.58578644, 0.29289322], [1.0, 0.0, 0.17157288], clip)
    attacked = signal.lowpass(clip, 16000, cutoff_hz=4000.0)
    np.testing.assert_allclose(attacked, expected, atol=1e-6)


def test_the_highpass_has_the_cookbook_coefficients(clip):
    # 4 kHz at 16 kHz again, where the numbers are short: (1 + cos w0)/2 = 1/2
    expected = lfilter([0.29289322, -0.58578644, 0.29289322], [1.0, 0.0, 0.17157288], clip)
    attacked = signal.highpass(clip, 16000, cutoff_hz=4000.0)
    np.testing.assert_allclose(attacked, expected, atol=1e-6)


@pytest.mark.parametrize("sample_rate", RATES)
@pytest.mark.parametrize(("kind", "cutoff_hz"), [("lowpass", 3000.0), ("highpass", 500.0)])
def test_the_filters_are_scipys_butterworth_at_every_rate(voice, sample_rate, kind, cutoff_hz):
    clip = voice(sample_rate)
    expected = lfilter(*butter(2, cutoff_hz, kind, fs=sample_rate), clip)
    attacked = getattr(signal, kind)(clip, sample_rate, cutoff_hz=cutoff_hz)
    np.testing.assert_allclose(attacked, expected, atol=1e-6)


def test_a_cutoff_beyond_the_band_is_no_filter(clip):
    np.testing.assert_array_equal(signal.lowpass(clip, 8000, cutoff_hz=4000.0), clip)
    assert not signal.highpass(clip, 8000, cutoff_hz=4000.0).any()


@pytest.mark.parametrize("sample_rate", RATES)
def test_resampling_keeps_what_lies_below_the_new_band(lag, voice, sample_rate):
    clip = voice(sample_rate)
    attacked = signal.resample(clip, sample_rate, factor=0.8)
    there_and_back = resample_poly(resample_poly(clip, 4, 5), 5, 4)[: clip.size]
    assert lag(clip, attacked) == 0
    assert snr_db(there_and_back, attacked) > 28  # the two differ in the transition band alone
    above = np.random.default_rng(0).standard_normal(sample_rate).astype(np.float32)
    spectrum = np.abs(np.fft.rfft(signal.resample(above, sample_rate, factor=0.8)))
    cut = int(0.8 * spectrum.size)
    assert spectrum[cut + 200 :].max() < 0.01 * spectrum[: cut - 800].mean()


def test_gain_and_polarity(clip):
    np.testing.assert_array_equal(signal.gain(clip, 16000, factor=0.5), clip / 2)
    np.testing.assert_array_equal(signal.polarity(clip, 16000), -clip)


def test_quantize_gives_the_levels_of_8_bits():
    samples = np.array([0.0, 0.0039, 0.004, 0.5, -0.5, 1.0, 2.0, -1.0, -2.0], np.float32)
    expected = np.array([0, 0, 1, 64, -64, 127, 127, -128, -128]) / 128
    np.testing.assert_array_equal(signal.quantize(samples, 16000, bits=8), expected)


def test_smoothing_is_a_centred_mean(clip):
    expected = np.convolve(clip, np.ones(7) / 7, "same")
    np.testing.assert_allclose(signal.smoothing(clip, 16000, window=7), expected, atol=1e-6)
    expected = np.convolve(clip, np.ones(21) / 21, "same")
    np.testing.assert_allclose(signal.smoothing(clip, 48000, window=7), expected, atol=1e-6)


@pytest.mark.parametrize("sample_rate", RATES)
def test_echo_adds_one_late_copy(sample_rate):
    click = np.zeros(sample_rate, np.float32)
    click[10] = 1.0
    attacked = signal.echo(click, sample_rate, delay_s=0.1, decay=0.4)
    expected = np.zeros_like(click)
    expected[[10, 10 + sample_rate // 10]] = 1.0, 0.4
    np.testing.assert_array_equal(attacked, expected)


def test_clean_is_nothing(clip):
    np.testing.assert_array_equal(signal.clean(clip, 16000), clip)


@pytest.mark.parametrize(("sample_rate", "bands"), [(8000, 17), (16000, 21), (48000, 24)])
def test_the_equaliser_has_the_gains_that_were_drawn(sample_rate, bands):
    click = np.zeros(sample_rate, np.float32)  # a second: the bins of its spectrum are 1 Hz apart
    click[sample_rate // 2] = 1.0
    attacked = signal.equalise(click, sample_rate, range_db=6.0, seed=3)
    spectrum = np.fft.rfft(attacked) / np.fft.rfft(click)
    drawn_db = np.random.default_rng(3).uniform(-6, 6, 24)[:bands]
    centres_hz = np.array(signal.BARK_CENTRES_HZ[:bands])
    np.testing.assert_allclose(20 * np.log10(np.abs(spectrum[centres_hz])), drawn_db, atol=0.8)
    assert np.abs(np.angle(spectrum)).max() < 1e-3  # no delay


def test_a_phase_shift_turns_every_frequency():
    time_s = np.arange(16000) / 16000
    for hertz in (100, 1000, 5000):
        tone = np.cos(2 * np.pi * hertz * time_s).astype(np.float32)
        attacked = signal.phase_shift(tone, 16000, phase_deg=60.0)
        expected = np.cos(2 * np.pi * hertz * time_s + np.pi / 3)
        np.testing.assert_allclose(attacked[4000:-4000], expected[4000:-4000], atol=0.01)


def test_half_a_turn_is_the_polarity(clip):
    np.testing.assert_allclose(signal.phase_shift(clip, 16000, phase_deg=180.0), -clip, atol=1e-6)


@pytest.mark.parametrize("sample_rate", RATES)
def test_the_allpass_bends_phases_and_keeps_magnitudes(sample_rate):
    click = np.zeros(sample_rate, np.float32)
    click[0] = 1.0
    response = signal.allpass(click, sample_rate, sections=8)
    np.testing.assert_allclose(np.abs(np.fft.rfft(response)), 1.0, atol=1e-3)
    assert np.abs(response).max() < 0.9


def test_one_allpass_section_has_the_cookbook_coefficients(clip):
    # 100 Hz at 16 kHz, Q 1: alpha = sin(w0) / 2 = 0.01962987, cos w0 = 0.99922904
    feedback = [1.01962987, -1.99845807, 0.98037013]
    expected = lfilter(feedback[::-1], feedback, clip.astype(np.float64))
    np.testing.assert_allclose(signal.allpass(clip, 16000, sections=1), expected, atol=1e-5)


def test_a_shift_moves_the_clip(clip):
    late = signal.shift(clip, 16000, delay_s=0.01)
    assert not late[:160].any()
    np.testing.assert_array_equal(late[160:], clip[:-160])
    early = signal.shift(clip, 16000, delay_s=-0.01)
    np.testing.assert_array_equal(early[:-160], clip[160:])
    assert not early[-160:].any()
    assert not signal.shift(clip, 16000, delay_s=2.0).any()


def test_jitter_reads_beside_the_sample():
    ramp = np.arange(100_000, dtype=np.float32) / 1024
    off = (signal.jitter(ramp, 16000, deviation_samples=0.2, seed=0) - ramp)[10:-10] * 1024
    assert np.std(off) == pytest.approx(0.2, rel=0.02)
    assert np.mean(off) == pytest.approx(0.0, abs=0.005)


def test_clipping_meets_the_loudest_samples(clip):
    attacked = signal.clipping(clip, 16000, clipped_percent=5.0)
    assert np.mean(attacked != clip) == pytest.approx(0.05, abs=0.001)
    level = np.abs(attacked).max()
    np.testing.assert_array_equal(attacked, np.clip(clip, -level, level))
