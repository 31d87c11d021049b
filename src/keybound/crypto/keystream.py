"""The keystream: the positions of a key, and the bits that a seed gives.

Each recording of a key has a position of its own, so that no two share a pattern or a mask. Knows
numbers and bytes: no audio. The derivations are in docs/spec.md.
"""

import hashlib
import secrets

import numpy as np

from keybound.crypto.codes import Bits, check_integer
from keybound.errors import CodeError

POSITIONS = 1 << 32
USUAL = 256  # positions that are looked through where none is known
PAGE_ROWS = 256  # that one call of SHAKE-256 gives


def check_position(position: int) -> int:
    """Return a position; raise `CodeError` for a number that is none."""
    hint = f"from 0 to {POSITIONS - 1}"
    position = check_integer("position", position, hint)
    if not 0 <= position < POSITIONS:
        raise CodeError(f"position {position} does not exist", hint=hint)
    return position


def choose_position(position: int | None) -> int:
    """Return the position that is asked for, else a random one of the usual positions.

    A verifier that knows no position searches the usual ones.
    """
    return secrets.randbelow(USUAL) if position is None else check_position(position)


def page(seed: bytes, number: int, size: int) -> bytes:
    """Return one page of the stream of a seed: `size` bytes of SHAKE-256."""
    return hashlib.shake_256(seed + number.to_bytes(4, "big")).digest(size)


def rows(seed: bytes, first: int, count: int, size: int) -> Bits:
    """Return rows `first` to `first + count` of `size` bytes each, as bits: (count, 8 * size).

    A page holds 256 rows, so that rows far into the stream need no more work than the first.
    """
    pages = range(first // PAGE_ROWS, -(-(first + count) // PAGE_ROWS))
    data = b"".join(page(seed, number, PAGE_ROWS * size) for number in pages)
    bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(-1, size), axis=1)
    start = first - pages.start * PAGE_ROWS
    return bits[start : start + count]
