"""Copy attacks and collusion: gains and residuals on another recording, and what is taken out."""

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from keybound.attacks import copying

SPEECH = Path(__file__).parents[1] / "data" / "flite-rms.flac"


@pytest.fixture(scope="module")
def recordings():
    samples = sf.read(SPEECH, dtype="float32")[0]
    return [samples[:16000], samples[16000:32000]]


def test_gains_are_copied_to_another_host(recordings):
    hiss = 1e-3 * np.random.default_rng(0).standard_normal(16000)  # silence has no gain to copy
    host, other = recordings[0] + hiss.astype(np.float32), recordings[1]
    moved = copying.copied(host, 1.5 * host, other, "gain-field")
    assert np.square(moved - 1.5 * other).sum() < 1e-4 * np.square(other).sum()
    assert np.allclose(copying.copied(host, host, other, "gain-field"), other, atol=1e-5)
    silent = np.zeros_like(other)
    assert np.allclose(copying.copied(silent, silent, other, "gain-field"), other, atol=1e-5)


def test_a_residual_is_copied_as_it_is_or_as_loud_as_it_was(recordings):
    host, other = recordings
    assert np.allclose(copying.copied(host, 1.1 * host, other, "residual"), other + 0.1 * host)
    soft = copying.copied(host, 1.1 * host, other / 100, "residual-levelled") - other / 100
    assert np.std(soft) == pytest.approx(0.1 * np.std(other / 100), rel=1e-3)


def test_what_is_taken_out_is_gone(recordings):
    host = recordings[0]
    assert np.allclose(copying.scaled(host, np.ones((1, 1))), host, atol=1e-4)
    assert np.allclose(copying.scaled(host, np.full((1, 1), 0.5)), host / 2, atol=1e-4)
    most = copying.MOST_DB * np.log(10) / 20
    assert np.abs(copying.in_common(recordings)).max() <= most


def test_weights_frame_what_the_codes_of_the_colluders_span():
    rng = np.random.default_rng(0)
    own = rng.choice([-1.0, 1.0], (3, 16))
    majority = np.sign(own.sum(0))
    theirs = np.vstack([-own[0], majority, -majority])
    target, weights = copying.nearest(own, theirs, range(3))
    assert target == 1
    np.testing.assert_allclose(weights, [1 / 3] * 3, atol=0.2)
    assert weights.max() <= copying.MOST_WEIGHT + 1e-3
    assert (
        copying.nearest(own, theirs, (2,))[0] == 2
    )  # another is tried only where it is among them
