"""Read identifiers from a detection: of a whole recording, of a piece, of several joined together.

Knows detections and keys: no audio, no registry.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
FROM_START = 512  # blocks of a short recording that may be opened as those of a whole one
# Blocks of a recording that each key may be asked to open: every answer is a chance to be wrong.
# So a public identifier is read by chance once in 10^9 recordings at most.
MOST_BLOCKS = 1000
CHANCE = 1e-9  # that a keyed one names a record: the more keys and records, the fewer blocks
MOST_WINDOWS = 32  # of a view: what a reading may cost
# What fits best by chance, by the bits that were read for each of the block: a straight line of the
# logarithm, fitted to unmarked speech.
BY_CHANCE, FALLS = (
    0.953,
    0.25,
)  # at 1.5 bits, and by how much it falls where they are e times as many
# Of windows, and of recordings with so many bits for each of the block, the best block alone is
# opened, and only where it fits about as well as that or better, by what is left to a perfect fit.
ENOUGH, LEAST_SCORE = 3.0, -0.15
AROUND = 5  # seconds in which codes are compared with those of an identifier
AGREES = 0.35  # of the weight of these seconds, where they are its own
Seconds = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Reading:
    """An identifier that a recording spells.

    `key` is the number of the key that opened it; `issuer` is that of a public one, which needs no
    key. `start_s` is how far into the recording that was marked it begins, up to a multiple of
    32 s; `spans` is where the codes are its own; `fit` is how well they agree, up to 1. `tries` is
    how many blocks could be opened with each key: one that is none holds a serial with probability
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


def read(found: Detection, keys: Sequence[Permutation], records: int = 1) -> list[Reading]:
    """Return the identifiers that a recording spells under some keys, the one that fits best first.

    A registry knows its serials, so the check of a keyed block is short: a serial counts where one
    of its records has it.
    """
    chances = max(1, len(keys)) * max(1, records)
    most = max(PERIOD, min(MOST_BLOCKS, int(CHANCE * 2**KEYED.block_bits / chances)))
    return _read(found, _Opener(KEYED, keys, most)) if keys else []


def read_public(found: Detection) -> list[Reading]:
    """Return the public identifiers that a recording spells, the one that fits best first.

    No key is needed. Anyone can write one: it is a claim until its issuer confirms it.
    """
    return _read(found, _Opener(PUBLIC, (), MOST_BLOCKS))


def differing(view: Detection, carried: Identifier, start_s: float) -> Bits:
    """Return the bits in which a recording differs from the codes of an identifier: (bits,).

    All its seconds together; it begins `start_s` into the recording that was marked.
    """
    cells = Cells(view)
    second, lead = cells.place(start_s)
    return cells.turned(carried.codes(second, len(cells.soft[lead])), lead)


def _read(found: Detection, opener: "_Opener") -> list[Reading]:
    if found.frame_logits.shape[1] != BITS:  # weights of another number of bits carry none
        return []
    views = [_View(view, opener) for view in found.views]
    _open([one for view in views for one in view.whole()])
    if not any(view.found for view in views):
        for one in sorted((one for view in views for one in view.more), key=_by_score):
            one.view.open(one, 0)
    for size, step in opener.windows:
        _open([one for view in views for one in view.windows(size, step)])
    best: dict[Opened, Reading] = {}
    for view in views:
        for held, own in view.found.items():
            if held not in best or own.fit > best[held].fit:
                best[held] = own
    return sorted(best.values(), key=lambda one: -one.fit)


def _open(proposed: Sequence["_Proposal"]) -> None:
    """Open proposed blocks in every rotation, those first that fit best beside chance."""
    for one in sorted(proposed, key=_by_score):
        for second in range(PERIOD):
            one.view.open(one, second)


def _by_score(one: "_Proposal") -> float:
    return -one.score


class _Opener:
    """Opens blocks with each key, so many and no more."""

    def __init__(self, frame: Frame, keys: Sequence[Permutation], most: int) -> None:
        self.frame, self.keys, self.most = frame, keys, most
        self._known: dict[int, list[Opened]] = {}
        least = frame.least_seconds
        self.windows = ((2 * least, least), (least + 2, 3))  # seconds, and from one to the next

    def open(self, block: int) -> list[Opened]:
        """Return what a block holds under each key; nothing once too many were opened."""
        if block not in self._known and len(self._known) < self.most:
            self._known[block] = opened(block, self.frame, self.keys)
        return self._known.get(block, [])


@dataclass(frozen=True)
class _Proposal:
    """A block that a stretch of a view may spell, at a beginning within a second.

    `score` is how much better it fits than the best by chance, of what is left to a perfect fit.
    """

    view: "_View"
    lead: int
    spelled: Spelled
    score: float


class _View:
    """One view of a recording while its identifiers are read."""

    def __init__(self, view: Detection, opener: _Opener) -> None:
        self.view, self.opener, self.frame = view, opener, opener.frame
        self.cells = Cells(view)
        self.found: dict[Opened, Reading] = {}
        self.more: list[_Proposal] = []  # blocks of a short recording, if it is a whole one
        self._agreement: dict[Opened, float] = {}  # of the reading that was kept
        self._tried = 0  # windows
        self.left = self.cells.marked(0) & view.present  # seconds whose identifier is not read yet

    def whole(self) -> list[_Proposal]:
        """Return the blocks that the whole of the view may spell."""
        short = len(self.left) < 2 * self.frame.least_seconds  # more blocks fit about as well
        return self._proposed(0, len(self.left), FROM_START if short else 0)

    def windows(self, size: int, step: int) -> list[_Proposal]:
        """Return the blocks that windows of it may spell, where marked seconds are left.

        What is made of two recordings spells neither as a whole.
        """
        seconds, least, made = len(self.left), self.frame.least_seconds, list[_Proposal]()
        if seconds < 3 * least:
            return []
        for first in range(0, seconds - least, step):
            enough = self.left[first : first + size].sum() > least
            if enough and self._tried < MOST_WINDOWS:
                self._tried += 1
                made += self._proposed(first, first + size)
        return made

    def _proposed(self, first: int, stop: int, from_start: int | None = None) -> list[_Proposal]:
        """Decode a stretch of seconds at the likely beginnings.

        The whole has so many blocks more `from_start`; a window has none.
        """
        parts = {}
        for lead, soft in enumerate(self.cells.soft):
            inside = np.zeros((len(soft), 1))
            inside[first : stop + (stop >= len(self.left))] = 1.0
            parts[lead] = soft * inside
        clearest = sorted(parts, key=lambda lead: (lead > 0, -float(np.abs(parts[lead]).sum())))
        seconds = min(PERIOD, min(stop, len(self.left)) - first)
        redundancy = max(1, seconds) * BITS / self.frame.block_bits
        strict = from_start is None or redundancy >= ENOUGH
        count = 1 if strict else CANDIDATES
        made = list[_Proposal]()
        for lead in clearest[:LEADS]:
            spelled = self.frame.spelled(
                parts[lead], count if lead else max(count, from_start or 0)
            )
            own = [_Proposal(self, lead, one, _score(one.fit, redundancy)) for one in spelled]
            made += own[:count]
            self.more += own[count:]
        return [one for one in made if not strict or one.score > LEAST_SCORE]

    def open(self, one: _Proposal, second: int) -> None:
        """Open a block, as it stood at the beginning of the recording, with each key.

        Beginnings a tenth of a second apart spell one block: the one that agrees most is kept. The
        share that agrees would not tell, since it is high where little is counted.
        """
        block = self.frame.rotated(one.spelled.block, -second)
        for held in self.opener.open(block):
            agreement = one.spelled.agreement * (UNCUT if second == one.lead == 0 else 1.0)
            if agreement > self._agreement.get(held, -np.inf):
                self._agreement[held] = agreement
                carried = Identifier(block, self.frame)
                self._keep(held, carried, second, one.lead, one.spelled.fit)

    def _keep(self, held: Opened, carried: Identifier, second: int, lead: int, fit: float) -> None:
        own, spans = self._own(carried, second, lead)
        self.left[: len(own)] &= ~own[: len(self.left)]
        start_s = second + lead * self.cells.cell_s
        self.found[held] = Reading(
            *held, carried, start_s, spans, fit, self.view.channel, self.opener.most
        )

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


def _score(fit: float, redundancy: float) -> float:
    """Return how much better a block fits than the best by chance, of what is left to a 1."""
    chance = BY_CHANCE - FALLS * math.log(redundancy / 1.5)
    return (fit - chance) / (1 - chance)
