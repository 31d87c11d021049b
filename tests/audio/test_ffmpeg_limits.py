"""ffmpeg gets limits of memory and time, and what they end is an error in one line."""

import shutil
import subprocess
from pathlib import Path

import pytest

from keybound.audio import ffmpeg, recordings
from keybound.errors import AudioError


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg is not installed")
    made = tmp_path_factory.mktemp("limits") / "a.m4a"
    source = ("-f", "lavfi", "-i", "anoisesrc=r=16000", "-t", "60")
    subprocess.run(["ffmpeg", "-v", "error", *source, made], check=True)
    return made


def test_too_little_memory_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg, "MOST_BYTES", 1 << 20)
    with pytest.raises(AudioError, match=r"a\.m4a cannot be decoded"):
        recordings.Reader(path)


def test_too_little_time_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg, "MOST_CPU_S", 0)
    with pytest.raises(AudioError) as caught:
        recordings.Reader(path)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("ffmpeg: ")


def test_the_usual_limits_are_not_reached(path: Path) -> None:
    with recordings.Reader(path) as file:
        assert file.frames > 59 * file.sample_rate
