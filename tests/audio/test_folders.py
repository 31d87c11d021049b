"""Clips from folders: their order, their rate, and what is said of an empty folder."""

import numpy as np
import pytest
import soundfile as sf

from keybound.audio.folders import read_clips
from keybound.errors import AudioError


def test_clips_come_in_the_order_of_names(tmp_path):
    for i, (name, seconds) in enumerate((("b", 2.5), ("a", 1.0), ("c", 0.5), ("B", 3.0))):
        sf.write(tmp_path / f"{name}.flac", np.full(round(16000 * seconds), 0.1 * (i + 1)), 16000)
    (tmp_path / "notes.txt").touch()
    every = [round(float(clip[0]), 1) for clip in read_clips(tmp_path, 1.0, 16000, every=True)]
    assert every == [0.4, 0.4, 0.4, 0.2, 0.1, 0.1]
    first = read_clips(tmp_path, 1.0, 16000)
    assert [round(float(clip[0]), 1) for clip in first] == [0.4, 0.2, 0.1]
    assert len(read_clips(tmp_path, 1.0, 16000, limit=2)) == 2
    sf.write(tmp_path / "wide.flac", np.full((48000, 2), [0.1, 0.3]), 48000)
    assert read_clips(tmp_path, 1.0, 22050)[-1].shape == (22050,)


def test_clips_of_a_higher_rate_are_resampled_not_folded(tmp_path):
    time_s = np.arange(2 * 48000) / 48000
    heard, lost = (0.1 * np.sin(2 * np.pi * hz * time_s) for hz in (1000, 11000))
    sf.write(tmp_path / "wide.flac", heard + lost, 48000, subtype="PCM_24")
    first, second = read_clips(tmp_path, 1.0, 16000, every=True)
    assert first.dtype == np.float32
    assert len(first) == len(second) == 16000
    told = 0.1 * np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)  # 11 kHz would fold to 5
    assert np.abs(first - told)[500:].max() < 1e-4
    assert np.abs(second - told)[:-500].max() < 1e-4


def test_a_folder_without_recordings_is_said(tmp_path):
    with pytest.raises(AudioError, match="no recordings"):
        read_clips(tmp_path, 1.0, 16000)
