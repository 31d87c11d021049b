"""The two networks: chunks equal the whole, the context is finite, damage is refused."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from keybound.audio import recordings
from keybound.audio import streaming as blocks_room
from keybound.errors import ModelError
from keybound.model.networks import CARD_VERSION, SHIPPED, Networks, read_card

Floats = NDArray[np.float32]

CODE = np.array([0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1, 1, 0, 0], np.uint8)
DATA = Path(__file__).parents[1] / "data"
few = settings(max_examples=12, deadline=None)


@pytest.fixture(scope="module")
def nets() -> Networks:
    return Networks()


@pytest.fixture(scope="module")
def speech() -> Floats:
    return recordings.read(DATA / "flite-rms.flac").samples[:, 0].astype(np.float32)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A folder of weights of one's own to damage."""
    for name in ("card.json", "embedder.onnx", "detector.onnx"):
        shutil.copy(SHIPPED / name, tmp_path)
    return tmp_path


# Chunks


@few
@given(st.integers(1, 50_000), st.integers(5, 200))
def test_a_carrier_made_in_chunks_is_the_carrier(
    nets: Networks, speech: Floats, length: int, blocks: int
) -> None:
    host = speech[:length]
    whole = nets.carrier(host, CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_room, "CHUNK_BLOCKS", blocks)
        pieces = nets.carrier(host, CODE)
    assert pieces.shape == whole.shape == host.shape
    np.testing.assert_allclose(pieces, whole, rtol=0, atol=1e-7)


@few
@given(st.integers(1, 50_000), st.integers(5, 200))
def test_frames_read_in_chunks_are_the_frames(
    nets: Networks, speech: Floats, length: int, blocks: int
) -> None:
    heard = speech[:length]
    presence, logits = nets.frames(heard)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_room, "CHUNK_BLOCKS", blocks)
        presence_too, logits_too = nets.frames(heard)
    frames = -(-length // nets.card.hop)
    assert presence.shape == presence_too.shape == (frames,)
    assert logits.shape == logits_too.shape == (frames, nets.card.bits)
    np.testing.assert_allclose(presence_too, presence, rtol=0, atol=1e-5)
    np.testing.assert_allclose(logits_too, logits, rtol=0, atol=1e-5)


def test_chunks_without_context_would_show(
    nets: Networks, speech: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = nets.carrier(speech, CODE)
    monkeypatch.setattr(blocks_room, "CHUNK_BLOCKS", 40)
    monkeypatch.setattr(nets, "card", replace(nets.card, embed_context=(0, 0)))
    assert np.abs(nets.carrier(speech, CODE) - whole).max() > 1e-4


def test_the_shipped_chunk_is_shorter_than_a_long_recording(nets: Networks) -> None:
    seconds = blocks_room.CHUNK_BLOCKS * nets.card.hop / nets.card.rate
    assert 1 <= seconds <= 60


# What a network sees


@few
@given(st.integers(0, 59_000), st.sampled_from([-0.4, 0.3]))
def test_the_embedder_looks_200_ms_ahead_at_most(
    nets: Networks, speech: Floats, place: int, step: float
) -> None:
    other = speech.copy()
    other[place] += step
    difference = np.abs(nets.carrier(other, CODE) - nets.carrier(speech, CODE))
    change = np.flatnonzero(difference > 1e-7)
    assert place - 0.2 * nets.card.rate <= change.min() <= place
    before, after = (blocks * nets.card.hop for blocks in nets.card.embed_context)
    block = place // nets.card.hop * nets.card.hop
    assert block - after <= change.min()
    assert change.max() < block + nets.card.hop + before


@few
@given(st.integers(0, 59_000), st.sampled_from([-0.4, 0.3]))
def test_the_detector_looks_less_than_two_seconds_to_either_side(
    nets: Networks, speech: Floats, place: int, step: float
) -> None:
    other = speech.copy()
    other[place] += step
    presence, logits = nets.frames(speech)
    presence_too, logits_too = nets.frames(other)
    difference = np.maximum(np.abs(presence_too - presence), np.abs(logits_too - logits).max(1))
    moved = np.flatnonzero(difference > 1e-5)
    assert moved.size
    middles = (moved + 0.5) * nets.card.hop
    assert np.abs(middles - place).max() <= 1.9 * nets.card.rate
    left, right = nets.card.detect_context
    assert place // nets.card.hop - right <= moved.min()
    assert moved.max() <= place // nets.card.hop + left


# Levels


def test_a_quieter_host_has_a_carrier_quieter_alike(nets: Networks, speech: Floats) -> None:
    carrier = nets.carrier(speech, CODE)
    # The last bit of a float may move a byte, which moves some 1 % of the carrier.
    for scale, error_db in ((3.0, -36), (0.1, -36), (0.03, -30)):
        scaled = nets.carrier(np.float32(scale) * speech, CODE) / scale
        ratio = np.mean((scaled - carrier) ** 2) / np.mean(carrier**2)
        assert 10 * np.log10(ratio) < error_db, f"at {scale} of the level"


def test_the_carrier_is_small_and_not_nothing(nets: Networks, speech: Floats) -> None:
    carrier = nets.carrier(speech, CODE)
    snr_db = 10 * np.log10(np.mean(speech**2) / np.mean(carrier**2))
    assert 8 < snr_db < 40


def test_another_code_has_another_carrier(nets: Networks, speech: Floats) -> None:
    carrier = nets.carrier(speech, CODE)
    flipped = CODE.copy()
    flipped[3] ^= 1
    difference = nets.carrier(speech, flipped) - carrier
    assert np.mean(difference**2) > 1e-3 * np.mean(carrier**2)


@pytest.mark.parametrize("length", [1, 319, 320, 321, 16_000])
def test_silence_has_no_carrier_and_finite_frames(nets: Networks, length: int) -> None:
    silence = np.zeros(length, np.float32)
    np.testing.assert_array_equal(nets.carrier(silence, CODE), silence)
    presence, logits = nets.frames(silence)
    assert len(presence) == len(logits) == -(-length // 320)
    assert np.isfinite(presence).all()
    assert np.isfinite(logits).all()


@pytest.mark.parametrize("peak", [1e-30, 1e-5, 1.0, 30.0])
def test_no_level_gives_anything_but_numbers(nets: Networks, peak: float) -> None:
    loud = (peak * np.random.default_rng(0).uniform(-1, 1, 8_000)).astype(np.float32)
    assert np.isfinite(nets.carrier(loud, CODE)).all()
    for values in nets.frames(loud):
        assert np.isfinite(values).all()


# Weights and their card


def test_the_shipped_card_says_what_the_package_promises() -> None:
    card = read_card(SHIPPED)
    assert (card.rate, card.bits, card.rho) == (16_000, 16, 2)
    assert 0 < card.threshold < 1
    assert 0 < card.clean_threshold < 1
    assert {"recipe", "training"} <= set(card.facts)


def test_both_networks_take_20_megabytes_at_most() -> None:
    files = list(SHIPPED.glob("*.onnx"))
    assert {file.name for file in files} == {"embedder.onnx", "detector.onnx"}
    assert sum(file.stat().st_size for file in files) <= 20_000_000


def edited(change: Callable[[dict[str, Any]], object]) -> bytes:
    facts = json.loads((SHIPPED / "card.json").read_text())
    change(facts)
    return json.dumps(facts).encode()


DAMAGED = {
    "empty": b"",
    "half a card": (SHIPPED / "card.json").read_bytes()[:700],
    "not text": b"\xff\xfe\x00\x01",
    "a list": b"[1, 2]",
    "a number": b"1",
    "no version": edited(lambda facts: facts.pop("version")),
    "no thresholds": edited(lambda facts: facts.pop("thresholds")),
    "no hashes": edited(lambda facts: facts.pop("sha256")),
    "a hop of nothing": edited(lambda facts: facts.update(hop=0)),
    "bits as text": edited(lambda facts: facts.update(bits="16")),
    "a rate with a fraction": edited(lambda facts: facts.update(rate=16000.5)),
    "a context of three": edited(lambda facts: facts["context"].update(embed=[1, 2, 3])),
    "a context before time": edited(lambda facts: facts["context"].update(detect=[-1, 25])),
    "a threshold that is none": edited(lambda facts: facts["thresholds"].update(attacked=np.nan)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_card_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "card.json").write_bytes(DAMAGED[name])
    with pytest.raises(ModelError, match=r"card\.json is not a model card$") as caught:
        Networks(tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize(("step", "hint"), [(1, "update keybound"), (-1, "get newer weights")])
def test_a_card_of_another_version_is_refused_as_such(tmp_path: Path, step: int, hint: str) -> None:
    version = CARD_VERSION + step
    (tmp_path / "card.json").write_bytes(edited(lambda facts: facts.update(version=version)))
    with pytest.raises(ModelError, match=rf"a card of version {version}$") as caught:
        Networks(tmp_path)
    assert (caught.value.hint or "").startswith(hint)


def test_blocks_may_have_codes_of_their_own(nets: Networks, speech: Floats) -> None:
    codes = np.stack([CODE, 1 - CODE])
    switch = 40  # blocks

    def code_of(blocks: NDArray[np.int64]) -> NDArray[np.uint8]:
        return codes[(blocks >= switch).astype(int)]

    carrier = nets.carrier(speech, code_of)
    first, second = (nets.carrier(speech, code) for code in codes)
    hop, (past, ahead) = nets.card.hop, nets.card.embed_context
    early, late = (switch - ahead) * hop, (switch + past) * hop
    assert carrier[:early] == pytest.approx(first[:early], abs=1e-6)
    assert np.abs(carrier - first)[early:].max() > 1e-3
    assert len(speech) > late
    assert carrier[late:] == pytest.approx(second[late:], abs=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_room, "CHUNK_BLOCKS", 7)
        assert nets.carrier(speech, code_of) == pytest.approx(carrier, abs=1e-5)


@pytest.mark.parametrize("folder", [".", "nowhere"])
def test_a_folder_without_a_card_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(ModelError, match=r"^no card\.json in ") as caught:
        Networks(tmp_path / folder)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["embedder.onnx", "detector.onnx"])
def test_tampered_weights_are_refused_by_their_hash(
    weights: Path, speech: Floats, name: str
) -> None:
    model = bytearray((weights / name).read_bytes())
    model[len(model) // 2] ^= 1
    (weights / name).write_bytes(model)
    nets = Networks(weights)
    use: dict[str, Callable[[], object]] = {
        "embedder.onnx": lambda: nets.carrier(speech, CODE),
        "detector.onnx": lambda: nets.frames(speech),
    }
    with pytest.raises(ModelError, match=rf"{name} does not have the hash on its card$"):
        use.pop(name)()
    for other in use.values():  # the sound one of the two still works
        other()


def test_a_missing_network_is_named(weights: Path, speech: Floats) -> None:
    (weights / "detector.onnx").unlink()
    with pytest.raises(ModelError, match=r"^no detector\.onnx in ") as caught:
        Networks(weights).frames(speech)
    assert caught.value.hint


def test_what_is_no_network_is_refused_in_one_line(weights: Path, speech: Floats) -> None:
    junk = b"not a network"
    (weights / "embedder.onnx").write_bytes(junk)
    facts = json.loads((weights / "card.json").read_text())
    facts["sha256"]["embedder.onnx"] = hashlib.sha256(junk).hexdigest()
    (weights / "card.json").write_text(json.dumps(facts))
    with pytest.raises(ModelError, match=r"cannot be loaded$"):
        Networks(weights).carrier(speech, CODE)
