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
from keybound.benchmark.measure.protocol import secret_of
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.peers import METHODS, available
from keybound.watermark import files
from keybound.watermark.stream import EmbedOptions
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
    with TemporaryDirectory() as place:
        return _measure(seconds, turns, names, Path(place))


def _measure(seconds: float, turns: int, names: Iterable[str], place: Path) -> list[Row]:
    rows: list[Row] = []
    jobs: list[Callable[[], Any]] = []
    for name in names:
        if name == FILES:
            jobs += _file_jobs(seconds, place)
            rows += [_row(name, seconds, verb, trained=True) for verb in VERBS]
            continue
        trained = available(name) is None
        if not trained and available(name, trained=False) is not None:
            continue
        method = METHODS[name]() if trained else METHODS[name](trained=False)
        length_s = max(seconds, method.seconds)
        jobs += _jobs(method, length_s)
        rows += [_row(name, length_s, verb, trained=trained) for verb in VERBS]
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(turns):
        for job, spent in zip(jobs, times, strict=True):
            if sum(spent) < PATIENCE_S:
                time.sleep(SETTLE_S)
                begun = time.perf_counter()
                job()
                spent.append(time.perf_counter() - begun)
    for measured, spent in zip(rows, times, strict=True):
        measured["times_real_time"] = round(measured["seconds"] / min(spent), 2)
    return rows


def _row(name: str, seconds: float, verb: str, *, trained: bool) -> Row:
    facts: Row = {"suite": "speed", "method": name, "seconds": seconds, "trained": trained}
    return facts | {"verb": verb}


def _file_jobs(seconds: float, place: Path) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what is timed of KeyBound's files: a WAV of 16 kHz to another, and its detection."""
    marker, secret = Watermarker(), secret_of(0, 0, 16)
    host, out = place / f"{seconds:g}.wav", place / "marked.wav"
    rng = np.random.default_rng(0)
    samples = 0.1 * rng.standard_normal(round(seconds * RATE), dtype=np.float32)
    soundfile.write(host, samples, RATE, subtype="PCM_16")
    options = EmbedOptions(secret.key, secret.payload, position=secret.position)
    return (
        lambda: files.embed(marker, host, out, options, check=False, replace=True),
        lambda: files.detect(marker, host),
    )


def _jobs(method: Method, seconds: float) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what is timed, in the order of the verbs."""
    rng = np.random.default_rng(0)
    clip = 0.1 * rng.standard_normal(round(seconds * method.rate), dtype=np.float32)
    secret = secret_of(0, 0, method.bits)
    return lambda: method.embed(clip, secret), lambda: method.read(clip)


def table(rows: Sequence[Row], beside: str = "audioseal") -> str:
    """Write rows as a small table: times real time, and how often the speed of one method."""
    speeds = {(row["seconds"], row["method"], row["verb"]): row for row in rows}
    lines = [f"{'':14}{'s':>6}{'embed':>9}{'detect':>9}{f'of {beside}':>16}  weights"]
    for seconds, name in dict.fromkeys(key[:2] for key in speeds):
        embed, detect = (speeds[seconds, name, verb] for verb in VERBS)
        cells = [f"{row['times_real_time']:9.4g}" for row in (embed, detect)]
        for row in (embed, detect):
            other = speeds.get((seconds, beside, row["verb"]))
            ratio = f"{row['times_real_time'] / other['times_real_time']:.3g}" if other else ""
            cells.append(f"{ratio:>8}")
        weights = "trained" if embed["trained"] else "random"
        lines.append(f"{name:14}{seconds:6g}{''.join(cells)}  {weights}")
    return "\n".join(lines)
