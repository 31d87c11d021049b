"""Negatives: presence scores of hours of unmarked audio that is not clean read speech.

Noise, speech after attacks, synthetic speech, silence, tones and music-like sounds, scored in
windows of a second, as the threshold was calibrated. One row, of the suite `null`, for each source
and attack.
"""

from collections.abc import Iterator
from pathlib import Path

from keybound.attacks import attack, available
from keybound.attacks.sounds import MADE, PIECE_S
from keybound.audio.folders import files_in, read_mono
from keybound.benchmark.measure.plan import Case, Plan
from keybound.benchmark.measure.protocol import Clip, rng_of
from keybound.benchmark.measure.rows import Row

ATTACKED = "attacked-speech"


def rows(plan: Plan, index: int) -> list[Row]:  # noqa: ARG001
    """Return the names of the rows: folders of recordings, attacked speech, sounds made here."""
    folders = {"noise": plan.noise, "synthetic-speech": plan.synthetic}
    sources = [(name, "clean") for name, folder in folders.items() if folder is not None]
    sources += [(ATTACKED, name) for name in plan.attacks if plan.speech]
    sources += [(name, "clean") for name in MADE]
    return [{"source": source, "attack": name} for source, name in sources]


def measure(case: Case, face: Row) -> Row:
    """Score all whole windows of a source; where an attack cannot run here, return why."""
    if (absent := available(face["attack"])) is not None:
        return {"scores": [], "not_run": absent}
    length = round(case.seconds * case.method.rate)
    scores = [
        round(case.method.read(sound[end - length : end]).presence, 3)
        for sound in sounds(case.plan, face, case.method.rate)
        for end in range(length, len(sound) + 1, length)
    ]
    return {"scores": scores}


def sounds(plan: Plan, face: Row, rate: int) -> Iterator[Clip]:
    """Read, attack or make the sounds of a source."""
    source, seed = face["source"], plan.seed
    if source in MADE:
        pieces = round(plan.made_minutes * 60 / PIECE_S)
        return (MADE[source](rng_of(seed, i, source), rate) for i in range(pieces))
    folder = {"noise": plan.noise, "synthetic-speech": plan.synthetic}.get(source, plan.speech[0])
    assert folder is not None
    return attacked(folder, face["attack"], rate, seed)


def attacked(folder: Path, name: str, rate: int, seed: int) -> Iterator[Clip]:
    """Yield the recordings of a folder, attacked with what (seed, recording, attack) draw."""
    hit = attack(name)
    for index, path in enumerate(files_in(folder)):
        drawn = hit.draw(rng_of(seed, index, name), None)
        yield hit.apply(read_mono(path, rate), rate, drawn)
