"""Runs: a plan in, one row for each measurement out. Resumable, parallel over processes.

All suites are measured alike: what is missing from a file of rows becomes jobs, a job for each
recording, and the jobs are spread over processes that each have the method and the recordings.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from keybound.attacks import available
from keybound.audio.folders import cut, named_clips, speakers
from keybound.benchmark.measure import (
    adversaries,
    false_alarms,
    negatives,
    removal,
    robustness,
    seals,
    security,
)
from keybound.benchmark.measure.methods import Method
from keybound.benchmark.measure.plan import (
    FIRST,
    JOINED,
    NONE,
    OWN_KEYS,
    Case,
    Plan,
    Suite,
    each_attack,
)
from keybound.benchmark.measure.protocol import Clip
from keybound.benchmark.measure.rows import Row, add, add_missing, identity, read_rows, rounded

ATTACKS = "attacks"  # the suite whose rows bear no name of a suite
SUITES: dict[str, Suite] = {
    ATTACKS: Suite(robustness.measure, robustness.rows, {1.0: 300}),
    **security.SUITES,
    **seals.SUITES,
    **adversaries.SUITES,
    "remover": Suite(removal.measure, removal.each_remover, {1.0: 200}),  # the paper's 200 clips
    "null": Suite(negatives.measure, negatives.rows, {1.0: 1}, NONE, whole=True),
    "false-alarms": Suite(false_alarms.count, each_attack, {1.0: 1}, NONE, whole=True),
}
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Hosts:
    """Recordings of one kind and length, with their names where one file is the host of each."""

    clips: Sequence[Clip]
    names: Sequence[str] = ()


Kind = tuple[str, float]  # where hosts come from, and how long they are


@dataclass(frozen=True)
class Job:
    """The missing rows of a recording, as far as they are named."""

    kind: Kind
    index: int
    rows: list[Row]


def lengths_of(method: Method, plan: Plan, name: str) -> dict[Kind, int | None]:
    """Return how many recordings of which kind and length a suite takes at most."""
    suite = SUITES[name]
    found: dict[Kind, int | None] = {}
    for seconds, most in (plan.lengths or suite.lengths or {}).items():
        shortest = method.seconds if suite.hosts in (FIRST, NONE) else 0.0
        known = [n for n in (most, plan.most) if n is not None]
        found[suite.hosts, max(seconds, shortest)] = min(known, default=None)
    return found


def hosts_of(method: Method, plan: Plan) -> dict[Kind, Hosts]:
    """Read the recordings that the suites of a plan take, as the method wants them."""
    wanted: dict[Kind, int | None] = {}
    for name in plan.suites:
        for kind, most in lengths_of(method, plan, name).items():
            before = wanted.get(kind, 0)
            wanted[kind] = None if most is None or before is None else max(before, most)
    joined = any(source in (JOINED, OWN_KEYS) for source, _ in wanted)
    voices = list(speakers(plan.speech, method.rate)) if joined else []
    hosts = {}
    for (source, seconds), most in wanted.items():
        if source == FIRST and plan.joined:
            whole = np.concatenate(list(speakers(plan.speech, method.rate)))
            hosts[source, seconds] = Hosts(cut([whole], round(seconds * method.rate))[:most])
        elif source == FIRST:
            how = {"every": plan.every, "limit": most}
            found = named_clips(plan.speech[0], seconds, method.rate, **how)  # type: ignore[arg-type]
            hosts[source, seconds] = Hosts([c for _, c in found], [name for name, _ in found])
        else:
            pieces = cut(voices, round(seconds * method.rate))[:most] if voices else []
            hosts[source, seconds] = Hosts(pieces)
    return hosts


def jobs_of(
    method: Method, plan: Plan, hosts: dict[Kind, Hosts], rows: Iterable[Row] = ()
) -> list[Job]:
    """Return the recordings of which rows are missing, the longest first."""
    done = {identity(row) for row in rows}
    jobs: dict[object, Job] = {}
    for name in plan.suites:
        suite = SUITES[name]
        named: Row = {} if name == ATTACKS else {"suite": name}
        named |= {"method": method.name, "version": method.version}
        of_set = {} if plan.speech_set is None else {"speech": plan.speech_set}
        for kind, most in lengths_of(method, plan, name).items():
            there = len(hosts[kind].clips)
            count = min(-(-(there if most is None else most) // suite.takes), there)
            for index in range(1 if suite.whole else count):
                clip = {} if suite.whole else {"clip": index}
                for place, face in enumerate(suite.rows(plan, index)):
                    row = named | clip | {"seconds": kind[1], "seed": plan.seed} | face | of_set
                    if identity(row) not in done:
                        key = (name, place) if suite.whole else (kind, index)
                        jobs.setdefault(key, Job(kind, index, [])).rows.append(row)
    return sorted(jobs.values(), key=lambda job: -job.kind[1])


def measure(method: Method, plan: Plan, hosts: dict[Kind, Hosts], job: Job) -> list[Row]:
    """Measure the missing rows of a recording."""
    source, seconds = job.kind
    of = hosts[job.kind]
    first = 1000 * round(seconds) if source == OWN_KEYS else 0
    case = Case(plan, method, of.clips, seconds, job.index, first, of.names)
    suites = (SUITES[row.get("suite", ATTACKS)] for row in job.rows)
    return [
        rounded(row | suite.measure(case, row)) for suite, row in zip(suites, job.rows, strict=True)
    ]


_given: list[tuple[Method, Plan, dict[Kind, Hosts]]] = []  # of a worker process


def _start(plan: Plan) -> None:
    """Begin a worker process: its own method and recordings."""
    method = plan.make()
    _given[:] = [(method, plan, hosts_of(method, plan))]


def _work(job: Job) -> list[Row]:
    return measure(*_given[0], job)


@contextmanager
def one_core() -> Iterator[None]:
    """Keep what is loaded meanwhile, here and in processes that begin, to one core."""
    before = {name: os.environ.get(name) for name in ("KEYBOUND_THREADS", "OMP_NUM_THREADS")}
    os.environ |= dict.fromkeys(before, "1")  # the latter for torch
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}


def batches(
    plan: Plan, rows: Iterable[Row], progress: Progress, workers: int
) -> Iterator[list[Row]]:
    """Measure what is missing from rows, in some processes, 0 for one a core.

    Gives the rows of each recording, in order of finishing.
    """
    method = plan.make()
    jobs = jobs_of(method, plan, hosts_of(method, plan), rows)
    if not jobs:
        return
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    with one_core(), ExitStack() as stack:
        if workers > 1:
            # Fresh processes: a fork would share the threads of ONNX Runtime and torch, and hang.
            fresh = multiprocessing.get_context("spawn")
            pool = stack.enter_context(fresh.Pool(workers, _start, (plan,)))
            found: Iterable[list[Row]] = pool.imap_unordered(_work, jobs)
        else:
            _start(plan)
            found = map(_work, jobs)
        for number, batch in enumerate(found, start=1):
            yield batch
            progress(number, len(jobs))


def run(plan: Plan, path: Path, *, progress: Progress, workers: int = 0) -> int:
    """Measure what is missing from the rows at `path` and append it; return how many rows came."""
    return add(path, batches(plan, read_rows(path), progress, workers))


def collect(plan: Plan, *, progress: Progress = lambda *_: None, workers: int = 0) -> Iterator[Row]:
    """Measure a plan and return its rows in order of finishing, kept nowhere."""
    return (row for batch in batches(plan, (), progress, workers) for row in batch)


def begin(plan: Plan, path: Path) -> tuple[Plan, int]:
    """Write what the method says of itself, and why attacks of the plan cannot run here.

    Returns the plan without those attacks, and how many rows were written.
    """
    method = plan.make()
    reasons = {name: [available(part) for part in name.split("+")] for name in plan.attacks}
    absent = {name: next(filter(None, whys)) for name, whys in reasons.items() if any(whys)}
    rows = ({"method": method.name, "attack": n, "reason": why} for n, why in absent.items())
    here = tuple(name for name in plan.attacks if name not in absent)
    return replace(plan, attacks=here), add_missing(path, [facts_of(method), *rows])


def facts_of(method: Method) -> Row:
    """Return what a method says of itself, and the versions of what figures depend on."""
    facts: Row = {"suite": "method", "method": method.name, "version": method.version}
    facts |= {"rate": method.rate, "bits": method.bits, "rho": method.rho}
    facts |= {"keyed": method.keyed, "threshold": method.threshold}
    versions = {}
    for name in ("keybound", "numpy", "scipy", "soundfile", "onnxruntime", "pesq", "pystoi"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return facts | {"versions": versions}
