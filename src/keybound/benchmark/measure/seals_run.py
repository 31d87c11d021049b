"""The suite of sealed evidence: its parts, which rows each is to have, and their measurement.

A row that is already there is not measured again; rows come from as many processes as asked for.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keybound.benchmark.measure import seals
from keybound.benchmark.measure.lengths import cut, speakers
from keybound.benchmark.measure.methods import Method
from keybound.benchmark.measure.protocol import Clip, Row
from keybound.benchmark.measure.run import identity, keep, one_core, read_rows, rounded, spread
from keybound.benchmark.measure.seals import (
    COLLUSIONS,
    COPIES,
    COPYINGS,
    SHORT_S,
    SOURCES,
    USUAL_S,
    Case,
    Plan,
)

Faces = list[Row]
Job = tuple[str, float, int, Faces]  # part, seconds, recording, the rows that are missing


@dataclass(frozen=True)
class Part:
    """What is measured of which recordings: rows by the recording's index, and lengths."""

    measure: Callable[[Case, Row], Row]
    faces: Callable[[Plan, int], Faces]
    lengths: Callable[[Plan], dict[float, int]]  # seconds, and how many recordings at most


def _each_attack(plan: Plan, index: int) -> Faces:  # noqa: ARG001
    return [{"attack": name} for name in plan.attacks]


def _each_remover(plan: Plan, index: int) -> Faces:  # noqa: ARG001
    parted = (path.stem.rpartition("-") for path in plan.removers)
    return [{"network": network, "budget": int(steps)} for network, _, steps in parted]


def _one_source(plan: Plan, index: int) -> Faces:
    turn, which = divmod(index, len(SOURCES))
    hits = [name for name in plan.attacks if name != "clean"]
    attacked = SOURCES[which] == "attacked" and hits
    name = hits[turn % len(hits)] if attacked else "clean"
    return [{"source": SOURCES[which], "attack": name}]


def _each_collusion(plan: Plan, index: int) -> Faces:  # noqa: ARG001
    return [{"attack": kind, "copies": COPIES} for kind in COLLUSIONS]


def _each_forgery(plan: Plan, index: int) -> Faces:  # noqa: ARG001
    return [{"attack": kind} for kind in ("known-payload", "replay")]


def _each_copying(plan: Plan, index: int) -> Faces:  # noqa: ARG001
    return [{"attack": kind} for kind in COPYINGS]


def _one(plan: Plan, index: int) -> Faces:  # noqa: ARG001
    return [{}]


def _usual(plan: Plan) -> dict[float, int]:
    return {s: n for s, n in plan.lengths.items() if s == USUAL_S}


def _forged(plan: Plan) -> dict[float, int]:
    return {SHORT_S: plan.forgeries} | {s: min(n, plan.forgeries) for s, n in _usual(plan).items()}


def _groups(plan: Plan) -> dict[float, int]:
    return {s: -(-n // COPIES) for s, n in _usual(plan).items()}


def _scored(plan: Plan) -> dict[float, int]:
    return {s: min(n, plan.scored) for s, n in plan.lengths.items() if s <= USUAL_S}


PARTS: dict[str, Part] = {
    "seal": Part(seals.attacked, _each_attack, lambda plan: plan.lengths),
    "seal-remover": Part(seals.removed, _each_remover, _usual),
    "seal-average": Part(seals.averaged, _each_collusion, _groups),
    "seal-forgery": Part(seals.forged, _each_forgery, _forged),
    "seal-copy": Part(seals.copied, _each_copying, _forged),
    "seal-quality": Part(seals.cost, _one, _scored),
    "seal-null": Part(seals.null, _one_source, lambda plan: {SHORT_S: plan.hosts}),
}


def pieces_of(plan: Plan, rate: int) -> dict[float, list[Clip]]:
    """Join the recordings of each speaker and cut pieces of every length that is wanted."""
    wanted: dict[float, int] = {}
    for part in plan.parts:
        for seconds, most in PARTS[part].lengths(plan).items():
            # A forger and colluders take the next recordings too.
            wanted[seconds] = max(wanted.get(seconds, 0), most, plan.lengths.get(seconds, 0))
    voices = list(speakers(plan.speech, rate))
    return {seconds: cut(voices, round(seconds * rate))[:most] for seconds, most in wanted.items()}


def face_of(method: Method, plan: Plan, part: str, seconds: float, index: int, face: Row) -> Row:
    """Begin a row with what names it."""
    row: Row = {"suite": part, "method": method.name, "version": method.version}
    return row | {"clip": index, "seconds": seconds, "seed": plan.seed} | face


def jobs_of(
    method: Method, plan: Plan, pieces: dict[float, list[Clip]], rows: Iterable[Row]
) -> list[Job]:
    """Give the recordings of which rows are missing, the longest first."""
    done = {identity(row) for row in rows}
    jobs = []
    for part in plan.parts:
        for seconds, most in PARTS[part].lengths(plan).items():
            for index in range(min(most, len(pieces[seconds]))):
                named = PARTS[part].faces(plan, index)
                faces = [face_of(method, plan, part, seconds, index, face) for face in named]
                if missing := [face for face in faces if identity(face) not in done]:
                    jobs.append((part, seconds, index, missing))
    return sorted(jobs, key=lambda job: -job[1])


_worker: dict[str, Any] = {}


def _start(plan: Plan) -> None:
    """Begin a worker process: its own method and recordings, on one core."""
    one_core()
    _worker["method"] = plan.make()
    _worker["plan"] = plan
    _worker["pieces"] = pieces_of(plan, _worker["method"].rate)


def _work(job: Job) -> list[Row]:
    return measure(_worker["method"], _worker["plan"], _worker["pieces"], job)


def measure(method: Method, plan: Plan, pieces: dict[float, list[Clip]], job: Job) -> list[Row]:
    """Measure the missing rows of a recording."""
    part, seconds, index, faces = job
    case = Case(plan, method, pieces[seconds], seconds, index)
    return [rounded(face | PARTS[part].measure(case, face)) for face in faces]


def run(plan: Plan, path: Path, *, progress: Callable[[int, int], None], workers: int = 0) -> int:
    """Measure what is missing from the rows at `path` and append it; give how many rows came."""
    method = plan.make()
    jobs = jobs_of(method, plan, pieces_of(plan, method.rate), read_rows(path))
    return keep(path, spread(_start, (plan,), _work, jobs, workers), len(jobs), progress)
