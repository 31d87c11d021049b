"""What users ask for: the excerpt to be attributable, the rate of false alarms, other speeds."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from keybound.crypto.keys import Key
from keybound.errors import KeyBoundError, ModelError
from keybound.model.detection import Tail, weigh
from keybound.model.networks import SHIPPED, read_card
from keybound.watermark.options import DetectOptions, EmbedOptions
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]

KEY, PAYLOAD, RATE = Key(bytes(range(32))), 0x5EED, 16_000
WHOSE: dict[str, Any] = {"key": KEY, "payload": PAYLOAD, "position": 0}
TAIL = Tail(above_s=0.2, rate_hz=0.05, scale_s=0.25)


@pytest.fixture(scope="module")
def speech(clips: dict[str, Samples]) -> Samples:
    """Return five seconds of speech."""
    return np.concatenate(list(clips.values()))[: 5 * RATE]


def energy(marker: Watermarker, host: Samples, **how: Any) -> float:
    marked = marker.embed(host, RATE, **WHOSE, seal=True, check=False, **how)
    return float(np.sum(np.square(marked.astype(np.float64) - host)))


# Excerpts


def card_with(folder: Path, strengths: object) -> Path:
    """Copy the shipped card with other strengths."""
    card = json.loads((SHIPPED / "card.json").read_text())
    card["strengths"] = strengths
    (folder / "card.json").write_text(json.dumps(card))
    return folder


def test_the_strength_of_an_excerpt_lies_between_those_on_the_card(tmp_path: Path) -> None:
    card = read_card(card_with(tmp_path, [[1, 1.0], [3, 0.6], [10, 0.4]]))
    assert [card.strength_of(s) for s in (0.2, 1, 3, 10, 60)] == [1.0, 1.0, 0.6, 0.4, 0.4]
    assert card.strength_of(3**0.5) == pytest.approx(0.8)


@pytest.mark.parametrize("wrong", [[], [[3, 0.6], [1, 1.0]], [[1, 0.0]], [[1]], [["a", 1]], 1])
def test_strengths_that_are_none_are_refused(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(ModelError, match="is not a model card"):
        read_card(card_with(tmp_path, wrong))


def test_a_mark_for_longer_excerpts_is_quieter_and_is_read(
    marker: Watermarker, speech: Samples
) -> None:
    powers = [energy(marker, speech, excerpt=s) for s in (1.0, 3.0, 10.0)]
    assert powers[0] > powers[1] > powers[2] == energy(marker, speech, excerpt=5.0) > 0
    assert energy(marker, speech) == powers[1]
    marked = marker.embed(speech, RATE, **WHOSE, excerpt=3.0)
    assert marker.verify(marked[RATE : 4 * RATE], RATE, key=KEY, payload=PAYLOAD).verified


def test_a_short_recording_is_marked_for_its_own_length(
    marker: Watermarker, speech: Samples
) -> None:
    short = speech[: RATE + RATE // 2]
    assert energy(marker, short, excerpt=60.0) == energy(marker, short, excerpt=1.5)


@settings(max_examples=5, deadline=None)
@given(excerpt=st.floats(0.5, 5.0), sizes=st.lists(st.integers(1, 9_000), min_size=1, max_size=9))
def test_a_stream_is_marked_as_an_array_is(
    marker: Watermarker, speech: Samples, excerpt: float, sizes: list[int]
) -> None:
    whole = marker.embed(speech, RATE, **WHOSE, excerpt=excerpt, check=False)
    stream = marker.embedder(RATE, EmbedOptions(KEY, PAYLOAD, position=0, excerpt=excerpt))
    cuts = [0, *np.minimum(np.cumsum(sizes), len(speech)).tolist()]
    parts = [stream.push(speech[a:b]) for a, b in pairwise(cuts)]
    made = np.concatenate([*parts, stream.flush(speech[cuts[-1] :])])
    np.testing.assert_allclose(made, whole, atol=1e-6)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_an_excerpt_that_is_none_is_refused(marker: Watermarker, seconds: float) -> None:
    with pytest.raises(KeyBoundError, match="an excerpt cannot have"):
        marker.embedder(RATE, EmbedOptions(KEY, PAYLOAD, excerpt=seconds))
    with pytest.raises(KeyBoundError, match="an excerpt cannot have"):
        marker.embed(np.zeros(RATE, np.float32), RATE, **WHOSE, excerpt=seconds)


# False alarms


@given(st.floats(3.0, 1e5), st.floats(1e-6, 1e-2), st.floats(1e-6, 1e-2))
def test_rarer_false_alarms_ask_for_more_evidence(length_s: float, one: float, two: float) -> None:
    less, more = sorted((one, two))
    assert TAIL.threshold(length_s, less) >= TAIL.threshold(length_s, more)
    # The tail itself says how often an unmarked recording reaches the threshold.
    above = TAIL.threshold(length_s, less) - TAIL.above_s
    reached = 1 - np.exp(-TAIL.rate_hz * length_s * np.exp(-above / TAIL.scale_s))
    assert reached <= less * 1.001


def flat(seconds: float, presence: float, **how: Any) -> Any:
    """Judge a recording whose frames are all alike."""
    frames = round(seconds / 0.02)
    logits = np.zeros((frames, 16), np.float32)
    level = np.full(frames, np.log(presence / (1 - presence)), np.float32)
    return weigh(level, logits, 0.02, seconds, threshold=0.45, tail=TAIL, **how)


def test_mean_presence_is_for_short_recordings_and_the_most_false_alarms() -> None:
    assert flat(2.9, 0.48, false_alarms=1e-4).present  # no evidence, but presence
    assert flat(2.9, 0.48, false_alarms=1e-4).false_alarms == 1e-2
    assert not flat(3.0, 0.48, false_alarms=1e-4).present
    assert flat(3.0, 0.98, false_alarms=1e-4).present
    assert flat(3.0, 0.98, false_alarms=1e-4).false_alarms == 1e-4


def test_the_rate_that_was_asked_for_is_the_one_of_the_answer(
    marker: Watermarker, speech: Samples
) -> None:
    found = [marker.detect(speech, RATE, false_alarms=rate) for rate in (1e-2, 1e-4, 1e-6)]
    assert [one.false_alarms for one in found] == [1e-2, 1e-4, 1e-6]
    least = [one.evidence_threshold_s for one in found]
    assert least[0] < least[1] < least[2]
    assert marker.detect(speech, RATE).false_alarms == 1e-3
    verdict = marker.verify(speech, RATE, key=KEY, payload=PAYLOAD, false_alarms=1e-5)
    assert verdict.false_alarms == 1e-5


@pytest.mark.parametrize("rate", [0.0, 1e-7, 0.02, -1.0, float("nan")])
def test_rates_that_cannot_be_held_are_refused(
    marker: Watermarker, speech: Samples, rate: float
) -> None:
    with pytest.raises(KeyBoundError, match="false alarms cannot be held to"):
        marker.detect(speech, RATE, false_alarms=rate)


# Speeds


@given(st.just(0.0) | st.floats(0.001, 0.1))
def test_speeds_reach_as_far_as_was_asked_in_small_steps(most: float) -> None:
    speeds = DetectOptions(speed=most).speeds
    assert speeds[0] == 1.0
    ordered = np.sort(speeds)
    assert np.all(np.diff(ordered) > 0)
    assert np.all(np.diff(ordered) < 0.0251)
    assert ordered[0] == pytest.approx(1 - most)
    assert ordered[-1] == pytest.approx(1 + most)


@pytest.mark.parametrize("faster", [0.9, 1.1])
def test_a_recording_played_at_another_speed_is_read(
    marker: Watermarker, speech: Samples, faster: float
) -> None:
    marked = marker.embed(speech, RATE, key=KEY, payload=PAYLOAD, seal=False)
    played = np.interp(
        np.arange(0, len(marked) - 1, faster), np.arange(len(marked)), marked
    ).astype(np.float32)
    found = marker.detect(played, RATE, speed=0.1)
    assert (found.speed, found.speeds_tried) == (pytest.approx(faster, abs=0.026), 9)
    assert found.evidence_threshold_s > marker.detect(played, RATE).evidence_threshold_s
    assert found.spans[-1].end_s <= len(played) / RATE
    verdict = marker.attribute(found, key=KEY, payload=PAYLOAD)
    assert verdict.rule_holds
    assert verdict.distance == 0


def test_at_its_own_speed_a_recording_is_read_at_it(marker: Watermarker, speech: Samples) -> None:
    marked = marker.embed(speech, RATE, **WHOSE)
    found = marker.detect(marked, RATE, speed=0.05)
    assert found.speed == pytest.approx(1.0, abs=0.026)
    assert marker.verify(marked, RATE, key=KEY, payload=PAYLOAD, speed=0.05).grade == "sealed"


def test_a_speed_beyond_a_tenth_is_refused(marker: Watermarker, speech: Samples) -> None:
    with pytest.raises(KeyBoundError, match=r"speeds cannot differ by 0\.2"):
        marker.detect(speech, RATE, speed=0.2)
