"""From trained weights to the two ONNX networks, and back.

Weights are rounded to half precision, or to bytes with scales, and stored so; the graphs widen them
when they are loaded. An export that does not agree with torch is refused. The graphs keep the names
of the weights, so the package itself is a checkpoint to go on from.
"""

import contextlib
import hashlib
import io
import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from onnx import helper, numpy_helper
from safetensors.torch import load_file
from torch import Tensor, nn

from keybound.errors import ModelError
from keybound.model.networks import CARD_VERSION, read_card
from keybound.training import nets
from keybound.training.data import read_folder
from keybound.training.quantise import quantised_pair, weight_of
from keybound.training.recipe import Recipe, from_tree, to_tree
from keybound.training.spectra import HOP, RATE

TOLERANCE = 2e-4  # of the largest value: what summing in another order may change
RHO = 2  # the paper's tolerance for 16 bits
FILES = ("embedder.onnx", "detector.onnx")
INPUTS = ("x", "code", "strength")
ROUNDED = 0.1  # of a weight's norm: what seven bits may change
LARGE = 1000  # smaller tensors stay in single precision


def export(
    weights: dict[str, Tensor],
    recipe: Recipe,
    folder: Path,
    training: dict[str, Any],
    speech: Sequence[npt.NDArray[np.float32]] = (),
) -> None:
    """Write `embedder.onnx`, `detector.onnx` and a card whose thresholds are still to be set.

    `training` goes into the card: what is known of the run that made the weights. With `speech`
    the networks multiply bytes, on scales that are fitted to it.
    """
    embedder, detector = nets.build(recipe.model)
    for name, net in (("embedder.", embedder), ("detector.", detector)):
        part = {k.removeprefix(name): v for k, v in weights.items() if k.startswith(name)}
        net.load_state_dict({k: v.half() if v.numel() > LARGE else v for k, v in part.items()})
        net.eval()
    x = 0.1 * torch.randn(1, 100 * HOP)
    code = torch.randint(0, 2, (1, recipe.model.bits, 100)).float()  # of each block
    strength = (torch.tensor([0.7]),) if recipe.model.by_strength else ()
    models = {
        "embedder.onnx": _convert(embedder, (x, code, *strength), ["carrier"]),
        "detector.onnx": _convert(detector, (x,), ["presence", "logits"]),
    }
    _compare(embedder, (x, code, *strength), models["embedder.onnx"], "embedder.onnx")
    _compare(detector, (x,), models["detector.onnx"], "detector.onnx")
    _read_back(weights, models, 2**-11)  # a half is off by so much of a value at most
    if speech:
        models = quantised_pair(models, speech, recipe.model.bits)
        _read_back(weights, models, ROUNDED)
    # Without the anchor the padding reaches as far, though no gradient to the host shows it.
    bound = replace(recipe.model, anchor=True)
    anchored = embedder if recipe.model.anchor else nets.build(bound)[0]
    card = {
        "version": CARD_VERSION,
        "name": recipe.name,
        "rate": RATE,
        "hop": HOP,
        "bits": recipe.model.bits,
        "rho": RHO,
        "thresholds": {"attacked": 0.5, "clean": 0.5},
        "context": {
            "embed": reach(lambda y: anchored(y, code[..., 0])),
            "detect": reach(lambda y: torch.cat([v.reshape(-1, v.shape[-1]) for v in detector(y)])),
        },
        "sha256": {name: hashlib.sha256(model).hexdigest() for name, model in models.items()},
        "training": training,
        "recipe": to_tree(recipe),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models.items():
        (folder / name).write_bytes(model)
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read the weights of exported networks by name, to start training from them."""
    recipe = from_tree(read_card(folder).facts["recipe"])
    try:
        tensors = _tensors({name: (folder / name).read_bytes() for name in FILES})
    except OSError as error:
        raise ModelError(f"no {Path(error.filename).name} in {folder}") from error
    except DecodeError as error:
        raise ModelError(f"the networks in {folder} are damaged") from error
    names = [
        f"{part}.{name}"
        for part, net in zip(("embedder", "detector"), nets.build(recipe.model), strict=True)
        for name, _ in net.named_parameters()
    ]
    if missing := [name for name in names if name not in tensors]:
        raise ModelError(f"the networks in {folder} lack the weight {missing[0]}")
    return {name: tensors[name] for name in names}


def read_detector(folder: Path) -> nn.Module:
    """Return the exported detector as a torch network, to follow gradients through it."""
    _, detector = nets.build(from_tree(read_card(folder).facts["recipe"]).model)
    part = {k: v for k, v in read_weights(folder).items() if k.startswith("detector.")}
    detector.load_state_dict({k.removeprefix("detector."): v for k, v in part.items()})
    return detector.eval().requires_grad_(False)


def _tensors(models: dict[str, bytes]) -> dict[str, Tensor]:
    """Read all tensors of exported networks: the weights under their names, and constants."""
    tensors: dict[str, Tensor] = {}
    for file, model in models.items():
        items = onnx.load_from_string(model).graph.initializer
        stored = {i.name: numpy_helper.to_array(i).astype(np.float32) for i in items}
        for name in [name for name in stored if name.endswith(".whole")]:
            layer = name.removesuffix(".whole")
            parts = (stored[f"{layer}.{part}"] for part in ("whole", "column", "scale"))
            stored[layer] = weight_of(*parts)
        for name, value in stored.items():
            name = f"{file.removesuffix('.onnx')}.{name.removesuffix('.half')}"
            tensors[name] = torch.from_numpy(value)
    return tensors


def _read_back(weights: dict[str, Tensor], models: dict[str, bytes], tolerance: float) -> None:
    """Refuse networks that do not hold the weights, to a part of their norm."""
    back = _tensors(models)
    for name, value in weights.items():
        stored, exact = back.get(name), value.float()
        if stored is None or not (stored - exact).norm() <= tolerance * exact.norm() + 2**-25:
            raise ModelError(f"weight {name} cannot be read back from the exported network")


def reach(network: Any) -> list[int]:
    """Measure how many blocks before and after a block can change what a network gives for it."""
    blocks = 300
    x = (0.1 * torch.randn(1, blocks * HOP)).requires_grad_()
    out = network(x)
    middle = out[..., out.shape[-1] // 2 : out.shape[-1] // 2 + max(1, out.shape[-1] // blocks)]
    (slope,) = torch.autograd.grad(middle.abs().sum(), x)
    touched = slope[0].nonzero().flatten() // HOP
    # One block more on either side: windows are zero at their ends, so the last sample may hide.
    return [blocks // 2 - int(touched.min()) + 1, int(touched.max()) - blocks // 2 + 1]


def _convert(net: nn.Module, inputs: tuple[Tensor, ...], outputs: list[str]) -> bytes:
    """Return a network as ONNX, for audio of any whole number of blocks."""
    blocks = torch.export.Dim("blocks", min=2)
    names = [*INPUTS[: len(inputs)]]
    shapes = ({1: HOP * blocks}, {2: blocks}, {})[: len(inputs)]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the exporter's own, about versions of itself
        program = torch.onnx.export(
            net, inputs, input_names=names, output_names=outputs, dynamic_shapes=shapes, dynamo=True
        )
    assert program is not None
    model = program.model_proto
    # The exporter leaves out weights that nothing needs or that another is like.
    there = {item.name.removesuffix(".half") for item in model.graph.initializer}
    for name, value in net.named_parameters():
        if name not in there:
            item = numpy_helper.from_array(value.detach().numpy(), name)
            model.graph.initializer.append(item)
    _store_halves(model.graph, {name for name, _ in net.named_parameters()})
    onnx.checker.check_model(model)
    del model.metadata_props[:]
    for node in model.graph.node:  # source lines of the machine that exported are nobody's matter
        node.doc_string = ""
        del node.metadata_props[:]
    return bytes(model.SerializeToString())


def _store_halves(graph: Any, names: set[str]) -> None:
    """Keep large weights as float16 with a cast behind each, which is folded away at loading."""
    casts = []
    for item in graph.initializer:
        value = numpy_helper.to_array(item)
        if item.name in names and value.size > LARGE:
            stored = f"{item.name}.half"
            casts.append(helper.make_node("Cast", [stored], [item.name], to=onnx.TensorProto.FLOAT))
            item.CopyFrom(numpy_helper.from_array(value.astype(np.float16), stored))
    for cast in reversed(casts):
        graph.node.insert(0, cast)


def _compare(net: nn.Module, inputs: tuple[Tensor, ...], model: bytes, name: str) -> None:
    """Refuse an exported network that disagrees with torch, at several lengths and levels."""
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for blocks, level in ((2, 0.1), (17, 0.1), (100, 0.1), (50, 1e-4), (50, 0.0)):
        given = (level * torch.randn(1, blocks * HOP), *(v[..., :blocks] for v in inputs[1:]))
        with torch.no_grad():
            wanted = net(*given)
        feeds = dict(zip(INPUTS, (v.numpy() for v in given), strict=False))
        got = session.run(None, feeds)
        for a, b in zip(wanted if isinstance(wanted, tuple) else (wanted,), got, strict=True):
            error = float((a - torch.from_numpy(b)).abs().max() / (a.abs().max() + 1e-6))
            if not error < TOLERANCE:  # nan is refused too
                raise ModelError(f"{name} and torch disagree by {error:.2g} of full scale")


def export_run(run: Path, folder: Path, speech: Path | None = None) -> None:
    """Export the averaged weights of a checkpoint, with products of bytes if there is speech."""
    try:
        state = json.loads((run / "state.json").read_text())
        weights = load_file(run / "weights.safetensors")
    except OSError as error:
        raise ModelError(f"no checkpoint in {run}", hint="train writes one") from error
    training = {"steps": state["step"], "minutes": round(state["seconds"] / 60, 1)}
    fit = read_folder(speech, level=False) if speech else ()
    export(weights, from_tree(state["recipe"]), folder, training, fit)
