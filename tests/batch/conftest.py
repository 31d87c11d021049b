"""Speech for corpora, and a folder of its own for each test."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound.audio import recordings
from keybound.batch import manifest
from keybound.crypto.keys import Key
from keybound.watermark.watermarker import Watermarker

DATA = Path(__file__).parents[1] / "data"
RATE = 16_000
SECRET = bytes(range(32))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with a registry and a key of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEYBOUND_REGISTRY", str(tmp_path / "registry.sqlite"))
    monkeypatch.setenv("PYTHONPATH", str(Path(manifest.__file__).parents[2]))
    Key(SECRET).write(tmp_path / "alice.key")
    return tmp_path


@pytest.fixture(scope="session")
def speech() -> np.ndarray[Any, Any]:
    samples, rate = sf.read(DATA / "flite-rms.flac", dtype="float32")
    return recordings.resample(samples, rate, RATE)[: 2 * RATE]


@pytest.fixture(scope="session")
def marked(speech: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return Watermarker().embed(speech, RATE, key=Key(SECRET), payload=0x5EED)
