"""The finder: how much rather each tile of a recording goes up than down, as log odds.

A small network was taught the signs of random keys in sealed speech after many attacks
(`scripts/seal_odds.py`): it knows what speech does by itself, what noise hides and what codecs
leave. Any function of the recording may be used here: the p-value depends on the key alone.
Knows levels: no keys, no audio.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from keybound.seal.pattern import COLUMN_STEPS, HOP, STEP
from keybound.types import Floats, Levels

NETWORK = Path(__file__).parent / "odds.onnx"
HALVES = HOP // STEP  # a frame is marked as a whole; the grid is finer, so it holds so many of them
PART_STEPS = 3000  # that go through the network at a time
EDGE_STEPS = 16  # to either side, which can change what it says of a tile
QUIET = 0.15  # share of the levels of a band that are taken to be noise


def odds_of(levels: Floats | Levels) -> Floats:
    """Return the log odds of a tile that begins at each step: (steps, BANDS) to (steps, BANDS)."""
    made = np.zeros(levels.shape, np.float32)
    for first in range(0, len(levels), PART_STEPS):
        begin = max(0, first - EDGE_STEPS)
        part = levels[begin : first + PART_STEPS + EDGE_STEPS].astype(np.float32)
        made[first : first + PART_STEPS] = _part(part)[first - begin :][:PART_STEPS]
    return made


def _part(levels: Floats) -> Floats:
    padded = np.pad(levels, ((0, COLUMN_STEPS), (0, 0)), mode="edge")
    made = np.empty_like(levels)
    for half in range(HALVES):  # frames as far apart as they were marked
        frames = features(padded[half::HALVES])
        (own,) = _session().run(None, {"x": frames[None]})  # (1, frames - 1, BANDS)
        made[half::HALVES] = own[0, : len(made[half::HALVES])]
    return made


def features(levels: Floats) -> Floats:
    """Return what the network hears: (frames, BANDS) to (4, frames, BANDS).

    Each level beside the mean of its band, beside the noise in its band, beside its moment; and
    how loud that moment is.
    """
    mean = levels.mean(axis=0)
    noise = np.quantile(levels, QUIET, axis=0)
    loudness = 10 * np.log10((10 ** (levels / 10)).sum(axis=1, keepdims=True))
    parts = [
        np.clip((levels - mean) / 10, -4, 4),
        np.clip((levels - noise) / 15, -2, 4),
        np.broadcast_to(np.clip((loudness - loudness.max()) / 20, -3, 0), levels.shape),
        np.clip((levels - loudness) / 20, -4, 1),
    ]
    return np.stack(parts).astype(np.float32)


@cache
def _session() -> Any:
    import onnxruntime as ort  # a tenth of a second, which verbs without it save

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = int(os.environ.get("KEYBOUND_THREADS", "0"))  # 0: all cores
    return ort.InferenceSession(NETWORK, options, providers=["CPUExecutionProvider"])
