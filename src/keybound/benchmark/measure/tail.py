"""How much evidence of a mark unmarked speech holds by chance, for recordings of any length.

Walking through unmarked speech, the evidence of frames adds up to small peaks now and then. How
often peaks come and how fast they get rarer with their height is a `Tail`: an exponential one, as
for the best local match of two random sequences (Karlin and Altschul), which extends to more hours
than can be measured. The suite `false-alarms` counts on other speech what that comes to.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from keybound.attacks import available
from keybound.benchmark.measure.negatives import attacked
from keybound.benchmark.measure.plan import Case
from keybound.benchmark.measure.protocol import recordings
from keybound.benchmark.measure.rows import Row
from keybound.evidence import Detection, Tail
from keybound.watermark import Watermarker

ATTACKS = ("clean", "noise-10", "echo", "lyra-6")  # of the suite
FILES_S = (1.0, 3.0, 10.0, 60.0, 600.0)  # lengths of its files
DRAWS = 3  # of each attack's chance, for speech is short and peaks are rare
HIGHEST = 150  # peaks of all attacks together are the tail
FEWEST = 10  # peaks in it from which an attack has a scale of its own
CAUTION = 1.645  # standard errors added to a scale: nineteen times in twenty it is no larger
LEAST_ABOVE_S, LEAST_SCALE_S = 0.1, 0.05  # for speech that hardly holds any


@dataclass(frozen=True)
class Negative:
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
) -> list[Negative]:
    """Find the peaks of evidence in the recordings of a folder, attacked, joined to one."""
    negatives: list[Negative] = []
    for seed in range(DRAWS):
        for name, found in heard(marker, speech, attacks, seed):
            heights = peaks(found.frame_presence, found.frame_s)
            seconds = len(found.frame_presence) * found.frame_s
            negatives.append(Negative(name, tuple(heights.tolist()), seconds))
            progress(len(negatives), DRAWS * len(attacks))
    return negatives


def heard(
    marker: Watermarker, speech: Path, attacks: Sequence[str], seed: int
) -> Iterator[tuple[str, Detection]]:
    """Listen to the recordings of a folder, joined, after each attack that can run here."""
    rate = marker.card.rate
    for name in attacks:
        if name == "clean" or available(name) is None:
            joined = np.concatenate(list(attacked(recordings(speech, rate), name, rate, seed)))
            yield name, marker.detect(joined, rate)


def false_alarms(case: Case, face: Row) -> Row:
    """Cut unmarked speech into files of some lengths and count those that are found marked."""
    marker, lengths_s = case.method.marker, case.plan.files_s
    assert marker is not None
    alarms, files = [], []
    for _, found in heard(marker, case.plan.speech[0], [face["attack"]], seed=DRAWS):
        for length_s in lengths_s:
            least_s, size = marker.card.tail.threshold(length_s), round(length_s / found.frame_s)
            files.append(len(found.frame_presence) // size)
            cut = found.frame_presence[: files[-1] * size].reshape(files[-1], size)
            false = sum(
                peaks(file, found.frame_s).max(initial=0) >= least_s
                or file.mean() >= marker.card.threshold
                for file in cut
            )
            alarms.append(int(false))
    return {"files_s": list(lengths_s), "alarms": alarms, "files": files}


def table(rows: Iterable[Row]) -> str:
    """Return a line for each attack and length: how many of how many files were found marked."""
    return "\n".join(
        f"{row['attack']:12} {length_s:6g} s  {alarms:4} of {files}"
        for row in rows
        for length_s, alarms, files in zip(row["files_s"], row["alarms"], row["files"], strict=True)
    )


def peaks(chance: npt.NDArray[np.float32], frame_s: float) -> npt.NDArray[np.float64]:
    """Return the highest evidence of each stretch between two returns to nothing."""
    walk = np.concatenate([[0.0], np.cumsum((2 * chance.astype(np.float64) - 1) * frame_s)])
    height = walk - np.minimum.accumulate(walk)
    starts = np.flatnonzero(height == 0)
    highest = np.maximum.reduceat(height, starts)
    return highest[highest > 0]


def fit(negatives: Iterable[Negative]) -> Tail:
    """Fit the tail: the rate of the attack with most peaks, the scale of that with the highest.

    So at most one file in a hundred is falsely found marked after any of these attacks.
    """
    kinds: dict[str, list[Negative]] = {}
    for one in negatives:
        kinds.setdefault(one.attack, []).append(one)
    heights = {name: np.concatenate([one.peaks_s for one in part]) for name, part in kinds.items()}
    ordered = np.sort(np.concatenate([[0.0], *heights.values()]))
    above = max(LEAST_ABOVE_S, float(ordered[-min(len(ordered), HIGHEST + 1)]))
    excesses = {name: high[high > above] - above for name, high in heights.items()}
    own = [excess for excess in excesses.values() if len(excess) >= FEWEST]
    scales = [_scale(excess) for excess in (*own, np.concatenate(list(excesses.values())))]
    rates = [
        max(1, len(excesses[name])) / sum(one.seconds for one in part)
        for name, part in kinds.items()
    ]
    scale = max(LEAST_SCALE_S, *scales)
    return Tail(round(above, 4), round(max(rates), 5), round(scale, 4))


def _scale(excess: npt.NDArray[np.float64]) -> float:
    """Return the mean of an exponential distribution, on the side of caution."""
    return float(excess.mean()) * (1 + CAUTION / len(excess) ** 0.5) if len(excess) else 0.0
