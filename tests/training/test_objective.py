"""The objective: what a right answer costs, and how the recipe weighs the terms."""

import numpy as np
import pytest
import torch

from keybound.training import objective
from keybound.training.hearing import Heard
from keybound.training.recipe import LossSpec, Recipe


def rows(marked: float, unmarked: float, forged: float, sure: float):
    """Return what the networks say of 4 marked clips, 4 twins, 2 clean hosts, 4 forgeries."""
    code = (torch.arange(4 * 8).reshape(4, 8) % 3 == 0).float()
    presence = torch.tensor([marked] * 4 + [unmarked] * 6 + [forged] * 4)[:, None].expand(14, 10)
    logits = torch.zeros(14, 8, 10)
    logits[:4] = (sure * (2 * code - 1))[:, :, None]
    return presence, logits, torch.ones(4, 10), torch.ones(4, 10), code, torch.ones(4)


def heard(snr_db: list[float]) -> Heard:
    """Return what a mark costs where only its SNR matters."""
    zero, ones = torch.zeros(()), torch.ones(len(snr_db))
    return Heard(zero, zero, zero, zero, ones, ones, 4 * ones, 5 * ones, torch.tensor(snr_db), ones)


def test_each_term_falls_with_what_it_asks_for():
    def terms(*args):
        return objective.of_answers(*rows(*args), n=1)

    best = terms(5.0, -5.0, -5.0, 10.0)
    assert set(best) == {"message", "presence", "clip_presence", "forgery", "clip_forgery"}
    assert all(float(value) < 0.02 for value in best.values())
    worse = {
        "message": terms(5.0, -5.0, -5.0, -1.0),
        "forgery": terms(5.0, -5.0, 5.0, 10.0),
        "clip_forgery": terms(5.0, -5.0, 5.0, 10.0),
        "presence": terms(-5.0, -5.0, -5.0, 10.0),
        "clip_presence": terms(5.0, 5.0, -5.0, 10.0),
    }
    for name, found in worse.items():
        assert found[name] > 1
    assert worse["forgery"]["presence"] == best["presence"]  # each in its own rows
    assert worse["message"]["forgery"] == best["forgery"]


def test_the_recipe_weighs_every_term():
    names = set(objective.of_answers(*rows(1.0, 0.5, 0.5, 0.5), n=2, paired=True))
    names |= set(objective.of_cost(LossSpec(), heard([20.0]), 0.0))
    assert set(objective.weights(Recipe("r"), 0.0)) == names


def test_the_sum_is_by_weight_and_skips_what_has_none():
    terms = {"message": torch.tensor(2.0), "host": torch.tensor(float("nan"))}
    assert objective.total(terms, {"message": 12.0, "host": 0.0}) == 24


def test_weights_follow_their_ramps():
    spec = LossSpec(
        forgery=2.0,
        forgery_clips=0.5,
        forgery_ramp=(0.0, 1.0, 100.0, 200.0),
        perceptual=0.5,
        stoi=100.0,
        perceptual_ramp=(0.0, 1.0, 0.0, 100.0),
    )
    early, late = (objective.weights(Recipe("r", loss=spec), at) for at in (50, 200))
    assert (early["forgery"], early["clip_forgery"]) == (0, 0)
    assert (late["forgery"], late["clip_forgery"]) == (2, 1)
    assert (early["mel"], late["mel"]) == (0.5, 1)
    assert (early["below_stoi"], late["below_stoi"]) == (25, 50)


def test_forgeries_count_by_frame_and_by_clip():
    found = objective.of_answers(*rows(1.0, 0.5, 2.0, 0.5), n=1)
    cost = -np.log(1 - 1 / (1 + np.exp(-2.0)))
    assert float(found["forgery"]) == pytest.approx(cost, rel=1e-4)
    assert float(found["clip_forgery"]) == pytest.approx(cost, rel=1e-4)  # all frames are alike


def test_the_snr_hinge_is_on_the_mean_and_on_each_clip():
    def hinges(target: float, slack: float = 0.0) -> list[float]:
        spec = LossSpec(clip_slack_db=slack, snr_db=(target, target, 0.0, 1.0))
        terms = objective.of_cost(spec, heard([16.0, 22.0, 28.0]), 0.0)
        return [float(terms["snr"]), float(terms["clip_snr"])]

    assert hinges(22.0) == [0, 2]  # 6 dB in one of three
    assert hinges(25.0) == [3, 4]
    assert hinges(22.0, slack=4.0) == pytest.approx([0, 2 / 3])
    assert hinges(22.0, slack=6.0) == [0, 0]


def test_a_moment_of_mark_need_not_spell_the_code():
    presence, logits, target, weight, *rest = rows(5.0, -5.0, -5.0, 10.0)
    wrong = logits.clone()
    wrong[0] = -logits[0]
    target[0, 1:] = 0
    whole = torch.ones_like(target)
    partly = objective.of_answers(presence, wrong, target, weight, *rest, 1)["message"]
    fully = objective.of_answers(presence, wrong, whole, weight, *rest, 1)["message"]
    assert partly < 0.3 * fully


def test_a_pause_need_not_be_seen_as_marked():
    presence, logits, target, weight, *rest = rows(-5.0, -5.0, -5.0, 10.0)
    weight[0] = 0  # the whole clip is a pause
    some = objective.of_answers(presence, logits, target, weight, *rest, 1)
    none = objective.of_answers(presence, logits, target, 0 * weight, *rest, 1)
    assert some["clip_presence"] > 1
    assert max(float(none[name]) for name in ("presence", "clip_presence")) < 0.1


def test_a_wrong_second_counts_in_a_full_mark_and_not_in_a_weak_one():
    logits = torch.full((5, 8, 150), 3.0)  # a clip and its twin, clean, forged
    logits[0, :, 100:] = -4.0  # the last second says otherwise, and less than the others together
    presence, ones = torch.zeros(5, 150), torch.ones(1, 150)

    def message(strength: float) -> float:
        args = presence, logits, ones, ones, torch.ones(1, 8), torch.tensor([strength])
        return float(objective.of_answers(*args, n=1)["message"])

    assert message(1.0) > 4 / 3  # a third of the seconds, at 4 nats
    assert message(0.5) < 0.7  # the whole is right


def test_presence_of_a_weak_mark_counts_less():
    *args, _ = rows(-2.0, -5.0, -5.0, 10.0)
    weak, full = (
        objective.of_answers(*args, torch.full((4,), s), n=1)["presence"] for s in (0.5, 1.0)
    )
    assert weak < full
