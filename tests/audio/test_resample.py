"""A stream changes its rate as a whole recording would, soon, and at its exact length."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from keybound.audio.resample import TRANSITION_HZ, Resampler

RATES = [8_000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 192_000]
few = settings(max_examples=40, deadline=None)


def tones(rate: int, seconds: float, hz: NDArray[np.float64]) -> NDArray[np.float32]:
    time = np.arange(round(seconds * rate)) / rate
    return (0.2 * np.sin(2 * np.pi * hz * time[:, None]).sum(axis=1, keepdims=True)).astype("f4")


def whole(samples: NDArray[np.float32], from_hz: int, to_hz: int) -> NDArray[np.float32]:
    made = Resampler(from_hz, to_hz, samples.shape[1])
    return np.concatenate([made.push(samples), made.flush()])


@pytest.mark.parametrize("rate", [*RATES, 44_101, 191_999])
def test_time_and_level_are_kept_both_ways(rate: int) -> None:
    edge_hz = min(rate, 16_000) / 2 - TRANSITION_HZ
    hz = np.array([100.0, 1_000.0, edge_hz])
    for from_hz, to_hz in ((rate, 16_000), (16_000, rate)):
        made = whole(tones(from_hz, 0.5, hz), from_hz, to_hz)
        wanted = tones(to_hz, 0.5, hz)
        assert abs(len(made) - len(wanted)) <= 1
        inner = slice(to_hz // 20, to_hz * 9 // 20)
        np.testing.assert_allclose(made[inner], wanted[inner], rtol=0, atol=1e-5)


@pytest.mark.parametrize("rate", [22_050, 44_100, 48_000, 192_000])
def test_nothing_folds_down_and_nothing_is_mirrored_up(rate: int) -> None:
    above = tones(rate, 0.5, np.array([8_001.0, min(10_900.0, rate / 2 - 100)]))
    assert np.abs(whole(above, rate, 16_000)[400:-400]).max() < 1e-5
    made = whole(tones(16_000, 0.5, np.array([7_400.0])), 16_000, rate)[:, 0]
    power = np.abs(np.fft.rfft(made * np.hanning(len(made)))) ** 2
    hz = np.fft.rfftfreq(len(made), 1 / rate)
    assert power[hz > 8_000].sum() < 1e-9 * power.sum()


@few
@given(st.data(), st.sampled_from(RATES), st.sampled_from(RATES), st.integers(1, 2))
def test_how_it_was_cut_does_not_matter_and_no_output_is_late(
    data: st.DataObject, from_hz: int, to_hz: int, channels: int
) -> None:
    frames = data.draw(st.integers(0, from_hz // 5))
    edges = sorted(data.draw(st.lists(st.integers(0, frames), max_size=12)))
    samples = np.random.default_rng(0).standard_normal((frames, channels)).astype(np.float32)
    made, parts = Resampler(from_hz, to_hz, channels), []
    for start, stop in pairwise([0, *edges, frames]):
        parts.append(made.push(samples[start:stop]))
        assert sum(map(len, parts)) >= int((stop / from_hz - made.delay_s) * to_hz)
    cut = np.concatenate([*parts, made.flush()])
    assert cut.shape == (round(Fraction(frames * to_hz, from_hz)), channels)
    assert np.array_equal(cut, whole(samples, from_hz, to_hz))


@pytest.mark.parametrize("rate", RATES)
def test_the_delay_is_short(rate: int) -> None:
    both = Resampler(rate, 16_000, 1).delay_s + Resampler(16_000, rate, 1).delay_s
    assert both <= (0.0 if rate == 16_000 else 0.015)
