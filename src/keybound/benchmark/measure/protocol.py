"""The protocol: which keys, payloads and draws of chance a measurement uses.

All of them follow from (seed, clip), so that every method meets the same ones and a run repeats.
"""

import hashlib
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keybound.crypto.keys import Key

Clip = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Secret:
    """What a clip is marked with."""

    key: Key
    payload: int
    position: int = 0  # of the seal


def secret_of(seed: int, clip: int, bits: int) -> Secret:
    """Return key, payload and position of a clip. They are no secret: a benchmark repeats."""
    key = Key(_digest("key", seed, clip))
    payload = int.from_bytes(_digest("payload", seed, clip)) >> (256 - bits)
    return Secret(key, payload, _digest("position", seed, clip)[0])


def _digest(purpose: str, seed: int, clip: int) -> bytes:
    return hashlib.sha256(f"keybound benchmark {purpose} {seed} {clip}".encode()).digest()


def rng_of(seed: int, clip: int, name: str) -> np.random.Generator:
    """Return the chance that belongs to a clip and a named purpose, such as an attack."""
    return np.random.default_rng([seed, clip, zlib.crc32(name.encode())])
