"""The script that teaches weak marks: they are heard less, full ones and the detector stay."""

import argparse
import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from keybound.training import hearing, nets
from keybound.training.recipe import Recipe

SCRIPTS = Path(__file__).parents[2] / "scripts"
LYRA = ("lyra-3.2", "lyra-6")

pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="no scripts here")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("weak_marks")


@pytest.fixture
def pair(script):
    model = replace(Recipe("small").model, width=16, by_strength=True)
    torch.manual_seed(1)
    (embedder, detector), (before, _) = nets.build(model), nets.build(model)
    nn.init.normal_(embedder.out.weight, std=0.3)  # marks that can be heard
    before.load_state_dict(embedder.state_dict())
    return script.Pair(
        embedder, before.requires_grad_(False), detector.requires_grad_(False).eval()
    )


@pytest.fixture
def world(script, sources, monkeypatch):
    monkeypatch.setattr(script.neural, "load_lyra", lambda *_: dict.fromkeys(LYRA, nn.Identity()))
    asked = argparse.Namespace(speech=[sources.speech], noise=sources.noise, lyra=None, seed=0)
    return script.world(asked)


def test_what_is_heard_of_weak_marks_falls_and_full_marks_are_held(script, pair, world):
    def lost(heard):
        torch.manual_seed(2)
        with torch.no_grad():
            return script.lost(pair, hearing.Hearing(), world._replace(rng=rng()), 0, heard)

    def rng():
        return script.np.random.default_rng(0)

    detector = {name: value.clone() for name, value in pair.detector.state_dict().items()}
    first = lost(14.0)
    assert first["full"] < 1e-6  # nothing has changed yet
    asked = argparse.Namespace(steps=12, rate=3e-3, heard=1000.0)
    script.teach(pair, world, asked)
    last = lost(14.0)
    assert last["heard"] < first["heard"]
    assert 0 < last["full"] < script.HELD / 4
    for name, value in pair.detector.state_dict().items():
        assert value.equal(detector[name])


def test_every_clip_goes_through_something(script, world):
    clips = script.hosts(world, script.WEAK)
    assert clips.shape == (script.WEAK, script.LENGTH)
    heard = script.attacked(clips, world, step=1)
    assert heard.shape == clips.shape
    assert torch.isfinite(heard).all()
    level_db = 20 * torch.log10(clips.square().mean(-1).sqrt())
    assert (level_db > script.LEVEL_DB[0] - 0.1).all()
    assert (level_db < script.LEVEL_DB[1] + 0.1).all()


def test_the_gradient_of_a_codec_is_that_of_a_copy(script, world):
    clips = script.hosts(world, 2).requires_grad_(True)
    after = script.coded(clips, world)
    assert not after.equal(clips)
    after.sum().backward()
    torch.testing.assert_close(clips.grad, torch.ones_like(clips))
