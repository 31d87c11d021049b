"""Perth 1.0.1 (Resemble AI, MIT): presence alone, no payload; its weights are in its wheel.

`pip install --no-deps resemble-perth`, with `pyyaml`. Its network works at 32 kHz on the band below
2 kHz and takes audio of any rate; here it takes 16 kHz, so that it meets the attacks that the
others meet.
"""

import importlib
from importlib.metadata import version
from pathlib import Path

import numpy as np

from keybound.attacks.packages import package
from keybound.benchmark.measure.methods import Method, Reading
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.peers import stand_ins
from keybound.benchmark.peers.keyless import keyless, quiet
from keybound.errors import ModelError

RATE = 16000
NO_BITS = np.zeros(0, np.float32)


def make() -> Method:
    """Return Perth: presence is its confidence in a mark, from 0 to 1, which its package rounds."""
    import torch

    needs()
    absent = stand_ins.librosa() | stand_ins.torchaudio() | stand_ins.pkg_resources()
    with quiet(), stand_ins.standing_in(absent):
        inside = importlib.import_module("perth.perth_net.perth_net_implicit.perth_watermarker")
        perth = inside.PerthImplicitWatermarker()

    def embed(clip: Clip, secret: Secret) -> Clip:  # noqa: ARG001
        with torch.inference_mode():
            marked = perth.apply_watermark(clip, sample_rate=RATE).astype(np.float32)
        # Its frames end before the clip does, unless it is a multiple of 10 ms.
        return np.concatenate([marked, clip[len(marked) :]])[: len(clip)]

    def read(clip: Clip) -> Reading:
        with torch.inference_mode():
            confidence = float(perth.get_watermark(clip, sample_rate=RATE, round=False))
        return Reading(float(np.nan_to_num(confidence)), NO_BITS)  # nan: no frame is loud enough

    stamp = version("resemble-perth")
    return keyless("perth", stamp, embed, read, rate=RATE, bits=0, threshold=0.5)


def needs(*, trained: bool = True) -> Path:
    """Find the package, which carries its weights."""
    if not trained:
        raise ModelError("perth: comes with its weights")
    for name, module in (("torch", "torch"), ("pyyaml", "yaml")):
        package(name, module)
    return package("resemble-perth", "perth")
