"""Small models and synthetic speech, so that training can be tested in seconds on a CPU."""

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import torch

from keybound.training.recipe import Recipe, from_tree
from keybound.training.step import Sources

SPEECH = Path(__file__).parents[1] / "data"

MODELS = {
    "spectral": {
        "generator": "spectral",
        "width": 16,
        "expansion": 2,
        "analysis_blocks": 1,
        "synthesis_blocks": 1,
        "detector_blocks": 2,
    },
    "additive": {"generator": "additive", "latent": 8},
}


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Keep torch to one thread: for networks this small more only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def speech() -> torch.Tensor:
    """Give four seconds of synthetic speech: (4, 16000)."""
    files = [sf.read(path, dtype="float32")[0] for path in sorted(SPEECH.glob("*.flac"))]
    cut = [samples[start : start + 16000] for samples in files for start in (0, 16000)]
    return torch.from_numpy(np.stack(cut))


@pytest.fixture(scope="session")
def sources(tmp_path_factory) -> Sources:
    """Give synthetic speech and a hum with clicks for training."""
    noise = tmp_path_factory.mktemp("noise")
    rng = np.random.default_rng(0)
    hum = 0.1 * np.sin(2 * np.pi * 100 * np.arange(16000) / 16000)
    clicks = (rng.random(16000) < 0.001) * rng.standard_normal(16000)
    sf.write(noise / "hum.wav", (hum + 0.2 * clicks + 0.01).clip(-1, 1), 16000)
    return Sources(SPEECH, noise)


@pytest.fixture(scope="session")
def tiny():
    """Give a function that makes a small recipe."""

    def make(generator: str = "spectral", **changes) -> Recipe:
        tree = {
            "name": "tiny",
            "steps": 6,
            "batch": 1,
            "warmup": 0,
            "learning_rate": 2e-3,
            "model": MODELS[generator],
            "data": {"segment_frames": 25},
            "channel": {"groups": 1, "codec_group": False, "neural_group": True},
        }
        for name, value in changes.items():
            tree[name] = tree[name] | value if isinstance(value, dict) and name in tree else value
        return from_tree(tree)

    return make
