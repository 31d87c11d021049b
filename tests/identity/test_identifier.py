"""Identifiers of real speech: read back whole, cut and attacked, under the right key alone."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keybound.attacks import attack
from keybound.crypto.keys import Key
from keybound.errors import CodeError
from keybound.identity import frame, identifier
from keybound.identity.permutation import Permutation
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]
RATE = 16_000
KEYS = [Permutation(Key(bytes([n]) * 32)) for n in range(3)]
SERIAL = 0x5EED_5EED_5E


@pytest.fixture(scope="module")
def marked(marker: Watermarker, clips: dict[str, Samples]) -> Samples:
    """Return 14 s of speech whose seconds spell a serial under the second key."""
    host = np.concatenate(list(clips.values()))
    host = np.resize(host, 14 * RATE).astype(np.float32)
    block = identifier.block_of(SERIAL, KEYS[1])
    card = marker.card
    codes = partial(identifier.of_blocks, block, block_s=card.hop / card.rate)
    made: Samples = host + marker.networks.carrier(host, codes)
    return made


@pytest.mark.parametrize(("start", "seconds"), [(0.0, 6.0), (0.0, 14.0), (2.37, 8.0), (5.9, 8.0)])
def test_a_recording_and_an_excerpt_are_read(
    marker: Watermarker, marked: Samples, start: float, seconds: float
) -> None:
    piece = marked[round(start * RATE) : round((start + seconds) * RATE)]
    best, *others = identifier.read(marker.detect(piece, RATE), KEYS)
    assert (best.serial, best.key, others) == (SERIAL, 1, [])
    assert best.start_s == pytest.approx(start, abs=0.15)
    assert best.fit > 0.9


@pytest.mark.parametrize("name", ["mp3", "noise-20", "griffin-lim", "resample"])
def test_an_attacked_recording_is_read(marker: Watermarker, marked: Samples, name: str) -> None:
    hit = attack(name)
    heard = hit.apply(marked[: 10 * RATE], RATE, hit.draw(np.random.default_rng(0), None))
    assert identifier.read(marker.detect(heard, RATE), KEYS)[0].serial == SERIAL


def test_without_its_key_nothing_is_read(marker: Watermarker, marked: Samples) -> None:
    found = marker.detect(marked, RATE)
    assert identifier.read(found, [KEYS[0], KEYS[2]]) == []
    assert identifier.read(found, []) == []


def test_unmarked_speech_spells_nothing(marker: Watermarker, clips: dict[str, Samples]) -> None:
    host = np.concatenate(list(clips.values()))
    assert identifier.read(marker.detect(host, RATE), KEYS) == []


def test_the_vectors_of_the_specification() -> None:
    spec = (Path(__file__).parents[2] / "docs" / "spec.md").read_text().partition("## 12.")[2]
    told = dict(
        re.findall(r"^\| (serial|block|codes|`G\[0\]`)[^|]*\| (.+) \|$", spec, re.MULTILINE)
    )
    serial, block, first = (
        int(told[name].strip("`"), 16) for name in ("serial", "block", "`G[0]`")
    )
    assert identifier.block_of(serial, Permutation(Key(bytes(range(32))))) == block
    codes = ["".join(map(str, row)) for row in frame.codes(block, 0, 3)]
    assert [f"`{int(code, 2):04x}`" for code in codes] == told["codes"].split(", ")
    assert first == frame.sums()[0]


def test_serials_are_drawn_and_others_refused() -> None:
    drawn = {identifier.draw() for _ in range(100)}
    assert len(drawn) == 100
    assert max(drawn) < 2**40
    for wrong in (-1, 2**40):
        with pytest.raises(CodeError, match="does not exist"):
            identifier.block_of(wrong, KEYS[0])
