"""Checkpoints and starts from weights: what does not fit is refused."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from keybound.errors import RecipeError
from keybound.model.networks import SHIPPED
from keybound.training import checkpoint
from keybound.training.export import read_weights
from keybound.training.recipe import from_tree, load

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


def test_a_damaged_checkpoint_is_said(tiny, tmp_path):
    recipe = tiny()
    checkpoint.save(checkpoint.fresh(recipe, CPU), recipe, tmp_path / "one")
    for name in ("state.json", "resume.safetensors", "weights.safetensors"):
        shutil.copytree(tmp_path / "one", tmp_path / "two", dirs_exist_ok=True)
        (tmp_path / "two" / name).write_bytes(b"{")
        with pytest.raises(RecipeError, match="is damaged"):
            checkpoint.restore(tmp_path / "two", CPU)


def test_a_larger_model_starts_as_the_smaller_one(tiny, speech):
    small = checkpoint.fresh(tiny(), CPU)
    more = {"analysis_blocks": 3, "synthesis_blocks": 2, "expansion": 3, "detector_expansion": 4}
    init = checkpoint.weights(small, averaged=False)
    large = checkpoint.fresh(tiny(model=more), CPU, init)
    code = torch.randint(0, 2, (4, 16)).float()
    with torch.no_grad():
        carriers = [state.embedder(speech, code) for state in (small, large)]
        heard = [state.detector(speech) for state in (small, large)]
    torch.testing.assert_close(*carriers, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(*heard, rtol=1e-4, atol=1e-5)
    assert carriers[0].abs().max() > 1e-3
    with pytest.raises(RecipeError, match="do not fit"):
        checkpoint.fresh(tiny(), CPU, checkpoint.weights(large, averaged=False))


def test_weights_of_another_model_are_refused(tiny):
    init = checkpoint.weights(checkpoint.fresh(tiny(), CPU), averaged=False)
    with pytest.raises(RecipeError, match="do not fit"):
        checkpoint.fresh(tiny("additive"), CPU, init)


def test_the_released_recipe_is_the_card_s_and_goes_on_from_the_shipped_weights():
    recipe = load(ROOT / "recipes" / "released.toml")
    card = json.loads((SHIPPED / "card.json").read_text())
    assert recipe == from_tree(card["recipe"])
    state = checkpoint.fresh(recipe, CPU, read_weights(SHIPPED))
    mine = checkpoint.weights(state, averaged=False)
    assert all(torch.equal(mine[name], value) for name, value in read_weights(SHIPPED).items())


STARTS = re.compile(r"--start ([\w/.-]+)")
NAMING = [p for p in sorted((ROOT / "recipes").rglob("*.toml")) if STARTS.search(p.read_text())]


@pytest.mark.parametrize("path", NAMING, ids=lambda path: path.stem)
def test_every_recipe_that_names_weights_starts_from_them(path):
    for folder in STARTS.findall(path.read_text()):
        checkpoint.fresh(load(path), CPU, read_weights(ROOT / folder))
