"""Very many fingerprints are scanned: what would be called the same is among the likely ones."""

from pathlib import Path

import numpy as np
import pytest

from keybound.audio import recordings
from keybound.provenance import fingerprint
from keybound.provenance.fingerprint import WHOLE, Fingerprint
from keybound.provenance.matching import Sketch, match
from keybound.provenance.scanning import likely
from keybound.watermark import channels

DATA = Path(__file__).parents[1] / "data"
NAMES = ("flite-rms", "espeak-ng-gb")


def speech(name: str) -> np.ndarray:
    samples = recordings.read(DATA / f"{name}.flac").samples[:56000, 0]
    return np.tile(samples, 3).astype(np.float32)


def made(columns: int, seed: int) -> Fingerprint:
    kept = int(fingerprint.kept(columns).sum())
    return Fingerprint(columns, np.random.default_rng(seed).bytes(2 * kept))


@pytest.fixture(scope="module")
def prints() -> list[Fingerprint]:
    """Return those of speech among others, of the same length and of other ones."""
    own = [fingerprint.take(channels.levels_of(speech(name))) for name in NAMES]
    others = [made(own[0].columns, seed) for seed in range(150)]
    return [*others[:70], *own, *others[70:], made(40, 1), made(0, 1), made(5, 1), made(30, 2)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("piece", [slice(0, None), slice(20000, 68000), slice(9000, 41000)])
def test_what_is_the_same_is_likely(prints: list[Fingerprint], name: str, piece: slice) -> None:
    noise = np.random.default_rng(0).normal(scale=0.003, size=len(speech(name)))
    sketch = Sketch.of(channels.levels_of((speech(name) + noise)[piece].astype(np.float32)))
    found = likely(enumerate(prints), sketch, len(prints))
    same = [
        number
        for number, one in enumerate(prints)
        if match(one, sketch, speed=0.0, tries=len(prints)).decision == "same"
    ]
    assert same == [70 + NAMES.index(name)]
    assert set(same) <= set(found)
    assert len(found) < 5


def test_long_ones_are_never_left_out() -> None:
    long = [made(WHOLE + 5000, seed) for seed in range(2)]
    sketch = Sketch.of(channels.levels_of(speech("flite-rms")))
    assert likely(enumerate([*long, made(300, 3)]), sketch, 3) == [0, 1]


def test_too_little_is_likely_nothing(prints: list[Fingerprint]) -> None:
    short = Sketch.of(channels.levels_of(speech("flite-rms")[:9000]))
    assert likely(enumerate(prints), short, len(prints)) == []
