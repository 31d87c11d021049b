"""Products of bytes: near what floats give, fused where they should be, alike in chunks."""

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from keybound.errors import ModelError
from keybound.model.networks import Networks
from keybound.training import checkpoint, export, quantise

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def recordings(speech) -> list[np.ndarray]:
    return [clip.numpy() for clip in speech]


@pytest.fixture(scope="module")
def folders(tiny, recordings, tmp_path_factory):
    """Export one model twice, with floats and with bytes."""
    recipe = tiny(model={"width": 24, "analysis_blocks": 2, "detector_blocks": 3})
    weights = checkpoint.weights(checkpoint.fresh(recipe, CPU), averaged=True)
    made = {}
    for name, fit in (("floats", ()), ("bytes", recordings)):
        made[name] = tmp_path_factory.mktemp(name)
        export.export(weights, recipe, made[name], {}, fit)
    return made


def test_bytes_give_nearly_what_floats_do(folders, recordings):
    exact, rounded = (Networks(folder) for folder in folders.values())
    code = np.arange(16) % 2 == 0
    for host in recordings:
        for one, two in (
            (exact.carrier(host, code), rounded.carrier(host, code)),
            *zip(exact.frames(host), rounded.frames(host), strict=True),
        ):
            assert 0 < np.std(one - two) < 0.1 * np.sqrt(np.mean(one**2))


@pytest.mark.parametrize("step", [700, 5000, 40_000])
def test_chunks_are_the_whole_to_the_last_bit(folders, recordings, step):
    networks = Networks(folders["bytes"])
    host = np.concatenate(recordings)
    presence, logits = networks.frames(host)
    feeder = networks.detector()
    parts = [p for at in range(0, len(host), step) for p in feeder.push(host[at : at + step])]
    chunked = np.concatenate([*parts, *feeder.flush()])
    assert np.array_equal(chunked, np.column_stack([presence, logits]))


def test_the_weights_come_back_rounded(folders):
    one, two = (export.read_weights(folder) for folder in folders.values())
    for name, exact in one.items():
        off = float((two[name] - exact).norm() / (exact.norm() + 1e-9))
        assert off < 0.05
        assert (off > 1e-3) == name.endswith(("expand.weight", "contract.weight")), name


def test_weights_that_do_not_come_back_are_refused(tiny, tmp_path, monkeypatch):
    recipe = tiny()
    weights = checkpoint.weights(checkpoint.fresh(recipe, CPU), averaged=True)
    monkeypatch.setattr(export, "_tensors", lambda _: {k: 1.01 * v for k, v in weights.items()})
    with pytest.raises(ModelError, match="cannot be read back"):
        export.export(weights, recipe, tmp_path, {})


@pytest.mark.parametrize("file", export.FILES)
def test_the_products_are_fused_and_cannot_overflow(file, folders, tmp_path):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / file)
    options.log_severity_level = 3
    ort.InferenceSession(folders["bytes"] / file, options, providers=["CPUExecutionProvider"])
    graph = onnx.load(tmp_path / file).graph
    names = {n.input[1] for n in graph.node if n.op_type == "MatMulIntegerToFloat"}
    assert len(names) == 6  # two for each block
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    for name in names:
        assert stored[name].dtype == np.int8
        assert np.abs(stored[name].astype(int)).max() * 2 * 255 < 2**15


def test_networks_without_blocks_stay_as_they_are(tiny, recordings, tmp_path):
    recipe = tiny("additive")
    weights = checkpoint.weights(checkpoint.fresh(recipe, CPU), averaged=True)
    for name, fit in (("floats", ()), ("bytes", recordings)):
        export.export(weights, recipe, tmp_path / name, {}, fit)
    cards = [json.loads((tmp_path / n / "card.json").read_text()) for n in ("floats", "bytes")]
    assert cards[0]["sha256"] == cards[1]["sha256"]


def test_rounding_that_changes_too_much_is_refused(tiny, recordings, tmp_path, monkeypatch):
    monkeypatch.setattr(quantise, "TOLERANCE", 1e-6)
    recipe = tiny()
    weights = checkpoint.weights(checkpoint.fresh(recipe, CPU), averaged=True)
    with pytest.raises(ModelError, match="eight-bit products change"):
        export.export(weights, recipe, tmp_path, {}, recordings)


def test_moments_of_sound_are_nothing_to_fit_to(tiny, recordings, tmp_path):
    recipe = tiny()
    weights = checkpoint.weights(checkpoint.fresh(recipe, CPU), averaged=True)
    with pytest.raises(ModelError, match="no recording of a second"):
        export.export(weights, recipe, tmp_path, {}, [one[:500] for one in recordings])
