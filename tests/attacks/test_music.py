"""Music under speech: at its ratio, tonal, never the same twice, the same for one seed."""

import numpy as np
import pytest

from keybound.attacks.music import compose, music


@pytest.mark.parametrize("rate", [8000, 16000, 48000])
@pytest.mark.parametrize("snr_db", [0.0, 20.0])
def test_music_has_its_ratio(voice, rate, snr_db):
    host = voice(rate, 1.5)
    added = music(host, rate, snr_db=snr_db, seed=4).astype(np.float64) - host
    assert 10 * np.log10(np.sum(host**2) / np.sum(added**2)) == pytest.approx(snr_db, abs=1e-3)


def test_seeds_make_pieces(clip):
    first, again, other = (music(clip, 16000, snr_db=5.0, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(np.corrcoef(first - clip, other - clip)[0, 1]) < 0.3


def test_music_is_tonal_and_has_beats():
    piece = compose(np.random.default_rng(3), 16000, 8 * 16000)
    power = np.abs(np.fft.rfft(piece)) ** 2
    strongest = np.sort(power)[::-1]
    assert strongest[: len(power) // 100].sum() > 0.8 * power.sum()  # noise would have 5 %
    frames = np.square(piece).reshape(-1, 320).sum(axis=1)
    onsets = np.flatnonzero(np.diff(np.log(frames)) > 0.5)  # drums and plucks, a beat apart
    assert 0.25 < np.median(np.diff(onsets)) * 0.02 < 1.5
    assert np.median(frames) > 10 * piece.var()  # and a chord below them all the time
