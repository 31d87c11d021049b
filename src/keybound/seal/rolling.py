"""The rolling code: each second of a recording carries a code of its own from the key's stream.

It cannot be predicted without the key, and agreement with it second after second is evidence that
lasts as long as the learned mark does, through neural codecs, vocoders and noise. Anyone can read
it, though, and embed it in other audio: it counts together with a record of the audio. Knows the
frames of a detection and keys: no audio, no networks. Derivations are in docs/spec.md.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from keybound.crypto import codes, keystream
from keybound.crypto.codes import Bits
from keybound.crypto.keys import Key
from keybound.seal.search import SEALED_P, Found, Sealed, SealSearch, p_bound
from keybound.seal.tiles import CANDIDATES, busiest_part
from keybound.types import Detection

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

LABEL = "keybound-1/roll"
SEED_BYTES = 32
GRID_S = 0.1  # of a cell: between two starts that are tested
NEAR = 2  # cells by which a recording may begin early or late and still count as uncut
PART = 60  # seconds of a long recording that are searched; what is found is judged whole
BATCH = 2048  # starts that are tested together
LIMIT = 1e-3  # presence this near to 0 or 1 is as sure as it gets


def masks(key: Key, bits: int, nonce: bytes, position: int, first: int, count: int) -> Bits:
    """Return the masks of the seconds `first` to `first + count`: (count, bits) of 0 and 1.

    Key, position and nonce give a seed, the seed a row of the keystream for each second.
    """
    bound = keystream.check_position(position).to_bytes(4, "big") + nonce
    seed = key.derive(LABEL, SEED_BYTES, bound)
    return keystream.rows(seed, first, count, -(-bits // 8))[:, :bits]


@dataclass(frozen=True)
class Roll:
    """The codes of one recording: what a payload is in each second."""

    key: Key
    payload: int
    bits: int
    nonce: bytes = b""
    position: int = 0

    def codes(self, first: int, count: int) -> Bits:
        """Return the codes of some seconds: (count, bits)."""
        own = codes.to_bits(self.payload, self.bits)
        return own ^ masks(self.key, self.bits, self.nonce, self.position, first, count)

    def of_blocks(self, blocks: npt.NDArray[np.int64], block_s: float) -> Bits:
        """Return the code of each block of samples: (blocks, bits)."""
        seconds = np.maximum(0, np.floor((blocks + 0.5) * block_s)).astype(np.int64)
        first = int(seconds.min())
        own: Bits = self.codes(first, int(seconds.max()) - first + 1)[seconds - first]
        return own


class Cells:
    """The logits of a detection in cells of a tenth of a second, as cumulative sums."""

    def __init__(self, found: Detection) -> None:
        chance = np.clip(found.frame_presence, LIMIT, 1 - LIMIT)
        weight: Floats = chance / (1 - chance)
        weight /= weight.max()
        frame_s = found.frame_s * found.speed  # of the recording as it was marked
        self.frames = max(1, round(GRID_S / frame_s))  # of a cell
        self.cell_s = self.frames * frame_s
        self.second = round(1 / self.cell_s)  # cells
        edges = np.arange(0, len(weight), self.frames)
        self.weights = _summed(np.add.reduceat(weight, edges)[:, None])
        self.sums = _summed(np.add.reduceat(weight[:, None] * found.frame_logits, edges))

    def seconds(self, lead: int) -> tuple[Doubles, Doubles]:
        """Return the bits of the seconds of a recording that begins `lead` cells into one.

        The first result is each bit from -1 to 1, the second the sums behind it: (seconds, bits).
        """
        cells = len(self.sums) - 1
        edges = np.arange(-lead, cells + self.second, self.second).clip(0, cells)
        weight = np.diff(self.weights[edges], axis=0)
        sums = np.diff(self.sums[edges], axis=0)
        share = np.diff(edges)[:, None] / self.second
        return share * np.tanh(sums / np.maximum(weight, 1e-9)), sums


def _summed(cells: Floats) -> Doubles:
    """Return the sums of all cells before each, so that any stretch is a difference."""
    return np.pad(np.cumsum(cells, axis=0, dtype=np.float64), ((1, 0), (0, 0)))


class Seconds:
    """The bits of the seconds of a detection, for every start within a second."""

    def __init__(self, found: Detection) -> None:
        cells = Cells(found)
        self.channel, self.cell_s = found.channel, cells.cell_s
        self.leads, self.uncut = range(cells.second), range(-NEAR, NEAR + 1)
        self.read = {lead: cells.seconds(lead)[0] for lead in {*self.leads, *self.uncut}}
        self.before = max(map(len, self.read.values()))  # seconds that may lie before the roll
        self.part = _Part([self.read[lead] for lead in self.leads], self.before)
        # No codes fit better than those that agree wherever anything was read (Cauchy-Schwarz).
        self.most_z = math.sqrt(max(np.count_nonzero(one) for one in self.read.values()))
        begun = [self.read[lead] for lead in self.uncut]
        rows = [np.pad(one, ((0, self.before - len(one)), (0, 0))).reshape(-1) for one in begun]
        norms = np.sqrt(np.square(rows).sum(axis=1)) + 1e-9
        self.begun = (np.array(rows) / norms[:, None]).T  # (seconds * bits, starts)

    def signs(self, roll: Roll, reach: int) -> Floats:
        """Return the codes of a roll as ±1, after as many zeros as seconds may lie before it."""
        own = roll.codes(0, self.before + reach)
        return np.pad(2 * own.astype(np.float32) - 1, ((self.before, 0), (0, 0)))


def find_roll(found: Detection, roll: Roll, where: SealSearch, tries: int = 1) -> Sealed:
    """Return the best fit of the codes of a roll, at any of the positions, to a detection."""
    rolls = [replace(roll, position=position) for position in where.positions]
    views = [Seconds(view) for view in found.views]
    return find_rolls(views, rolls, where.reach_s, tries).sealed


def find_rolls(
    views: Sequence[Seconds], rolls: Sequence[Roll], reach_s: float, tries: int
) -> Found:
    """Return the best fit of several rolls to a detection.

    Its strongest view is searched first, then the other marked views until one is found. Half of
    the chance that the p-value allows for is kept for recordings that were not cut: those need few
    tests.
    """
    best = Found()
    for view in views if rolls else ():
        if not best.sealed.holds:
            best = best.or_better(_find(view, rolls, math.ceil(reach_s), tries * len(views)))
    return best


def _find(view: Seconds, rolls: Sequence[Roll], reach: int, tries: int) -> Found:
    """Return the best fit in one view; skip what no codes could prove in so short a recording."""
    share = 2 * tries * len(rolls)
    tests = {True: share * len(view.uncut)}  # where the recording begins with the roll
    tests[False] = share * len(view.leads) * (view.before + reach + 1)
    hopeful = {uncut: p_bound(view.most_z, count) < SEALED_P for uncut, count in tests.items()}
    begun: list[_Start] = []
    cut: list[_Start] = []
    for index, roll in enumerate(rolls if hopeful[True] else ()):
        signs = view.signs(roll, reach)
        z = signs[view.before :][: view.before].reshape(-1) @ view.begun
        begun.append(_Start(float(z.max()), index, view.uncut[int(z.argmax())], view.before))
        if hopeful[False]:
            cut += view.part.best(signs, index)
    best = Found()
    for uncut, starts in ((True, begun), (False, cut)):
        for _, index, lead, at in heapq.nlargest(CANDIDATES, starts):
            z = _fit(view.read[lead], view.signs(rolls[index], reach)[at:])
            start_s = at - view.before + lead * view.cell_s
            p, position = p_bound(z, tests[uncut]), rolls[index].position
            sealed = Sealed(p, z, position, start_s, 1.0, tests[uncut], view.channel)
            best = best.or_better(Found(sealed, index))
    searched = "all" if hopeful[False] else "start" if hopeful[True] else "short"
    return best.with_searched(searched)


class _Start(NamedTuple):
    """Where a roll seems to fit: how well, which of them, cells into a second, row of its signs."""

    z: float
    roll: int
    lead: int
    at: int


class _Part:
    """The busiest part of a recording, in which a roll is searched for, at each of the leads."""

    def __init__(self, read: list[Doubles], before: int) -> None:
        size = min(PART, *map(len, read))
        self.first = busiest_part(np.square(read[0]).sum(axis=1), size).start
        parts = np.stack([one[self.first : self.first + size] for one in read]).astype(np.float32)
        self.flat = parts.transpose(0, 2, 1).reshape(len(read), -1).T  # (bits * size, leads)
        own = np.square(parts).sum(axis=2)[:, ::-1].cumsum(axis=1)[:, ::-1].T  # from each on
        self.behind = np.concatenate([own, np.zeros_like(own[:1])])  # (size + 1, leads)
        self.before, self.length, self.size = before, max(map(len, read)), size

    def best(self, signs: Floats, roll: int) -> list[_Start]:
        """Return, for each lead, the row of signs with which the recording begins."""
        rows = sliding_window_view(signs[self.first :], self.size, axis=0)
        rows = rows[: len(signs) - self.length + 1]
        fits = np.concatenate(
            [
                rows[i : i + BATCH].reshape(-1, len(self.flat)) @ self.flat
                for i in range(0, len(rows), BATCH)
            ]
        )  # (starts, leads)
        # Before the roll there are no signs: only what lies behind its beginning counts.
        silent = np.clip(self.before - self.first - np.arange(len(rows)), 0, self.size)
        z = fits / np.sqrt(self.behind[silent] + 1e-9)
        best = np.argmax(z, axis=0)
        return [_Start(float(z[at, lead]), roll, lead, int(at)) for lead, at in enumerate(best)]


def _fit(read: Doubles, signs: Floats) -> float:
    """Return z of a whole recording whose seconds these are."""
    laid = signs[: len(read)]
    norm = math.sqrt(float(np.square(read * laid).sum()))
    return float((read * laid).sum()) / norm if norm > 0 else 0.0


def read_along(found: Detection, key: Key, nonce: bytes, position: int, start_s: float) -> Bits:
    """Return the payload of a recording that begins `start_s` into a roll: (bits,)."""
    bits = found.frame_logits.shape[1]
    start = math.floor(start_s + 1e-6)
    cells = Cells(found)
    sums = cells.seconds(round((start_s - start) / cells.cell_s))[1]
    sums, start = sums[max(0, -start) :], max(0, start)  # what lies before the roll says nothing
    signs = 1.0 - 2.0 * masks(key, bits, nonce, position, start, len(sums))
    read: Bits = ((sums * signs).sum(axis=0) > 0).astype(np.uint8)
    return read
