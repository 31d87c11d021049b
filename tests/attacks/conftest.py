"""Clips for the tests of the attacks: synthetic ones always, recorded speech where it is."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from numpy.typing import NDArray

SPEECH = Path(__file__).resolve().parents[3] / "shared" / "speech" / "valid"


def make_voice(sample_rate: int, seconds: float = 1.0) -> NDArray[np.float32]:
    """Make a speech-like clip: gliding harmonics under a syllable envelope, a little breath."""
    time_s = np.arange(round(sample_rate * seconds)) / sample_rate
    pitch = 2 * np.pi * (120 * time_s - 8 / (2 * np.pi * 2) * np.cos(2 * np.pi * 2 * time_s))
    harmonics = [n for n in range(1, 32) if n * 130 < sample_rate / 2]
    tone = sum(np.sin(n * pitch) / n for n in harmonics)
    syllables = np.clip(np.sin(2 * np.pi * 3 * time_s), 0, None)
    breath = np.random.default_rng(0).standard_normal(time_s.size)
    return (0.2 * syllables * tone + 0.002 * breath).astype(np.float32)


def measure_lag(reference: NDArray[np.float32], late: NDArray[np.float32]) -> int:
    """Give the number of samples by which `late` follows, by cross-correlation."""
    size = 2 * reference.size
    product = np.fft.rfft(late, size) * np.conj(np.fft.rfft(reference, size))
    best = int(np.argmax(np.fft.irfft(product, size)))
    return best if best < reference.size else best - size


@pytest.fixture(scope="session", autouse=True)
def noise_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make three recordings of noise at three rates, and let `background` find them."""
    folder = tmp_path_factory.mktemp("noise")
    rng = np.random.default_rng(11)
    for rate in (8000, 16000, 44100):
        sf.write(folder / f"hiss-{rate}.wav", 0.1 * rng.standard_normal(rate // 2), rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEYBOUND_NOISE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def voice() -> Callable[..., NDArray[np.float32]]:
    return make_voice


@pytest.fixture(scope="session")
def lag() -> Callable[..., int]:
    return measure_lag


@pytest.fixture
def clip() -> NDArray[np.float32]:
    return make_voice(16000)


@pytest.fixture(scope="session")
def speech() -> list[NDArray[np.float32]]:
    """Give the second second of four recordings of people."""
    files = sorted(SPEECH.glob("*.flac"))[::10]
    if not files:
        pytest.skip("no recorded speech in ../shared/speech/valid")
    return [sf.read(file, start=16000, frames=16000, dtype="float32")[0] for file in files]
