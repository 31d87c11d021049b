"""Landmarks of quality: what a codec or noise does to a host, scored as if it were a mark.

`landmark/mp3@32` is the host after that attack. It holds no mark, so quality alone is measured.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keybound.attacks import attack
from keybound.benchmark.measure.methods import Method, Reading
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.peers.peer import Functions, Peer

RATE = 16000
PREFIX = "landmark/"
NO_MARK = Reading(0.0, np.zeros(0, np.float32))


def make(name: str) -> Method:
    """Return an attack as a method whose marked clip is the attacked host."""
    hit = attack(name)

    def embed(clip: Clip, secret: Secret) -> Clip:
        rng = np.random.default_rng(int.from_bytes(secret.key.derive("landmark", 8)))
        return hit.apply(clip, RATE, hit.draw(rng, None))

    def load(files: Sequence[Path]) -> Functions:  # noqa: ARG001
        return embed, lambda _: NO_MARK

    return Peer(PREFIX + name, RATE, 0, load, (), release=lambda _: "").make()
