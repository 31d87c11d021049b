"""Tiles: a recording prepared, once, to be tested for the patterns of any number of keys.

A pattern is tested at a few starts by matrix products, and at every start by FFT. Knows the odds of
tiles and keys: no audio, no files, no networks. What a fit proves, and how many tests are counted,
is decided in `search`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from keybound.crypto.codes import Bits
from keybound.crypto.keys import Key
from keybound.seal import chance, pattern
from keybound.seal.pattern import COLUMN_STEPS
from keybound.types import Floats

LEAST_COLUMNS = 12  # of the pattern that must lie in the recording: about half a second
PART = 6000  # steps of a long recording that are searched; what is found is judged on all of it
WINDOW = 6000  # steps of the pattern that are laid on that part at a time
MARGIN = 6  # columns around where an uncut recording should lie
NEAR = 20  # steps that a recording may begin early or late and still count as uncut
# In how many tests a start counts, by its distance from where it is expected: half of the chance
# is that it is exact, a quarter that it is one step off, the rest is shared by the others.
NEAR_TESTS = np.array([2, 8] + (NEAR - 1) * [8 * (NEAR - 1)])
# So much less of z is what a start is worth that counts in e times as many tests, near z of 6,
# where sealed evidence begins.
Z_OF_TESTS = 1 / 6
# Bands in which every start is tested: those that the seal changes most and that have most power.
# After all attacks that were measured z is as large in these alone as in all 64.
SEARCHED_BANDS = 32
CANDIDATES = 8  # of the search in these bands that are tested in all bands
SIGNS_AT_ONCE = 1 << 20  # of patterns that are laid at a few starts: 4 MB
PATTERNS_AT_ONCE = 8  # of those that go through the FFT: more do not fit into a cache

Tick = Callable[[int], None]  # told how many windows of patterns were laid on the part


class Spot(NamedTuple):
    """A pattern that a recording may carry."""

    key: Key
    code: Bits
    position: int

    def signs(self, first: int, count: int) -> pattern.Signs:
        """Return columns of the pattern: (count, BANDS) of ±1."""
        return pattern.signs(self.key, self.code, self.position, first, count)


class Fit(NamedTuple):
    """Where one of several patterns fits a part of a recording best."""

    z: float  # near an expected start less what the tests cost
    spot: int  # its index
    start: int  # step of the pattern with which the recording begins


class Proof(NamedTuple):
    """What a pattern at one start comes to over all that is judged."""

    z: float
    chance: float  # a bound on how often fair signs reach it, of one test


class Tiles:
    """The odds of a recording's tiles, and of the part in which patterns are searched for.

    `odds` are those of the stretch that is judged, which begins at the step `first` of a recording
    of `length` steps.
    """

    def __init__(self, odds: Floats, first: int = 0, length: int | None = None) -> None:
        self.odds, self.first = odds, first  # (steps, BANDS)
        self.length = len(odds) if length is None else length
        part = busiest(np.square(odds).sum(axis=1), PART)
        self.steps = odds[part]
        self.part = slice(first + part.start, first + part.stop)  # of the recording
        self._matchers: dict[int, _Matcher] = {}

    @property
    def columns(self) -> int:
        """Return the length of what is judged in columns of the pattern."""
        return len(self.odds) // COLUMN_STEPS

    @property
    def too_short(self) -> bool:
        """Return whether the recording is too short for any pattern."""
        return self.columns < LEAST_COLUMNS

    @cached_property
    def _begun(self) -> "_Laid":
        return _Laid(self.steps, self.part.start, 0)

    def near(self, spots: Sequence[Spot], start: int = 0) -> Fit:
        """Return the best fit with the recording's start within NEAR of a step."""
        laid = _Laid(self.steps, self.part.start, start) if start else self._begun
        return laid.best(spots)

    def windows(self, reach: int) -> list[int]:
        """Return the columns from which windows of a pattern are laid on the part.

        First comes where the part lies in the pattern if the recording was not cut, then the
        windows around it, up to `reach` steps cut off the start, the nearest first.
        """
        first = self.part.start
        uncut = max(0, first // COLUMN_STEPS - MARGIN)
        width = max(1, self._window(reach) // COLUMN_STEPS)
        # A window reaches so far beyond its width: the last one is not begun for that.
        last = (first + reach) // COLUMN_STEPS - 2 * MARGIN
        others = range(0, max(1, last + 1), width)
        return list(dict.fromkeys([uncut, *sorted(others, key=lambda one: abs(one - uncut))]))

    def _window(self, reach: int) -> int:
        return min(int(self.part.start) + reach, WINDOW)

    def anywhere(
        self, spots: Sequence[Spot], reach: int, windows: Sequence[int], tick: Tick
    ) -> Fit:
        """Return the best fit with the recording's start anywhere in these windows."""
        size = self._window(reach)
        if size not in self._matchers:
            self._matchers[size] = _Matcher(self.steps, size)
        matcher = self._matchers[size]
        found: list[Fit] = []
        for first in range(0, len(spots), PATTERNS_AT_ONCE):
            batch = spots[first : first + PATTERNS_AT_ONCE]
            for column in windows:
                found += (
                    fit._replace(spot=first + fit.spot) for fit in matcher.fits(batch, column)
                )
                tick(len(batch))
        # One start is found in two windows where they overlap.
        starts = [start - self.part.start for _, _, start in found]
        ranked = sorted(range(len(found)), key=lambda i: -found[i].z)[:CANDIDATES]
        likely = {(found[i].spot, starts[i]) for i in ranked}
        return max(Fit(self._on_part(spots[spot], start), spot, start) for spot, start in likely)

    def _on_part(self, spot: Spot, start: int) -> float:
        return _z(*_lay(spot, self.steps, start + self.part.start))

    def whole(self, laid: Sequence[tuple[Spot, int]]) -> list[Proof]:
        """Return what each pattern at its start comes to over all that is judged."""
        found = [_lay(spot, self.odds, start + self.first) for spot, start in laid]
        return [Proof(_z(total, tiles), chance.of_sum(tiles, total)) for total, tiles in found]


def _z(total: float, tiles: npt.NDArray[np.float64]) -> float:
    power = float(np.square(tiles).sum())
    return total / math.sqrt(power) if power > 0 else 0.0


def _lay(spot: Spot, tiles: Floats, start: int) -> tuple[float, npt.NDArray[np.float64]]:
    """Return the sum of products of a pattern and tiles that begin at a step of it; the tiles."""
    first = max(0, -(-start // COLUMN_STEPS))
    laid = tiles[first * COLUMN_STEPS - start :: COLUMN_STEPS].astype(np.float64)
    total = float((laid * spot.signs(first, len(laid))).sum()) if len(laid) else 0.0
    return total, laid


class _Laid:
    """The tiles of a part as they lie on a pattern at each start around one."""

    def __init__(self, tiles: Floats, first: int, middle: int) -> None:
        self.starts = np.arange(middle - NEAR, middle + NEAR + 1)
        steps = self.starts + first  # of the pattern, with which the part begins
        self.column = max(0, -(-int(steps[0]) // COLUMN_STEPS))
        self.count = max(0, int(steps[-1] + len(tiles) - 1) // COLUMN_STEPS + 1 - self.column)
        columns = np.arange(self.column, self.column + self.count)
        at = COLUMN_STEPS * columns[:, None] - steps  # (columns, starts) of the part
        inside = (at >= 0) & (at < len(tiles))
        picked = tiles[np.clip(at, 0, max(0, len(tiles) - 1))] * inside[..., None]
        # (columns * BANDS, starts)
        self.matrix = picked.transpose(0, 2, 1).reshape(-1, len(self.starts))
        self.norm = _norm(np.square(self.matrix).sum(axis=0, dtype=np.float64))
        self.cost = Z_OF_TESTS * np.log(NEAR_TESTS[abs(self.starts - middle)])

    def best(self, spots: Sequence[Spot]) -> Fit:
        best = Fit(-math.inf, 0, int(self.starts[NEAR]))
        if self.count < LEAST_COLUMNS:
            return best
        for first, batch in _batches(spots, max(1, SIGNS_AT_ONCE // len(self.matrix))):
            signs = np.stack([one.signs(self.column, self.count).reshape(-1) for one in batch])
            z = (signs.astype(np.float32) @ self.matrix) / self.norm - self.cost  # (spots, starts)
            spot, at = divmod(int(np.argmax(z)), z.shape[1])
            best = max(best, Fit(float(z[spot, at]), first + spot, int(self.starts[at])))
        return best


class _Matcher:
    """The tiles of a part, prepared to test patterns at every start by FFT."""

    def __init__(self, tiles: Floats, reach: int) -> None:
        power = np.square(tiles).sum(axis=0, dtype=np.float64)
        self.bands = np.sort(np.argsort(-power)[:SEARCHED_BANDS])
        count = -(-len(tiles) // COLUMN_STEPS)
        self.columns = -(-reach // COLUMN_STEPS) + count + 2 * MARGIN  # of the pattern
        self.size = _fast(self.columns + count)
        padded = np.pad(tiles[:, self.bands], ((0, count * COLUMN_STEPS - len(tiles)), (0, 0)))
        phases = padded.reshape(count, COLUMN_STEPS, len(self.bands))  # of 10 ms
        spectra = np.conj(np.fft.rfft(phases, self.size, axis=0))  # (bins, phases, bands)
        self.spectra = np.ascontiguousarray(spectra.transpose(0, 2, 1)).astype(np.complex64)
        own = np.square(phases).sum(axis=2, dtype=np.float64).T  # (phases, columns)
        # Before the pattern's first column there is none: only what lies behind it counts.
        behind = np.cumsum(own[:, ::-1], axis=1)[:, LEAST_COLUMNS - 1 :]
        whole = np.repeat(behind[:, -1:], self.columns - count, axis=1)
        self.norm = _norm(np.concatenate([behind, whole], axis=1))
        self.lead = behind.shape[1] - 1  # starts before the pattern's first column

    def fits(self, spots: Sequence[Spot], column: int) -> Iterator[Fit]:
        """Yield for each pattern, from a column on, the step with which the part fits best."""
        signs = [one.signs(column, self.columns)[:, self.bands].T for one in spots]
        spectra = np.fft.rfft(np.stack(signs).astype(np.float32), self.size)  # (spots, bands, bins)
        by_bin = np.ascontiguousarray(spectra.transpose(2, 0, 1)).astype(np.complex64, copy=False)
        mixed = (by_bin @ self.spectra).transpose(1, 2, 0)  # (spots, phases, bins)
        sums = np.roll(np.fft.irfft(mixed, self.size), self.lead, axis=-1)
        z = sums[..., : self.norm.shape[1]] / self.norm
        for spot, own in enumerate(z):
            phase, at = divmod(int(np.argmax(own)), own.shape[1])
            start = (column + at - self.lead) * COLUMN_STEPS - phase
            yield Fit(float(own[phase, at]), spot, start)


def _norm(power: npt.NDArray[np.float64]) -> Floats:
    """Return the roots of powers; where next to nothing lies, rounding would look like a fit."""
    norm = np.sqrt(power)
    floor: Floats = np.maximum(norm, 0.03 * norm.max() + 1e-12).astype(np.float32)
    return floor


def _batches(spots: Sequence[Spot], size: int) -> Iterator[tuple[int, Sequence[Spot]]]:
    for first in range(0, len(spots), size):
        yield first, spots[first : first + size]


def busiest(power: npt.NDArray[np.floating], most: int) -> slice:
    """Return the part of at most so many steps that holds most. It begins with a whole column."""
    if len(power) <= most:
        return slice(0, len(power))
    first = busiest_part(power, most).start // COLUMN_STEPS * COLUMN_STEPS
    return slice(first, first + most)


def busiest_part(power: npt.NDArray[np.floating], most: int) -> slice:
    """Return the part of `most` rows that holds most power, of (rows,) of which there are more."""
    sums = np.concatenate([[0.0], np.cumsum(power, dtype=np.float64)])
    first = int(np.argmax(sums[most:] - sums[:-most]))
    return slice(first, first + most)


def _fast(least: int) -> int:
    """Return a length of at least so much for which an FFT is fast."""
    return min(m << max(0, math.ceil(math.log2(least / m))) for m in (3, 4, 5))
