"""Matching: whether a recording is the one that a fingerprint was taken of, and where in it.

Correlates the soft bits of a recording with the bits of a fingerprint at every offset, also a
little faster or slower, and bounds how often other speech would agree so well. Knows levels and
fingerprints: no keys, files or networks. The measured figures are in docs/security.md.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from keybound.provenance.fingerprint import (
    BITS,
    COLUMN_S,
    COLUMN_STEPS,
    CYCLE,
    KEPT,
    STEP_S,
    WHOLE,
    Fingerprint,
    Mask,
    kept,
    soft_bits,
    unpack,
)
from keybound.seal.pattern import BANDS
from keybound.seal.sounds import respeed, speeds_near
from keybound.seal.tiles import busiest_part
from keybound.types import Floats, Levels

FALSE_MATCH = 1e-6  # how often other speech is called the same, at most, corrected for the search
SPREAD = 1.6  # of z at one offset for other speech, measured: bits are not independent
LEAST_COLUMNS = 25  # of overlap: a second
LEAST_AGREEMENT = 0.45  # of a copy
# Below this it is other speech, even if something of the recording is there beyond chance: its
# carrier, added to another.
OTHER_AGREEMENT = 0.35
GOOD_AGREEMENT = 0.6  # with which no better speed is searched for
LOW_Z = 0.3  # of a copy for each root of a bit, in 99 of 100, after what a mark outlives
SPEED = 0.05  # the change of speed that is searched for
SPEED_PART = 2000  # steps of a long recording that are tried at other speeds
SPEED_DRIFT_S = 0.08  # that two neighbouring speeds may differ by over the part
SPEED_STEP = 0.015
WINDOW = 75  # columns, 3 s, in which parts that differ are searched for
WINDOW_Z = 4.5
ROOMY = 1 << 15  # columns, some minutes; longer ones go bit by bit, so that hours need little room
LOUDEST = 127  # of a soft bit, in a byte


@dataclass(frozen=True, eq=False)
class Sketch:
    """What is compared of a recording: all of it as it is, its busiest part at other speeds."""

    whole: Levels  # soft bits (steps, BITS)
    part: Levels
    first: int  # step of the recording with which the part begins
    channel: int | None = None  # None: all channels together
    others: tuple["Sketch", ...] = ()  # of single channels, where they differ

    @classmethod
    def of(cls, levels: Floats | Levels | Mapping[int | None, Levels]) -> Self:
        """Return the sketch of a recording from its levels, or from those of each channel."""
        made = []
        for channel, one in (levels if isinstance(levels, Mapping) else {None: levels}).items():
            part = _busiest(whole := soft_bits(one))
            made.append(cls(whole, one[part].astype(np.float16), part.start, channel))
        return replace(made[0], others=tuple(made[1:]))

    def to_bytes(self) -> bytes:
        """Return it packed: 1600 bytes for each second, and at most 256 kilobytes for the part."""
        channel = -1 if self.channel is None else self.channel
        sizes = np.array([len(self.whole), len(self.part), self.first, channel], "<i8").tobytes()
        whole = np.rint(self.whole * np.float16(LOUDEST)).astype(np.int8).tobytes()
        part = self.part.astype("<f2").tobytes()
        return b"".join((sizes, whole, part, *(one.to_bytes() for one in self.others)))

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the sketch that `to_bytes` packed."""
        made, at = [], 0
        while at < len(data):
            steps, rows, first, channel = (int(n) for n in np.frombuffer(data, "<i8", 4, at))
            whole = np.frombuffer(data, np.int8, steps * BITS, at + 32).reshape(-1, BITS)
            at += 32 + steps * BITS
            part = np.frombuffer(data, "<f2", rows * BANDS, at).reshape(-1, BANDS)
            at += 2 * rows * BANDS
            rows_of = whole.astype(np.float16) / np.float16(LOUDEST), part.astype(np.float16)
            made.append(cls(*rows_of, first, channel if channel >= 0 else None))
        return replace(made[0], others=tuple(made[1:]))


@dataclass(frozen=True)
class Match:
    """How a recording compares with a fingerprint, where the two agree best.

    `decision` is `same`, `other` or `unclear`; `p` bounds how often other speech would agree so
    well anywhere. `start_s` is where the recording begins in the one that was fingerprinted, and
    `from_s` to `to_s` is the part of it that was compared, at its speed divided by `speed`.
    `errors` is the share of bits that differ there, and `differs_s` are the stretches in which
    nothing agrees. `channel` is the one that was compared, from 0; None: all together.
    """

    decision: str
    p: float
    agreement: float  # 1 for equal, 0 for unrelated
    errors: float
    start_s: float
    from_s: float
    to_s: float
    speed: float = 1.0
    differs_s: tuple[tuple[float, float], ...] = ()
    channel: int | None = None

    @property
    def settled(self) -> bool:
        """Return whether no better speed need be searched for."""
        return self.decision == "same" and self.agreement >= GOOD_AGREEMENT


NOTHING = Match("unclear", 1.0, 0.0, 0.5, 0.0, 0.0, 0.0)


def match(
    known: Fingerprint,
    recording: Floats | Levels | Mapping[int | None, Levels] | Sketch,
    *,
    speed: float = SPEED,
    tries: int = 1,
) -> Match:
    """Return how a recording agrees with a fingerprint, where it does best.

    `speed` is the largest change of speed searched for, and `tries` the number of fingerprints that
    the recording is compared with: the chance of a false match is shared among all of them, and
    among the channels that are compared by themselves until one is the same. It is `other` if all
    are.
    """
    sketch = recording if isinstance(recording, Sketch) else Sketch.of(recording)
    found: list[Match] = []
    for one in (sketch, *sketch.others):
        own = _match(known, one, speed, tries * (1 + len(sketch.others)))
        found.append(replace(own, channel=one.channel))
        if own.decision == "same":
            return found[-1]
    return min(found, key=lambda one: (one.decision != "unclear", one.p))


def _match(known: Fingerprint, sketch: Sketch, speed: float, tries: int) -> Match:
    share = tries * (2 if speed > 0 else 1)
    best = _best(known, sketch.whole, share)
    if best.settled or not speed > 0 or len(sketch.whole) < COLUMN_STEPS * LEAST_COLUMNS:
        return best
    part = sketch.part.astype(np.float32)
    # So close that none in between is missed.
    steps = max(len(part) * STEP_S / SPEED_DRIFT_S, 1 / SPEED_STEP)
    speeds = list(speeds_near(speed, math.ceil(speed * steps)))
    for one in speeds:
        found = _best(known, soft_bits(respeed(part, one)), share * len(speeds))
        if found.decision == "same" and found.p < best.p:
            best = _at_speed(found, one, sketch.first * STEP_S)
    return best


def _at_speed(found: Match, speed: float, first_s: float) -> Match:
    """Return a match with its times in the whole recording at its own speed."""
    differs = tuple((first_s + a / speed, first_s + b / speed) for a, b in found.differs_s)
    return replace(
        found,
        speed=speed,
        start_s=found.start_s - first_s * speed,
        from_s=first_s + found.from_s / speed,
        to_s=first_s + found.to_s / speed,
        differs_s=differs,
    )


def _busiest(soft: Levels) -> slice:
    """Return the part that is tried at other speeds: where most happens."""
    if len(soft) <= SPEED_PART:
        return slice(0, len(soft))
    return busiest_part(np.einsum("ij,ij->i", soft, soft, dtype=np.float64), SPEED_PART)


def _best(known: Fingerprint, soft: Levels, share: int) -> Match:
    """Return the match at one speed, one of `share` comparisons, at the best offset."""
    signs, there = unpack(known)
    sure = _surely_kept(-(-len(soft) // COLUMN_STEPS), known.columns)
    # Half of the shorter must take part: a phrase that recurs is not the recording.
    z, step, tests = _align(signs, there, soft, max(LEAST_COLUMNS, sure // 2))
    if tests == 0:
        return NOTHING
    first = max(0, -(-step // COLUMN_STEPS))  # column of the fingerprint
    there_too = soft[first * COLUMN_STEPS - step :: COLUMN_STEPS][: known.columns - first]
    laid = there_too.astype(np.float32)
    own = signs[first : first + len(laid)]
    products = (own * laid)[(own != 0) & (laid != 0)]  # above 0 where the two agree
    agreement = float(products.sum() / (np.abs(products).sum() + 1e-9))
    p = min(1.0, tests * share * p_normal(z / SPREAD))
    begin_s = (first * COLUMN_STEPS - step) * STEP_S
    return Match(
        decision=_decide(p, agreement, sure, tests * share),
        p=p,
        agreement=agreement,
        errors=float(np.mean(products < 0)),
        start_s=step * STEP_S,
        from_s=begin_s,
        to_s=begin_s + len(laid) * COLUMN_S,
        differs_s=tuple(
            (begin_s + a * COLUMN_S, begin_s + b * COLUMN_S) for a, b in _differing(own, laid)
        ),
    )


def _decide(p: float, agreement: float, sure: int, tests: int) -> str:
    """Return `same`, or `other` where a copy would surely have been found, or `unclear`."""
    if p < FALSE_MATCH and agreement >= LEAST_AGREEMENT:
        return "same"
    expected = LOW_Z * math.sqrt(BITS * sure)
    found = tests * p_normal(expected / SPREAD) < FALSE_MATCH
    return "other" if found and (p >= FALSE_MATCH or agreement < OTHER_AGREEMENT) else "unclear"


def p_normal(z: float) -> float:
    """Return the probability that a normal variable is at least z."""
    return math.erfc(z / math.sqrt(2)) / 2


def _surely_kept(columns: int, of: int) -> int:
    """Return how many columns a stretch so long has in common with a fingerprint, at least."""
    if of <= WHOLE or columns >= of:
        return min(columns, int(kept(of).sum()))
    cycles, rest = divmod(columns, CYCLE)
    return cycles * KEPT + max(0, rest - (CYCLE - KEPT))


def _align(signs: Floats, there: Mask, soft: Levels, least: int) -> tuple[float, int, int]:
    """Correlate the soft bits with the signs at every step: the best z, its step, how many steps.

    At step o the first row of soft bits lies o steps after the first column. At least so many
    columns must take part.
    """
    columns, count = len(signs), -(-len(soft) // COLUMN_STEPS)
    if min(columns, count) < least:
        return 0.0, 0, 0
    size = 1 << math.ceil(math.log2(columns + count))
    mask = np.fft.rfft(there.astype(np.float32), size)
    over = np.fft.irfft(mask * np.conj(np.fft.rfft(np.ones(count, np.float32), size)), size)
    sums = np.zeros((COLUMN_STEPS, len(mask)), np.complex64)
    power = np.zeros((count, COLUMN_STEPS), np.float32)
    group = BITS if size <= ROOMY else 1
    for first in range(0, BITS, group):
        bits = slice(first, first + group)
        flat = np.zeros((group, count * COLUMN_STEPS), np.float32)
        flat[:, : len(soft)] = soft[:, bits].T
        rows = flat.reshape(group, count, COLUMN_STEPS)
        power += np.square(rows).sum(axis=0)
        pattern = np.fft.rfft(signs[:, bits].T, size)
        for phase in range(COLUMN_STEPS):
            product = pattern * np.conj(np.fft.rfft(rows[..., phase], size))
            sums[phase] += product.sum(axis=0)
    best, tests = (-math.inf, 0), 0
    for phase in range(COLUMN_STEPS):
        norms = np.fft.irfft(mask * np.conj(np.fft.rfft(power[:, phase], size)), size)
        # Where there is next to no power, the rounding of the FFT would look like a fit.
        good = (over > least - 0.5) & (norms > 1e-3 * norms.max() + 1e-6)
        tests += int(good.sum())
        found = np.fft.irfft(sums[phase], size)
        z = np.where(good, found / np.sqrt(np.maximum(norms, 1e-9)), -math.inf)
        at = int(np.argmax(z))
        column = at if at < columns else at - size
        best = max(best, (float(z[at]), column * COLUMN_STEPS - phase))
    return (*best, tests)


def _differing(signs: Floats, laid: Floats) -> Iterator[tuple[int, int]]:
    """Yield the stretches, in columns of what was compared, in which nothing agrees."""
    power = np.square(laid).sum(axis=1, dtype=np.float64) * (signs[:, 0] != 0)
    sums = (signs * laid).sum(axis=1, dtype=np.float64)
    usual = WINDOW * float(power.sum()) / max(1, int((power > 0).sum()))
    begun = None
    for first in range(0, len(laid) - WINDOW + 1, WINDOW):
        window = slice(first, first + WINDOW)
        energy = float(power[window].sum())
        agrees = sums[window].sum() >= WINDOW_Z * math.sqrt(energy)
        if energy > 0.3 * usual and not agrees:
            begun = first if begun is None else begun
        elif begun is not None:
            yield begun, first
            begun = None
    if begun is not None:
        yield begun, len(laid)
