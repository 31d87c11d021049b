"""An embedder that knows how strong its mark should be: in torch, exported, in the objective."""

import numpy as np
import pytest
import torch

from keybound.model.networks import Networks
from keybound.training import checkpoint, export, losses, objective, step
from keybound.training.hearing import BEST, Heard
from keybound.training.recipe import LossSpec
from keybound.training.spectra import HOP

CPU = torch.device("cpu")
KNOWING = {"by_strength": True}


@pytest.fixture(scope="module")
def trained(tiny):
    """Give a small model whose weak marks give way in the upper half of the bands."""
    recipe = tiny(model=KNOWING)
    state = checkpoint.fresh(recipe, CPU)
    with torch.no_grad():
        state.embedder.slope[20:] = 1.5
        state.embedder.tell.normal_(std=0.1)
        for parameter, average in zip(state.trained, state.average, strict=True):
            average.copy_(parameter)
    return recipe, state


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    recipe, state = trained
    made = tmp_path_factory.mktemp("model")
    export.export(checkpoint.weights(state, averaged=True), recipe, made, {})
    return made


def test_it_starts_as_one_that_is_scaled(tiny, speech):
    scaled = checkpoint.fresh(tiny(), CPU)
    init = checkpoint.weights(scaled, averaged=False)
    knowing = checkpoint.fresh(tiny(model=KNOWING), CPU, init).embedder
    code = torch.randint(0, 2, (4, 16)).float()
    with torch.no_grad():
        full = scaled.embedder(speech, code)
        torch.testing.assert_close(knowing(speech, code, torch.ones(4)), full)
        weak = knowing(speech, code, torch.full((4,), 0.5))
    assert (weak - full / 2).norm() < 0.1 * weak.norm()  # of gains, not of what they add


def test_a_weak_mark_gives_way_where_its_slope_is_steep(trained, speech):
    _, state = trained
    code = torch.randint(0, 2, (4, 16)).float()
    with torch.no_grad():
        state.embedder.tell.mul_(0)
        full, weak = (state.embedder(speech, code, torch.full((4,), s)) for s in (1.0, 0.5))
    part = torch.fft.rfft(weak).abs().square() / (torch.fft.rfft(full).abs().square() + 1e-9)
    low, high = part[:, 200:1200].median(), part[:, 4000:7500].median()
    assert low == pytest.approx(0.25, rel=0.2)
    assert high == pytest.approx(0.5**5, rel=0.2)


@pytest.mark.parametrize("strength", [1.0, 0.6])
def test_the_engine_asks_the_network_for_the_strength(folder, trained, speech, strength):
    recipe, _ = trained
    networks = Networks(folder)
    x, code = speech.reshape(-1).numpy(), np.arange(16).astype(np.uint8) % 2
    feeder = networks.embedder(code, strength)
    pieces = [feeder.push(part) for part in np.array_split(x, 7)]
    made = np.concatenate([*(one for piece in pieces for one in piece), *feeder.flush()])
    net = export.nets.build(recipe.model)[0]
    weights = export.read_weights(folder)
    net.load_state_dict({k[9:]: v for k, v in weights.items() if k.startswith("embedder.")})
    with torch.no_grad():
        wanted = net(
            torch.from_numpy(x[None]),
            torch.from_numpy(code[None].astype(np.float32)),
            torch.tensor([strength]),
        )[0].numpy()
    assert len(made) >= len(x) // HOP * HOP
    assert np.abs(made[: len(x)] - wanted).max() < 1e-3 * np.abs(wanted).max()


def test_budgets_fall_with_strength():
    cost, strength = torch.tensor([0.3, 0.3, 0.075]), torch.tensor([1.0, 1.0, 0.5])
    assert losses.over_by_strength(cost, 0.3, strength, 2.0) == pytest.approx(0, abs=1e-6)
    assert losses.over_by_strength(cost, 0.3, strength, 1.0) == 0  # with room to spare
    beyond = losses.over_by_strength(cost, 0.3, strength, 3.0)  # a budget of .0375: twice of it
    assert beyond == pytest.approx(0.3 + 0.6 - losses.WEAK_SLACK * 0.3, abs=1e-5)
    louder = losses.over_by_strength(torch.tensor([0.4, 0.4, 0.075]), 0.3, strength, 2.0)
    assert louder == pytest.approx(0.1, abs=1e-5)  # weak ones do not make up for full ones
    assert losses.over_by_strength(cost[:2], 0.3, strength[:2], 2.0) == 0  # none is weak


def test_the_cost_of_a_weak_mark_is_judged_by_its_own_budget():
    spec = LossSpec(zimtohrli_goal=4.7, weak_powers=(1.0, 2.0, 1.0, 3.0))
    one, strength = torch.ones(2), torch.tensor([1.0, 0.5])
    zero = torch.zeros(())
    heard = Heard(
        zero, zero, zero, zero, one, one, BEST * one, 5 - 0.3 * strength**3,
        torch.tensor([20.0, 26.02]), torch.tensor([2.0, 1.0]),
    )  # fmt: skip
    terms = objective.of_cost(spec, heard, 1e9, strength)
    assert set(terms) == set(objective.of_cost(spec, heard, 1e9))
    for name in ("below_stoi", "below_visqol", "below_pesq", "below_zimtohrli", "snr", "gain"):
        assert float(terms[name]) == pytest.approx(0, abs=1e-5), name
    louder = objective.of_cost(spec, heard._replace(zimtohrli=5 - 0.3 * strength**2), 1e9, strength)
    assert louder["below_zimtohrli"] > 0.2


def test_a_step_hears_marks_at_their_own_strength(tiny, sources):
    recipe = tiny(
        batch=8, model=KNOWING, data={"full": 0.5, "strengths": [0.3, 0.6]}, loss={"host": 1.0}
    )
    state = checkpoint.fresh(recipe, CPU)
    before = state.embedder.slope.detach().clone()
    loop = step.prepare(recipe, state, sources, CPU)
    for number in range(3):
        terms = step.train_step(loop, number, 1e9, None)
    loop.pool.shutdown()
    assert terms["weak_gain_db"] < 0.8 * terms["gain_db"]
    assert terms["norm"].isfinite()
    assert not torch.equal(before, state.embedder.slope)
