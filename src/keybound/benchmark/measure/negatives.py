"""Negatives: presence scores of hours of unmarked audio that is not clean read speech.

Noise, speech after attacks, synthetic speech, silence, tones and music-like sounds, scored in
windows of a second, as the threshold was calibrated. One row, of the suite `null`, for each source
and attack.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.signal

from keybound.attacks import attack, available
from keybound.attacks.music import compose
from keybound.audio.folders import files_in, read_mono
from keybound.benchmark.measure.plan import Case, Plan
from keybound.benchmark.measure.protocol import Clip, rng_of
from keybound.benchmark.measure.rows import Row

PIECE_S = 8.0  # of a made sound: long enough for a melody, short enough for many
ATTACKED = "attacked-speech"
Generator = np.random.Generator


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


def silence(rng: Generator, rate: int) -> Clip:
    """Make one kind of silence: nothing, an offset, dither of 16 bits, or a faint hiss."""
    size = round(PIECE_S * rate)
    step = 1 / 32768
    kind = rng.integers(4)
    if kind == 0:
        sound = np.zeros(size)
    elif kind == 1:
        sound = np.full(size, rng.uniform(-0.1, 0.1))
    elif kind == 2:
        sound = np.rint(rng.random(size) - rng.random(size)) * step
    else:
        sound = rng.standard_normal(size) * 10 ** (rng.uniform(-90, -60) / 20)
    return np.asarray(sound, np.float32)


def tones(rng: Generator, rate: int) -> Clip:
    """Make a tone: sine, square, sawtooth, sweep, dial tone, or one that beats or sings."""
    time = np.arange(round(PIECE_S * rate)) / rate
    pitch = 2 * np.pi * np.exp(rng.uniform(np.log(60), np.log(0.4 * rate)))  # radians a second
    kind = rng.integers(6)
    if kind == 0:
        sound = np.sin(pitch * time)
    elif kind == 1:
        wave = scipy.signal.square if rng.random() < 0.5 else scipy.signal.sawtooth
        sound = wave(min(pitch, 2 * np.pi * 2000) * time)
    elif kind == 2:
        sound = scipy.signal.chirp(time, 50, PIECE_S, 0.45 * rate, method="logarithmic")
    elif kind == 3:  # a dialled number: two tones a digit, five digits a second
        low = rng.choice([697, 770, 852, 941], size=round(5 * PIECE_S) + 1)
        high = rng.choice([1209, 1336, 1477, 1633], size=len(low))
        digit = (5 * time).astype(int)
        pair = np.sin(2 * np.pi * low[digit] * time) + np.sin(2 * np.pi * high[digit] * time)
        sound = pair * (5 * time % 1 < 0.6)
    elif kind == 4:
        sound = np.sin(pitch * time) * (1 + np.sin(2 * np.pi * rng.uniform(1, 60) * time))
    else:
        sound = np.sin(pitch / 2 * time + 20 * np.sin(2 * np.pi * rng.uniform(0.2, 6) * time))
    return _at_level(sound, rng)


def music(rng: Generator, rate: int) -> Clip:
    """Make something like music: chords, a plucked melody, a bass and a drum at one tempo."""
    return _at_level(compose(rng, rate, round(PIECE_S * rate)), rng)


def _at_level(sound: np.ndarray, rng: Generator) -> Clip:
    """Bring a sound to a random peak between -30 dB and full scale."""
    peak = 10 ** (rng.uniform(-30, 0) / 20)
    return np.asarray(peak * sound / (np.abs(sound).max() + 1e-12), np.float32)


MADE = {"silence": silence, "tones": tones, "music": music}
