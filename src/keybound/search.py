"""Look for a key's pattern in a recording: which position, where cut, how fast, how surely.

Knows levels, as `seal` hears them, and keys: no audio, no files, no networks. However the search
goes about it, the p-value counts every place where the pattern was looked for; docs/spec.md proves
that a wrong key passes no more often than it says, whatever the recording is.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from keybound import seal
from keybound.blocks import Floats
from keybound.codes import Bits
from keybound.evidence import Levels
from keybound.keys import Key
from keybound.seal import BANDS, COLUMN_STEPS, STEP_S

CodeAt = Callable[[int], Bits]  # the code at a position

SEALED_P = 1e-6  # what counts as sealed evidence
# A weighted sum of fair signs exceeds z of its standard deviations at most this much more often
# than a normal variable does, for all weights and all z (Bentkus and Dzindzalieta, 2015).
RADEMACHER = 1 / (2 * math.erfc(1.0))
LEAST_COLUMNS = 12  # of the pattern that must lie in the recording: about half a second
PART = 6000  # steps of a long recording that are searched; what is found is judged whole
SPEED_PART = 2000
WINDOW = 6000  # steps of the pattern that are laid on that part at a time
MOST_WINDOWS = 5120  # in all positions: what a search may cost
MARGIN = 6  # columns around where an uncut recording should lie
NEAR = 20  # steps that a recording may begin early or late and still count as uncut
SPEED_STEP_S = 0.02  # that two neighbouring speeds may differ by over the part searched


@dataclass(frozen=True)
class Places:
    """Where to look: positions of the stream, seconds cut off the start at most, speeds.

    `speed` is the largest change looked for: 0.05 for 5 % slower to 5 % faster.
    """

    positions: Sequence[int] = range(seal.USUAL)
    reach_s: float = 60.0
    speed: float = 0.0


@dataclass(frozen=True)
class Sealed:
    """How surely a key's pattern is in a recording, and where.

    `p` bounds the probability that a wrong key would be found so clearly anywhere; `places` is what
    it is corrected by: the number of positions, cuts, speeds and parties tried, weighted by how
    likely they are. `start_s` is where the recording begins in the stream at `position`; `speed` is
    how much faster it is than it was. `channel` is the one it was found in, from 0, where it was
    found neither in a recording of one nor in all of them together.
    """

    p: float
    z: float
    position: int
    start_s: float
    speed: float
    places: int
    channel: int | None = None

    @property
    def holds(self) -> bool:
        """Say whether this counts as sealed evidence."""
        return self.p < SEALED_P

    @property
    def words(self) -> str:
        """Say how small p is, as a power of ten, and where it was found if not everywhere."""
        where = "" if self.channel is None else f" in channel {self.channel} alone"
        return f"p < 1e{math.ceil(math.log10(self.p)) if self.p > 1e-300 else -300}{where}"


NOTHING = Sealed(p=1.0, z=0.0, position=0, start_s=0.0, speed=1.0, places=0)


def find(
    levels: Floats | Levels | Mapping[int | None, Levels],
    key: Key,
    code: Bits | CodeAt,
    places: Places | None = None,
    tries: int = 1,
) -> Sealed:
    """Find where the pattern of a key and code fits the levels (steps, BANDS) best.

    A detection may have several of them (`heard`), by channel: those of all channels together are
    searched first, then each until it is found. Where each position has a code of its own, `code`
    is a function that gives it. `tries` counts the parties. Half of the chance that the p-value
    allows for is given to the speed that was not changed, half to all the others.
    """
    heard = levels if isinstance(levels, Mapping) else {None: levels}
    best = NOTHING
    for channel, one in heard.items():
        found = _find(one, key, code, places or Places(), tries * len(heard))
        best = min(best, replace(found, channel=channel), key=lambda sealed: sealed.p)
        if best.holds:
            break
    return best


def _find(
    levels: Floats | Levels, key: Key, code: Bits | CodeAt, places: Places, tries: int
) -> Sealed:
    """Search the levels of one sound."""
    if not len(places.positions):
        return NOTHING
    share = tries * (2 if places.speed > 0 else 1)
    code_at = code if callable(code) else lambda _: code
    best = _scan(levels, key, code_at, places, share)
    if best.holds or not places.speed > 0:
        return best
    part = levels[_busiest(levels, SPEED_PART)].astype(np.float32)
    speeds = list(_speeds(places.speed, len(part) * STEP_S))
    for speed in speeds:
        one = _scan(respeed(part, speed), key, code_at, places, share * len(speeds))
        best = min(best, replace(one, speed=speed), key=lambda found: found.p)
    return best


def tail(z: float, places: int) -> float:
    """Bound how often fair signs reach z at one of so many places."""
    return min(1.0, places * RADEMACHER * math.erfc(z / math.sqrt(2)) / 2)


def respeed(levels: Floats, speed: float) -> Floats:
    """Give the levels of a recording that was played `speed` times as fast as before that."""
    steps = np.arange(math.floor(len(levels) * speed)) / speed
    slow: Floats = _between(levels, steps)
    middles = (seal.EDGES[:-1] + seal.EDGES[1:]) / 2
    bands = np.interp(middles * speed, middles, np.arange(BANDS))
    return _between(slow.T, bands).T


def _between(rows: Floats, at: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Floats:
    """Interpolate rows at fractional places."""
    low = np.clip(np.floor(at).astype(int), 0, len(rows) - 1)
    high = np.minimum(low + 1, len(rows) - 1)
    part = (at - low).astype(np.float32)[:, None]
    made: Floats = rows[low] * (1 - part) + rows[high] * part
    return made


def _speeds(most: float, length_s: float) -> Iterator[float]:
    """Give the speeds other than 1 up to a change, so close that none in between is missed."""
    count = math.ceil(most * length_s / SPEED_STEP_S)
    for step in range(1, count + 1):
        yield 1 - most * step / count
        yield 1 + most * step / count


def _scan(levels: Floats | Levels, key: Key, code: CodeAt, places: Places, share: int) -> Sealed:
    """Search at one speed, one of `share` such searches, for all positions and cuts.

    The first view of the tiles is searched; what is found there is judged in all of them.
    """
    if not len(places.positions) or len(levels) < LEAST_COLUMNS * COLUMN_STEPS:
        return NOTHING
    reach = math.ceil(places.reach_s / STEP_S)
    part = _busiest(levels, PART)
    origins = _origins(part.start, reach, MOST_WINDOWS // len(places.positions))
    matcher = _Matcher(np.concatenate([*seal.contrasts(levels, 0, part)]), min(reach, WINDOW))
    found = ((*matcher.best(key, code(at), at, origins), at) for at in places.positions)
    _, start, position = max(found)
    start -= part.start
    views = range(len(seal.VIEWS))
    z = max(_fit(levels, view, key, code(position), position, start) for view in views)
    # Half of the chance is kept for recordings that nobody cut: there are few places for those.
    cuts = 2 * NEAR + 1 if abs(start) <= NEAR else len(levels) + reach
    count = 2 * share * cuts * len(places.positions) * len(views)
    return Sealed(tail(z, count), z, position, start * STEP_S, 1.0, count)


def _origins(first: int, reach: int, most: int) -> list[int]:
    """Give the columns of the pattern from which windows of it are laid on a part.

    The part begins at step `first`: there it lies in the pattern if the recording was not cut.
    Then come the places before and after it, as many as there is time for.
    """
    uncut = max(0, first // COLUMN_STEPS - MARGIN)
    width = max(1, min(reach, WINDOW) // COLUMN_STEPS)
    others = range(0, (first + reach) // COLUMN_STEPS + 1, width)
    return list(dict.fromkeys([uncut, *others][: max(2, most)]))


class _Matcher:
    """The tiles of a part, made ready to be laid on patterns at every place by FFT."""

    def __init__(self, tiles: Floats, reach: int) -> None:
        count = -(-len(tiles) // COLUMN_STEPS)
        self.columns = -(-reach // COLUMN_STEPS) + count + 2 * MARGIN  # of the pattern
        self.size = _fast(self.columns + count)
        padded = np.pad(tiles, ((0, count * COLUMN_STEPS - len(tiles)), (0, 0)))
        phases = padded.reshape(count, COLUMN_STEPS, BANDS).transpose(1, 2, 0)  # of 10 ms
        self.spectra = [np.conj(np.fft.rfft(phase, self.size)) for phase in phases]
        power = np.square(phases).sum(axis=1, dtype=np.float64)  # (phases, columns)
        # Before the pattern's first column there is none: only what lies behind it counts.
        behind = np.cumsum(power[:, ::-1], axis=1)[:, LEAST_COLUMNS - 1 :]
        whole = np.repeat(behind[:, -1:], self.columns - count, axis=1)
        norm = np.sqrt(np.concatenate([behind, whole], axis=1))
        # Where next to nothing lies on the pattern, the rounding of the FFT would look like a fit.
        self.norm = np.maximum(norm, 0.03 * norm.max() + 1e-12)
        self.lead = behind.shape[1] - 1  # places before the pattern's first column

    def best(
        self, key: Key, code: Bits, position: int, origins: Sequence[int]
    ) -> tuple[float, int]:
        """Give z and the step of the pattern with which the part begins, where it fits best."""
        best = 0.0, 0
        for origin in origins:
            pattern = seal.signs(key, code, position, origin, self.columns).T.astype(np.float32)
            spectrum = np.fft.rfft(pattern, self.size)
            for phase, own in enumerate(self.spectra):
                sums = np.fft.irfft((own * spectrum).sum(axis=0), self.size)
                z = np.roll(sums, self.lead)[: self.norm.shape[1]] / self.norm[phase]
                at = int(np.argmax(z))
                start = (origin + at - self.lead) * COLUMN_STEPS - phase
                best = max(best, (float(z[at]), start))
        return best


def _fit(
    levels: Floats | Levels, view: int, key: Key, code: Bits, position: int, start: int
) -> float:
    """Give z of a whole recording that begins at a step of the pattern."""
    total = power = 0.0
    at = 0  # step of the recording with which a part begins
    for tiles in seal.contrasts(levels, view):
        first = max(0, -(-(start + at) // COLUMN_STEPS))
        laid = tiles[first * COLUMN_STEPS - start - at :: COLUMN_STEPS].astype(np.float64)
        total += float((laid * seal.signs(key, code, position, first, len(laid))).sum())
        power += float(np.square(laid).sum())
        at += len(tiles)
    return total / math.sqrt(power) if power > 0 else 0.0


def _busiest(levels: Floats | Levels, most: int) -> slice:
    """Find the part of so many steps that holds most. It begins with a whole column."""
    if len(levels) <= most:
        return slice(0, len(levels))
    own = np.concatenate([np.square(tiles).sum(axis=1) for tiles in seal.contrasts(levels, 0)])
    power = np.concatenate([[0.0], np.cumsum(own, dtype=np.float64)])
    first = int(np.argmax(power[most:] - power[:-most])) // COLUMN_STEPS * COLUMN_STEPS
    return slice(first, first + most)


def _fast(least: int) -> int:
    """Give a length of at least so much that an FFT is fast for."""
    return min(m << max(0, math.ceil(math.log2(least / m))) for m in (3, 4, 5))
