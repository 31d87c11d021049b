"""Export: ONNX says what torch says, weights come back, the card tells the truth."""

import hashlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from keybound.attacks import attack
from keybound.crypto.keys import Key
from keybound.errors import ModelError, RecipeError
from keybound.model.networks import SHIPPED, Networks, read_card, shipped
from keybound.training import checkpoint, export, nets
from keybound.training.spectra import HOP
from keybound.watermark.watermarker import Watermarker

CPU = torch.device("cpu")
SPEECH = Path(__file__).parents[1] / "data"
FILES = export.FILES


def random_state(recipe) -> checkpoint.State:
    """Give an untrained model in which no two weights are alike."""
    state = checkpoint.fresh(recipe, CPU)
    generator = torch.Generator().manual_seed(0)
    for p, average in zip(state.trained, state.average, strict=True):
        p.data += 0.02 * torch.randn(p.shape, generator=generator)
        average.copy_(p.data)
    return state


@pytest.fixture(scope="module", params=["spectral", "additive"])
def exported(request, tiny, tmp_path_factory):
    """Export a small model from a checkpoint: its recipe, weights and folder."""
    recipe = tiny(request.param, model={"bits": 12, "width": 24})
    state = random_state(recipe)
    state.step, state.seconds = 1234, 90.0
    run, folder = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("model")
    checkpoint.save(state, recipe, run)
    export.export_run(run, folder)
    return recipe, checkpoint.weights(state, averaged=True), folder


def halved(weights):
    return {k: v.half().float() if v.numel() > export.LARGE else v for k, v in weights.items()}


def load(recipe, weights):
    return [
        net
        for part, net in zip(("embedder.", "detector."), nets.build(recipe.model), strict=True)
        if net.load_state_dict(checkpoint._part(weights, part))
    ]


@pytest.mark.parametrize("blocks", [2, 3, 25, 131])
def test_onnx_equals_torch(exported, speech, blocks):
    recipe, weights, folder = exported
    embedder, detector = load(recipe, halved(weights))
    x = speech.reshape(1, -1)[:, : blocks * HOP]
    chance = torch.Generator().manual_seed(blocks)
    code = (torch.rand(1, 12, blocks, generator=chance) < 0.5).float()
    sessions = [ort.InferenceSession(folder / f) for f in FILES]
    with torch.no_grad():
        wanted = [embedder(x, code), *detector(x)]
    got = sessions[0].run(None, {"x": x.numpy(), "code": code.numpy()})
    got += sessions[1].run(None, {"x": x.numpy()})
    for ours, theirs in zip(wanted, got, strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours.numpy() - theirs).max() < 2e-4 * float(ours.abs().max())


def test_large_weights_are_stored_as_halves(exported):
    _, weights, folder = exported
    stored = {}
    for part in ("embedder", "detector"):
        for item in onnx.load(folder / f"{part}.onnx").graph.initializer:
            stored[f"{part}.{item.name}"] = onnx.numpy_helper.to_array(item)
    large = [k for k, v in weights.items() if v.numel() > export.LARGE]
    assert large
    for name in large:
        assert name not in stored
        assert stored[f"{name}.half"].dtype == np.float16
    for name in weights.keys() - set(large):
        assert stored[name].dtype == np.float32


def test_weights_come_back(exported):
    recipe, weights, folder = exported
    back = export.read_weights(folder)
    assert list(back) == list(weights)
    for name, value in halved(weights).items():
        assert torch.equal(back[name], value)
    state = checkpoint.fresh(recipe, CPU, back)  # the package is a checkpoint to go on from
    for averaged in (True, False):
        again = checkpoint.weights(state, averaged=averaged)
        assert all(torch.equal(again[name], back[name]) for name in weights)


@pytest.mark.parametrize(("name", "share"), [("clean", 0.08), ("pitch@-1", 0.12)])
def test_the_shipped_detector_in_torch_agrees_with_the_engine(speech, name, share):
    hit = attack(name)  # of the pitch, too: where bands have nothing, bytes must not fall off
    sound = hit.apply(speech[0].numpy(), 16000, hit.draw(np.random.default_rng(0)))
    sound = np.asarray(sound[: len(sound) // HOP * HOP], np.float32)
    with torch.no_grad():
        presence, logits = export.read_detector(SHIPPED)(torch.from_numpy(sound)[None])
    heard = shipped().frames(sound)
    np.testing.assert_allclose(presence[0], heard[0], atol=0.15)  # bytes there, floats here
    logits = logits[0].T.numpy()
    assert np.linalg.norm(logits - heard[1]) < share * np.linalg.norm(logits)


def test_the_card_tells_the_truth(exported):
    recipe, _, folder = exported
    card = read_card(folder)
    assert (card.name, card.rate, card.hop, card.bits, card.rho) == ("tiny", 16000, 320, 12, 2)
    assert (card.threshold, card.clean_threshold) == (0.5, 0.5)  # until they are calibrated
    assert card.facts["training"] == {"steps": 1234, "minutes": 1.5}
    assert export.from_tree(card.facts["recipe"]) == recipe
    for name in FILES:
        assert card.sha256[name] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    for name in FILES:  # nothing of the machine that exported
        assert b"site-packages" not in (folder / name).read_bytes()


def changed_blocks(network, x, cut: slice) -> torch.Tensor:
    """Give the blocks of a result that change when the network sees only a part of the input."""
    with torch.no_grad():
        whole, part = network(x), network(x[:, cut.start * HOP : cut.stop * HOP])
    size = whole.shape[-1] // (x.shape[-1] // HOP)
    change = (whole[..., cut.start * size : cut.stop * size] - part).abs()
    change = change.reshape(-1, cut.stop - cut.start, size).amax((0, 2))
    return (change > 1e-5 * whole.abs().max()).nonzero().flatten()


def test_the_contexts_on_the_card_are_enough(exported):
    recipe, weights, folder = exported
    embedder, detector = load(recipe, weights)
    card = read_card(folder)
    x = 0.1 * torch.randn(1, 200 * HOP, generator=torch.Generator().manual_seed(0))
    code = torch.ones(1, 12)
    cases = [(lambda y: embedder(y, code), card.embed_context)]
    cases += [(lambda y: detector(y)[0], card.detect_context)]
    cases += [(lambda y: detector(y)[1], card.detect_context)]
    for network, (before, after) in cases:
        for cut in (slice(0, 120), slice(80, 200)):
            changed = changed_blocks(network, x, cut).tolist()
            length = cut.stop - cut.start
            assert all(b < before if cut.start else b >= length - after for b in changed)
            assert changed  # or the test tests nothing
        assert before + after < 80  # finite, and no more than it takes


@pytest.mark.parametrize("generator", ["spectral", "additive"])
def test_without_an_anchor_the_contexts_are_those_with_it(generator, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_convert", lambda *_: b"")
    monkeypatch.setattr(export, "_compare", lambda *_: None)
    monkeypatch.setattr(export, "_tensors", lambda _: weights)
    contexts = []
    for anchor in (True, False):
        recipe = tiny(generator, model={"anchor": anchor})
        weights = checkpoint.weights(random_state(recipe), averaged=True)
        export.export(weights, recipe, tmp_path, {})
        contexts.append(json.loads((tmp_path / "card.json").read_text())["context"])
    assert contexts[0] == contexts[1]


def test_the_engine_loads_it_and_marks(exported, speech):
    _, _, folder = exported
    samples = speech.flatten().numpy()[:40000]
    networks = Networks(folder)
    code = np.resize(np.array([0, 1], np.uint8), 12)
    carrier = networks.carrier(samples, code)
    assert carrier.shape == samples.shape
    assert np.abs(carrier).max() > 0
    presence, logits = networks.frames(samples)
    assert presence.shape == (125,)
    assert logits.shape == (125, 12)
    marker = Watermarker(folder)
    marked = marker.embed(samples, 16000, key=Key(bytes(32)), payload=0xABC, check=False)
    assert np.isfinite(marked).all()
    assert not np.array_equal(marked, samples)


def test_chunks_equal_the_whole(exported, speech, monkeypatch):
    _, _, folder = exported
    samples = speech.flatten().numpy()
    networks, code = Networks(folder), np.ones(12, np.uint8)
    whole = networks.carrier(samples, code), *networks.frames(samples)
    monkeypatch.setattr("keybound.audio.streaming.CHUNK_BLOCKS", 60)
    parts = networks.carrier(samples, code), *networks.frames(samples)
    for one, two in zip(whole, parts, strict=True):
        assert np.abs(one - two).max() < 2e-4 * np.abs(one).max()


def test_a_graph_that_disagrees_is_refused(exported, tmp_path, monkeypatch):
    recipe, weights, folder = exported
    model = onnx.load(folder / "embedder.onnx")
    for item in model.graph.initializer:
        if item.name == "project_code.bias":
            value = onnx.numpy_helper.to_array(item)
            item.CopyFrom(onnx.numpy_helper.from_array(1.1 * value, item.name))
    wrong = SimpleNamespace(model_proto=model)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: wrong)
    with pytest.raises(ModelError, match=r"embedder\.onnx and torch disagree"):
        export.export(weights, recipe, tmp_path / "model", {})
    assert not (tmp_path / "model").exists()


def test_weights_that_do_not_come_back_are_refused(tiny, tmp_path, monkeypatch):
    recipe = tiny()
    weights = checkpoint.weights(random_state(recipe), averaged=True)
    monkeypatch.setattr(export, "_convert", lambda *_: b"")
    monkeypatch.setattr(export, "_compare", lambda *_: None)
    for found in ({}, {k: v + 0.01 for k, v in weights.items()}):
        monkeypatch.setattr(export, "_tensors", lambda _, found=found: found)
        with pytest.raises(ModelError, match="cannot be read back"):
            export.export(weights, recipe, tmp_path, {})


def test_what_cannot_be_read_is_said(exported, tmp_path):
    _, _, folder = exported
    with pytest.raises(ModelError, match="no checkpoint"):
        export.export_run(tmp_path, tmp_path / "out")
    with pytest.raises(ModelError, match=r"no card\.json"):
        export.read_weights(tmp_path)
    shutil.copy(folder / "card.json", tmp_path)
    with pytest.raises(ModelError, match=r"no embedder\.onnx"):
        export.read_weights(tmp_path)
    for name in FILES:
        shutil.copy(folder / FILES[0], tmp_path / name)
    with pytest.raises(ModelError, match="lack the weight detector"):
        export.read_weights(tmp_path)
    (tmp_path / FILES[0]).write_bytes(b"text renamed")
    with pytest.raises(ModelError, match="damaged"):
        export.read_weights(tmp_path)


def test_exported_weights_start_only_their_own_model(exported, tiny):
    _, _, folder = exported
    other = tiny(model={"width": 32})
    with pytest.raises(RecipeError, match="do not fit"):
        checkpoint.fresh(other, CPU, export.read_weights(folder))


def test_weights_that_nothing_needs_or_that_are_alike_come_back(tiny, tmp_path):
    recipe = tiny(model={"anchor": False, "analysis_blocks": 2})
    weights = checkpoint.weights(checkpoint.fresh(recipe, CPU), averaged=True)
    export.export(weights, recipe, tmp_path, {})
    back = export.read_weights(tmp_path)
    assert all(torch.equal(back[name], value) for name, value in halved(weights).items())


def test_the_command_exports_and_calibrates_under_the_attacks_named(tiny, run, tmp_path):
    recipe = tiny(model={"width": 24})
    checkpoint.save(random_state(recipe), recipe, tmp_path / "run")
    out = tmp_path / "out"
    told = run("export", tmp_path / "run", out, "--valid", SPEECH, "--attack", "gain", "--int8")
    assert set(json.loads(told.out)["robustness"]) == {"clean", "gain"}
    assert Watermarker(out).card.threshold > 0


@pytest.mark.parametrize(
    ("name", "said"), [("nonsense", "nonsense"), ("dac-16", "cannot run here")]
)
def test_an_attack_that_cannot_run_is_refused_before_anything_is_written(
    name, said, tiny, run, tmp_path
):
    recipe = tiny(model={"width": 24})
    checkpoint.save(random_state(recipe), recipe, tmp_path / "run")
    out = tmp_path / "out"
    told = run("export", tmp_path / "run", out, "--valid", SPEECH, "--attack", name)
    assert told.code == 2
    assert said in told.err
    assert told.err.count("\n") == 1
    assert not out.exists()
