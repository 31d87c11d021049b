"""The script that trains in legs: each goes on from the last, and what is written comes back."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

SCRIPT = Path(__file__).parents[2] / "scripts" / "leg.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="no scripts here")


@pytest.fixture
def leg(tiny, sources, tmp_path, monkeypatch, capsys):
    """Give a function that trains a leg of a small run and returns what it prints."""
    spec = importlib.util.spec_from_file_location("leg", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "load", lambda _: tiny())
    paths = {"speech": sources.speech, "noise": sources.noise, "back": tmp_path / "back"}

    def train() -> str:
        folders = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
        line = ["leg.py", "tiny.toml", str(tmp_path / "run"), *folders]
        more = ["--minutes", "1", "--leg", "0.5", "--device", "cpu"]
        monkeypatch.setattr(sys, "argv", [*line, *more])
        script.main()
        return capsys.readouterr().out

    train.script, train.folder = script, tmp_path
    return train


def test_legs_go_on_and_come_back_as_halves(leg):
    leg()
    first = json.loads((leg.folder / "back" / "state.json").read_text())["step"]
    assert "did not change" in leg()
    state = json.loads((leg.folder / "back" / "state.json").read_text())
    assert state["step"] > first > 0
    leg.script.join(leg.folder / "back", leg.folder / "joined")
    made = load_file(leg.folder / "joined" / "weights.safetensors")
    own = load_file(leg.folder / "run" / "weights.safetensors")
    assert made.keys() == own.keys()
    assert all(torch.allclose(made[k], own[k], atol=1e-3, rtol=1e-3) for k in own)
