"""Evidence in unmarked speech: its peaks for the fit of a card, and false alarms of whole files.

The suite `false-alarms` counts on other speech what the fitted `Tail` comes to.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keybound.attacks import available
from keybound.benchmark.measure.negatives import attacked
from keybound.benchmark.measure.plan import Case, Plan
from keybound.benchmark.measure.protocol import Clip
from keybound.benchmark.measure.rows import Row
from keybound.model.detection import SHORT_S
from keybound.model.tail import Negative, means, peaks
from keybound.watermark.watermarker import Watermarker

ATTACKS = ("clean", "noise-10", "echo", "lyra-6")  # of the suite
FILES_S = (1.0, 3.0, 10.0, 60.0, 600.0)  # lengths of its files
DRAWS = 3  # of each attack's chance, for speech is short and peaks are rare


def measure(folder: Path, speech: Path, name: str, draws: int = DRAWS) -> Negative:
    """Find the peaks of evidence in the recordings of a folder after an attack.

    They are joined and cut to short files, of which the detector sees no more than of any file:
    near the ends it knows less, and more unmarked frames look marked.
    """
    marker = Watermarker(folder)
    first, *more = (joined_speech(speech, name, marker.card.rate, n) for n in range(draws))
    heard = [first, *(one for one in more if not np.array_equal(one, first))]  # with chance
    files = (file for joined in heard for file in cut(joined, SHORT_S, marker.card.rate))
    found = [marker.detect(file, marker.card.rate) for file in files]
    heights = np.concatenate([peaks(one.frame_presence, one.frame_s) for one in found])
    scores = np.concatenate([means(one.frame_presence, one.frame_s) for one in found])
    seconds = sum(len(one.frame_presence) * one.frame_s for one in found)
    return Negative(name, heights.tolist(), seconds, scores.tolist())


def cut(samples: Clip, length_s: float, rate: int) -> list[Clip]:
    """Cut samples to whole files of a length."""
    size = round(length_s * rate)
    return [samples[i : i + size] for i in range(0, len(samples) - size + 1, size)]


def joined_speech(speech: Path, name: str, rate: int, seed: int) -> Clip:
    """Join the recordings of a folder, each attacked."""
    return np.concatenate(list(attacked(speech, name, rate, seed)))


def count(case: Case, face: Row) -> Row:
    """Cut unmarked speech into files of some lengths and count those that are found marked."""
    marker, plan = case.marker, case.plan
    row: Row = {"files_s": list(plan.files_s), "alarms": [], "files": []}
    if available(face["attack"]) is not None:
        return row | {"files_s": []}
    if plan.stereo:
        return row | in_stereo(marker, plan, face["attack"])
    rate, asked = marker.card.rate, plan.false_alarms
    speech = joined_speech(plan.speech[0], face["attack"], rate, DRAWS)
    for length_s in plan.files_s:
        files = cut(speech, length_s, rate)
        found = sum(marker.detect(file, rate, false_alarms=asked).present for file in files)
        row["alarms"].append(found)
        row["files"].append(len(files))
    return row


def in_stereo(marker: Watermarker, plan: Plan, name: str) -> Row:
    """Count false alarms of files with two channels, and of the mix and each channel as files.

    The attack is drawn anew for the second channel, which is late, softer and turned upside down,
    so that the channels and their mix are three chances.
    """
    rate = marker.card.rate
    late, asked = round(0.005 * rate), plan.false_alarms
    first, second = (joined_speech(plan.speech[0], name, rate, DRAWS + n) for n in (0, 1))
    both = np.stack([first[late:], -0.7 * second[: len(second) - late]], axis=1)
    row: Row = {"alarms": [], "files": [], "alone": []}
    for length_s in plan.files_s:
        pieces = cut(both, length_s, rate)
        views = [pieces, [piece.mean(axis=1) for piece in pieces]]
        views += [[piece[:, channel] for piece in pieces] for channel in range(2)]
        false, *alone = (
            sum(marker.detect(x, rate, false_alarms=asked).present for x in view) for view in views
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
