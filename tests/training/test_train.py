"""The training loop: it changes what it should, repeats, resumes exactly and survives a bad batch.

CUDA graphs and half precision cannot be tested on a CPU, where networks run as they are.
"""

import itertools
import json
from types import SimpleNamespace

import pytest
import torch

from keybound.errors import RecipeError
from keybound.training import checkpoint, step, train
from keybound.training.recipe import plan

CPU = torch.device("cpu")
EVERYTHING = {
    "channel": {
        "groups": 2,
        "codec_group": True,
        "neural_group": True,
        "remover_from": 0.0,
        "odds": {"remover": 1.0, "noise": 1.0, "griffin_lim": 1.0},
    },
    "data": {"splice": 0.5, "tilt_db": 3.0, "noisy": 0.5},
    "loss": {
        "forgery_ramp": [0.0, 1.0, 0.0, 2.0],
        "perceptual_ramp": [0.0, 1.0, 0.0, 2.0],
        "snr_db": [40.0, 40.0, 0.0, 1.0],
        "gain_db": [0.0, 0.0, 0.0, 1.0],
    },
}


def snapshot(state: checkpoint.State) -> dict[str, torch.Tensor]:
    """Copy everything of a run that training changes."""
    tensors = {f"raw.{k}": v for k, v in checkpoint.weights(state, averaged=False).items()}
    tensors |= {f"mean.{k}": v for k, v in checkpoint.weights(state, averaged=True).items()}
    tensors |= {f"remover.{k}": v for k, v in state.remover.state_dict().items()}
    for label in ("optimiser", "remover_optimiser"):
        for i, values in getattr(state, label).state_dict()["state"].items():
            tensors |= {f"{label}.{i}.{k}": v for k, v in values.items()}
    return {k: v.clone() for k, v in tensors.items()}


def equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


@pytest.fixture
def frequent(monkeypatch):
    """Let the codecs answer after two steps."""
    monkeypatch.setattr(train, "CODEC_EVERY", 2)


@pytest.mark.parametrize("generator", ["spectral", "additive"])
@pytest.mark.usefixtures("frequent")
def test_training_changes_all_networks_and_logs_every_term(generator, tiny, sources, tmp_path):
    recipe = tiny(generator, steps=3, **EVERYTHING)
    state = checkpoint.fresh(recipe, CPU)
    before = snapshot(state)
    train.train(recipe, state, sources, tmp_path, device=CPU, log_every=3)
    after = snapshot(state)
    assert state.step == 3
    still = [k for k in before if k.startswith("raw.") and torch.equal(before[k], after[k])]
    assert still == []
    assert any(not torch.equal(before[k], after[k]) for k in before if k.startswith("remover."))
    (line,) = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    terms = {"message", "presence", "clip_presence", "forgery", "stft", "mel", "snr", "remover"}
    terms |= {"gain"} if generator == "spectral" else set()
    for name in terms:
        assert line[name] > 0
    assert {"step", "seconds", "snr_db", "gain_db", "norm", "skipped", "accuracy"} <= set(line)
    assert line["skipped"] == 0
    met = {kind for step in range(3) for kind in plan(recipe, step, step, coded=step == 2)}
    assert set(line["accuracy"]) <= met
    assert {"codec", "neural"} <= met
    assert all(0 <= share <= 1 for share in line["accuracy"].values())


@pytest.mark.usefixtures("frequent")
def test_a_seed_repeats_and_another_differs(tiny, sources, tmp_path):
    ends = []
    for i, seed in enumerate((1, 1, 2)):
        recipe = tiny(steps=3, seed=seed, **EVERYTHING)
        state = checkpoint.fresh(recipe, CPU)
        train.train(recipe, state, sources, tmp_path / str(i), device=CPU)
        ends.append(snapshot(state))
    assert equal(ends[0], ends[1])
    assert not equal(ends[0], ends[2])


class KilledError(Exception):
    """Stands for a machine that goes away."""


@pytest.mark.usefixtures("frequent")
def test_a_killed_run_resumes_exactly(tiny, sources, tmp_path, monkeypatch):
    recipe = tiny(steps=6, **EVERYTHING)
    whole = checkpoint.fresh(recipe, CPU)
    train.train(recipe, whole, sources, tmp_path / "whole", device=CPU)

    save = checkpoint.save

    def save_and_die(*args):
        save(*args)
        raise KilledError

    monkeypatch.setattr(train, "save", save_and_die)
    out = tmp_path / "parts"
    with pytest.raises(KilledError):
        train.train(recipe, checkpoint.fresh(recipe, CPU), sources, out, device=CPU, save_every=3)
    monkeypatch.setattr(train, "save", save)
    state, kept = checkpoint.restore(out, CPU)
    assert kept == recipe
    assert state.step == 3
    assert state.residual is not None  # the codecs were asked in step 2, for step 4
    train.train(recipe, state, sources, out, device=CPU)
    assert state.step == 6
    assert equal(snapshot(state), snapshot(whole))
    assert torch.equal(state.residual, whole.residual)
    assert not list(out.glob("*.part"))


def test_a_pause_leaves_a_checkpoint(tiny, sources, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "time", SimpleNamespace(monotonic=itertools.count().__next__))
    recipe = tiny(steps=10**6)
    state = checkpoint.fresh(recipe, CPU)
    train.train(recipe, state, sources, tmp_path, device=CPU, pause_s=4)
    again, _ = checkpoint.restore(tmp_path, CPU)
    assert 0 < again.step == state.step < 10
    assert again.seconds == state.seconds > 0
    assert equal(snapshot(again), snapshot(state))


def test_the_schedule_can_follow_the_clock(tiny, sources, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "time", SimpleNamespace(monotonic=itertools.count().__next__))
    recipe = tiny(steps=10**6)
    positions = []
    one = step.train_step

    def spy(loop, number, position, residual):
        positions.append(position)
        return one(loop, number, position, residual)

    monkeypatch.setattr(train, "train_step", spy)
    state = checkpoint.fresh(recipe, CPU)
    state.seconds = 6.0  # of an earlier lease
    train.train(recipe, state, sources, tmp_path, device=CPU, minutes=0.2)
    assert state.seconds == 12.0
    assert positions == [pytest.approx(s / 12 * 10**6) for s in range(7, 12)]


def test_only_what_the_recipe_names_is_trained(tiny, sources, tmp_path):
    recipe = tiny(steps=2, trainable=["detector.heads.mix", "detector.heads.presence"])
    state = checkpoint.fresh(recipe, CPU)
    before = snapshot(state)
    train.train(recipe, state, sources, tmp_path, device=CPU)
    after = snapshot(state)
    moved = {k for k in before if k.startswith("raw.") and not torch.equal(before[k], after[k])}
    assert moved == {
        f"raw.{k}"
        for k in checkpoint.weights(state, averaged=False)
        if k.startswith(recipe.trainable)
    }
    again, _ = checkpoint.restore(tmp_path, CPU)
    assert equal(snapshot(again), after)
    with pytest.raises(RecipeError, match="trains nothing"):
        checkpoint.fresh(tiny(trainable=["detecter"]), CPU)


def poisoned(loop: step.Loop) -> None:
    loop.hosts.stream.samples = torch.full_like(loop.hosts.stream.samples, torch.nan)


def test_a_batch_that_is_not_finite_is_skipped(tiny, sources):
    recipe = tiny(channel={"groups": 2, "remover_from": 0.0, "odds": {"remover": 1.0}})
    state = checkpoint.fresh(recipe, CPU)
    loop = step.prepare(recipe, state, sources, CPU)
    good = loop.hosts.stream.samples
    step.train_step(loop, 1, 1.0, None)
    state.step = 1
    before = snapshot(state)
    poisoned(loop)
    terms = step.train_step(loop, 2, 1.0, None)
    assert not terms["norm"].isfinite()
    after = snapshot(state)
    means = {k for k in before if k.startswith("mean.")}  # these still follow
    assert all(torch.equal(before[k], after[k]) for k in before.keys() - means)
    assert all(after[k].isfinite().all() for k in after)
    loop.hosts.stream.samples = good
    assert step.train_step(loop, 3, 2.0, None)["norm"].isfinite()
    assert not torch.equal(
        snapshot(state)["raw.detector.heads.mix.weight"], after["raw.detector.heads.mix.weight"]
    )
    loop.pool.shutdown()


def test_a_report_counts_skipped_steps_and_is_json(tiny, sources):
    recipe = tiny()
    state = checkpoint.fresh(recipe, CPU)
    loop = step.prepare(recipe, state, sources, CPU)
    poisoned(loop)
    sums = {k: [v] for k, v in step.train_step(loop, 0, 0.0, None).items()}
    line = train.report(loop, sums, state)
    assert line["skipped"] == 1
    assert line["message"] is None
    json.dumps(line, allow_nan=False)
    assert train.describe(line).startswith("step 0")
    loop.pool.shutdown()


def test_averages_follow_the_weights_slowly(tiny, sources, tmp_path):
    recipe = tiny(steps=4)
    state = checkpoint.fresh(recipe, CPU)
    first = checkpoint.weights(state, averaged=False)
    first = {k: v.clone() for k, v in first.items()}
    train.train(recipe, state, sources, tmp_path, device=CPU)
    raw, mean = (checkpoint.weights(state, averaged=a) for a in (False, True))
    name = "detector.heads.logits.weight"
    assert not torch.equal(raw[name], mean[name])
    assert (mean[name] - raw[name]).norm() < (first[name] - raw[name]).norm()
    plain = tiny(steps=2, ema=0.0)  # follows at once
    state = checkpoint.fresh(plain, CPU)
    train.train(plain, state, sources, tmp_path / "plain", device=CPU)
    raw, mean = (checkpoint.weights(state, averaged=a) for a in (False, True))
    assert torch.equal(raw[name], mean[name])


@pytest.fixture
def invoked(sources, tmp_path):
    """Give a function that runs the command with a tiny recipe."""
    text = [
        'name = "tiny"', "steps = 2", "batch = 1", "[model]", "width = 16", "analysis_blocks = 1",
        "synthesis_blocks = 1", "detector_blocks = 2", "[data]", "segment_frames = 25",
        "[channel]", "groups = 1", "codec_group = false",
    ]  # fmt: skip
    (tmp_path / "tiny.toml").write_text("\n".join(text))

    def invoke(**changes):
        options = {
            "speech": str(sources.speech),
            "noise": str(sources.noise),
            "lyra": None,
            "out": str(tmp_path / "run"),
            "resume": False,
            "start": None,
            "minutes": None,
            "device": "cpu",
        }
        train.command(str(tmp_path / "tiny.toml"), **(options | changes))

    return invoke


def test_the_command_trains_and_does_not_overwrite(invoked, tmp_path):
    invoked()
    assert json.loads((tmp_path / "run" / "state.json").read_text())["step"] == 2
    with pytest.raises(RecipeError, match="already holds a checkpoint"):
        invoked()
    invoked(resume=True)  # there is nothing left to do
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(recipe.read_text().replace("steps = 2", "steps = 3"))
    with pytest.raises(RecipeError, match="another recipe"):
        invoked(resume=True)


def test_the_command_refuses_in_words(invoked, tmp_path):
    with pytest.raises(RecipeError, match="no device 'abacus' here"):
        invoked(device="abacus")
    with pytest.raises(RecipeError, match="no checkpoint"):
        invoked(resume=True)
    with pytest.raises(RecipeError, match="no recordings"):
        invoked(noise=str(tmp_path / "nowhere"))
