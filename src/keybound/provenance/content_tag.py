"""The content tag: a payload that is a keyed robust hash of its host, checked with the key alone.

An ordinary MAC changes wholly when one bit of its message does, and no fingerprint of a recording
comes back without a wrong bit. So each bit of the tag is the sign of a keyed sum over the coarse
levels of the whole recording: what changes them little changes few bits, and those that were
doubtful. Without the key nobody knows which sums are taken. Knows levels and keys: no audio
files, no networks. The derivation is in docs/spec.md, and what it is worth in docs/security.md.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keybound.crypto import codes, keystream
from keybound.crypto.keys import Key
from keybound.errors import CodeError
from keybound.provenance.fingerprint import POWER_FLOOR, band_powers
from keybound.types import Floats, Levels

LABEL = "keybound-1/host"
SEED_BYTES = 32
TILE_STEPS = 12  # a tile lasts 120 ms
EDGES = np.array([2, 5, 9, 14, 21, 31, 46])  # of its bands, among the 64 of the seal
BANDS = len(EDGES) - 1
QUIET = 0.03  # of a band's mean power is added to all of it: noise in pauses then matters little
LEAST_TILES = 9  # about a second, below which few sums tell two hosts apart
MOST_BITS = 32  # for which p is counted out
ACCEPTED_P = 0.002  # about what the rule V_A allows a wrong key, beta(16, 2)


@dataclass(frozen=True)
class Bound:
    """Whether a payload is the tag of a recording: `p` is how often chance would be as near."""

    holds: bool
    p: float
    distance: int  # bits of the payload that differ from the recording's own


def payload(levels: Floats | Levels, key: Key, bits: int, nonce: bytes = b"") -> int:
    """Return the tag of a host, from the levels of the whole of it."""
    return codes.from_bits(_sums(levels, key, codes.check_bits(bits), nonce) > 0)


def check(
    levels: Floats | Levels,
    decoded: int,
    key: Key,
    bits: int,
    nonce: bytes = b"",
    tries: int = 1,
) -> Bound:
    """Return whether a payload that was read from a recording is its tag.

    The recording must begin and end as the host did. Bits of which the recording is unsure weigh
    less: p is the share of all payloads that contradict it no more than this one does, times
    `tries`, the number of keys or starts that were tried.
    """
    if not 1 <= bits <= MOST_BITS:
        raise CodeError(f"a payload that is a hash of its host has 1 to {MOST_BITS} bits")
    sums = _sums(levels, key, bits, nonce)
    wrong = (sums > 0) != codes.to_bits(decoded, bits).astype(bool)
    weights = np.abs(sums)
    p = min(1.0, tries * _share_below(weights, float(weights[wrong].sum())))
    return Bound(p <= ACCEPTED_P, p, int(wrong.sum()))


def _sums(levels: Floats | Levels, key: Key, bits: int, nonce: bytes) -> npt.NDArray[np.float64]:
    """Return the sums of the changes between tiles under the key's signs: (bits,)."""
    tiles = _tiles(levels)
    if len(tiles) < LEAST_TILES:
        raise CodeError("the recording is too short for a hash of it", hint="a second at least")
    seed = key.derive(LABEL, SEED_BYTES, nonce)
    rows = []
    for bit in range(bits):
        stream = keystream.page(seed, bit, -(-tiles.size // 8))
        signs = np.unpackbits(np.frombuffer(stream, np.uint8))[: tiles.size] * 2.0 - 1
        rows.append(float(signs @ tiles.reshape(-1)))
    return np.array(rows)


def _tiles(levels: Floats | Levels) -> npt.NDArray[np.float64]:
    """Return the change of level from each tile to the next: (tiles - 1, BANDS)."""
    powers = band_powers(levels.astype(np.float16, copy=False), EDGES).astype(np.float64)
    count = len(powers) // TILE_STEPS
    mean = powers[: count * TILE_STEPS].reshape(count, TILE_STEPS, BANDS).mean(axis=1)
    if count < 2:
        return np.zeros((0, BANDS))
    change = np.diff(10 * np.log10(mean + QUIET * mean.mean(axis=0) + POWER_FLOOR), axis=0)
    bounded = np.tanh(change / (np.std(change, axis=0) + 1))
    tiles: npt.NDArray[np.float64] = bounded - bounded.mean(axis=0)
    return tiles


def _share_below(weights: npt.NDArray[np.float64], limit: float) -> float:
    """Return the share of all sets of weights whose sum is at most the limit."""
    half = len(weights) // 2
    one, two = _subset_sums(weights[:half]), np.sort(_subset_sums(weights[half:]))
    slack = 1e-9 * (1 + float(weights.sum()))  # of rounding: the set at the limit counts
    counts = np.searchsorted(two, limit - one + slack, side="right")
    return math.ldexp(float(counts.sum()), -len(weights))


def _subset_sums(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    sums = np.zeros(1)
    for weight in weights:
        sums = np.concatenate([sums, sums + weight])
    return sums
