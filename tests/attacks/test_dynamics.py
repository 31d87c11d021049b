"""Dynamics: the static curves by hand, the ceiling on every sample."""

import numpy as np
import pytest

from keybound.attacks import dynamics

RATES = [8000, 16000, 48000]


def two_levels(sample_rate, second_db):
    """Make half a second of a tone at full scale, then half a second at another level."""
    time_s = np.arange(sample_rate) / sample_rate
    level = np.where(time_s < 0.5, 1.0, 10 ** (second_db / 20))
    return (0.5 * level * np.sin(2 * np.pi * 1000 * time_s)).astype(np.float32)


def gains_db(host, attacked):
    """Give the gain at the end of either half, where it has settled."""
    ends = [slice(int(at * host.size), int((at + 0.08) * host.size)) for at in (0.4, 0.9)]
    return [20 * np.log10(np.std(attacked[end]) / np.std(host[end])) for end in ends]


@pytest.mark.parametrize("sample_rate", RATES)
def test_the_compressor_has_its_ratio_above_the_threshold(sample_rate):
    tone = two_levels(sample_rate, -12.0)
    attacked = dynamics.compress(tone, sample_rate, threshold_db=-24.0, ratio=4.0)
    # 24 dB above the threshold become 6, 12 become 3
    np.testing.assert_allclose(gains_db(tone, attacked), [-18.0, -9.0], atol=0.3)


def test_the_compressor_leaves_what_lies_below_the_threshold():
    tone = two_levels(16000, -30.0)
    attacked = dynamics.compress(tone, 16000, threshold_db=-24.0, ratio=4.0)
    assert gains_db(tone, attacked)[1] == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("sample_rate", RATES)
def test_the_expander_has_its_ratio_below_the_threshold(sample_rate):
    tone = two_levels(sample_rate, -34.0)
    attacked = dynamics.expand(tone, sample_rate, threshold_db=-24.0, ratio=2.0)
    np.testing.assert_allclose(gains_db(tone, attacked), [0.0, -10.0], atol=0.3)


def test_the_expander_goes_no_deeper_than_it_says():
    tone = two_levels(16000, -90.0)
    attacked = dynamics.expand(tone, 16000, threshold_db=-24.0, ratio=4.0)
    assert gains_db(tone, attacked)[1] == pytest.approx(-40.0, abs=0.3)


@pytest.mark.parametrize("sample_rate", RATES)
def test_nothing_passes_the_limiter_and_quiet_passages_are_not_touched(sample_rate):
    tone = two_levels(sample_rate, -20.0)
    attacked = dynamics.limit(tone, sample_rate, ceiling_db=-12.0)
    ceiling = np.abs(tone).max() * 10 ** (-12 / 20)
    assert np.abs(attacked).max() <= ceiling * 1.0001
    assert np.abs(attacked).max() > 0.98 * ceiling
    later = int(0.52 * tone.size)
    np.testing.assert_allclose(attacked[later:], tone[later:], rtol=1e-6)


@pytest.mark.parametrize("act", ["compress", "expand", "limit"])
def test_a_quiet_recording_is_treated_as_a_loud_one(clip, act):
    settings = {"ceiling_db": -12.0} if act == "limit" else {"threshold_db": -24.0, "ratio": 4.0}
    loud = getattr(dynamics, act)(clip, 16000, **settings)
    quiet = getattr(dynamics, act)(clip / 64, 16000, **settings)
    np.testing.assert_allclose(quiet * 64, loud, rtol=1e-4, atol=1e-7)
