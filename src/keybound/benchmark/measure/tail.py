"""How much evidence of a mark unmarked speech holds by chance, for recordings of any length.

Walking through unmarked speech, the evidence of frames adds up to small peaks now and then. How
often peaks come and how fast they get rarer with their height is a `Tail`: an exponential one, as
for the best local match of two random sequences (Karlin and Altschul), which extends to more hours
than can be measured. The suite `false-alarms` counts on other speech what that comes to.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from keybound.attacks import available
from keybound.benchmark.measure.negatives import attacked
from keybound.benchmark.measure.plan import Case, Plan
from keybound.benchmark.measure.protocol import Clip
from keybound.benchmark.measure.rows import Row
from keybound.model.detection import MOST_FALSE_ALARMS, SHORT_S, Tail
from keybound.watermark.watermarker import Watermarker

ATTACKS = ("clean", "noise-10", "echo", "lyra-6")  # of the suite
FILES_S = (1.0, 3.0, 10.0, 60.0, 600.0)  # lengths of its files
RATE = MOST_FALSE_ALARMS  # rarer ones are not seen in so little speech
DRAWS = 3  # of each attack's chance, for speech is short and peaks are rare
HIGHEST = 150  # peaks of all attacks together are the tail
FEWEST = 10  # peaks in it from which an attack has a scale of its own
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


def measure(marker: Watermarker, speech: Path, attacks: Sequence[str]) -> list[Negative]:
    """Find the peaks of evidence in the recordings of a folder, joined, after each attack."""
    rate, negatives = marker.card.rate, []
    for name in attacks:
        if available(name) is None:
            draws = [joined_speech(speech, name, rate, seed) for seed in range(DRAWS)]
            found = [marker.detect(joined, rate) for joined in draws]
            heights = np.concatenate([peaks(one.frame_presence, one.frame_s) for one in found])
            scores = np.concatenate([means(one.frame_presence, one.frame_s) for one in found])
            seconds = sum(len(one.frame_presence) * one.frame_s for one in found)
            negatives.append(Negative(name, heights.tolist(), seconds, scores.tolist()))
    return negatives


def joined_speech(speech: Path, name: str, rate: int, seed: int) -> Clip:
    """Join the recordings of a folder, each attacked."""
    return np.concatenate(list(attacked(speech, name, rate, seed)))


def false_alarms(case: Case, face: Row) -> Row:
    """Cut unmarked speech into files of some lengths and count those that are found marked."""
    marker, plan = case.marker, case.plan
    row: Row = {"files_s": list(plan.files_s), "alarms": [], "files": []}
    if available(face["attack"]) is not None:
        return row | {"files_s": []}
    if plan.stereo:
        return row | in_stereo(marker, plan, face["attack"])
    rate = marker.card.rate
    found = marker.detect(joined_speech(plan.speech[0], face["attack"], rate, DRAWS), rate)
    for length_s in plan.files_s:
        least_s, size = marker.card.tail.threshold(length_s, RATE), round(length_s / found.frame_s)
        count = len(found.frame_presence) // size
        files = found.frame_presence[: count * size].reshape(count, size)
        false = sum(
            peaks(file, found.frame_s).max(initial=0) >= least_s
            or (length_s < SHORT_S and file.mean() >= marker.card.threshold)
            for file in files
        )
        row["alarms"].append(int(false))
        row["files"].append(count)
    return row


def in_stereo(marker: Watermarker, plan: Plan, name: str) -> Row:
    """Count false alarms of files with two channels, and of the mix and each channel as files.

    The attack is drawn anew for the second channel, which is late, softer and turned upside down,
    so that the channels and their mix are three chances.
    """
    rate = marker.card.rate
    late = round(0.005 * rate)
    first, second = (joined_speech(plan.speech[0], name, rate, DRAWS + n) for n in (0, 1))
    both = np.stack([first[late:], -0.7 * second[: len(second) - late]], axis=1)
    row: Row = {"alarms": [], "files": [], "alone": []}
    for length_s in plan.files_s:
        size = round(length_s * rate)
        pieces = [both[i : i + size] for i in range(0, len(both) - size + 1, size)]
        views = [pieces, [piece.mean(axis=1) for piece in pieces]]
        views += [[piece[:, channel] for piece in pieces] for channel in range(2)]
        false, *alone = (
            sum(marker.detect(x, rate, false_alarms=RATE).present for x in view) for view in views
        )
        row["alarms"].append(false)
        row["files"].append(len(pieces))
        row["alone"].append(alone)
    return row


def table(rows: Iterable[Row]) -> str:
    """Return a line for each attack and length: how many of how many files were found marked."""
    lines = []
    for row in rows:
        for n, length_s in enumerate(row["files_s"]):
            told = f"{row['alarms'][n]:4} of {row['files'][n]}"
            alone = f"  mix and channels alone {row['alone'][n]}" if "alone" in row else ""
            lines.append(f"{row['attack']:12} {length_s:6g} s  {told}{alone}")
    return "\n".join(lines)


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
    """Fit the tail: the rate of the attack with most peaks, the scale of that with the highest.

    So at most one file in a hundred is falsely found marked after any of these attacks.
    """
    heights = [np.asarray(one.peaks_s, np.float64) for one in negatives]
    ordered = np.sort(np.concatenate([[0.0], *heights]))
    above = max(LEAST_ABOVE_S, float(ordered[-min(len(ordered), HIGHEST + 1)]))
    excesses = [high[high > above] - above for high in heights]
    own = [excess for excess in excesses if len(excess) >= FEWEST]
    scale = max(LEAST_SCALE_S, *(_scale(excess) for excess in (*own, np.concatenate(excesses))))
    counts = [max(1, len(excess)) for excess in excesses]
    rate = max(count / one.seconds for count, one in zip(counts, negatives, strict=True))
    return Tail(round(above, 4), round(rate, 5), round(scale, 4))


def _scale(excess: npt.NDArray[np.float64]) -> float:
    """Return the mean of an exponential distribution, on the side of caution."""
    return float(excess.mean()) * (1 + CAUTION / len(excess) ** 0.5) if len(excess) else 0.0
