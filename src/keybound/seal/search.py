"""Search a recording for a key's pattern: at which position, start and speed, with which p-value.

Knows levels and keys: no audio, no files, no networks. In whichever order the search goes, the
p-value is corrected for every test that it could have made; docs/spec.md proves that a wrong key
passes no more often than it says, whatever the recording is.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from keybound.crypto import keystream
from keybound.crypto.codes import Bits
from keybound.crypto.keys import Key
from keybound.seal import chance
from keybound.seal.pattern import STEP_S
from keybound.seal.sounds import Run, Sound, sounds_of
from keybound.seal.tiles import NEAR, NEAR_TESTS, Fit, Proof, Spot, Tick, Tiles
from keybound.types import Floats, Levels

CodeAt = Callable[[int], Bits]  # the code at a position
Progress = Callable[[int, int], None]  # windows done, of so many

SEALED_P = 1e-6  # what counts as sealed evidence
MOST_WINDOWS = 5120  # of a minute, in all positions of a party: what a search may cost
# z for each root of a column, which one clean recording in eight exceeds where it was cut from a
# longer one. Where this would not be sealed evidence, cut recordings are not searched for.
CUT_Z = 1.4


@dataclass(frozen=True)
class SealSearch:
    """What a search covers: keystream positions, seconds cut off the start at most, speeds.

    `speed` is the largest change of speed: 0.05 for 5 % slower to 5 % faster.
    """

    positions: Sequence[int] = range(keystream.USUAL)
    reach_s: float = 60.0
    speed: float = 0.0


@dataclass(frozen=True)
class Sealed:
    """The evidence that a key's pattern is in a recording, and where.

    `p` bounds the probability that a wrong key reaches this evidence in any test; `tests` is what
    it is corrected by: the number of positions, starts, speeds and parties, weighted by how likely
    they are. `start_s` is where the recording begins in the pattern of `position`; `speed` is how
    much faster it is than when it was marked. `channel` is the one it was found in, from 0, where
    it was found neither in a recording of one nor in all of them together.

    `searched` is what was tested: `all`; `some`, as many starts as a search may cost; `start`, the
    start of an uncut recording, since it was found there or the recording is too short for more;
    `record`, what records give; `short`, nothing in so short a recording; `none`, nothing.
    """

    p: float
    z: float
    position: int
    start_s: float
    speed: float
    tests: int
    channel: int | None = None
    searched: str = "all"

    @property
    def holds(self) -> bool:
        """Return whether this counts as sealed evidence."""
        return self.p < SEALED_P

    @property
    def words(self) -> str:
        """Return p as a power of ten, and the channel where it was found in one alone."""
        where = "" if self.channel is None else f" in channel {self.channel} alone"
        return f"p < 1e{math.ceil(math.log10(self.p)) if self.p > 1e-300 else -300}{where}"


NOTHING = Sealed(p=1.0, z=0.0, position=0, start_s=0.0, speed=1.0, tests=0, searched="none")


@dataclass(frozen=True)
class Ask:
    """The patterns of one party, and how many such searches share the chance of a false answer."""

    spots: Sequence[Spot]
    share: int = 1


class Found(NamedTuple):
    """The best that was found for a party, and which of its patterns it is."""

    sealed: Sealed = NOTHING
    spot: int = 0

    def or_better(self, other: "Found") -> "Found":
        """Return the better of two; `searched` is that of the second, which came later."""
        best = min(self, other, key=lambda one: (one.sealed.p, -one.sealed.z))
        return best.with_searched(other.sealed.searched)

    def with_searched(self, searched: str) -> "Found":
        """Return the same with another `searched`."""
        return self._replace(sealed=replace(self.sealed, searched=searched))


def find(
    levels: Floats | Levels | Mapping[int | None, Levels],
    key: Key,
    code: Bits | CodeAt,
    where: SealSearch | None = None,
    tries: int = 1,
) -> Sealed:
    """Return the best fit of the pattern of a key and code to the levels (steps, BANDS).

    Levels may be given by channel: those of all channels together are searched first, then each
    until it is found. Where each position has a code of its own, `code` is a function of the
    position. `tries` counts the parties.
    """
    where = where or SealSearch()
    code_at = code if callable(code) else lambda _: code
    spots = [Spot(key, code_at(position), position) for position in where.positions]
    sounds, ask = sounds_of(levels), Ask(spots, tries)
    begun = at_start(sounds, [ask], where.speed)
    return everywhere(sounds, [ask], begun, where.reach_s, where.speed)[0].sealed


def at_start(sounds: Sequence[Sound], asks: Sequence[Ask], speed: float = 0.0) -> list[Found]:
    """Search at the start of an uncut recording: few tests, so that it costs little.

    `speed` is the largest change of speed that will be searched later, and takes its share of the
    chance.
    """
    best = [Found()] * len(asks)
    shares = [_share(sounds, one, speed) for one in asks]
    for sound in sounds:
        left = [i for i, one in enumerate(asks) if one.spots and not best[i].sealed.holds]
        run = Run(sound.channel, sound.tiles)
        if run.tiles.too_short:
            return [one.with_searched("short") for one in best]
        fits = {i: run.tiles.near(asks[i].spots) for i in left}
        for i, found in _judged(run, asks, fits, shares, 0).items():
            best[i] = best[i].or_better(found.with_searched("start"))
    return best


def at_record(
    sounds: Sequence[Sound],
    ask: Ask,
    named: Sequence[tuple[int, float]],
    speed: float = 0.0,
) -> Found:
    """Search at the starts that a record gives: a spot, and seconds from its start, each.

    The caller gives half of the chance to these and half to all starts (`ask.share`).
    """
    best = Found()
    count = _share(sounds, ask, speed) * len(named)
    for sound in sounds:
        run = Run(sound.channel, sound.tiles)
        for index, start_s in named:
            if best.sealed.holds or run.tiles.too_short:
                break
            spot = ask.spots[index]
            expected = round(start_s / STEP_S)
            start = run.tiles.near([spot], expected).start
            (proof,) = run.tiles.whole([(spot, start)])
            tests = count * int(NEAR_TESTS[abs(start - expected)])
            found = Found(_sealed(run, spot, proof, start, tests), index)
            best = best.or_better(found.with_searched("record"))
    return best


def everywhere(
    sounds: Sequence[Sound],
    asks: Sequence[Ask],
    before: Sequence[Found],
    reach_s: float,
    speed: float = 0.0,
    progress: Progress = lambda *_: None,
) -> list[Found]:
    """Search all starts, up to `reach_s` cut off, for what was not found before.

    Half of the chance that the p-value allows for is given to the speed that was not changed, half
    to all the others.
    """
    reach, best = math.ceil(reach_s / STEP_S), list(before)
    shares = [_share(sounds, one, speed) for one in asks]
    plain = [Run(sound.channel, sound.tiles) for sound in sounds]
    others = [run for sound in sounds for run in sound.at_speeds(speed)]
    left = [i for i, one in enumerate(asks) if one.spots and not best[i].sealed.holds]
    of = sum(
        len(asks[i].spots) * len(_windows(run.tiles, asks[i], reach))
        for run in (*plain, *others)
        for i in left
        if _hopeful(run, asks[i], shares[i], reach)
    )
    done = 0

    def tick(windows: int) -> None:
        nonlocal done
        done += windows
        progress(done, of)

    for run in plain:
        left = [i for i in left if not best[i].sealed.holds]
        for i, found in _search(run, asks, left, shares, reach, tick).items():
            best[i] = best[i].or_better(found)
    left = [i for i in left if not best[i].sealed.holds]
    for run in others:  # all of them: neighbouring speeds hold too, and the best says which it is
        for i, found in _search(run, asks, left, shares, reach, tick).items():
            best[i] = best[i].or_better(found)
    progress(of, of)
    return best


def p_bound(z: float, tests: int) -> float:
    """Return a bound on the chance that fair signs reach z in one of so many tests.

    It holds for all weights; where they are known the bound is lower (`chance.of_sum`).
    """
    return min(1.0, tests * chance.of_z(z))


def _share(sounds: Sequence[Sound], ask: Ask, speed: float) -> int:
    return ask.share * len(sounds) * (2 if speed > 0 else 1)


def _windows(tiles: Tiles, ask: Ask, reach: int) -> list[int]:
    """Return the windows of each pattern that are tested: as many as a search may cost."""
    return tiles.windows(reach)[: max(2, MOST_WINDOWS // len(ask.spots))]


def _hopeful(run: Run, ask: Ask, share: int, reach: int) -> bool:
    """Return whether a cut recording of this length can hold sealed evidence."""
    tests = _count(run.tiles, ask, run.speeds * share, reach, NEAR + 1)
    best = CUT_Z * math.sqrt(run.tiles.columns)
    return not run.tiles.too_short and p_bound(best, tests) < SEALED_P


def _search(
    run: Run,
    asks: Sequence[Ask],
    left: Sequence[int],
    shares: Sequence[int],
    reach: int,
    tick: Tick,
) -> dict[int, Found]:
    """Return what is found at one speed, for all starts."""
    left = [i for i in left if _hopeful(run, asks[i], shares[i], reach)]
    windows = {i: _windows(run.tiles, asks[i], reach) for i in left}
    fits = {i: run.tiles.anywhere(asks[i].spots, reach, windows[i], tick) for i in left}
    some = {i for i in left if len(windows[i]) < len(run.tiles.windows(reach))}
    judged = _judged(run, asks, fits, shares, reach)
    return {i: found.with_searched("some" if i in some else "all") for i, found in judged.items()}


def _judged(
    run: Run, asks: Sequence[Ask], fits: Mapping[int, Fit], shares: Sequence[int], reach: int
) -> dict[int, Found]:
    """Return the evidence of each party's best fit, over all of the recording that is judged."""
    laid = [(asks[i].spots[fit.spot], fit.start) for i, fit in fits.items()]
    found = {}
    for (i, fit), proof in zip(fits.items(), run.tiles.whole(laid), strict=True):
        count = _count(run.tiles, asks[i], run.speeds * shares[i], reach, fit.start)
        found[i] = Found(_sealed(run, asks[i].spots[fit.spot], proof, fit.start, count), fit.spot)
    return found


def _sealed(run: Run, spot: Spot, proof: Proof, start: int, count: int) -> Sealed:
    """Return what a fit proves."""
    at_s, p = start * STEP_S, min(1.0, count * proof.chance)
    return Sealed(p, proof.z, spot.position, at_s, run.speed, count, run.channel)


def _count(tiles: Tiles, ask: Ask, share: int, reach: int, start: int) -> int:
    """Return the number of tests in which the patterns could have been found, weighted.

    Half of the chance is kept for recordings that were not cut: those need few tests.
    """
    cuts = int(NEAR_TESTS[abs(start)]) if abs(start) <= NEAR else tiles.length + reach
    return 2 * share * cuts * len(ask.spots)
