"""Eight-bit products in exported networks, where nearly all of their time goes.

The two pointwise layers of every block multiply bytes by bytes. Scales are constants, fitted to
speech once: none depends on the recording, so chunks still equal the whole. Weights have seven
bits, since kernels of processors without VNNI add two products in sixteen. They stay in the file
as halves and are rounded when it is loaded, so that an exported model can still be trained on.

The graphs hold standard operators (QuantizeLinear, DequantizeLinear, MatMul), which ONNX Runtime
fuses into integer products where it has them and computes as they stand where not.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from keybound.errors import ModelError
from keybound.training.spectra import HOP, RATE

Feeds = dict[str, npt.NDArray[np.float32]]

LAYER = re.compile(r"(?:blocks|analysis|synthesis)\.\d+\.(expand|contract)\.weight$")
ROW = 63  # the largest of a row of weights
SILU_LEAST = 0.2785  # below zero
EXPAND_PERCENT, CONTRACT_PERCENT = 99.99, 99.999  # of the values seen that do not clip
THIN = 3  # of so many frames one is looked at
TOLERANCE = 0.2  # rms, of what a network gives
RECORDINGS, SECONDS = 24, 10  # that scales are fitted to, at most about
LAYOUT = [0, 2, 1]  # between (batch, channels, frames) and (batch, frames, channels)


def quantised_pair(
    models: dict[str, bytes], speech: Sequence[npt.NDArray[np.float32]], bits: int
) -> dict[str, bytes]:
    """Give both networks with products of bytes, fitted to speech as they will meet it.

    The embedder meets it as it is, the detector every other recording marked, every third in noise.
    """
    long = [samples for samples in speech if len(samples) >= RATE]
    if not long:
        raise ModelError("no recording of a second or more to fit products of bytes to")
    rng = np.random.default_rng(0)
    embedder = _session(models["embedder.onnx"])
    hosts: list[Feeds] = []
    heard: list[Feeds] = []
    for i, samples in enumerate(long[:: max(1, len(long) // RECORDINGS)]):
        x = samples[: len(samples) // HOP * HOP][None, : SECONDS * RATE]
        code = rng.integers(0, 2, (1, bits, 1)).astype(np.float32)
        hosts.append({"x": x, "code": np.repeat(code, x.shape[1] // HOP, 2)})
        y = x + embedder.run(None, hosts[-1])[0] if i % 2 else x
        if i % 3 == 0:
            y = y + 0.3 * y.std() * rng.standard_normal(y.shape, np.float32)
        heard.append({"x": np.asarray(y, np.float32)})
    fit = {"embedder.onnx": hosts, "detector.onnx": heard}
    return {name: quantised(model, fit[name]) for name, model in models.items()}


def quantised(model: bytes, feeds: Sequence[Feeds]) -> bytes:
    """Give a network with products of bytes in its blocks, if it has any; refuse one that errs.

    `feeds` are what it is fitted to, and compared on.
    """
    made = onnx.load_from_string(model)
    if not any(map(_layer, made.graph.node)):
        return model
    seen = _seen(model, feeds)
    nodes: list[Any] = []
    for node in made.graph.node:
        here = _layer(node)
        nodes += _products(made.graph, node, seen[node.input[0]]) if here else [node]
    del made.graph.node[:], made.graph.value_info[:]
    made.graph.node.extend(nodes)
    onnx.checker.check_model(made)
    whole = bytes(made.SerializeToString())
    _compare(model, whole, feeds)
    return whole


def _layer(node: Any) -> bool:
    return node.op_type == "Conv" and bool(LAYER.search(node.input[1]))


def _seen(model: bytes, feeds: Iterable[Feeds]) -> dict[str, npt.NDArray[np.float32]]:
    """Give what goes into each layer: (channels, frames)."""
    probe = onnx.load_from_string(model)
    names = [node.input[0] for node in probe.graph.node if _layer(node)]
    for name in names:
        probe.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    session = _session(probe.SerializeToString())
    parts = [[v[0, :, ::THIN] for v in session.run(names, feed)] for feed in feeds]
    return {
        name: np.concatenate(of, 1)
        for name, of in zip(names, zip(*parts, strict=True), strict=True)
    }


def _products(graph: Any, node: Any, seen: npt.NDArray[np.float32]) -> list[Any]:
    """Give the nodes that take the place of a layer, and add their constants to the graph.

    Between the layers of a block channels come last; what stands there, a SiLU, does not mind.
    """
    source, name, bias = node.input
    first = LAYER.search(name).group(1) == "expand"  # type: ignore[union-attr]
    stored = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    weight = stored[f"{name}.half"].astype(np.float32) if f"{name}.half" in stored else stored[name]
    for kind, value in _constants(weight, seen, by_channel=first).items():
        graph.initializer.append(numpy_helper.from_array(value, f"{name}.{kind}"))
    made: list[Any] = []

    def step(op: str, given: str, constants: str, output: str, **attributes: Any) -> str:
        inputs = [given, *(f"{name}.{kind}" for kind in constants.split())]
        made.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    x = step("QuantizeLinear", source, "scale zero", f"{name}.bytes", axis=1)
    if first:
        x = step("Transpose", x, "", f"{name}.turned", perm=LAYOUT)
    x = step("DequantizeLinear", x, "one none", f"{name}.levels")
    w = step("Mul", name, "fold", f"{name}.folded")
    w = step("Div", w, "row", f"{name}.divided")
    w = step("Round", w, "", f"{name}.rounded")
    w = step("Clip", w, "least most", f"{name}.clipped")
    w = step("Cast", w, "", f"{name}.cast", to=onnx.TensorProto.INT8)
    w = step("Squeeze", w, "last", f"{name}.squeezed")
    w = step("Transpose", w, "", f"{name}.columns", perm=[1, 0])
    step("DequantizeLinear", w, "column", f"{name}.widened", axis=1)
    y = step("MatMul", x, "widened", f"{name}.product")
    step("Add", bias, "offset", f"{name}.shift")
    y = step("Add", y, "shift", node.output[0] if first else f"{name}.sum")
    if not first:
        step("Transpose", y, "", node.output[0], perm=LAYOUT)
    return made


def _constants(
    weight: npt.NDArray[np.float32], seen: npt.NDArray[np.float32], *, by_channel: bool
) -> dict[str, npt.NDArray[Any]]:
    """Fit a layer's constants to what goes into it.

    A product of bytes knows neither the scales of channels nor zeros of theirs: the weights take on
    the ones (`fold`), the bias the others (`offset`).
    """
    scale, zero = _channel_scales(seen) if by_channel else _common_scale(seen)
    fold = np.broadcast_to(scale, seen.shape[:1]).astype(np.float32)[None, :, None]
    row = (np.abs(weight * fold).max((1, 2), keepdims=True) / ROW).astype(np.float32)
    column = row[:, 0, 0]
    rounded = np.clip(np.rint(weight * fold / row), -ROW, ROW)[..., 0]
    offset = -column * (rounded @ np.broadcast_to(zero, seen.shape[:1]))
    floats = {"scale": scale, "fold": fold, "row": row, "column": column, "offset": offset}
    floats |= {"one": np.array(1.0), "least": np.array(-ROW), "most": np.array(ROW)}
    made: dict[str, npt.NDArray[Any]] = {k: v.astype(np.float32) for k, v in floats.items()}
    whole = {"zero": zero.astype(np.uint8), "none": np.array(0, np.uint8), "last": np.array([2])}
    return made | whole


def _channel_scales(seen: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Give the step and the zero of each channel's bytes."""
    low = np.minimum(np.percentile(seen, 100 - EXPAND_PERCENT, 1), -1e-3)
    high = np.maximum(np.percentile(seen, EXPAND_PERCENT, 1), 1e-3)
    scale = ((high - low) / 255).astype(np.float32)
    return scale, np.rint(-low / scale)


def _common_scale(seen: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Give the step and the zero of all bytes behind a SiLU."""
    high = max(float(np.percentile(seen, CONTRACT_PERCENT)), 1e-2)
    scale = np.float32((high + SILU_LEAST) / 255)
    return np.asarray(scale), np.rint(SILU_LEAST / scale)


def _session(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _compare(exact: bytes, rounded: bytes, feeds: Iterable[Feeds]) -> None:
    """Refuse networks whose rounding changes too much of what they give."""
    one, two = _session(exact), _session(rounded)
    for feed in feeds:
        for a, b in zip(one.run(None, feed), two.run(None, feed), strict=True):
            error = float(np.sqrt(np.mean((a - b) ** 2) / (np.mean(a**2) + 1e-12)))
            if not error < TOLERANCE:  # nan is refused too
                raise ModelError(f"eight-bit products change what a network gives by {error:.2g}")
