"""Arrays of samples are checked, mixed and resampled, and the clips of the tests are speech."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_audio import refusal, tone

from keybound.audio import arrays, recordings
from keybound.demo import SPEECH

# Synthetic. flite 2.2, voice rms (free licence of CMU): "The library opens at nine and closes in
# the evening." espeak-ng 1.51, en-gb (the engine is GPL-3, what it speaks is not): "Please keep
# the small blue box on the second shelf near the door."
DATA = Path(__file__).parents[1] / "data"


# Arrays


def test_check_gives_frames_by_channels():
    assert arrays.check(np.zeros(5), 16_000).shape == (5, 1)
    assert arrays.check([[0.0, 0.5]] * 3, 8_000).shape == (3, 2)
    assert arrays.check(np.zeros(5, np.float16), 16_000).dtype == np.float32
    assert arrays.check(np.zeros(5, np.float64), 16_000).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_check_scales_integers_by_their_full_scale(dtype):
    info = np.iinfo(dtype)
    checked = arrays.check(np.array([info.min, 0, info.max], dtype), 16_000)[:, 0]
    np.testing.assert_array_equal(checked, [-1, 0, 1 + 1 / info.min])


def test_check_centres_unsigned_bytes():
    checked = arrays.check(np.array([0, 128, 255], np.uint8), 16_000)[:, 0]
    np.testing.assert_array_equal(checked, [-1, 0, 127 / 128])


@pytest.mark.parametrize(
    ("samples", "rate", "word"),
    [
        (np.zeros((2, 48_000)), 48_000, "channels came first"),
        (np.zeros((1, 9)), 48_000, "channels came first"),
        (np.zeros(0), 48_000, "no samples"),
        (np.zeros((0, 2)), 48_000, "no samples"),
        (np.zeros((5, 0)), 48_000, "no samples"),
        (np.array([0, np.nan]), 48_000, "finite"),
        (np.array([0, -np.inf]), 48_000, "finite"),
        (np.float64(1), 48_000, "dimensions"),
        (np.zeros((2, 3, 4)), 48_000, "dimensions"),
        (np.zeros(5, np.int64), 48_000, "full scale"),
        (np.zeros(5, bool), 48_000, "full scale"),
        (np.zeros(5, complex), 48_000, "full scale"),
        (np.array(["a"]), 48_000, "full scale"),
        (np.zeros(5), 7_999, "sample rate"),
        (np.zeros(5), 192_001, "sample rate"),
        (np.zeros(5), 16_000.5, "sample rate"),
    ],
)
def test_check_refuses(samples, rate, word):
    assert word in refusal(lambda: arrays.check(samples, rate))


def test_to_mono_is_the_mean():
    np.testing.assert_array_equal(
        recordings.to_mono(np.array([[0.0, 1.0], [1.0, 1.0]])), [0.5, 1.0]
    )


# Resampling


RATES = st.sampled_from([8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000, 192_000])


@settings(deadline=None)
@given(st.integers(0, 3_000), st.integers(1, 3), RATES, RATES)
def test_resample_gives_the_exact_length(frames, channels, from_hz, to_hz):
    samples = np.zeros((frames, channels), np.float32)
    resampled = recordings.resample(samples, from_hz, to_hz)
    assert resampled.shape == (round(Fraction(frames * to_hz, from_hz)), channels)
    assert resampled.dtype == np.float32
    assert recordings.resample(samples[:, 0], from_hz, to_hz).shape == resampled.shape[:1]


def test_resample_keeps_time_and_level():
    there = recordings.resample(tone(44_100, 2), 44_100, 16_000)
    np.testing.assert_allclose(there[800:-800], tone(16_000, 2)[800:-800], atol=1e-5)
    samples = tone(16_000, 1)
    assert recordings.resample(samples, 16_000, 16_000) is samples


# The clips that come with the package and its tests


@pytest.mark.parametrize("path", [SPEECH, *sorted(DATA.glob("*.flac"))], ids=lambda path: path.stem)
def test_the_clips_are_speech_at_a_sane_level(path):
    clip = recordings.read(path)
    assert clip.samples.shape[1] == 1
    assert 3 <= len(clip.samples) / clip.sample_rate <= 8
    assert abs(10 * np.log10((clip.samples**2).mean()) + 23) < 0.5
    assert np.abs(clip.samples).max() < 0.98
