"""Measure how well a marked sentence is found in an unmarked hour, and where it begins and ends.

    python scripts/spans.py --hour FOLDER --hour FOLDER --speech LONG --trials 24

Recordings of the folders `--hour` make an unmarked hour, those of `--speech` are marked as a whole;
3 to 6 s of one, cut anywhere, take the place of as much of the hour. Prints how many of these are
found at the default rate of false alarms, and how many with both edges within 0.25 s.
"""

import argparse
import warnings
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt

from keybound.audio import folders
from keybound.crypto.keys import Key
from keybound.watermark.watermarker import Watermarker

RATE = 16_000
HOUR = 3600 * RATE
SENTENCE_S = (3.0, 6.0)
CLOSE_S = 0.25


@cache
def unmarked(hour: tuple[Path, ...]) -> npt.NDArray[np.float32]:
    """Return an hour of unmarked speech."""
    parts = [folders.read_mono(path, RATE) for path in folders.files_in(*hour)]
    return np.resize(np.concatenate(parts), HOUR)


def trial(number: int, *, hour: tuple[Path, ...], speech: Path) -> tuple[float, float, float]:
    """Return the length of a sentence and the errors of both edges in seconds, inf if not found."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(number)
    paths = folders.files_in(speech)
    host = folders.read_mono(paths[number % len(paths)], RATE)
    length = int(rng.uniform(*SENTENCE_S) * RATE)
    marker = Watermarker()
    payload = int(rng.integers(1 << 16))
    marked = marker.embed(host, RATE, key=Key(rng.bytes(32)), payload=payload, check=False)
    cut = int(rng.integers(len(marked) - length))
    at = int(rng.integers(HOUR - length))
    heard = unmarked(hour).copy()
    heard[at : at + length] = marked[cut : cut + length]
    begin_s, end_s = at / RATE, (at + length) / RATE
    for span in marker.detect(heard, RATE).spans:
        if span.start_s < end_s and span.end_s > begin_s:
            return length / RATE, span.start_s - begin_s, span.end_s - end_s
    return length / RATE, np.inf, np.inf


def main() -> None:
    """Try some sentences and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hour", type=Path, action="append", required=True)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    one = partial(trial, hour=tuple(asked.hour), speech=asked.speech)
    with get_context("spawn").Pool(asked.workers) as pool:
        tried = np.array(pool.map(one, range(asked.trials), 1))
    found = np.isfinite(tried[:, 1])
    edges = np.abs(tried[:, 1:]).max(1)
    close = edges <= CLOSE_S
    print(f"{len(tried)} sentences: {found.sum()} found, {close.sum()} within {CLOSE_S} s")
    print(f"median of the larger error {np.median(edges[found]):.2f} s")
    missed = ", ".join(f"{length:.2f}" for length in sorted(tried[~found, 0]))
    print(f"lengths of those not found, in seconds: {missed or 'none'}")


if __name__ == "__main__":
    main()
