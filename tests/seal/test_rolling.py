"""The rolling code: its derivation, its marks in real networks, and where it is found."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from keybound.audio import recordings
from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.crypto.keystream import PAGE_ROWS
from keybound.errors import CodeError
from keybound.model.detection import Tail, weigh
from keybound.provenance.fingerprint import take
from keybound.provenance.matching import match
from keybound.provenance.origin import Origin
from keybound.seal.rolling import Roll, find_roll, masks, read_along
from keybound.seal.search import SealSearch
from keybound.types import Detection
from keybound.watermark.channels import levels_of
from keybound.watermark.options import EmbedOptions
from keybound.watermark.watermarker import Watermarker

Floats = NDArray[np.float32]

KEY, OTHER = Key(bytes(range(32))), Key(bytes(32))
PAYLOAD, POSITION = 0x5EED, 9
ROLL = Roll(KEY, PAYLOAD, 16, b"", POSITION)
KNOWN = SealSearch((POSITION,))
RATE, FRAME_S = 16000, 0.02
DATA = Path(__file__).parents[1] / "data"
keys = st.binary(min_size=32, max_size=32).map(Key)
few = settings(max_examples=20, deadline=None)


@pytest.fixture(scope="module")
def host() -> Floats:
    """Six seconds of synthetic speech."""
    names = ("flite-rms", "espeak-ng-gb")
    parts = [recordings.read(DATA / f"{name}.flac").samples[: 3 * RATE, 0] for name in names]
    return np.concatenate(parts).astype(np.float32)


@pytest.fixture(scope="module")
def rolled(marker: Watermarker, host: Floats) -> Floats:
    secret: Any = {"key": KEY, "payload": PAYLOAD, "position": POSITION}
    return marker.embed(host, RATE, **secret, rolling=True, check=False)


def heard(start: int, frames: int, strength: float, seed: int = 0, before: int = 0) -> Detection:
    """Frames as a detector gives them, of a recording that begins at a frame of the roll."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(before + frames, 16)).astype(np.float32)
    signs = 2.0 * ROLL.of_blocks(np.arange(start, start + frames), FRAME_S) - 1.0
    logits[before:] += strength * signs.astype(np.float32)
    presence = np.full(before + frames, 2.0, np.float32)
    tail = Tail(above_s=0.2, rate_hz=0.05, scale_s=0.25)
    return weigh(presence, logits, FRAME_S, (before + frames) * FRAME_S, 0.5, tail)


# Derivation


def test_masks_known_answers() -> None:
    label = b"keybound-1/roll"
    made = masks(KEY, 16, b"", 9, 0, 2 * PAGE_ROWS)
    seed = KEY.derive(label.decode(), 32, (9).to_bytes(4, "big"))
    for page in range(2):
        data = hashlib.shake_256(seed + page.to_bytes(4, "big")).digest(2 * PAGE_ROWS)
        assert np.packbits(made[page * PAGE_ROWS : (page + 1) * PAGE_ROWS]).tobytes() == data
    assert np.packbits(made[:4]).tobytes().hex() == "46c7514f258f505f"


@few
@given(keys, st.integers(1, 40), st.binary(max_size=8), st.integers(0, 600), st.integers(0, 300))
def test_masks_are_one_stream(key: Key, bits: int, nonce: bytes, first: int, count: int) -> None:
    part = masks(key, bits, nonce, 3, first, count)
    assert part.shape == (count, bits)
    assert np.array_equal(part, masks(key, bits, nonce, 3, 0, first + count)[first:])


def test_positions_nonces_and_keys_have_streams_of_their_own() -> None:
    streams = [
        masks(key, 16, nonce, position, 0, 64)
        for key, nonce, position in (
            (KEY, b"", 9), (OTHER, b"", 9), (KEY, b"n", 9), (KEY, b"", 10),
        )
    ]  # fmt: skip
    for i, one in enumerate(streams):
        for other in streams[:i]:
            assert 0.4 < np.mean(one == other) < 0.6


def test_a_block_has_the_code_of_its_second() -> None:
    blocks = np.array([-3, 0, 49, 50, 149, 150])
    assert np.array_equal(ROLL.of_blocks(blocks, FRAME_S), ROLL.codes(0, 4)[[0, 0, 0, 1, 2, 3]])
    bits = codes.to_bits(PAYLOAD, 16)
    assert np.array_equal(ROLL.codes(5, 1)[0] ^ masks(KEY, 16, b"", POSITION, 5, 1)[0], bits)


def test_a_position_that_does_not_exist_is_refused() -> None:
    with pytest.raises(CodeError, match="does not exist"):
        masks(KEY, 16, b"", 1 << 32, 0, 1)


# Search


@few
@given(st.integers(0, 40 * 50), st.integers(200, 900))
def test_a_roll_is_found_wherever_it_was_cut(start: int, frames: int) -> None:
    found = heard(start, frames, 1.0)
    place = find_roll(found, ROLL, KNOWN)
    assert place.holds
    # One in 150 of these is off by .16 to .26 s, four seconds having few changes of code.
    assert place.start_s == pytest.approx(start * FRAME_S, abs=0.3)
    read = read_along(found, KEY, b"", POSITION, place.start_s)
    assert np.array_equal(read, codes.to_bits(PAYLOAD, 16))


def test_a_roll_is_found_behind_other_sound() -> None:
    found = heard(0, 400, 1.0, before=60 * 50 + 10)
    place = find_roll(found, ROLL, KNOWN)
    assert place.holds
    assert place.start_s == pytest.approx(-60.2, abs=0.1)
    read = read_along(found, KEY, b"", POSITION, place.start_s)
    assert np.array_equal(read, codes.to_bits(PAYLOAD, 16))


def test_a_roll_is_found_among_positions_and_its_p_counts_them() -> None:
    found = heard(0, 500, 0.5)
    known, among = (find_roll(found, ROLL, where) for where in (KNOWN, SealSearch(range(64))))
    assert among.position == POSITION
    assert among.holds
    assert among.tests == 64 * known.tests
    assert among.z == pytest.approx(known.z)


def test_wrong_keys_do_not_pass_more_often_than_p_says() -> None:
    found = heard(0, 250, 1.0)
    ps = []
    for i in range(400):
        wrong = Key(i.to_bytes(32, "big"))
        ps.append(find_roll(found, Roll(wrong, PAYLOAD, 16), KNOWN).p)
    assert np.mean(np.array(ps) < 0.1) <= 0.1
    assert min(ps) > 1e-5


def test_nothing_is_found_in_silence_or_nowhere() -> None:
    found = heard(0, 100, 0.0)
    found.frame_logits[:] = 0
    assert find_roll(found, ROLL, KNOWN).p == 1
    assert find_roll(found, ROLL, SealSearch(())).p == 1


@pytest.mark.parametrize(("frames", "searched"), [(50, "short"), (90, "start"), (250, "all")])
def test_codes_that_nothing_could_prove_are_not_looked_for(frames: int, searched: str) -> None:
    """z is at most the root of the bits that were read: sixteen a second."""
    found = heard(0, frames, 1.0)
    assert find_roll(found, ROLL, SealSearch(range(64)), tries=2).searched == searched


# With the shipped networks


def test_a_rolling_code_seals_the_audio_of_its_record(marker: Watermarker, rolled: Floats) -> None:
    rng = np.random.default_rng(0)
    level = np.sqrt(np.mean(rolled**2)) * 10 ** (-3 / 20)
    noisy = (rolled + rng.normal(size=len(rolled)) * level).astype(np.float32)
    verdict = marker.verify(noisy, RATE, key=KEY, payload=PAYLOAD, search=KNOWN)
    assert verdict.roll.holds
    assert not verdict.seal.holds
    assert (verdict.grade, verdict.distance) == ("attributed", 0)
    assert verdict.words.endswith("which a record must confirm")
    recorded = [replace(verdict, origin=Origin(match)) for match in ("same", "unclear", "other")]
    assert [one.grade for one in recorded] == ["sealed", "attributed", "attributed"]
    wrong = marker.verify(noisy, RATE, key=OTHER, payload=PAYLOAD, search=KNOWN)
    assert wrong.grade == "present"
    assert min(wrong.seal.p, wrong.roll.p) > 1e-4


def test_a_code_replayed_on_other_audio_is_not_sealed(
    marker: Watermarker, host: Floats, rolled: Floats
) -> None:
    """Whoever has a rolled recording reads its codes with the public networks and writes them."""
    logits = marker.detect(rolled, RATE).frame_logits
    seconds = [(logits[50 * s : 50 * s + 50].mean(axis=0) > 0).astype(np.uint8) for s in range(6)]
    other = host[::-1].copy()
    codes_read = np.stack(seconds)
    carrier = marker.networks.carrier(other, lambda b: codes_read[np.clip(b // 50, 0, 5)])
    verdict = marker.verify(other + carrier, RATE, key=KEY, payload=PAYLOAD, search=KNOWN)
    assert verdict.roll.holds  # the code is there: it was copied
    assert verdict.grade == "attributed"
    known = take(levels_of(rolled))
    assert match(known, levels_of(other + carrier)).decision == "other"  # as a record would say


def test_a_cut_is_read_where_the_seal_says(marker: Watermarker, rolled: Floats) -> None:
    cut = rolled[RATE + 3333 :]
    verdict = marker.verify(cut, RATE, key=KEY, payload=PAYLOAD)  # position not known
    assert (verdict.grade, verdict.distance, verdict.seal.position) == ("sealed", 0, POSITION)
    assert verdict.seal.start_s == pytest.approx(1 + 3333 / RATE, abs=0.1)


def test_a_second_is_read_when_its_position_is_known(marker: Watermarker, rolled: Floats) -> None:
    second = rolled[:RATE]
    known = marker.verify(second, RATE, key=KEY, payload=PAYLOAD, search=KNOWN)
    assert known.verified
    found = marker.detect(second, RATE)
    assert marker.decode(found, key=KEY, position=POSITION) == PAYLOAD
    assert not marker.attribute(
        found, key=KEY, payload=PAYLOAD
    ).verified  # as a fixed code it is not


def test_streams_roll_as_arrays_do(marker: Watermarker, host: Floats, rolled: Floats) -> None:
    secret: Any = {"key": KEY, "payload": PAYLOAD, "position": POSITION}
    stream = marker.embedder(RATE, EmbedOptions(**secret, rolling=True))
    parts = [stream.push(host[i : i + 777]) for i in range(0, len(host), 777)]
    assert np.concatenate([*parts, stream.flush()]) == pytest.approx(rolled, abs=1e-5)


def test_a_fixed_code_is_no_roll(marker: Watermarker, host: Floats) -> None:
    secret: Any = {"key": KEY, "payload": PAYLOAD}
    marked = marker.embed(host, RATE, **secret, position=POSITION, check=False)
    found = marker.detect(marked, RATE)
    assert find_roll(found, ROLL, KNOWN).p > 1e-3
    with pytest.raises(CodeError, match="needs a position"):
        marker.embed_with_position(host, RATE, **secret, seal=False, rolling=True, check=False)
