"""Perth 1.0.1 (Resemble AI, MIT): presence alone, no payload; its weights are in its wheel.

`pip install --no-deps resemble-perth`, with `pyyaml`. Its network works at 32 kHz on the band below
2 kHz and takes audio of any rate; here it takes 16 kHz, so that it meets the attacks that the
others meet.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keybound.benchmark.measure.methods import Reading
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.peers import stand_ins
from keybound.benchmark.peers.peer import Functions, Peer

RATE = 16000
MODULES = ("torch", "yaml", "perth")
NO_BITS = np.zeros(0, np.float32)


def load(files: Sequence[Path]) -> Functions:  # noqa: ARG001
    """Return Perth's functions: presence is its confidence in a mark, which its package rounds."""
    import torch

    absent = stand_ins.librosa() | stand_ins.torchaudio() | stand_ins.pkg_resources()
    with stand_ins.standing_in(absent):
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

    return embed, read


PEER = Peer("perth", RATE, 0, load, MODULES, distribution="resemble-perth", threshold=0.5)
