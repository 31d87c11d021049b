"""Read identifiers from a detection: of a whole recording, of a piece, of several joined together.

Knows detections and keys: no audio, no registry.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from keybound.crypto.codes import Bits
from keybound.identity.cells import Cells
from keybound.identity.frame import BITS, CANDIDATES, KEYED, PERIOD, PUBLIC, Frame, Spelled
from keybound.identity.identifier import Identifier, Opened, opened, written
from keybound.identity.permutation import Permutation
from keybound.types import Detection, Span

# Beginnings within a second that are decoded: that of a recording that was not cut, and those of
# the others that are read most clearly.
LEADS = 4
UNCUT = 1.03  # how much more the beginning of an uncut recording counts where others spell it too
FROM_START = 512  # blocks of a short recording that are opened as those of a whole one
# What one key may be asked of one stretch of a view: every answer is a chance to be wrong.
TRIES = LEADS * CANDIDATES * PERIOD
MOST_WINDOWS = 32  # of a view: what a reading may cost
AROUND = 5  # seconds in which codes are compared with those of an identifier
AGREES = 0.35  # of the weight of these seconds, where they are its own
Seconds = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Reading:
    """An identifier that a recording spells.

    `key` is the number of the key that opened it; `issuer` is that of a public one, which needs no
    key. `start_s` is how far into the recording that was marked it begins, up to a multiple of
    32 s; `spans` is where the codes are its own; `fit` is how well they agree, up to 1. `tries` is
    how many blocks were opened with each key: one that is none holds a serial with probability
    2^-24, or 2^-40 where it is public.
    """

    serial: int
    key: int | None
    issuer: int | None
    identifier: Identifier
    start_s: float
    spans: tuple[Span, ...]
    fit: float
    channel: int | None
    tries: int

    @property
    def name(self) -> str:
        """Return the serial as it is written: ten hex digits."""
        return written(self.serial)


def read(found: Detection, keys: Sequence[Permutation]) -> list[Reading]:
    """Return the identifiers that a recording spells under some keys, the one that fits best first.

    A registry knows its serials, so the check of a keyed block is short: a serial counts where a
    record has it.
    """
    return _read(found, KEYED, keys) if keys else []


def read_public(found: Detection) -> list[Reading]:
    """Return the public identifiers that a recording spells, the one that fits best first.

    No key is needed. Anyone can write one: it is a claim until its issuer confirms it.
    """
    return _read(found, PUBLIC, ())


def differing(view: Detection, carried: Identifier, start_s: float) -> Bits:
    """Return the bits in which a recording differs from the codes of an identifier: (bits,).

    All its seconds together; it begins `start_s` into the recording that was marked.
    """
    cells = Cells(view)
    second, lead = cells.place(start_s)
    return cells.turned(carried.codes(second, len(cells.soft[lead])), lead)


def _read(found: Detection, frame: Frame, keys: Sequence[Permutation]) -> list[Reading]:
    if found.frame_logits.shape[1] != BITS:  # weights of another number of bits carry none
        return []
    views = [_View(view, frame, keys) for view in found.views]
    best: dict[Opened, Reading] = {}
    for view in views:
        for held, one in view.read().items():
            if held not in best or one.fit > best[held].fit:
                best[held] = one
    tries = sum(view.tries for view in views)
    return [replace(one, tries=tries) for one in sorted(best.values(), key=lambda one: -one.fit)]


class _View:
    """One view of a recording while its identifiers are read."""

    def __init__(self, view: Detection, frame: Frame, keys: Sequence[Permutation]) -> None:
        self.view, self.frame, self.keys = view, frame, keys
        self.cells = Cells(view)
        self.tries = 0
        self.found: dict[Opened, Reading] = {}
        self._agreement: dict[Opened, float] = {}  # of the reading that was kept
        self.left = self.cells.marked(0) & view.present  # seconds whose identifier is not read yet

    def read(self) -> dict[Opened, Reading]:
        """Read the whole; then, where marked seconds are left, windows of them.

        What is made of two recordings spells neither as a whole.
        """
        seconds, size = len(self.left), 2 * self.frame.least_seconds
        self._decode(0, seconds)
        if seconds >= size + self.frame.least_seconds:
            windows = 0
            for first in range(0, seconds - size // 2, size // 2):
                enough = self.left[first : first + size].sum() > self.frame.least_seconds
                if enough and windows < MOST_WINDOWS:
                    windows += 1
                    self._decode(first, first + size)
        return self.found

    def _decode(self, first: int, stop: int) -> None:
        """Decode a stretch at the likely beginnings, and open the blocks."""
        short = len(self.left) < 2 * self.frame.least_seconds  # more blocks fit about as well
        self.tries += TRIES + (FROM_START - CANDIDATES if short else 0)
        parts = {}
        for lead, soft in enumerate(self.cells.soft):
            inside = np.zeros((len(soft), 1))
            inside[first : stop + (stop >= len(self.left))] = 1.0
            parts[lead] = soft * inside
        clearest = sorted(parts, key=lambda lead: (lead > 0, -float(np.abs(parts[lead]).sum())))
        more: list[Spelled] = []
        for lead in clearest[:LEADS]:
            count = FROM_START if short and lead == 0 else CANDIDATES
            spelled = self.frame.spelled(parts[lead], count)
            more += spelled[CANDIDATES:]
            for one in spelled[:CANDIDATES]:
                for second in range(PERIOD):
                    self._open(one, second, lead)
        if not self.found:
            for one in more:
                self._open(one, 0, 0)

    def _open(self, one: Spelled, second: int, lead: int) -> None:
        """Open a block, as it stood at the beginning of the recording, with each key.

        Beginnings a tenth of a second apart spell one block: the one that agrees most is kept. The
        share that agrees would not tell, since it is high where little is counted.
        """
        block = self.frame.rotated(one.block, -second)
        for held in opened(block, self.frame, self.keys):
            agreement = one.agreement * (UNCUT if second == lead == 0 else 1.0)
            if agreement > self._agreement.get(held, -np.inf):
                self._agreement[held] = agreement
                self._keep(held, Identifier(block, self.frame), second, lead, one.fit)

    def _keep(self, held: Opened, carried: Identifier, second: int, lead: int, fit: float) -> None:
        own, spans = self._own(carried, second, lead)
        self.left[: len(own)] &= ~own[: len(self.left)]
        start_s = second + lead * self.cells.cell_s
        self.found[held] = Reading(*held, carried, start_s, spans, fit, self.view.channel, tries=0)

    def _own(self, carried: Identifier, second: int, lead: int) -> tuple[Seconds, tuple[Span, ...]]:
        """Return the seconds whose codes are those of an identifier, and where they are."""
        soft = self.cells.soft[lead]
        signs = 2.0 * carried.codes(second, len(soft)) - 1.0
        around = np.ones(AROUND)
        agrees = np.convolve((soft * signs).sum(axis=1), around)
        weight = np.convolve(np.abs(soft).sum(axis=1), around)
        middle = slice(AROUND // 2, AROUND // 2 + len(soft))
        share = (agrees / np.maximum(weight, 1e-9))[middle]
        own: Seconds = (share > AGREES) & self.cells.marked(lead)
        edges = np.flatnonzero(np.diff(own, prepend=False, append=False)).reshape(-1, 2)
        speed, lead_s = self.view.speed, lead * self.cells.cell_s
        spans = tuple(
            Span(
                max(0.0, a - lead_s) / speed,
                min(len(self.view.frame_presence) * self.view.frame_s, (b - lead_s) / speed),
                float(np.mean(share[a:b])),
            )
            for a, b in edges.tolist()
        )
        return own, spans
