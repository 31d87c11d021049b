"""Runs: method, attack and clip in, one JSON row each out. Resumable, parallel over processes.

A row names everything it depends on, so rows of several runs can lie in one file; a row that is
already there is not measured again. What is drawn by chance follows from (seed, clip, attack).
"""

import contextlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from keybound.attacks import attack
from keybound.benchmark.measure import metrics
from keybound.benchmark.measure.methods import Method, Reading
from keybound.benchmark.measure.protocol import Clip, Row, Secret, read_clips, rng_of, secret_of

DIGITS = 5
USUAL: Row = {"seed": 0, "seconds": 1.0}  # of a clip
READ: Row = {"bits": 16, "parameters": {}}  # of a clip that was read, where it is our code
IDENTITY = (
    "method", "version", "suite", "attack", "clip", "seconds", "seed", "copies", "network",
    "budget", "source", "domain", "verb", "speech",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What to measure: every attack on every clip, and the quality of each marked clip."""

    speech: Path
    attacks: tuple[str, ...]
    seconds: float = 1.0
    clips: int | None = 300  # None: all there are
    seed: int = 0
    quality: bool = True  # of the marked clips
    opinion: bool = True  # DNSMOS too, which takes longer than all the rest
    damage: bool = True  # what each attack does to the speech
    every: bool = False  # all clips of each recording, not only the first
    speech_set: str | None = None  # its name; None: the main set, which most tables are of


Make = Callable[[], Method]


def measure_clip(method: Method, plan: Plan, index: int, clip: Clip, wanted: set[str]) -> list[Row]:
    """Measure one clip: a row for each wanted attack, and one for the quality of the mark."""
    secret = secret_of(plan.seed, index, method.bits)
    marked = method.embed(clip, secret)
    rows = []
    if "quality" in wanted:
        rows.append(row_of(method, plan, index, "quality"))
        rows[-1] |= quality(clip, marked, method.rate, opinion=plan.opinion)
    for name in (name for name in plan.attacks if name in wanted):
        hit, parameters = None, {}
        if name != "clean":
            hit = attack(name)
            parameters = hit.draw(rng_of(plan.seed, index, name), None)

        def suffer(samples: Clip, hit: Any = hit, parameters: Any = parameters) -> Clip:
            return samples if hit is None else hit.apply(samples, method.rate, parameters)

        heard = suffer(marked)
        reading, null = method.read(heard), method.read(suffer(clip))
        row = row_of(method, plan, index, name) | {"parameters": parameters}
        row |= {"marked": reading.presence, "unmarked": null.presence}
        row |= {"bits": method.bits, "errors": errors_of(method, reading, secret)}
        if plan.damage and len(heard) == len(clip):
            row |= damage(clip, heard, method.rate)
        rows.append(row)
    return [rounded(row) for row in rows]


def errors_of(method: Method, reading: Reading, secret: Secret) -> int | None:
    """Count wrong bits; a method without a payload has none to be wrong."""
    return method.errors(reading, secret) if method.bits else None


def row_of(method: Method, plan: Plan, index: int, name: str) -> Row:
    """Begin a row with what names it."""
    row: Row = {"method": method.name, "version": method.version, "attack": name}
    row |= {"clip": index, "seconds": length_s(method, plan), "seed": plan.seed}
    return row if plan.speech_set is None else row | {"speech": plan.speech_set}


def length_s(method: Method, plan: Plan) -> float:
    """Give the length of a clip: the plan's, or the shortest that the method works on."""
    return max(plan.seconds, method.seconds)


def quality(host: Clip, marked: Clip, rate: int, *, opinion: bool) -> Row:
    """Measure what the mark costs, with the measures that are installed."""
    row: Row = {
        "snr_db": metrics.snr_db(host, marked),
        "si_snr_db": metrics.si_snr_db(host, marked),
        "pesq": metrics.pesq(host, marked, rate),
        "stoi": metrics.stoi(host, marked, rate),
    }
    if find_spec("visqol"):
        row |= {f"visqol{k}": metrics.visqol(host, v, rate) for k, v in _pair(host, marked)}
    if opinion and find_spec("speechmos"):
        row |= {f"dnsmos{k}": metrics.dnsmos(v, rate) for k, v in _pair(host, marked)}
    return row


def _pair(host: Clip, marked: Clip) -> tuple[tuple[str, Clip], ...]:
    return ("", marked), ("_host", host)


def damage(host: Clip, heard: Clip, rate: int) -> Row:
    """Measure what an attack leaves of the speech: an attack that ruins it has not won."""
    straight, lag = metrics.aligned(host, heard)
    return {
        "pesq": metrics.pesq(host, straight, rate),
        "stoi": metrics.stoi(host, straight, rate),
        "si_snr_raw_db": metrics.si_snr_db(host, heard),
        "si_snr_db": metrics.si_snr_db(host, straight),
        "lag": lag,
    }


def rounded(value: Any) -> Any:
    """Round floats in a row, so that a file of rows stays small."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return round(float(value), DIGITS) if isinstance(value, float | np.floating) else value


def line_of(row: Row) -> str:
    """Write a row as a line, without what `read_rows` knows: what most clips have, and no lag."""
    row = rounded(row)
    usual = usual_of(row)
    row = {k: v for k, v in row.items() if k not in usual or v != usual[k]}
    if row.get("lag") == 0:
        row = {k: v for k, v in row.items() if k not in ("lag", "si_snr_raw_db")}
    return json.dumps(row, separators=(",", ":")) + "\n"


def usual_of(row: Row) -> Row:
    """Give what most rows of its kind hold."""
    if "clip" not in row:
        return {}
    return USUAL | READ if "errors" in row and "suite" not in row else USUAL


def row_in(line: str) -> Row:
    """Read a row from its line."""
    row: Row = json.loads(line)
    row = usual_of(row) | row
    if "si_snr_db" in row and row["attack"] != "quality":
        row = {"si_snr_raw_db": row["si_snr_db"], "lag": 0} | row
    return row


def identity(row: Row) -> tuple[Any, ...]:
    """Give what makes two rows the same measurement."""
    return tuple(row.get(k) for k in IDENTITY)


def read_rows(path: Path) -> list[Row]:
    """Read rows; a last line cut off by a kill is left out and will be measured again."""
    rows = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                rows.append(row_in(line))
    return rows


def mend(path: Path) -> None:
    """End a line that a kill cut off, so that the next row begins its own."""
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")


_worker: dict[str, Any] = {}


def clips_of(method: Method, plan: Plan) -> list[Clip]:
    """Read the clips of a plan as a method wants them."""
    seconds = length_s(method, plan)
    return read_clips(plan.speech, seconds, method.rate, every=plan.every, limit=plan.clips)


def _start(make: Make, plan: Plan) -> None:
    """Begin a worker process: its own method and clips, on one core."""
    one_core()
    _worker["method"] = make()
    method = _worker["method"]
    _worker["plan"] = plan
    _worker["clips"] = clips_of(method, plan)


def one_core() -> None:
    """Keep what this process loads from now on to one core."""
    os.environ |= {"KEYBOUND_THREADS": "1", "OMP_NUM_THREADS": "1"}  # the latter for torch


def _work(job: tuple[int, set[str]]) -> list[Row]:
    index, wanted = job
    return measure_clip(_worker["method"], _worker["plan"], index, _worker["clips"][index], wanted)


def run(
    make: Make, plan: Plan, path: Path, *, progress: Callable[[int, int], None], workers: int = 0
) -> int:
    """Measure what is missing from the rows at `path` and append it; give how many rows came."""
    method = make()
    count = len(clips_of(method, plan))
    names = [*(["quality"] if plan.quality else []), *plan.attacks]
    done = {identity(row) for row in read_rows(path)}
    jobs = []
    for index in range(count):
        wanted = {n for n in names if identity(row_of(method, plan, index, n)) not in done}
        if wanted:
            jobs.append((index, wanted))
    batches = spread(_start, (make, plan), _work, jobs, workers)
    return keep(path, batches, len(jobs), progress)


def keep(
    path: Path, batches: Iterable[list[Row]], total: int, progress: Callable[[int, int], None]
) -> int:
    """Append rows as they come, a batch for each job; give how many came."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mend(path)
    made = 0
    with path.open("a", encoding="utf-8") as file:
        for number, rows in enumerate(batches, start=1):
            for row in rows:
                file.write(line_of(row))
            file.flush()
            made += len(rows)
            progress(number, total)
    return made


def spread(
    start: Callable[..., None],
    given: tuple[Any, ...],
    work: Callable[[Any], list[Row]],
    jobs: Sequence[Any],
    workers: int,
) -> Iterator[list[Row]]:
    """Do jobs in worker processes that each `start` with what is given, in order of finishing."""
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    if workers == 0:
        return
    # Fresh processes: a fork would share the threads of ONNX Runtime and torch, which hangs.
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, start, given) as pool:
        yield from pool.imap_unordered(work, jobs)


def environment() -> Row:
    """Give the versions of what figures depend on."""
    names = ("keybound", "numpy", "scipy", "soundfile", "onnxruntime", "pesq", "pystoi")
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found
