"""One step of training: what it draws, and that it learns."""

import pytest
import torch

from keybound.training import checkpoint, losses, step

CPU = torch.device("cpu")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_strangers_take_the_place_of_clean_hosts(share, tiny, sources, monkeypatch):
    recipe = tiny(batch=2, data={"strangers": share})
    loop = step.prepare(recipe, checkpoint.fresh(recipe, CPU), sources, CPU)
    heard = []
    detect = loop.detect
    loop.detect = lambda y: heard.append(y.detach()) or detect(y)
    monkeypatch.setattr(
        loop.hosts, "strangers", lambda count, _: torch.full((count, 25 * 320), 0.25)
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
