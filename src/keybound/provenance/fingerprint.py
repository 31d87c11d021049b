"""A fingerprint: a robust hash of a recording, which survives codecs, noise and cuts.

Sixteen bits each 40 ms are the signs of the change of the spectrum's slope, as Haitsma and Kalker
do. Two recordings of other speech agree in half of them; `matching` compares. Knows levels, and no
keys, files or networks. The exact derivation is in docs/spec.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from keybound.errors import CodeError
from keybound.seal import pattern
from keybound.types import Floats, Levels

Mask = npt.NDArray[np.bool_]

STEP_S = pattern.STEP_S  # 10 ms between two rows of levels
COLUMN_STEPS = 4
COLUMN_S = COLUMN_STEPS * STEP_S
# 17 bands from 250 Hz to 4 kHz, which telephones keep, as edges among the 64 of the seal.
EDGES = np.array([2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 21, 24, 27, 31, 35, 40, 46])
BITS = len(EDGES) - 2  # 16
SMOOTH = 4  # steps to either side over which powers are averaged
LAG = 8  # steps to either side between which slopes are compared
MARGIN = 2 * LAG + SMOOTH  # steps around a part that bear on it
PART_STEPS = 6000  # of a recording that are looked at together: whole columns
POWER_FLOOR = 1e-7  # of a band: what 16-bit samples have for silence

# The first ten minutes are kept whole, and of each further minute its first ten seconds: 50 bytes
# for each second, 55 kilobytes for an hour.
WHOLE = 15000  # columns
CYCLE, KEPT = 1500, 250
QUIET_DB = 15.0  # under the mean power a tile counts for nothing: there the carrier dominates


@dataclass(frozen=True)
class Fingerprint:
    """The bits of a recording: two bytes for each column that the schedule keeps."""

    columns: int  # of 40 ms in the recording, kept or not
    data: bytes

    def __post_init__(self) -> None:
        if self.columns < 0 or len(self.data) * 8 != BITS * _count(self.columns):
            raise CodeError("the bits of a fingerprint do not fit its length")


def take(levels: Floats | Levels) -> Fingerprint:
    """Return the fingerprint of a recording from its levels (steps, bands)."""
    taker = Taker()
    taker.push(levels)
    return taker.finish()


class Taker:
    """Takes the fingerprint of a recording whose levels come bit by bit, however long it is."""

    def __init__(self) -> None:
        self._held: Floats | Levels = np.zeros((0, pattern.BANDS), np.float16)
        self._before = 0  # steps of `_held` that were looked at: the margin of the next part
        self._columns, self._data = 0, bytearray()

    def push(self, levels: Floats | Levels) -> None:
        """Add levels (steps, bands) behind those that were there."""
        new = levels.astype(np.float16, copy=False)
        self._held = np.concatenate([self._held, new]) if len(self._held) else new
        while len(self._held) >= self._before + PART_STEPS + MARGIN:
            self._look(PART_STEPS)

    def finish(self) -> Fingerprint:
        """Return the fingerprint of all that came."""
        while (left := len(self._held) - self._before) > 0:
            self._look(min(PART_STEPS, left))
        return Fingerprint(self._columns, bytes(self._data))

    def _look(self, steps: int) -> None:
        """Add the bits of the next steps."""
        end = self._before + steps
        change, _, _ = _changed(self._held[: end + MARGIN], slice(self._before, end))
        bits = change[::COLUMN_STEPS] > 0
        own = kept(self._columns + len(bits), self._columns)
        self._data += np.packbits(bits[own]).tobytes()
        self._columns += len(bits)
        self._held = self._held[max(0, end - MARGIN) :]
        self._before = min(end, MARGIN)


def kept(columns: int, first: int = 0) -> Mask:
    """Return which columns of a recording its fingerprint keeps, from some column on."""
    at = np.arange(first, columns)
    return (at < WHOLE) | ((at - WHOLE) % CYCLE < KEPT)


@lru_cache  # many recordings have the same length
def _count(columns: int) -> int:
    return int(kept(columns).sum())


def soft_bits(levels: Floats | Levels) -> Levels:
    """Return soft bits to compare with a fingerprint: (steps, BITS) in [-1, 1], 0 in silence.

    The sign is that of the bit. Small changes count little, none counts for many, and soft tiles
    count less than loud ones.
    """
    if not len(levels):
        return np.zeros((0, BITS), np.float16)
    square, total = np.zeros(BITS), 0.0
    for change, power, _ in _changes(levels):
        square += np.square(change).sum(axis=0, dtype=np.float64)
        total += float(power.mean(axis=1).sum(dtype=np.float64))
    scale = (np.sqrt(square / len(levels)) + 1e-3).astype(np.float32)
    mean = np.float32(max(total / len(levels), 1e-20))
    soft = np.empty((len(levels), BITS), np.float16)
    done = 0
    for change, _, loudest in _changes(levels):
        loud = 10 * np.log10(loudest / mean + np.float32(1e-20)) / QUIET_DB + 1
        soft[done : done + len(change)] = np.tanh(change / scale) * np.clip(loud, 0, 1)
        done += len(change)
    return soft


def _changes(levels: Floats | Levels) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Yield the changes of a recording in parts, so that hours take no more room than minutes.

    Each part is the change of the slopes between bands around each step, in dB; the bands' powers;
    and the most power that takes part in a slope's change.
    """
    for first in range(0, len(levels), PART_STEPS):
        begin = max(0, first - MARGIN)
        part = levels[begin : first + PART_STEPS + MARGIN]
        own = slice(first - begin, first - begin + min(PART_STEPS, len(levels) - first))
        yield _changed(part, own)


def _changed(part: Floats | Levels, own: slice) -> tuple[Floats, Floats, Floats]:
    """Return what `_changes` yields of the steps `own`; the others of the part are their margin."""
    rounded = part.astype(np.float16, copy=False)  # as they are kept: the same bits either way
    power = _smooth(band_powers(rounded, EDGES)) + np.float32(POWER_FLOOR)
    loudness = 10 * np.log10(power)
    change = _around(loudness[:, :-1] - loudness[:, 1:], np.subtract)
    most = _around(np.maximum(power[:, :-1], power[:, 1:]), np.maximum)
    return change[own], power[own], most[own]


def _around(rows: Floats, how: np.ufunc) -> Floats:
    """Combine the rows a lag after and before each; at the ends the outermost are repeated."""
    at = np.arange(len(rows))
    later, earlier = np.minimum(at + LAG, len(rows) - 1), np.maximum(at - LAG, 0)
    joined: Floats = how(rows[later], rows[earlier])
    return joined


def band_powers(levels: Levels, edges: npt.NDArray[np.int64]) -> Floats:
    """Add up the powers of the seal's bands between edges: (steps, edges - 1)."""
    power = 10 ** (levels[:, : edges[-1]].astype(np.float32) / 10)
    power *= np.diff(pattern.EDGES)[: edges[-1]].astype(np.float32)
    powers: Floats = np.add.reduceat(power, edges[:-1], axis=1)
    return powers


def _smooth(powers: Floats) -> Floats:
    if not len(powers):
        return powers
    padded = np.pad(powers, ((SMOOTH, SMOOTH), (0, 0)), mode="edge")
    total = np.zeros_like(powers)
    for shift in range(2 * SMOOTH + 1):  # in this order always: sums of floats depend on it
        total += padded[shift : shift + len(powers)]
    return total / np.float32(2 * SMOOTH + 1)


def unpack(known: Fingerprint) -> tuple[Floats, Mask]:
    """Return the bits as ±1, and 0 where none were kept: (columns, BITS); and which were kept."""
    there = kept(known.columns)
    bits = np.unpackbits(np.frombuffer(known.data, np.uint8)).reshape(-1, BITS)
    signs = np.zeros((known.columns, BITS), np.float32)
    signs[there] = bits * np.float32(2) - 1
    return signs, there
