"""One step of training: what it draws, and that it learns."""

from dataclasses import replace

import pytest
import torch

from keybound.errors import RecipeError
from keybound.training import checkpoint, losses, step, twins
from keybound.training.seanet import WaveRemover

CPU = torch.device("cpu")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_negatives_that_are_not_speech_take_the_place_of_clean_hosts(
    share, tiny, sources, monkeypatch
):
    recipe = tiny(batch=2, data={"non_speech": share})
    loop = step.prepare(recipe, checkpoint.fresh(recipe, CPU), sources, CPU)
    heard = []
    detect = loop.detect
    loop.detect = lambda y: heard.append(y.detach()) or detect(y)
    monkeypatch.setattr(
        loop.hosts, "non_speech", lambda count, _: torch.full((count, 25 * 320), 0.25)
    )
    step.train_step(loop, 0, 0.0, None)
    clean = heard[0][-6:-4]  # before the two kinds of transplants
    assert (clean == clean[:, :1]).all(-1).sum() == round(2 * share)  # scaled, but level
    loop.pool.shutdown()


def test_a_batch_can_be_learned(tiny, sources):
    recipe = tiny(
        batch=2,
        learning_rate=5e-3,
        data={"splice": 0.0},
        channel={"groups": 1, "neural_group": False, "odds": {"identity": 1.0}},
    )
    state = checkpoint.fresh(recipe, CPU)
    loop = step.prepare(recipe, state, sources, CPU)
    found = [float(step.train_step(loop, 0, 0.0, None)["message"]) for _ in range(40)]
    assert found[-1] < 0.7 * found[0]
    loop.pool.shutdown()


def test_full_marks_are_heard_in_part_and_weak_ones_whole(tiny, sources, monkeypatch):
    data = {"cropped": 1.0, "full": 0.5, "strengths": (0.5, 0.8), "segment_frames": 50}
    recipe = tiny(batch=4, data=data)
    loop = step.prepare(recipe, checkpoint.fresh(recipe, CPU), sources, CPU)
    heard = []
    detect = loop.detect
    loop.detect = lambda y: heard.append(y.detach()) or detect(y)
    drawn = []
    kept = step.draw
    monkeypatch.setattr(step, "draw", lambda *asked: drawn.append(kept(*asked)) or drawn[-1])
    terms = step.train_step(loop, 0, 0.0, None)
    loop.pool.shutdown()
    assert all(torch.isfinite(terms[name]) for name in ("message", "presence", "clip_presence"))
    full = drawn[0].strength == 1
    assert 0 < full.sum() < len(full)
    for clip, whole, frames in zip(heard[0], ~full, drawn[0].kept, strict=False):
        silent = (clip.reshape(-1, 320) == 0).all(-1)
        assert torch.equal(silent, frames == 0) if not whole else not silent.any()


def test_a_forged_host_is_never_its_own(tiny, sources, monkeypatch):
    seen = []
    kept = losses.transplant_residual, losses.transplant_gains

    def spy(function):
        def move(host, marked, other):
            seen.append((host, other))
            return function(host, marked, other)

        return move

    monkeypatch.setattr(losses, "transplant_residual", spy(kept[0]))
    monkeypatch.setattr(losses, "transplant_gains", spy(kept[1]))
    for batch, groups in ((1, 1), (2, 1), (2, 0), (3, 1)):
        recipe = tiny(batch=batch, channel={"groups": groups})
        loop = step.prepare(recipe, checkpoint.fresh(recipe, CPU), sources, CPU)
        step.train_step(loop, 0, 0.0, None)
        loop.pool.shutdown()
    for host, other in seen:
        for one, two in zip(host, other, strict=True):
            assert not torch.equal(one, two)


def test_gain_transplants_are_forged_where_the_recipe_says(tiny, sources, monkeypatch):
    moved = []
    monkeypatch.setattr(losses, "transplant_gains", lambda *_: moved.append("gains") or _[2])
    kept = losses.transplant_residual
    monkeypatch.setattr(
        losses, "transplant_residual", lambda *_: moved.append("residual") or kept(*_)
    )
    for gains in (True, False):
        recipe = tiny(loss={"gain_transplants": gains})
        loop = step.prepare(recipe, checkpoint.fresh(recipe, CPU), sources, CPU)
        step.train_step(loop, 0, 0.0, None)
        loop.pool.shutdown()
    assert moved == ["residual", "gains", "residual", "residual"]


def test_a_recipe_meets_the_codecs_it_names(tiny, sources, monkeypatch):
    made = {"lyra-3.2": torch.nn.Tanh(), "lyra-6": torch.nn.Tanh(), "lyra-9.2": torch.nn.Tanh()}
    monkeypatch.setattr(step.neural, "load_lyra", lambda *_: made)
    there = replace(sources, lyra=sources.noise)
    one, two = ("lyra-6",), ("lyra-6", "lyra-9.2")
    for names, found in (((), 3), (one, 1), (two, 2), (2 * one, 2)):
        recipe = tiny(channel={"neural_codecs": list(names)})
        loop = step.prepare(recipe, checkpoint.fresh(recipe, CPU), there, CPU)
        assert len(loop.tools.neural) == found
        assert set(names) <= set(loop.tools.neural)
        loop.pool.shutdown()
    recipe = tiny(channel={"neural_codecs": ["lyra-12"]})
    with pytest.raises(RecipeError, match="no lyra-12 here"):
        step.prepare(recipe, checkpoint.fresh(recipe, CPU), there, CPU)


def test_the_channel_is_as_the_recipe_says(tiny, sources):
    recipe = tiny(channel={"shift_ms": 2.5, "strengths": "paper", "wave_remover": True})
    state = checkpoint.fresh(recipe, CPU)
    loop = step.prepare(recipe, state, sources, CPU)
    assert (loop.tools.shift, loop.tools.strengths) == (40, twins.STRENGTHS["paper"])
    assert isinstance(state.remover, WaveRemover)
    loop.pool.shutdown()


def test_marks_are_as_strong_as_the_recipe_says(tiny, sources):
    recipe = tiny(batch=16, data={"full": 0.5, "strengths": [0.3, 0.6]}, loss={"host": 1.0})
    loop = step.prepare(recipe, checkpoint.fresh(recipe, CPU), sources, CPU)
    step.seeded(loop, 0, 0)
    drawn = step.draw(loop, 32)
    weak = drawn.strength[drawn.strength < 1]
    assert 4 < len(weak) < 28
    assert ((weak >= 0.3) & (weak <= 0.6)).all()
    first, second = losses.pairs(drawn.strength, 16)
    assert torch.equal(first, second)  # a host is marked twice alike
    heard = []
    loop.hearing = lambda x, y, inner=loop.hearing: heard.append(y - x) or inner(x, y)
    made = []
    loop.embed = lambda x, code, inner=loop.embed: made.append(inner(x, code)) or made[-1]
    step.train_step(loop, 0, 0.0, None)
    carrier = made[0][0] if isinstance(made[0], tuple) else made[0]
    torch.testing.assert_close(heard[0], carrier[::2], atol=1e-5, rtol=0)  # at full strength
    loop.pool.shutdown()
