"""Sounds: the channels of a recording, as they are and at other speeds, made ready for the search.

Knows levels: no keys, no audio.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from keybound.seal import pattern
from keybound.seal.odds import QUIET, odds_of
from keybound.seal.pattern import BANDS, STEP_S
from keybound.seal.tiles import Tiles, busiest
from keybound.types import Floats, Levels

JUDGED = 60_000  # steps of a recording that are judged: its busiest ten minutes
BUSY_DB = 30.0  # above the noise of its band, beyond which a level tells no more of how busy it is
SPEED_PART = 2000  # steps of a recording that are searched at other speeds
SPEED_STEP_S = 0.02  # that two neighbouring speeds may differ by over the part searched


class Run(NamedTuple):
    """Tiles of one channel at one speed, one of `speeds` that share the chance."""

    channel: int | None
    tiles: Tiles
    speed: float = 1.0
    speeds: int = 1


class Sound:
    """One of the channels of a recording: its tiles as they are, and at other speeds."""

    def __init__(self, channel: int | None, levels: Floats | Levels) -> None:
        self.channel, self.levels = channel, levels
        self._at_speeds: dict[float, list[Run]] = {}

    @cached_property
    def tiles(self) -> Tiles:
        """Return the tiles at the recording's own speed."""
        judged = slice(0, len(self.levels))
        if len(self.levels) > JUDGED:
            judged = busiest(_busy(self.levels), JUDGED)
        return Tiles(odds_of(self.levels[judged]), judged.start, len(self.levels))

    def at_speeds(self, most: float) -> list[Run]:
        """Return the tiles of a part of it at other speeds, up to a change of so much."""
        if most > 0 and most not in self._at_speeds:
            odds = self.tiles.odds
            part = odds[busiest(np.square(odds).sum(axis=1), SPEED_PART)]
            length_s = len(part) * STEP_S
            speeds = list(speeds_near(most, math.ceil(most * length_s / SPEED_STEP_S)))
            self._at_speeds[most] = [
                Run(self.channel, Tiles(respeed(part, one)), one, len(speeds)) for one in speeds
            ]
        return self._at_speeds.get(most, [])


def _busy(levels: Floats | Levels) -> Floats:
    """Return how much each moment of a long recording is above its noise: (steps,)."""
    some = levels[:: len(levels) // JUDGED].astype(np.float32)  # there is room for some of them
    noise: Floats = np.quantile(some, QUIET, axis=0).astype(np.float32)
    parts = (levels[first : first + JUDGED] for first in range(0, len(levels), JUDGED))
    busy = [np.clip(part - noise, 0, BUSY_DB).sum(axis=1) for part in parts]
    return np.concatenate(busy).astype(np.float32)


def sounds_of(levels: Floats | Levels | Mapping[int | None, Levels]) -> list[Sound]:
    """Return the channels of a recording, ready for the patterns of any number of parties."""
    by_channel = levels if isinstance(levels, Mapping) else {None: levels}
    return [Sound(channel, one) for channel, one in by_channel.items()]


def respeed(levels: Floats, speed: float) -> Floats:
    """Return the levels before a recording was played `speed` times as fast."""
    steps = np.arange(math.floor(len(levels) * speed)) / speed
    slow: Floats = _between(levels, steps)
    middles = (pattern.EDGES[:-1] + pattern.EDGES[1:]) / 2
    bands = np.interp(middles * speed, middles, np.arange(BANDS))
    return _between(slow.T, bands).T


def _between(rows: Floats, at: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Floats:
    """Interpolate rows at fractional indices."""
    low = np.clip(np.floor(at).astype(int), 0, len(rows) - 1)
    high = np.minimum(low + 1, len(rows) - 1)
    part = (at - low).astype(np.float32)[:, None]
    made: Floats = rows[low] * (1 - part) + rows[high] * part
    return made


def speeds_near(most: float, count: int) -> Iterator[float]:
    """Yield `count` speeds to either side of 1, up to a change of `most`."""
    for step in range(1, count + 1):
        yield 1 - most * step / count
        yield 1 + most * step / count
