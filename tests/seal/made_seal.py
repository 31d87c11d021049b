"""A sealed recording to search in: a host, a key, a code, and what is heard of it."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keybound.audio import recordings
from keybound.audio.streaming import Feeder
from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.seal import pattern

Floats = NDArray[np.float32]

KEY = Key(bytes(range(32)))
CODE = codes.encode(0x5EED, KEY, 16)  # d78f
RATE = pattern.RATE
DATA = Path(__file__).parents[1] / "data"


def six_seconds() -> Floats:
    """Give synthetic speech."""
    names = ("flite-rms", "espeak-ng-gb")
    parts = [recordings.read(DATA / f"{name}.flac").samples[: 3 * RATE, 0] for name in names]
    return np.concatenate(parts).astype(np.float32)


def whole(feeder: Feeder, samples: Floats) -> Floats:
    return np.concatenate([*feeder.push(samples), *feeder.flush()])


def sealed(host: Floats, position: int = 3, key: Key = KEY) -> Floats:
    carrier = whole(pattern.embedder(key, CODE, position), host)
    return host + carrier[: len(host)]


def heard(samples: Floats) -> Floats:
    return whole(pattern.level_feeder(), samples).reshape(-1, pattern.BANDS)
