"""Speed of KeyBound and its peers, in one run on one machine.

Speed needs no trained weights, so a peer whose weights are absent runs with random ones, and its
rows say so. Absolute times differ between machines; ratios within one run are what counts, and only
on a quiet machine: on a busy one torch's threads wait for each other, which flatters KeyBound.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import soundfile

from keybound.benchmark.measure.methods import Method
from keybound.benchmark.measure.protocol import Clip, secret_of
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.peers import METHODS, available
from keybound.watermark import files
from keybound.watermark.options import EmbedOptions
from keybound.watermark.watermarker import Watermarker

VERBS = ("embed", "detect")
FILES = "keybound-files"
NAMES = (*METHODS, FILES)
RATE = 16_000  # of those files
SETTLE_S = 0.3  # torch's threads go on spinning for a while, which would be the next one's loss
PATIENCE_S = 30.0  # after so long a method that is slow is not asked again


def measure(seconds: float = 10.0, turns: int = 9, names: Iterable[str] = NAMES) -> list[Row]:
    """Return times real time of every method that can run here, to embed and to detect.

    The methods take turns, so that what else the machine does meets all of them alike, and the
    quickest turn of each counts, since others only ever add to it. Times cover the whole call: for
    KeyBound that is the library's, key and checks included, and as FILES also reading and writing.
    The audio is noise at the method's own rate.
    """
    rows: list[Row] = []
    jobs: list[Callable[[], Any]] = []
    with TemporaryDirectory() as place:
        for name in names:
            trained = name == FILES or available(name) is None
            if not trained and available(name, trained=False) is not None:
                continue
            if name == FILES:
                length_s = seconds
                jobs += _file_jobs(seconds, Path(place))
            else:
                method = METHODS[name]() if trained else METHODS[name](trained=False)
                length_s = max(seconds, method.seconds)
                jobs += _jobs(method, length_s)
            row: Row = {"suite": "speed", "method": name, "seconds": length_s, "trained": trained}
            rows += [row | {"verb": verb} for verb in VERBS]
        for row, spent in zip(rows, _times(jobs, turns), strict=True):
            row["times_real_time"] = round(row["seconds"] / min(spent), 2)
    return rows


def _times(jobs: Sequence[Callable[[], Any]], turns: int) -> list[list[float]]:
    """Return how long each job takes, in each of its turns."""
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(turns):
        for job, spent in zip(jobs, times, strict=True):
            if sum(spent) < PATIENCE_S:
                time.sleep(SETTLE_S)
                begun = time.perf_counter()
                job()
                spent.append(time.perf_counter() - begun)
    return times


def _noise(seconds: float, rate: int) -> Clip:
    return 0.1 * np.random.default_rng(0).standard_normal(round(seconds * rate), dtype=np.float32)


def _file_jobs(seconds: float, place: Path) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what is timed of KeyBound's files: a WAV of 16 kHz to another, and its detection."""
    marker, secret = Watermarker(), secret_of(0, 0, 16)
    host, out = place / f"{seconds:g}.wav", place / "marked.wav"
    soundfile.write(host, _noise(seconds, RATE), RATE, subtype="PCM_16")
    options = EmbedOptions(secret.key, secret.payload, position=secret.position)
    return (
        lambda: files.embed(marker, host, out, options, check=False, replace=True),
        lambda: files.detect(marker, host),
    )


def _jobs(method: Method, seconds: float) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what is timed, in the order of the verbs."""
    clip, secret = _noise(seconds, method.rate), secret_of(0, 0, method.bits)
    return lambda: method.embed(clip, secret), lambda: method.read(clip)
