"""Recipes: what is unknown or of a wrong type is refused, ramps are ramps, ours all load."""

import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keybound.errors import RecipeError
from keybound.model.networks import SHIPPED, read_card
from keybound.training.recipe import (
    KINDS,
    at,
    from_tree,
    group_count,
    load,
    plan,
    rate,
    to_tree,
)

RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_every_recipe_loads_and_survives_json(path):
    recipe = load(path)
    assert from_tree(json.loads(json.dumps(to_tree(recipe)))) == recipe


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_channels_held_out_for_the_benchmark_are_in_no_recipe(path):
    text = path.read_text().lower().replace("-", "").replace("_", "").replace(" ", "")
    for name in ("hifigan", "codec2", "speex"):
        assert name not in text


def test_the_recipe_of_the_shipped_weights_loads():
    from_tree(read_card(SHIPPED).facts["recipe"])


def test_paper_protocol():
    paper = load(next(path for path in RECIPES if path.stem == "paper"))
    model, data, loss, channel = paper.model, paper.data, paper.loss, paper.channel
    assert (model.generator, model.bits, model.latent) == ("additive", 16, 128)
    assert (model.anchor, model.carrier_scale) == (True, 1.0)
    assert (paper.learning_rate, paper.steps) == (2e-4, 30000)
    assert paper.batch * group_count(paper) == 12
    assert data.segment_frames * 0.02 == 1.0
    assert (data.speeds, data.tilt_db, data.noisy) == ((1.0,), 0.0, 0.0)
    assert (data.splice, data.non_speech) == (0.0, 0.0)
    assert (loss.message, loss.presence, loss.perceptual, loss.forgery) == (12.0, 1.5, 0.5, 1.0)
    assert (loss.masking, loss.clip_presence) == (1.0, 0.0)
    assert (loss.pesq, loss.stoi, loss.visqol) == (0.0, 0.0, 0.0)
    assert [at(loss.snr_db, step) for step in (0, 3500, 7000, 30000)] == [6, 14, 22, 22]
    assert [at(loss.forgery_ramp, step) for step in (2000, 3500, 5000)] == [0, 0.5, 1]
    assert [at(loss.perceptual_ramp, step) for step in (2000, 4500, 7000)] == [0, 0.5, 1]
    assert [channel.probability[i] for i in (0, 1)] == [0.25, 1.0]
    assert (channel.remover_from, channel.remover_updates) == (7000.0, 1)
    assert {rate(paper, step, step) for step in (0, 1, 15000, 29999)} == {2e-4}


def test_what_the_paper_leaves_open_is_decided_in_its_recipe():
    path = next(path for path in RECIPES if path.stem == "paper")
    paper, text = load(path), path.read_text()
    model, loss, channel = paper.model, paper.loss, paper.channel
    assert (loss.budget, loss.clip_budget, loss.clip_slack_db) == (0.0, 1.0, 0.0)
    assert (model.absolute, model.presence_limit) == (True, 5.0)
    assert (loss.forgery_frames, loss.forgery_clips, loss.gain_transplants) == (1.0, 1.0, False)
    assert (channel.shift_ms, channel.wave_remover, channel.strengths) == (0.0, False, "paper")
    assert channel.neural_codecs == ("lyra-6", "lyra-9.2")
    for name in ("clip_budget", "absolute", "presence_limit", "forgery_frames", "shift_ms"):
        assert f"\n{name} = " in text  # said there, not left to a default


def test_the_weights_of_the_paper_differ_from_its_protocol_in_what_their_recipe_says():
    paper, made = (
        to_tree(load(next(path for path in RECIPES if path.stem == stem)))
        for stem in ("paper", "paper-quality")
    )
    loss, odds = made.pop("loss"), made["channel"].pop("odds")
    assert paper["channel"].pop("odds") | {"band_filter": 4.0, "noise": 3.0} == odds
    theirs = paper.pop("loss")
    changed = {"pesq": 6.0, "pesq_goal": 3.0, "forgery": 3.0}
    changed["forgery_ramp"] = (0.0, 1.0, 2000.0, 20000.0)
    assert theirs | changed == loss
    assert paper | {"seed": 35} == made


def test_our_own_recipes_keep_the_shift():
    ours = load(next(path for path in RECIPES if path.stem == "quality")).channel
    assert (ours.shift_ms, ours.strengths, ours.wave_remover) == (10.0, "wide", False)


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        ({"nam": "x"}, "nam"),
        ({"model": {"witdh": 16}}, "model.witdh"),
        ({"data": {"segments": 16}}, "data.segments"),
        ({"loss": {"message_weight": 1.0}}, "loss.message_weight"),
        ({"channel": {"odd": {}}}, "channel.odd"),
        ({"channel": {"odds": {"nois": 1.0}}}, "channel.odds.nois"),
        ({"channel": {"late_odds": {"codec": 1.0}}}, "channel.late_odds.codec"),
    ],
)
def test_unknown_entries_are_refused_at_every_level(tree, named):
    with pytest.raises(RecipeError, match="unknown recipe entry") as error:
        from_tree({"name": "x"} | tree)
    assert str(error.value).endswith(f" {named}")
    assert "known" in error.value.hint


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"name": 3}, "name must be a text"),
        ({"steps": 12.5}, "steps must be a whole number"),
        ({"steps": True}, "steps must be a whole number"),
        ({"steps": [1, 2]}, "steps must be a whole number"),
        ({"learning_rate": "fast"}, "learning_rate must be a finite number"),
        ({"learning_rate": math.inf}, "learning_rate must be a finite number"),
        ({"ema": True}, "ema must be a finite number"),
        ({"model": 3}, "model must be a table"),
        ({"model": {"anchor": 1}}, "model.anchor must be true or false"),
        ({"data": {"speeds": 1.0}}, "data.speeds must be a list of numbers"),
        ({"data": {"speeds": ["fast"]}}, "data.speeds must be a finite number"),
        ({"data": {"level_db": [-40.0]}}, "data.level_db must be a list of 2 numbers"),
        ({"loss": {"snr_db": [6.0, 22.0, 7000.0]}}, "loss.snr_db must be a list of 4 numbers"),
        ({"loss": {"snr_db": [6.0, 22.0, 0.0, "end"]}}, "loss.snr_db must be a finite number"),
        ({"trainable": "detector"}, "trainable must be a list of texts"),
        ({"trainable": [1]}, "trainable must be a text"),
        ({"channel": {"odds": 1.0}}, "channel.odds must be a table"),
        ({"channel": {"odds": {"noise": "often"}}}, "channel.odds.noise must be a finite number"),
        ({"channel": {"odds": {"noise": -1.0}}}, "channel.odds must be positive odds"),
        ({"channel": {"odds": {"noise": 0.0}}}, "channel.odds must be positive odds"),
        ({"model": {"generator": "magic"}}, "generator must be spectral or additive"),
        ({"model": {"emphasis": 1.0}}, "model.emphasis must be a list of pairs of numbers"),
        ({"model": {"emphasis": [[1.0]]}}, "model.emphasis must be a list of 2 numbers"),
        ({"model": {"emphasis": []}}, "emphasis must be pairs, each further up"),
        ({"model": {"emphasis": [[9, 1], [4, 1]]}}, "emphasis must be pairs, each further up"),
        ({"model": {"emphasis": [[9, 1], [9, 2]]}}, "emphasis must be pairs, each further up"),
        ({"model": {"bits": 0}}, "bits must lie between 1 and 256"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"batch": 0}, "a batch must hold two clips or more"),
        (
            {"batch": 1, "channel": {"groups": 1, "codec_group": False, "neural_group": False}},
            "a batch must hold two clips or more",
        ),
        ({"data": {"segment_frames": 3}}, "segments must have 4 frames or more"),
        ({"data": {"speeds": []}}, "speeds must be positive"),
        ({"channel": {"shift_ms": -1.0}}, "shift_ms must not be negative"),
        ({"channel": {"strengths": "mild"}}, "strengths must be wide or paper"),
        ({"channel": {"neural_codecs": "lyra-6"}}, "neural_codecs must be a list of texts"),
    ],
)
def test_wrong_types_and_values_are_refused(tree, words):
    with pytest.raises(RecipeError) as error:
        from_tree({"name": "x"} | tree)
    assert words in str(error.value)


def test_a_recipe_needs_a_name():
    with pytest.raises(RecipeError, match="incomplete"):
        from_tree({})


def test_whole_numbers_do_where_numbers_are_wanted():
    recipe = from_tree({"name": "x", "ema": 1, "loss": {"snr_db": [6, 22, 0, 7000]}})
    assert recipe.ema == 1.0
    assert recipe.loss.snr_db == (6.0, 22.0, 0.0, 7000.0)
    assert type(recipe.loss.snr_db[0]) is float


def test_a_recipe_says_what_differs_from_its_base(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "one.toml").write_text('name = "one"\nseed = 5\n[model]\nbits = 8\nwidth = 32\n')
    (tmp_path / "in" / "two.toml").write_text('base = "../one.toml"\n[model]\nbits = 64\n')
    made = load(tmp_path / "in" / "two.toml")
    assert (made.name, made.seed, made.model.bits, made.model.width) == ("one", 5, 64, 32)
    for base in ('"self.toml"', "3"):
        (tmp_path / "self.toml").write_text(f"base = {base}")
        with pytest.raises(RecipeError, match="as its base"):
            load(tmp_path / "self.toml")
    (tmp_path / "lost.toml").write_text('base = "nowhere.toml"')
    with pytest.raises(RecipeError, match="cannot read recipe"):
        load(tmp_path / "lost.toml")


def test_files_that_are_no_recipes(tmp_path):
    with pytest.raises(RecipeError, match="cannot read"):
        load(tmp_path / "none.toml")
    for content in (b"name = ", b"\xff\xfe"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(RecipeError, match="not TOML"):
            load(tmp_path / "bad.toml")


values = st.floats(-100, 100)
steps = st.floats(0, 1e5)


@settings(deadline=None)
@given(values, values, steps, steps, steps, steps)
def test_ramps_stay_between_their_ends_and_only_go_one_way(start, end, first, length, one, two):
    ramp = (start, end, first, first + length)
    low, high = sorted((start, end))
    early, late = (at(ramp, step) for step in sorted((one, two)))
    assert low - 1e-9 <= min(early, late) <= max(early, late) <= high + 1e-9
    assert (late - early) * (end - start) >= -1e-9
    assert at(ramp, first + length) == end
    assert at(ramp, first - 1) == start


@settings(deadline=None)
@given(values, values, steps, st.floats(1, 1e5))
def test_ramps_are_straight(start, end, first, length):
    middle = at((start, end, first, first + length), first + length / 2)
    assert middle == pytest.approx((start + end) / 2, abs=1e-3)


def test_the_rate_warms_up_stays_and_falls():
    recipe = from_tree(
        {"name": "x", "steps": 1000, "warmup": 100, "decay_from": 0.5, "learning_rate": 1.0}
    )
    curve = [rate(recipe, step, step) for step in range(1000)]
    assert curve[0] == 0.01
    assert set(curve[99:501]) == {1.0}
    assert all(b < a for a, b in itertools.pairwise(curve[501:]))
    assert rate(recipe, 1000, 1000) == pytest.approx(0.02)


def made(**channel):
    spec = {"groups": 3, "codec_group": True, "neural_group": True, "remover_from": 10} | channel
    return from_tree({"name": "x", "steps": 90, "channel": spec})


def test_a_plan_has_an_attack_for_each_group():
    recipe = made(odds=dict.fromkeys(KINDS, 1.0), late_odds={"echo": 1.0})
    assert plan(recipe, 5, 5, coded=True) == plan(recipe, 5, 5, coded=True)
    assert len({tuple(plan(recipe, step, 5, coded=True)) for step in range(20)}) > 10
    for step in range(60):
        kinds = plan(recipe, step, step, coded=step % 2 == 0)
        assert len(kinds) == group_count(recipe) == 5
        assert kinds[-1] == "neural"
        assert (kinds[0] == "codec") == (step % 2 == 0)
        assert "remover" not in kinds or step >= 10
    assert plan(recipe, 80, 80, coded=True) == ["codec", *["echo"] * 3, "neural"]


def test_a_plan_without_odds_leaves_clips_alone():
    assert plan(made(), 0, 0, coded=False) == [*["identity"] * 4, "neural"]
    early = plan(made(odds={"remover": 1.0}), 0, 0, coded=False)
    assert early == [*["identity"] * 4, "neural"]
