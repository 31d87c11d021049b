"""Scenes: the decay of the room by Schroeder's integral, the noise at its ratio."""

import numpy as np
import pytest
import soundfile as sf

from keybound.attacks import available, scene
from keybound.errors import AttackError


def response(sample_rate, **room):
    click = np.zeros(sample_rate, np.float32)
    click[0] = 1.0
    return scene.reverb(click, sample_rate, **room).astype(np.float64)


@pytest.mark.parametrize("sample_rate", [8000, 16000, 48000])
@pytest.mark.parametrize("rt60_s", [0.3, 0.6])
def test_the_room_has_its_reverberation_time(sample_rate, rt60_s):
    tail = response(sample_rate, rt60_s=rt60_s, direct_db=0.0, seed=0)[1:]
    # Schroeder (1965): the energy that is still to come, from 5 to 35 dB down, twice
    remaining_db = 10 * np.log10(np.cumsum(tail[::-1] ** 2)[::-1] / np.sum(tail**2) + 1e-12)
    at = [np.argmax(remaining_db < level) / sample_rate for level in (-5, -35)]
    assert 2 * (at[1] - at[0]) == pytest.approx(rt60_s, rel=0.06)


@pytest.mark.parametrize("direct_db", [-6.0, 0.0, 6.0])
def test_the_room_has_its_direct_sound_and_unit_energy(direct_db):
    heard = response(16000, rt60_s=0.3, direct_db=direct_db, seed=1)
    assert np.sum(heard**2) == pytest.approx(1.0, abs=1e-5)
    ratio_db = 10 * np.log10(heard[0] ** 2 / np.sum(heard[1:] ** 2))
    assert ratio_db == pytest.approx(direct_db, abs=0.01)


@pytest.mark.parametrize("sample_rate", [8000, 16000, 48000])
@pytest.mark.parametrize("snr_db", [20.0, 5.0])
def test_the_background_has_its_ratio(voice, sample_rate, snr_db):
    host = voice(sample_rate, 2.0)  # longer than the recordings
    added = scene.background(host, sample_rate, snr_db=snr_db, seed=2).astype(np.float64) - host
    assert 10 * np.log10(np.sum(host**2) / np.sum(added**2)) == pytest.approx(snr_db, abs=1e-3)


def test_the_background_is_the_recording(monkeypatch, tmp_path, clip):
    time_s = np.arange(24000) / 48000
    sf.write(tmp_path / "hum.flac", 0.3 * np.sin(2 * np.pi * 100 * time_s), 48000)
    (tmp_path / "notes.txt").write_text("no recording")
    monkeypatch.setenv("KEYBOUND_NOISE", str(tmp_path))
    added = scene.background(clip, 16000, snr_db=0.0, seed=0) - clip
    spectrum = np.abs(np.fft.rfft(added))
    assert np.argmax(spectrum) == 100
    assert np.sum(spectrum[95:106] ** 2) > 0.98 * np.sum(spectrum**2)


def test_silent_recordings_are_passed_over(monkeypatch, tmp_path, clip):
    monkeypatch.setenv("KEYBOUND_NOISE", str(tmp_path))
    sf.write(tmp_path / "nothing.wav", np.zeros(1000), 16000)
    with pytest.raises(AttackError, match="silent"):
        scene.background(clip, 16000, snr_db=10.0, seed=0)
    sf.write(tmp_path / "hiss.wav", np.random.default_rng(0).uniform(-1, 1, 1000), 16000)
    for seed in range(8):
        assert not np.array_equal(scene.background(clip, 16000, snr_db=10.0, seed=seed), clip)


def test_an_absent_folder_is_said_to_be_absent(monkeypatch, tmp_path, clip):
    monkeypatch.setenv("KEYBOUND_NOISE", str(tmp_path / "nowhere"))
    with pytest.raises(AttackError, match="recordings absent") as caught:
        scene.background(clip, 16000, snr_db=10.0, seed=0)
    assert "KEYBOUND_NOISE" in (caught.value.hint or "")
    assert available("background") == "recordings absent"
