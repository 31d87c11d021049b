"""Channels: the mix and each channel of a recording, analysed block by block, each sound once.

A channel may be silent, late, inverted or another voice, and then the mix of all channels carries
no mark. So each is analysed by itself too. Channels that have been equal so far are one sound; when
they first differ, its state is copied, so that the result is as if they had been apart from the
start. Knows arrays: no files, keys or weights.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from keybound.audio.resample import Resampler
from keybound.audio.streaming import Feeder, Rows
from keybound.seal import pattern
from keybound.types import Floats, Levels

MOST_CHANNELS = 8  # that are analysed by themselves; the mix is that of all of them
# The levels of single channels are kept while all of them together are no longer than this: for
# the two of a stereo recording, half an hour.
MOST_LEVELS_S = 3600.0
MIX = 0  # the first of the views; channel c is view c + 1
LIMIT = 6e4  # of what is kept in 16 bits


class _Sound:
    """One sound, its network and level feeder, their outputs, and the views that it is."""

    def __init__(
        self, down: Resampler, network: Feeder | None, level_feeder: Feeder | None
    ) -> None:
        self.down, self.network, self.level_feeder = down, network, level_feeder
        self.views: list[int] = []
        self.frames: Rows | None = None
        self.levels: Rows | None = None  # of its own, where there are other sounds

    @property
    def channels(self) -> list[int]:
        return [view - 1 for view in self.views if view != MIX]

    def copy(self) -> "_Sound":
        made = _Sound(
            self.down.copy(),
            self.network.copy() if self.network is not None else None,
            self.level_feeder.copy() if self.level_feeder is not None else None,
        )
        made.frames = None if self.frames is None else self.frames.copy(np.float16)
        made.levels = None if self.levels is None else self.levels.copy(np.float16)
        return made

    def narrow(self, samples: Floats, *, end: bool) -> Floats:
        """Push (samples, 1) and return what they complete at the networks' rate: (samples,)."""
        made = self.down.push(samples)
        return np.concatenate([made, self.down.flush()])[:, 0] if end else made[:, 0]


class ChannelFeeder:
    """Feeds all channels of a recording to a network, to the levels, or both, block by block.

    `network` returns rows of `width` numbers for the frames of a sound at `rate`, and holds no
    state that its `copy` would share. With `passing` the levels of all channels together are not
    kept but handed on (`passed`), and those of single channels are left out.
    """

    def __init__(
        self,
        sample_rate: int,
        channels: int,
        *,
        rate: int = pattern.RATE,
        network: Feeder | None = None,
        width: int = 0,
        levels: bool = False,
        passing: bool = False,
    ) -> None:
        self._channels, self.rate, self._passing = channels, rate, passing
        first = _Sound(
            Resampler(sample_rate, rate, 1), network, pattern.level_feeder() if levels else None
        )
        first.views = list(range(1 + min(channels, MOST_CHANNELS))) if channels > 1 else [1]
        first.frames = Rows(width, np.float32) if network else None
        self._sounds = [first]
        self._combined = Rows(pattern.BANDS, np.float16)  # levels of all channels together

    @property
    def delay_s(self) -> float:
        """Return the largest delay of the samples at the networks' rate."""
        return self._sounds[0].down.delay_s

    def push(self, samples: Floats, *, end: bool = False) -> list[Floats]:
        """Push (samples, channels), the last with `end`; return the new frames of each sound."""
        columns = self._columns(samples)
        made, levels = [], []
        for sound in self._sounds:
            narrow = sound.narrow(columns[sound.views[0]], end=end)
            if sound.network is not None and sound.frames is not None:
                parts = sound.network.flush(narrow) if end else sound.network.push(narrow)
                made.append(_joined(parts, sound.frames.width))
                sound.frames.add(np.clip(made[-1], -LIMIT, LIMIT))
            if sound.level_feeder is not None:
                parts = sound.level_feeder.flush(narrow) if end else sound.level_feeder.push(narrow)
                levels.append(_joined(parts, pattern.BANDS))
        if levels:
            self._keep(levels)
        return made

    def frames(self, *, last: bool) -> dict[int | None, Floats]:
        """Return the frames of each sound by the first channel that it is; None: the mix."""
        return {
            None if sound.views[0] == MIX or self._channels == 1 else sound.views[0] - 1: (
                sound.frames.all(last=last)
            )
            for sound in self._sounds
            if sound.frames is not None
        }

    def levels(self, *, last: bool) -> dict[int | None, Levels]:
        """Return the levels of all channels together (None), and of single ones that add to them.

        A silent channel adds nothing, nor do channels that all have the same levels.
        """
        alone = {s.channels[0]: s.levels for s in self._sounds if s.levels is not None}
        distinct: dict[int, Rows] = {}
        for channel, rows in alone.items():
            if not _silent(rows) and not any(rows.equals(other) for other in distinct.values()):
                distinct[channel] = rows
        kept: dict[int | None, Levels] = {None: self._combined.all(last=last)}
        if len(distinct) > 1:
            kept.update((channel, rows.all(last=last)) for channel, rows in distinct.items())
        return kept

    def passed(self) -> Levels:
        """Return the levels of all channels together since the last call: (steps, bands)."""
        levels: Levels = self._combined.all(last=True)
        self._combined = Rows(pattern.BANDS, np.float16)
        return levels

    def _columns(self, samples: Floats) -> dict[int, Floats]:
        """Return the samples of each view, (samples, 1); make sounds of views that differ."""
        if self._channels == 1:
            return {1: samples}
        first, *others = samples.T
        if len(self._sounds) == 1 and all(np.array_equal(first, other) for other in others):
            return {MIX: samples[:, :1]}
        share = np.full((self._channels, 1), 1 / self._channels, np.float32)
        mix: Floats = samples @ share  # a product is ten times as fast as a mean
        same = np.logical_and.reduce([first == other for other in others])
        mix[same, 0] = first[same]  # without the rounding of the product
        columns = {MIX: mix}
        columns |= {c + 1: samples[:, c : c + 1] for c in range(min(self._channels, MOST_CHANNELS))}
        for sound in list(self._sounds):
            self._part(sound, columns)
        return columns

    def _part(self, sound: _Sound, columns: Mapping[int, Floats]) -> None:
        """Split a sound whose views differ from now on."""
        groups: list[list[int]] = []
        for view in sound.views:
            near = [g for g in groups if np.array_equal(columns[g[0]], columns[view])]
            if near:
                near[0].append(view)
            else:
                groups.append([view])
        if len(groups) == 1:
            return
        if len(self._sounds) == 1:  # what several sounds hold is kept in less room
            if sound.frames is not None:
                sound.frames = sound.frames.copy(np.float16)
            if self._has_room(sum(group != [MIX] for group in groups)):
                sound.levels = self._combined.copy(np.float16)
        made = [sound, *(sound.copy() for _ in groups[1:])]
        for one, views in zip(made, groups, strict=True):
            one.views = views
            if not one.channels:
                one.level_feeder = one.levels = None
        # In the order of their channels, whenever they parted.
        self._sounds = sorted([*self._sounds, *made[1:]], key=lambda one: one.views[0])

    def _keep(self, levels: list[Floats]) -> None:
        """Keep levels (steps, bands) of the sounds that are channels, and of all together."""
        sounds = [sound for sound in self._sounds if sound.level_feeder is not None]
        self._combined.add(combined(levels, [len(sound.channels) for sound in sounds]))
        room = self._has_room(len(sounds))
        for sound, own in zip(sounds, levels, strict=True):
            if not room:
                sound.levels = None
            elif sound.levels is not None:
                sound.levels.add(own)

    def _has_room(self, sounds: int) -> bool:
        """Return whether the levels of so many sounds may be kept, each by itself."""
        room = sounds * len(self._combined) * pattern.STEP_S <= MOST_LEVELS_S
        return room and not self._passing


def combined(levels: list[Floats], counts: list[int]) -> Floats:
    """Return the levels of the mean power of sounds, each so many channels: (steps, bands).

    Powers add up whatever the channels are to each other: no sign, delay or gain hides one.
    """
    if len(levels) == 1:
        return levels[0]
    power = sum(n * 10 ** (one / 10) for one, n in zip(levels, counts, strict=True))
    made = 10 * np.log10(power / sum(counts))
    equal = np.logical_and.reduce([one == levels[0] for one in levels])
    joined: Floats = np.where(equal, levels[0], made).astype(np.float32)
    return joined


def _joined(parts: list[Floats], width: int) -> Floats:
    rows = [one.reshape(-1, width) for one in parts]
    return np.concatenate([np.zeros((0, width), np.float32), *rows])


def _silent(rows: Rows) -> bool:
    levels = rows.all(last=False)
    return not len(levels) or bool(levels.max() <= 10 * np.log10(2 * pattern.POWER_FLOOR))


def levels_of(samples: npt.ArrayLike) -> Levels:
    """Return the levels of 16 kHz samples, (samples,) or (samples, channels): (steps, bands)."""
    given = np.asarray(samples, np.float32)
    shaped = given.reshape(len(given), -1) if len(given) else np.zeros((0, 1), np.float32)
    feeder = ChannelFeeder(pattern.RATE, shaped.shape[1], levels=True)
    feeder.push(shaped, end=True)
    return feeder.levels(last=True)[None]
