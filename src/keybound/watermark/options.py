"""What can be asked of a mark: how it is embedded, how it is searched for, and what is too much."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy.typing as npt

from keybound.crypto.keys import Key
from keybound.errors import AudioError, KeyBoundError
from keybound.identity.identifier import Identifier
from keybound.model.detection import FALSE_ALARMS

SHORT_S = 1.0  # below this a mark is easily lost
SILENCE_DBFS = -70.0
SHORTEST_S = 0.1  # too short for a detection below this
EXCERPT_S = 3.0  # that must be attributable, unless asked otherwise
MOST_SPEED = 0.1  # by which playing speeds may differ
SPEED_STEP = 0.025  # between speeds that are tried: half of it costs no bits


@dataclass(frozen=True)
class EmbedOptions:
    """What is embedded: see `StreamEmbedder`, which takes the same as keyword arguments."""

    key: Key
    payload: int
    nonce: bytes = b""
    position: int | None = None
    seal: bool = True
    identifier: Identifier | None = None
    excerpt: float = EXCERPT_S

    def within(self, seconds: float) -> Self:
        """Return the options for a recording of this length, which is the longest excerpt."""
        return replace(self, excerpt=min(check_excerpt(self.excerpt), seconds))


@dataclass(frozen=True)
class Marked:
    """Marked samples, and the keystream position of their seal; None where they have no seal.

    `record` is the number of their record where a registry keeps one, and `identifier` the serial
    that they spell, as ten hex digits, where they have one.
    """

    samples: npt.NDArray[Any]
    position: int | None
    identifier: str | None = None
    record: int | None = None


@dataclass(frozen=True)
class DetectOptions:
    """How a mark is searched for.

    `false_alarms` is the share of unmarked recordings that may be found marked: 0.01 to 0.000001.
    With `speed` other playing speeds are tried, up to 0.1 for 10 % slower or faster; the one with
    the most evidence counts.
    """

    false_alarms: float = FALSE_ALARMS
    speed: float = 0.0

    @property
    def speeds(self) -> list[float]:
        """Return the playing speeds to try, the recording's own first."""
        steps = math.ceil(self.speed / SPEED_STEP)
        others = [n * self.speed / steps for n in range(-steps, steps + 1) if n]
        return [1.0, *(1 + other for other in others)]


USUAL = DetectOptions()


def check_excerpt(seconds: float) -> float:
    """Return the length of an excerpt; raise an error for what is none."""
    if not 0 < seconds < math.inf:
        raise KeyBoundError(f"an excerpt cannot have {seconds:g} s", hint="some seconds, such as 3")
    return seconds


def check_speed(most: float) -> float:
    """Return a largest change of speed; raise an error for one that is too large."""
    if not 0 <= most <= MOST_SPEED:
        raise KeyBoundError(f"speeds cannot differ by {most:g}", hint=f"0 to {MOST_SPEED:g}")
    return most


def too_short(seconds: float) -> AudioError:
    """Return the error that a recording is too short."""
    hint = f"at least {SHORTEST_S:g} s, better a second or more"
    return AudioError(f"{1000 * seconds:.3g} ms is too short for a mark", hint=hint)


def why_unreadable(power: float, seconds: float) -> str:
    """Return the likely reason why a host of this mean square and length holds no mark."""
    if 10 * math.log10(power + 1e-20) < SILENCE_DBFS:
        return "the recording is silent"
    if seconds < SHORT_S:
        return f"the recording is only {seconds:.2f} s long"
    return "the recording is mostly silence, or not speech"
