"""The frame: how a block of bits is spread over seconds, and read at an unknown cut.

Each second carries 16 sums of the block's bits, and from one second to the next the words of the
block, of 32 bits each, are rotated by one bit. So what begins anywhere spells a rotated block, by
the same sums: it is decoded once, and the rotation is tried on the result, 32 of them. Knows
numbers: no keys, no audio.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from keybound.crypto.codes import Bits

Doubles = npt.NDArray[np.float64]

BITS = 16  # of the code of a second
WORD_BITS = 32
PERIOD = WORD_BITS  # seconds, after which the codes recur
CANDIDATES = 4  # blocks that are given for one reading
PIECE = 8  # rows of a matrix that are multiplied at once
_WORD = (1 << WORD_BITS) - 1


@dataclass(frozen=True)
class Spelled:
    """A block as it stands at the first second that was read, and how well it fits.

    `fit` is the share of the reading's weight that agrees with it, from -1 to 1; `agreement` is
    that weight less what disagrees, which tells readings of one block apart.
    """

    block: int
    fit: float
    agreement: float


@dataclass(frozen=True)
class Frame:
    """A frame for blocks of so many words, whose sums a seed gives.

    `order` is how many of the surest bits may be wrong where a block is still found.
    """

    words: int
    seed: bytes
    order: int

    @property
    def block_bits(self) -> int:
        """Return the bits of a block."""
        return self.words * WORD_BITS

    @property
    def least_seconds(self) -> int:
        """Return the seconds in a row that determine a block where all are read."""
        return self.block_bits // BITS

    def rotated(self, block: int, seconds: int) -> int:
        """Return the block as it stands some seconds later, or earlier below zero."""
        by, made = seconds % PERIOD, 0
        for word in range(self.words):
            own = block >> word * WORD_BITS & _WORD
            made |= ((own << by | own >> (WORD_BITS - by)) & _WORD) << word * WORD_BITS
        return made

    @cached_property
    def sums(self) -> tuple[int, ...]:
        """Return the sums of a second: for each code bit the bits of the block that it adds.

        They come from SHAKE-256 of `seed`, whose number is the first for which any seconds in a
        row that have as many bits as the block determine it.
        """
        size = self.block_bits // 8
        data = hashlib.shake_256(self.seed).digest(BITS * size)
        return tuple(int.from_bytes(data[n * size : (n + 1) * size], "big") for n in range(BITS))

    def codes(self, block: int, first: int, count: int) -> Bits:
        """Return the codes of seconds `first` to `first + count` of a recording: (count, BITS)."""
        made = np.empty((count, BITS), np.uint8)
        for row in range(count):
            now = self.rotated(block, first + row)
            made[row] = [(now & mask).bit_count() & 1 for mask in self.sums]
        return made

    @cached_property
    def matrix(self) -> Bits:
        """Return what each code bit of a period adds: (PERIOD * BITS, bits of the block).

        Row (t, i) times the block that stands at second 0, the high bit first, is bit i of
        second t.
        """
        masks = [self.rotated(mask, -second) for second in range(PERIOD) for mask in self.sums]
        data = b"".join(mask.to_bytes(self.block_bits // 8, "big") for mask in masks)
        return np.unpackbits(np.frombuffer(data, np.uint8)).reshape(-1, self.block_bits)

    def spelled(self, soft: npt.ArrayLike, candidates: int = CANDIDATES) -> list[Spelled]:
        """Return the blocks that fit soft code bits (seconds, BITS) best, the best first.

        Above zero a bit is rather 1, and the further the surer; zero says nothing. Seconds that
        carry the same code are added up. This is ordered-statistics decoding: the block follows
        from the surest bits that determine it, with up to `order` of them turned. No block where
        they do not determine it.
        """
        read = np.asarray(soft, np.float64)
        folded = np.zeros((PERIOD, BITS))
        for second, values in enumerate(read):
            folded[second % PERIOD] += values
        used = np.flatnonzero(folded)
        values, rows = folded.reshape(-1)[used], self.matrix[used]
        inverse, basis = _surest(rows, np.argsort(-np.abs(values), kind="stable"))
        if len(basis) < self.block_bits:
            return []
        weight = float(np.abs(values).sum())
        follows = rows.astype(np.int64) @ inverse % 2  # of the basis: (used, bits of the block)
        hard = (values[basis] > 0).astype(np.int64)
        agrees = values * (2 * (follows @ hard % 2) - 1)  # (used,)
        signs = (1 - 2 * follows.T).astype(np.float64)
        fits, turned = _best(agrees, signs, self.order, candidates)
        blocks = np.packbits((hard ^ turned) @ inverse.T % 2, axis=1)
        return [
            Spelled(int.from_bytes(block.tobytes(), "big"), fit / weight, fit)
            for block, fit in zip(blocks, fits.tolist(), strict=True)
        ]


KEYED = Frame(2, b"keybound frame 2", order=3)
# Everybody's `detect` reads it: three would cost it more than the detection itself.
PUBLIC = Frame(3, b"keybound public frame 8", order=2)


def _surest(rows: Bits, order: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Return the inverse of the first independent rows in an order, and which these are.

    Rows are eliminated as integers: below the row stands which of the chosen rows it is the sum of.
    """
    size = rows.shape[1]
    chosen: list[int] = []
    pivots: dict[int, int] = {}  # highest bit -> row with it, and the rows that it is made of
    packed = [int.from_bytes(np.packbits(row).tobytes(), "big") for row in rows]
    for index in order:
        value = packed[index] << size | 1 << len(chosen)
        while value >> size:
            top = value.bit_length() - 1
            if top not in pivots:
                pivots[top] = value
                chosen.append(int(index))
                break
            value ^= pivots[top]
        if len(chosen) == size:
            break
    made = np.zeros((size, size), np.int64)
    for top in sorted(pivots):  # lower ones are unit rows by now
        value = pivots[top]
        for lower in sorted((t for t in pivots if t < top), reverse=True):
            if value >> lower & 1:
                value ^= pivots[lower]
        pivots[top] = value
        sources = value & ((1 << size) - 1)
        column = 2 * size - 1 - top  # of the block, the high bit first
        made[column] = [sources >> n & 1 for n in range(size)]
    return made, chosen


def _best(
    agrees: Doubles, signs: Doubles, order: int, count: int
) -> tuple[Doubles, npt.NDArray[np.int64]]:
    """Return the highest sums of agreement, and which of the surest bits are turned for them.

    The highest comes first; what is turned is (count, bits), of zeros and ones. At most `order` are
    turned, which is 2 or 3.
    """
    size = len(signs)
    below = np.tril_indices(size, -1)
    one, two = below
    fits = [np.array([agrees.sum()]), signs @ agrees]
    turned = [np.full((1, 3), size), np.stack([np.arange(size), *2 * [np.full(size, size)]], 1)]
    for first in range(-1, size if order > 2 else 0):  # alone, then with each one
        own = agrees if first < 0 else agrees * signs[first]
        later = two > first  # each three are tried once, by the lowest of them
        fits.append(_product(signs * own, signs.T)[below][later])
        third = np.full(later.sum(), size if first < 0 else first)
        turned.append(np.stack([one[later], two[later], third], 1))
    found, which = np.concatenate(fits), np.concatenate(turned)
    best = np.argpartition(-found, min(count, len(found)) - 1)[:count]
    best = best[np.argsort(-found[best], kind="stable")]
    made = np.zeros((len(best), size + 1), np.int64)  # the last one is none
    np.put_along_axis(made, which[best], 1, axis=1)
    return found[best], made[:, :size]


def _product(left: Doubles, right: Doubles) -> Doubles:
    """Return the product of two matrices, in pieces too small for BLAS to spread over threads."""
    pieces = left.reshape(-1, PIECE, left.shape[1]) @ right
    whole: Doubles = pieces.reshape(len(left), -1)
    return whole
