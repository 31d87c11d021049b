"""Eight-bit products in exported networks, where nearly all of their time goes.

The two pointwise layers of every block multiply bytes by bytes. Scales are constants, fitted once
to speech and what attacks make of it: none depends on the recording, so chunks still equal the
whole. Weights have seven bits, since kernels of processors without VNNI add two products in
sixteen; from them and their scales an exported model can still be trained on (`weight_of`).

A byte more or less makes much of the last bit of a float, so what lies before them must not depend
on how much is computed at once. Frames are rows there, for libraries sum columns in another order
when there are few of them; logarithms are doubles, for those at the end of an array are others.

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

from keybound.attacks import attack, available
from keybound.errors import ModelError
from keybound.training.spectra import HOP, RATE

Feeds = dict[str, npt.NDArray[np.float32]]

LAYER = re.compile(r"(?:blocks|analysis|synthesis)\.\d+\.(expand|contract)\.weight$")
ROW = 63  # the largest of a row of weights
SILU_LEAST = 0.2785  # below zero
EXPAND_PERCENT, CONTRACT_PERCENT = 99.99, 99.999  # of the values seen that do not clip
THIN = 3  # of so many frames one is looked at
TOLERANCE = 0.2  # rms, of what a network gives
RECORDINGS, SECONDS = 48, 10  # that scales are fitted to, at most about
# What the detector's recordings have been through, in turn: what is left of a band, or comes to
# lie in it, must not fall off the scales.
HEARD = (
    "clean", "noise-20", "lowpass", "pitch@-1", "highpass", "noise-10", "speed@0.9", "telephone",
    "mp3@8", "echo", "resample", "room@1", "quantize@4", "gain", "opus@9", "stretch@0.9",
    "pitch@1", "denoiser", "speed@1.1", "griffin-lim", "background@5", "mp3", "smoothing",
    "music@5",
)  # fmt: skip
LEVELS_DB = (-20.0, 3.0)  # their change of level
LAYOUT = [0, 2, 1]  # between (batch, channels, frames) and (batch, frames, channels)


def quantised_pair(
    models: dict[str, bytes], speech: Sequence[npt.NDArray[np.float32]], bits: int
) -> dict[str, bytes]:
    """Return both networks with products of bytes, fitted to speech as they will meet it.

    The embedder meets it as it is, the detector every other recording marked, and most after an
    attack.
    """
    long = [samples for samples in speech if len(samples) >= RATE]
    if not long:
        raise ModelError("no recording of a second or more to fit products of bytes to")
    rng = np.random.default_rng(0)
    embedder = _session(models["embedder.onnx"])
    told = any(given.name == "strength" for given in embedder.get_inputs())
    hosts: list[Feeds] = []
    heard: list[Feeds] = []
    for i, samples in enumerate(long[:: max(1, len(long) // RECORDINGS)]):
        x = samples[: len(samples) // HOP * HOP][None, : SECONDS * RATE]
        code = rng.integers(0, 2, (1, bits, 1)).astype(np.float32)
        hosts.append({"x": x, "code": np.repeat(code, x.shape[1] // HOP, 2)})
        if told:  # every other mark is a weak one
            hosts[-1]["strength"] = np.array([1.0 if i % 4 < 2 else 0.6], np.float32)
        y = x + embedder.run(None, hosts[-1])[0] if i % 2 else x
        heard.append({"x": _attacked(y[0], HEARD[i // 2 % len(HEARD)], rng)[None]})
    fit = {"embedder.onnx": hosts, "detector.onnx": heard}
    return {name: quantised(model, fit[name]) for name, model in models.items()}


def _attacked(
    samples: npt.NDArray[np.float32], name: str, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """Return a recording after an attack, where that can run here, at another level."""
    if available(name.partition("@")[0]) is None:
        hit = attack(name)
        samples = hit.apply(samples, RATE, hit.draw(rng))
    level = np.float32(10 ** (rng.uniform(*LEVELS_DB) / 20))
    return np.asarray(samples[: len(samples) // HOP * HOP], np.float32) * level


def quantised(model: bytes, feeds: Sequence[Feeds]) -> bytes:
    """Return a network with products of bytes in its blocks, if it has any; refuse one that errs.

    `feeds` are what it is fitted to, and compared on.
    """
    made = onnx.load_from_string(model)
    if not any(map(_layer, made.graph.node)):
        return model
    seen = _seen(model, feeds)
    constants = {item.name for item in made.graph.initializer}
    constants |= {node.output[0] for node in made.graph.node if node.op_type == "Cast"}
    nodes: list[Any] = []
    for node in made.graph.node:
        if _layer(node):
            nodes += _products(made.graph, node, seen[node.input[0]])
        elif _in_columns(node, constants):
            nodes += _in_rows(made.graph, node)
        elif node.op_type == "Log":
            nodes += _in_doubles(node)
        else:
            nodes.append(node)
    used = {name for node in nodes for name in node.input}
    rounded = {node.input[1] for node in made.graph.node if _layer(node)}
    kept = [
        item for item in made.graph.initializer if item.name.removesuffix(".half") not in rounded
    ]
    del made.graph.initializer[:], made.graph.node[:], made.graph.value_info[:]
    made.graph.initializer.extend(kept)
    made.graph.node.extend(n for n in nodes if n.op_type != "Cast" or n.output[0] in used)
    onnx.checker.check_model(made)
    whole = bytes(made.SerializeToString())
    _compare(model, whole, feeds)
    return whole


def _layer(node: Any) -> bool:
    return node.op_type == "Conv" and bool(LAYER.search(node.input[1]))


def _in_columns(node: Any, constants: set[str]) -> bool:
    """Return whether a node multiplies frames, which are columns, by constants."""
    if node.op_type == "MatMul":
        return node.input[0] in constants
    sizes = {a.name: list(a.ints) or a.i for a in node.attribute}
    return node.op_type == "Conv" and (sizes["kernel_shape"], sizes.get("group", 1)) == ([1], 1)


def _in_rows(graph: Any, node: Any) -> list[Any]:
    """Return the nodes that do the same with frames as rows."""
    matrix, given = node.input[:2] if node.op_type == "MatMul" else node.input[1::-1]
    end = node.output[0]
    made: list[Any] = []

    def step(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        made.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    if node.op_type == "Conv":
        graph.initializer.append(numpy_helper.from_array(np.array([2]), f"{end}.last"))
        matrix = step("Squeeze", [matrix, f"{end}.last"], f"{end}.matrix")
    turned = step("Transpose", [matrix], f"{end}.turned", perm=[1, 0])
    x = step("Transpose", [given], f"{end}.rows", perm=LAYOUT)
    y = step("MatMul", [x, turned], f"{end}.product")
    if node.op_type == "Conv" and len(node.input) > 2:
        y = step("Add", [y, node.input[2]], f"{end}.sum")
    step("Transpose", [y], end, perm=LAYOUT)
    return made


def _in_doubles(node: Any) -> list[Any]:
    """Return the nodes that compute a logarithm whose floats are the same wherever they stand."""
    given, end = node.input[0], node.output[0]
    return [
        helper.make_node("Cast", [given], [f"{end}.wide"], to=onnx.TensorProto.DOUBLE),
        helper.make_node("Log", [f"{end}.wide"], [f"{end}.long"]),
        helper.make_node("Cast", [f"{end}.long"], [end], to=onnx.TensorProto.FLOAT),
    ]


def _seen(model: bytes, feeds: Iterable[Feeds]) -> dict[str, npt.NDArray[np.float32]]:
    """Return what goes into each layer: (channels, frames)."""
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
    """Return the nodes that take the place of a layer, and add their constants to the graph.

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
    made.append(
        helper.make_node(
            "DequantizeLinear", [f"{name}.whole", f"{name}.column"], [f"{name}.widened"], axis=1
        )
    )
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
    the ones, the bias the others (`offset`).
    """
    scale, zero = _channel_scales(seen) if by_channel else _common_scale(seen)
    folded = (weight[..., 0] * scale).astype(np.float32)  # (out, in)
    column = (np.abs(folded).max(1) / ROW).astype(np.float32)
    whole = np.clip(np.rint(folded / column[:, None]), -ROW, ROW)
    offset = -column * (whole @ np.broadcast_to(zero, seen.shape[:1]))
    floats = {"scale": scale, "column": column, "offset": offset, "one": np.array(1.0)}
    made: dict[str, npt.NDArray[Any]] = {k: v.astype(np.float32) for k, v in floats.items()}
    small = {"zero": zero.astype(np.uint8), "none": np.array(0, np.uint8)}
    return made | small | {"whole": whole.T.astype(np.int8)}


def weight_of(whole: Any, column: Any, scale: Any) -> npt.NDArray[np.float32]:
    """Return a layer's weight from its bytes: (out, in, 1)."""
    return np.asarray(whole.T * column[:, None] / scale, np.float32)[..., None]


def _channel_scales(seen: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the step and the zero of each channel's bytes."""
    low = np.minimum(np.percentile(seen, 100 - EXPAND_PERCENT, 1), -1e-3)
    high = np.maximum(np.percentile(seen, EXPAND_PERCENT, 1), 1e-3)
    scale = ((high - low) / 255).astype(np.float32)
    return scale, np.rint(-low / scale)


def _common_scale(seen: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the step and the zero of all bytes behind a SiLU."""
    high = max(float(np.percentile(seen, CONTRACT_PERCENT)), 1e-2)
    scale = np.float32((high + SILU_LEAST) / 255)
    return np.asarray(scale), np.rint(SILU_LEAST / scale)


def _session(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _compare(exact: bytes, rounded: bytes, feeds: Iterable[Feeds]) -> None:
    """Refuse networks whose rounding changes too much of what they give, over all feeds."""
    one, two = _session(exact), _session(rounded)
    sums = []  # of squares: (feeds, outputs, 2)
    for feed in feeds:
        pairs = zip(one.run(None, feed), two.run(None, feed), strict=True)
        sums.append([(np.square(a - b).sum(), np.square(a).sum()) for a, b in pairs])
    for off, whole in np.sum(sums, axis=0):
        error = float(np.sqrt(off / (whole + 1e-12)))
        if not error < TOLERANCE:  # nan is refused too
            raise ModelError(f"eight-bit products change what a network gives by {error:.2g}")
