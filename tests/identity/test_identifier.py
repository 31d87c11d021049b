"""Identifiers of real speech: read back whole, cut, joined and attacked, under the right key."""

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
from keybound.identity import identifier, reading
from keybound.identity.frame import CANDIDATES, KEYED, PUBLIC
from keybound.identity.identifier import Identifier
from keybound.identity.permutation import Permutation
from keybound.types import Detection
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]
RATE = 16_000
KEYS = [Permutation(Key(bytes([n]) * 32)) for n in range(3)]
SERIAL, ISSUER = 0x5EED_5EED_5E, 0x1234
SPEC = Path(__file__).parents[2] / "docs" / "spec.md"


def mark(marker: Watermarker, host: Samples, own: Identifier) -> Samples:
    codes = partial(own.of_blocks, block_s=marker.card.hop / marker.card.rate)
    made: Samples = host + marker.networks.carrier(host, codes)
    return made


@pytest.fixture(scope="module")
def host(clips: dict[str, Samples]) -> Samples:
    """Return 14 s of speech."""
    return np.resize(np.concatenate(list(clips.values())), 14 * RATE).astype(np.float32)


@pytest.fixture(scope="module")
def marked(marker: Watermarker, host: Samples) -> Samples:
    """Return 14 s of speech whose seconds spell a serial under the second key."""
    return mark(marker, host, identifier.keyed(SERIAL, KEYS[1]))


@pytest.mark.parametrize(("start", "seconds"), [(0.0, 6.0), (0.0, 14.0), (2.37, 8.0), (5.9, 8.0)])
def test_a_recording_and_an_excerpt_are_read(
    marker: Watermarker, marked: Samples, start: float, seconds: float
) -> None:
    piece = marked[round(start * RATE) : round((start + seconds) * RATE)]
    found = marker.detect(piece, RATE)
    best, *others = reading.read(found, KEYS)
    assert (best.serial, best.key, best.issuer, others) == (SERIAL, 1, None, [])
    assert best.start_s == pytest.approx(start, abs=0.15)
    assert best.fit > 0.9
    assert best.tries == reading.MOST_BLOCKS
    own = identifier.keyed(SERIAL, KEYS[1])
    assert best.identifier == own
    assert reading.differing(found, own, best.start_s).sum() == 0
    assert reading.differing(found, own, best.start_s + 1).sum() > 2


def test_a_public_identifier_needs_no_key(marker: Watermarker, host: Samples) -> None:
    made = mark(marker, host, identifier.public(SERIAL, ISSUER))
    (best,) = reading.read_public(marker.detect(made[RATE:], RATE))
    assert (best.serial, best.issuer, best.key) == (SERIAL, ISSUER, None)
    assert best.start_s == pytest.approx(1.0, abs=0.15)
    assert reading.read(marker.detect(made, RATE), KEYS) == []


def drawn(own: Identifier, seconds: int, rng: np.random.Generator) -> Detection:
    """Return a detection of a whole recording, one of eight of whose bits is wrong."""
    codes = own.codes(0, seconds)
    read = 2.0 * codes - 1 + 0.9 * rng.standard_normal(codes.shape)
    logits = np.repeat(2 * read, 50, axis=0).astype(np.float32)
    usual = (True, 0.7, 0.5, 1.0, 0.5, 1e-3, (), ())
    chance = np.full(len(logits), 0.9, np.float32)
    return Detection(*usual, 0.02, chance, logits, logits.mean(axis=0))


def test_of_the_blocks_that_fit_a_whole_recording_the_check_tells_which_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six seconds carry 96 bits, a block has 64: the one that fits best is often another."""
    read = {reading.FROM_START: 0, CANDIDATES: 0}
    for tried in read:
        monkeypatch.setattr(reading, "FROM_START", tried)
        for seed in range(20):
            rng = np.random.default_rng(seed)
            key, serial = Permutation(Key(rng.bytes(32))), int(rng.integers(1 << 40))
            found = reading.read(drawn(identifier.keyed(serial, key), 6, rng), [key])
            assert [one.serial for one in found] in ([], [serial])
            read[tried] += len(found)
    assert list(read.values()) == [15, 10]


def test_recordings_that_were_joined_are_read_one_by_one(
    marker: Watermarker, host: Samples, marked: Samples
) -> None:
    other = mark(marker, host[::-1].copy(), identifier.keyed(7, KEYS[0]))
    joined = np.concatenate([marked[: 9 * RATE], host[: 3 * RATE], other[: 10 * RATE]])
    read = {one.serial: one for one in reading.read(marker.detect(joined, RATE), KEYS)}
    assert set(read) == {SERIAL, 7}
    (first,), (second,) = read[SERIAL].spans, read[7].spans
    assert (first.start_s, first.end_s) == (pytest.approx(0, abs=1.5), pytest.approx(9, abs=1.5))
    assert (second.start_s, second.end_s) == (
        pytest.approx(12, abs=1.5),
        pytest.approx(22, abs=1.5),
    )
    assert read[7].start_s == pytest.approx(20.0, abs=0.15)  # 32 s less 12


def test_a_public_identifier_is_read_between_other_marks(
    marker: Watermarker, host: Samples, marked: Samples
) -> None:
    """No window of twelve seconds lies in it: shorter ones are read too."""
    between = mark(marker, host[: 10 * RATE], identifier.public(5, 9))
    found = marker.detect(np.concatenate([marked, between, marked]), RATE)
    (one,) = reading.read_public(found)
    assert (one.serial, one.issuer) == (5, 9)
    assert one.start_s == pytest.approx(18, abs=0.15)  # 32 s less 14
    assert {one.serial for one in reading.read(found, KEYS)} == {SERIAL}


class Counted(Permutation):
    """A key that counts the blocks that it opens."""

    count = 0

    def decrypt(self, block: int) -> int:
        self.count += 1
        return super().decrypt(block)


@pytest.mark.parametrize(("records", "most"), [(1, 1000), (10**8, 184), (10**12, 32)])
def test_the_more_records_the_fewer_blocks_are_opened(
    marker: Watermarker, host: Samples, marked: Samples, records: int, most: int
) -> None:
    """Three views of recordings that were joined, under a key that none was marked with."""
    joined = np.concatenate([marked[: 9 * RATE], host[: 3 * RATE], marked])
    found = marker.detect(np.stack([joined, joined[::-1] * 0.5], axis=1), RATE)
    key = Counted(Key(bytes(32)))
    assert reading.read(found, [key], records) == []
    assert 32 <= key.count <= most
    assert [one.tries for one in reading.read(found, KEYS, records // 3)] == [most]


@pytest.mark.parametrize("name", ["mp3", "noise-20", "griffin-lim", "resample"])
def test_an_attacked_recording_is_read(marker: Watermarker, marked: Samples, name: str) -> None:
    hit = attack(name)
    heard = hit.apply(marked[: 10 * RATE], RATE, hit.draw(np.random.default_rng(0), None))
    assert reading.read(marker.detect(heard, RATE), KEYS)[0].serial == SERIAL


def test_without_its_key_nothing_is_read(marker: Watermarker, marked: Samples) -> None:
    found = marker.detect(marked, RATE)
    assert reading.read(found, [KEYS[0], KEYS[2]]) == []
    assert reading.read(found, []) == []
    assert reading.read_public(found) == []


def test_unmarked_speech_spells_nothing(marker: Watermarker, clips: dict[str, Samples]) -> None:
    found = marker.detect(np.concatenate(list(clips.values())), RATE)
    assert reading.read(found, KEYS) == reading.read_public(found) == []


def test_a_block_of_samples_has_the_code_of_its_second() -> None:
    own = identifier.keyed(SERIAL, KEYS[0])
    blocks = np.array([-3, 0, 49, 50, 149, 150])
    np.testing.assert_array_equal(own.of_blocks(blocks, 0.02), own.codes(0, 4)[[0, 0, 0, 1, 2, 3]])


@pytest.mark.parametrize("frame", [KEYED, PUBLIC])
def test_the_vectors_of_the_specification(frame: Any) -> None:
    columns = re.findall(
        r"^\| (serial|issuer|block|codes|`G\[0\]`)[^|]*\| ([^|]+) \| ([^|]+) \|$",
        SPEC.read_text().partition("## 11.")[2],
        re.MULTILINE,
    )
    told = {name: both[frame is PUBLIC] for name, *both in columns}
    serial, block, first = (
        int(told[name].strip("`"), 16) for name in ("serial", "block", "`G[0]`")
    )
    own = identifier.keyed(serial, Key(bytes(range(32))))
    if frame is PUBLIC:
        own = identifier.public(serial, int(told["issuer"].strip("`"), 16))
    assert own.block == block
    codes = ["".join(map(str, row)) for row in own.codes(0, 3)]
    assert [f"`{int(code, 2):04x}`" for code in codes] == told["codes"].split(", ")
    assert first == frame.sums[0]


def test_serials_are_drawn_and_others_refused() -> None:
    drawn = {identifier.draw() for _ in range(100)}
    assert len(drawn) == 100
    assert max(drawn) < 2**40
    for wrong in (-1, 2**40):
        with pytest.raises(CodeError, match="does not exist"):
            identifier.keyed(wrong, KEYS[0])
    with pytest.raises(CodeError, match="issuer 65536 does not exist"):
        identifier.public(1, 2**16)
