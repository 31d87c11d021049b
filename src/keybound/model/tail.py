"""How much evidence of a mark unmarked speech holds by chance, for recordings of any length.

Walking through unmarked speech, the evidence of frames adds up to small peaks now and then. How
often peaks come and how fast they get rarer with their height is a `Tail`: an exponential one, as
for the best local match of two random sequences (Karlin and Altschul), which extends to more hours
than can be measured. Knows no audio.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keybound.model.detection import FALSE_ALARMS, SHORT_S, Tail

HIGHEST = 150  # peaks of all attacks together are the tail
FEWEST = 30  # peaks in it from which an attack has a scale of its own; fewer tell little of it
HIGH_SECONDS = 0.05  # of an attack's, those with the highest presence, have the excess
LEAST_EXCESS = 0.05
CAUTION = 1.645  # standard errors added to a scale: nineteen times in twenty it is no larger
LEAST_ABOVE_S, LEAST_SCALE_S = 0.1, 0.05  # for speech that hardly holds any


@dataclass(frozen=True)
class Negative:
    """The peaks of evidence in unmarked speech after an attack, and how much speech it was.

    `scores` are the mean presence of each whole second of it.
    """

    attack: str
    peaks_s: Sequence[float]
    seconds: float
    scores: Sequence[float] = ()


def peaks(chance: npt.NDArray[np.float32], frame_s: float) -> npt.NDArray[np.float64]:
    """Return the highest evidence of each stretch between two returns to nothing."""
    walk = np.concatenate([[0.0], np.cumsum((2 * chance.astype(np.float64) - 1) * frame_s)])
    height = walk - np.minimum.accumulate(walk)
    starts = np.flatnonzero(height == 0)
    highest = np.maximum.reduceat(height, starts)
    return highest[highest > 0]


def means(chance: npt.NDArray[np.float32], frame_s: float) -> npt.NDArray[np.float64]:
    """Return the mean presence of each whole second."""
    size = round(1 / frame_s)
    whole = chance[: len(chance) // size * size].reshape(-1, size)
    scores: npt.NDArray[np.float64] = whole.mean(axis=1, dtype=np.float64)
    return scores


def fit_excess(negatives: Iterable[Negative]) -> float:
    """Fit how fast high presence gets rarer in unmarked seconds: the excess of a card.

    It is the mean, over the highest seconds of an attack, of what lies beyond the least of them,
    for the attack where that is most, and cautious.
    """
    found = [LEAST_EXCESS]
    for one in negatives:
        ordered = np.sort(one.scores)
        count = int(HIGH_SECONDS * len(ordered))
        if count >= FEWEST:
            found.append(_scale(ordered[-count:] - ordered[-count - 1]))
    return round(max(found), 4)


def fit(negatives: Sequence[Negative]) -> Tail:
    """Fit the tail to the attacks that need the highest threshold, and fall off the slowest.

    Each attack has a rate and a scale of its own, or the scale of all where it has few peaks. The
    highest threshold that one of them needs for the usual recording is that of the tail, and the
    largest scale is its scale: longer recordings and rarer false alarms are judged with caution.
    """
    heights = [np.asarray(one.peaks_s, np.float64) for one in negatives]
    ordered = np.sort(np.concatenate([[0.0], *heights]))
    above = max(LEAST_ABOVE_S, float(ordered[-min(len(ordered), HIGHEST + 1)]))
    excesses = [high[high > above] - above for high in heights]
    common = max(LEAST_SCALE_S, _scale(np.concatenate(excesses)))
    own = [
        Tail(
            above, max(1, len(high)) / one.seconds, _scale(high) if len(high) >= FEWEST else common
        )
        for high, one in zip(excesses, negatives, strict=True)
    ]
    scale = max(LEAST_SCALE_S, *(tail.scale_s for tail in own))
    least_s = max(tail.threshold(SHORT_S, FALSE_ALARMS) for tail in own)
    usual = Tail(above, 1.0, scale).threshold(SHORT_S, FALSE_ALARMS)
    rate = float(np.exp((least_s - usual) / scale))
    return Tail(round(above, 4), round(rate, 5), round(scale, 4))


def _scale(excess: npt.NDArray[np.float64]) -> float:
    """Return the mean of an exponential distribution, on the side of caution."""
    return float(excess.mean()) * (1 + CAUTION / len(excess) ** 0.5) if len(excess) else 0.0
