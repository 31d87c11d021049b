"""How much evidence of a mark unmarked speech holds by chance, for recordings of any length.

Walking through unmarked speech, the evidence of frames adds up to small peaks now and then. How
often peaks come and how fast they get rarer with their height is a `Tail`: an exponential one, as
for the best local match of two random sequences (Karlin and Altschul), which extends to more hours
than can be measured. `python -m` this module with a folder of other speech counts the false alarms.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from keybound.attacks import available
from keybound.benchmark.measure.negatives import attacked, recordings
from keybound.benchmark.measure.protocol import Row
from keybound.evidence import Detection, Tail
from keybound.terminal import in_one_line
from keybound.watermark import Watermarker

DRAWS = 3  # of each attack's chance, for speech is short and peaks are rare
HIGHEST = 150  # peaks of all attacks together are the tail
FEWEST = 10  # peaks in it from which an attack has a scale of its own
CAUTION = 1.645  # standard errors added to a scale: nineteen times in twenty it is no larger
LEAST_ABOVE_S, LEAST_SCALE_S = 0.1, 0.05  # for speech that hardly holds any


@dataclass(frozen=True)
class Null:
    """The peaks of evidence in unmarked speech after an attack, and how much speech it was."""

    attack: str
    peaks_s: tuple[float, ...]
    seconds: float


def measure(
    marker: Watermarker,
    speech: Path,
    attacks: Sequence[str],
    *,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Null]:
    """Find the peaks of evidence in the recordings of a folder, attacked, joined to one."""
    nulls: list[Null] = []
    for seed in range(DRAWS):
        for name, found in heard(marker, speech, attacks, seed):
            heights = peaks(found.frame_presence, found.frame_s)
            seconds = len(found.frame_presence) * found.frame_s
            nulls.append(Null(name, tuple(heights.tolist()), seconds))
            progress(len(nulls), DRAWS * len(attacks))
    return nulls


def heard(
    marker: Watermarker, speech: Path, attacks: Sequence[str], seed: int
) -> Iterator[tuple[str, Detection]]:
    """Listen to the recordings of a folder, joined, after each attack that can run here."""
    rate = marker.card.rate
    for name in attacks:
        if name == "clean" or available(name) is None:
            joined = np.concatenate(list(attacked(recordings(speech, rate), name, rate, seed)))
            yield name, marker.detect(joined, rate)


def alarms(
    marker: Watermarker, speech: Path, attacks: Sequence[str], lengths_s: Sequence[float]
) -> Iterator[Row]:
    """Cut unmarked speech into files of some lengths and count those that are found marked."""
    for name, found in heard(marker, speech, attacks, seed=DRAWS):
        for length_s in lengths_s:
            least_s, size = marker.card.tail.threshold(length_s), round(length_s / found.frame_s)
            count = len(found.frame_presence) // size
            files = found.frame_presence[: count * size].reshape(count, size)
            false = sum(
                peaks(file, found.frame_s).max(initial=0) >= least_s
                or file.mean() >= marker.card.threshold
                for file in files
            )
            yield {"attack": name, "seconds": length_s, "alarms": int(false), "files": count}


def peaks(chance: npt.NDArray[np.float32], frame_s: float) -> npt.NDArray[np.float64]:
    """Give the highest evidence of each stretch between two returns to nothing."""
    walk = np.concatenate([[0.0], np.cumsum((2 * chance.astype(np.float64) - 1) * frame_s)])
    height = walk - np.minimum.accumulate(walk)
    starts = np.flatnonzero(height == 0)
    highest = np.maximum.reduceat(height, starts)
    return highest[highest > 0]


def fit(nulls: Iterable[Null]) -> Tail:
    """Fit the tail: the rate of the attack with most peaks, the scale of that with the highest.

    So at most one file in a hundred is falsely found marked after any of these attacks.
    """
    kinds: dict[str, list[Null]] = {}
    for null in nulls:
        kinds.setdefault(null.attack, []).append(null)
    heights = {
        name: np.concatenate([null.peaks_s for null in part]) for name, part in kinds.items()
    }
    ordered = np.sort(np.concatenate([[0.0], *heights.values()]))
    above = max(LEAST_ABOVE_S, float(ordered[-min(len(ordered), HIGHEST + 1)]))
    excesses = {name: high[high > above] - above for name, high in heights.items()}
    own = [excess for excess in excesses.values() if len(excess) >= FEWEST]
    scales = [_scale(excess) for excess in (*own, np.concatenate(list(excesses.values())))]
    rates = [
        max(1, len(excesses[name])) / sum(null.seconds for null in part)
        for name, part in kinds.items()
    ]
    scale = max(LEAST_SCALE_S, *scales)
    return Tail(round(above, 4), round(max(rates), 5), round(scale, 4))


def _scale(excess: npt.NDArray[np.float64]) -> float:
    """Give the mean of an exponential distribution, on the side of caution."""
    return float(excess.mean()) * (1 + CAUTION / len(excess) ** 0.5) if len(excess) else 0.0


def main() -> None:
    """Count the false alarms on speech that had no part in the fit."""
    parser = argparse.ArgumentParser(description="false alarms of unmarked recordings by length")
    parser.add_argument("speech", type=Path, help="folder of unmarked recordings")
    parser.add_argument("--model", type=Path, help="weights other than shipped")
    parser.add_argument("--attacks", nargs="+", default=["clean", "noise-10", "echo", "lyra-6"])
    parser.add_argument("--seconds", type=float, nargs="+", default=[1, 3, 10, 60, 600])
    given = parser.parse_args()
    for row in alarms(Watermarker(given.model), given.speech, given.attacks, given.seconds):
        print("{attack:12} {seconds:6g} s  {alarms:4} of {files}".format(**row), flush=True)


if __name__ == "__main__":
    with in_one_line():
        main()
