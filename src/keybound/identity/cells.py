"""The bits of the seconds of a detection, at any beginning within a second.

Knows the frames of a detection: no keys, no audio, no networks.
"""

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt

from keybound.crypto.codes import Bits
from keybound.types import Detection, Floats

Doubles = npt.NDArray[np.float64]

GRID_S = 0.1  # of a cell: between two beginnings that are tried
LIMIT = 1e-3  # presence this near to 0 or 1 is as sure as it gets
SUREST = 8.0  # logit of a bit beyond which it is no surer
EDGE = 0.3  # weight of the first and the last cell of a second, which hear two codes


class Cells:
    """The logits of one view of a detection in cells of a tenth of a second."""

    def __init__(self, found: Detection) -> None:
        self.view = found
        self._chance = np.clip(found.frame_presence, LIMIT, 1 - LIMIT)
        weight: Floats = self._chance / (1 - self._chance)
        weight /= weight.max()
        frame_s = found.frame_s * found.speed  # of the recording as it was marked
        self.frames = max(1, round(GRID_S / frame_s))  # of a cell
        self.cell_s = self.frames * frame_s
        self.second = round(1 / self.cell_s)  # cells
        self._edges = np.arange(0, len(weight), self.frames)
        self._weights = self._summed(weight[:, None])
        self._sums = self._summed(weight[:, None] * found.frame_logits)

    @cached_property
    def soft(self) -> list[Doubles]:
        """Return the logits of the bits of the seconds, by the cells that the first one lacks.

        Each is (seconds, bits): a recording that begins `lead` cells into a second of the one that
        was marked has those of `soft[lead]`. Of a second that was heard in part they are as much
        smaller.
        """
        made = []
        for lead in range(self.second):
            weight, sums = self._within(self._weights, lead), self._within(self._sums, lead)
            share = np.diff(self._at(lead))[:, None] / self.second
            mean = sums / np.maximum(weight, 1e-9)
            made.append(share * np.clip(mean, -SUREST, SUREST))
        return made

    def marked(self, lead: int) -> npt.NDArray[np.bool_]:
        """Return which of the seconds are marked rather than not: (seconds,)."""
        cells = self._summed(self._chance[:, None].astype(np.float32))
        frames = self._summed(np.ones((len(self._chance), 1), np.float32))
        edges = self._at(lead)
        count = np.diff(frames[edges], axis=0)[:, 0]
        own: npt.NDArray[np.bool_] = np.diff(cells[edges], axis=0)[:, 0] > count / 2
        return own

    def turned(self, codes: Bits, lead: int) -> Bits:
        """Return the bits in which the seconds differ from codes, all seconds together: (bits,).

        Seconds beyond the last code are left out.
        """
        sums = np.diff(self._sums[self._at(lead)], axis=0)[: len(codes)]
        signs = 1.0 - 2.0 * codes[: len(sums)]
        own: Bits = ((sums * signs).sum(axis=0) > 0).astype(np.uint8)
        return own

    def place(self, start_s: float) -> tuple[int, int]:
        """Return the second with which a recording begins, so far into the marked one, and lead."""
        second = math.floor(start_s + 1e-6)
        lead = round((start_s - second) / self.cell_s)
        return (second + 1, 0) if lead == self.second else (second, lead)

    def _at(self, lead: int) -> npt.NDArray[np.int64]:
        """Return the cells at which the seconds begin, and the end."""
        cells = len(self._sums) - 1
        return np.arange(-lead, cells + self.second, self.second).clip(0, cells)

    def _within(self, summed: Doubles, lead: int) -> Doubles:
        """Return the sums over each second, in which its first and last cell weigh less."""
        cells, edges = len(summed) - 1, np.arange(-lead, len(summed) - 1, self.second)
        first, last = (edges + 1).clip(0, cells), (edges + self.second - 1).clip(0, cells)
        inner: Doubles = summed[last] - summed[first]
        return EDGE * np.diff(summed[self._at(lead)], axis=0) + (1 - EDGE) * inner

    def _summed(self, frames: Floats) -> Doubles:
        """Return the sums of all frames before each cell, so that any stretch is a difference."""
        cells = np.add.reduceat(frames, self._edges)
        return np.pad(np.cumsum(cells, axis=0, dtype=np.float64), ((1, 0), (0, 0)))
