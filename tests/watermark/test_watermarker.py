"""Marks come back from marked speech, for the right key only, and are found where they are."""

import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from numpy.typing import NDArray

import keybound
from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.demo import SPEECH
from keybound.errors import CodeError
from keybound.types import Detection, Mark
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]

KEY = Key(bytes(range(32)))
PAYLOAD = 0x5EED
RATE = 16_000
DATA = Path(__file__).parents[1] / "data"
RECORDED = Path(__file__).resolve().parents[3] / "shared" / "speech" / "test"


@pytest.fixture(scope="module")
def found(marker: Watermarker, marked: Samples) -> Detection:
    return marker.detect(marked, RATE)


@pytest.fixture(scope="module")
def exact(found: Detection) -> Detection:
    """A detection whose bits are all right: what the rule makes of it is no matter of training."""
    return replace(found, present=True, marks=(Mark(found.spans, logits_of(PAYLOAD)),))


def logits_of(payload: int) -> Samples:
    return 2 * codes.encode(payload, KEY, 16).astype(np.float32) - 1


# From mark to verdict


@pytest.mark.parametrize("path", [SPEECH, *sorted(DATA.glob("*.flac"))], ids=lambda p: p.stem)
def test_a_marked_recording_verifies_and_the_host_does_not(path: Path) -> None:
    host, rate = sf.read(path, dtype="float32")
    marked = keybound.embed(host, rate, key=KEY, payload=PAYLOAD, position=0)
    assert keybound.detect(marked, rate).present
    verdict = keybound.verify(marked, rate, key=KEY, payload=PAYLOAD)
    assert verdict.verified
    assert verdict.distance == 0
    assert verdict.bound == pytest.approx(codes.bound(16, 2))
    assert not keybound.verify(marked, rate, key=Key(bytes(32)), payload=PAYLOAD).verified
    assert not keybound.detect(host, rate).present
    assert not keybound.verify(host, rate, key=KEY, payload=PAYLOAD).verified


@pytest.mark.parametrize("payload", [0, 1, 0x8000, 0xA5A5, 0xFFFF])
def test_every_payload_comes_back(marker: Watermarker, clip: Samples, payload: int) -> None:
    marked = marker.embed(clip, RATE, key=KEY, payload=payload, position=0)
    assert codes.from_bits(codes.decode(marker.detect(marked, RATE).code_logits, KEY)) == payload


def test_wrong_keys_are_at_chance_and_pass_as_seldom_as_the_bound_says(
    marker: Watermarker, exact: Detection
) -> None:
    keys = [Key(n.to_bytes(32)) for n in range(2000)]
    verdicts = [marker.attribute(exact, key=key, payload=PAYLOAD) for key in keys]
    distances = [verdict.distance for verdict in verdicts]
    assert distances == [codes.distance(codes.mask(KEY, 16), codes.mask(k, 16)) for k in keys]
    assert np.mean(distances) == pytest.approx(8, abs=0.2)
    assert [verdict.verified for verdict in verdicts] == [d <= 2 for d in distances]
    assert np.mean([verdict.verified for verdict in verdicts]) < 2.5 * codes.bound(16, 2)


@pytest.mark.parametrize(("wrong", "verified"), [(0, True), (1, True), (2, True), (3, False)])
def test_the_rule_ends_at_rho(
    marker: Watermarker, exact: Detection, wrong: int, verified: bool
) -> None:
    claimed = PAYLOAD ^ (0x0421 & ((1 << 4 * wrong) - 1))
    verdict = marker.attribute(exact, key=KEY, payload=claimed)
    assert verdict.distance == wrong
    assert verdict.verified is verified


@pytest.mark.parametrize("payload", [PAYLOAD ^ 0xFFFF, PAYLOAD ^ 0x0F00, 0, 0xFFFF, 0x1234])
def test_a_wrong_payload_does_not_verify(
    marker: Watermarker, exact: Detection, payload: int
) -> None:
    verdict = marker.attribute(exact, key=KEY, payload=payload)
    assert not verdict.verified
    assert verdict.present


def test_rho_of_the_caller_takes_the_place_of_the_models(
    marker: Watermarker, exact: Detection
) -> None:
    near = PAYLOAD ^ 1
    strict = marker.attribute(exact, key=KEY, payload=near, rho=0)
    assert (strict.verified, strict.distance, strict.rho) == (False, 1, 0)
    assert strict.bound == pytest.approx(2**-16)
    assert marker.attribute(exact, key=KEY, payload=near, rho=1).verified


def test_nobody_is_judged_by_bits_without_presence(marker: Watermarker, exact: Detection) -> None:
    verdict = marker.attribute(replace(exact, present=False), key=KEY, payload=PAYLOAD)
    assert not verdict.verified
    assert verdict.distance <= verdict.rho


def test_the_bound_is_corrected_for_the_parties_tried(
    marker: Watermarker, exact: Detection
) -> None:
    one, many = (marker.attribute(exact, key=KEY, payload=PAYLOAD, tries=n) for n in (1, 100))
    assert many.bound == pytest.approx(1 - (1 - one.bound) ** 100)
    assert many.tries == 100


def test_every_mark_is_tried_and_the_bound_knows(marker: Watermarker, exact: Detection) -> None:
    others = [Mark((), logits_of(PAYLOAD ^ flip)) for flip in (0xFFFF, 0x0FF0)]
    several = replace(exact, marks=(*others, *exact.marks))
    verdict = marker.attribute(several, key=KEY, payload=PAYLOAD, tries=10)
    assert verdict.verified
    assert (verdict.distance, verdict.marks, verdict.tries) == (0, 3, 10)
    assert verdict.bound == pytest.approx(1 - (1 - 3 * codes.bound(16, 2)) ** 10)
    wide = marker.attribute(replace(exact, marks=exact.marks * 8), key=KEY, payload=PAYLOAD, rho=15)
    assert wide.bound == 1


def test_only_the_same_nonce_verifies(marker: Watermarker, clip: Samples) -> None:
    marked = marker.embed(clip, RATE, key=KEY, payload=PAYLOAD, position=0, nonce=b"clip 1")
    found = marker.detect(marked, RATE)
    right = marker.attribute(found, key=KEY, payload=PAYLOAD, nonce=b"clip 1")
    assert right.verified
    assert right.distance == 0
    for nonce in (b"", b"clip 2", b"clip 1 "):
        verdict = marker.attribute(found, key=KEY, payload=PAYLOAD, nonce=nonce)
        masks = codes.mask(KEY, 16, b"clip 1"), codes.mask(KEY, 16, nonce)
        assert verdict.distance == codes.distance(*masks)
        assert not verdict.verified


@pytest.mark.parametrize("payload", [-1, 1 << 16])
def test_a_payload_that_does_not_fit_is_refused(
    marker: Watermarker, clip: Samples, found: Detection, payload: int
) -> None:
    with pytest.raises(CodeError, match="does not fit in 16 bits"):
        marker.embed(clip, RATE, key=KEY, payload=payload, position=0)
    with pytest.raises(CodeError, match="does not fit in 16 bits"):
        marker.attribute(found, key=KEY, payload=payload)


# Detection: frames, pooling, spans


def test_a_detection_is_made_of_its_frames(marker: Watermarker, found: Detection) -> None:
    presence, logits = found.frame_presence, found.frame_logits
    assert found.frame_s == 0.02
    assert logits.shape == (len(presence), 16)
    assert presence.min() >= 0
    assert presence.max() <= 1
    assert found.presence == pytest.approx(float(presence.mean()), abs=1e-6)
    assert found.threshold == marker.card.threshold
    assert found.evidence_threshold_s == marker.card.tail.threshold(len(presence) * 0.02, 1e-3)
    assert found.present
    (span,) = found.spans
    inside = slice(round(span.start_s / 0.02), -int(-span.end_s // 0.02))
    odds = (presence.astype(np.float64) / (1 - presence))[inside]  # exponentials of the logits
    expected = (odds[:, None] * logits[inside]).sum(0) / odds.sum()
    np.testing.assert_allclose(found.code_logits, expected, rtol=1e-3, atol=1e-3)


def test_detection_needs_no_key_and_agrees_with_the_verdict(
    marker: Watermarker, marked: Samples, found: Detection
) -> None:
    verdict = marker.verify(marked, RATE, key=KEY, payload=PAYLOAD)
    assert (verdict.present, verdict.presence) == (found.present, found.presence)
    assert (verdict.threshold, verdict.spans) == (found.threshold, found.spans)


def test_the_spans_of_a_recording_end_with_it(marker: Watermarker, clip: Samples) -> None:
    for frames in (32_000, 32_001, 32_319):
        marked = marker.embed(clip[:frames], RATE, key=KEY, payload=PAYLOAD, position=0)
        spans = marker.detect(marked, RATE).spans
        assert spans
        assert spans[-1].end_s <= frames / RATE


@pytest.mark.parametrize(
    "order",
    [
        ("flite-rms", "speech", "espeak-ng-gb"),
        ("espeak-ng-gb", "flite-rms", "speech"),
        ("speech", "espeak-ng-gb", "flite-rms"),
    ],
    ids=lambda order: order[1],
)
def test_a_marked_sentence_is_found_between_unmarked_ones(
    marker: Watermarker, clips: dict[str, Samples], order: tuple[str, str, str]
) -> None:
    before, sentence, after = (clips[name][: int(3.5 * RATE)] for name in order)
    marked = marker.embed(sentence, RATE, key=KEY, payload=PAYLOAD, position=0)
    found = marker.detect(np.concatenate([before, marked, after]), RATE)
    (span,) = found.spans
    assert span.start_s == pytest.approx(3.5, abs=0.25)
    assert span.end_s == pytest.approx(7.0, abs=0.4)
    verdict = marker.attribute(found, key=KEY, payload=PAYLOAD)
    assert verdict.verified
    assert (verdict.distance, verdict.marks) == (0, 1)


def test_a_stretch_cut_out_anywhere_verifies(marker: Watermarker, marked: Samples) -> None:
    for start in (0, 1_234, 9_999, 20_001):
        piece = marked[start : start + 2 * RATE]
        assert marker.verify(piece, RATE, key=KEY, payload=PAYLOAD).verified, start


# The package


def test_public_names_are_exported_once() -> None:
    names = keybound.__all__
    assert len(names) == len(set(names))
    assert names == sorted(names)
    public = {
        name
        for name in dir(keybound)
        if not name.startswith("_") and not isinstance(getattr(keybound, name), types.ModuleType)
    }
    assert public == set(names)


def test_the_functions_are_the_methods_of_the_shipped_model(
    marker: Watermarker, clip: Samples, marked: Samples
) -> None:
    own = keybound.embed(clip, RATE, key=KEY, payload=PAYLOAD, position=0, nonce=b"n")
    np.testing.assert_array_equal(
        own, marker.embed(clip, RATE, key=KEY, payload=PAYLOAD, position=0, nonce=b"n")
    )
    verdict = keybound.verify(own, RATE, key=KEY, payload=PAYLOAD, nonce=b"n")
    assert verdict == marker.verify(own, RATE, key=KEY, payload=PAYLOAD, nonce=b"n")
    assert keybound.detect(marked, RATE).presence == marker.detect(marked, RATE).presence


# Recorded speech


@pytest.fixture(scope="module")
def recorded() -> list[Samples]:
    """The first second of forty recordings, each of another speaker."""
    files = sorted(RECORDED.glob("*.flac"))[:40]
    if len(files) < 40:
        pytest.skip("no recorded speech in ../shared/speech/test")
    return [sf.read(file, frames=RATE, dtype="float32")[0] for file in files]


def test_one_second_of_recorded_speech(marker: Watermarker, recorded: list[Samples]) -> None:
    right, wrong, passed = [], [], []
    for index, host in enumerate(recorded):
        key, payload = Key(bytes([index]) * 32), 0x1234 * index & 0xFFFF
        marked = marker.embed(host, RATE, key=key, payload=payload, position=0, check=False)
        found = marker.detect(marked, RATE)
        right.append(1 - marker.attribute(found, key=key, payload=payload).distance / 16)
        for other in range(10):
            key = Key(bytes([100 + index, other]) * 16)
            verdict = marker.attribute(found, key=key, payload=payload)
            wrong.append(1 - verdict.distance / 16)
            passed.append(verdict.verified)
    assert np.mean(right) >= 0.99
    assert np.mean(wrong) == pytest.approx(0.5, abs=0.03)
    assert np.mean(passed) <= 0.01
