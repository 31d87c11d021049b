"""Frames become spans, marks and presence: what is claimed follows from what was heard."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from keybound.model.detection import (
    FALSE_ALARMS,
    MOST_MARKS,
    SHORT_S,
    Stretch,
    Tail,
    gather,
    pool,
    split,
    stretches,
    weigh,
)
from keybound.types import Span

Samples = NDArray[Any]

FRAME_S = 0.02
TAIL = Tail(above_s=0.2, rate_hz=0.05, scale_s=0.15)
relaxed = settings(max_examples=60, deadline=None)

# Pooling

numbers = st.floats(-20, 20, width=32)


@relaxed
@given(st.data(), st.integers(1, 40), st.integers(1, 16))
def test_pooling_is_the_mean_weighted_by_the_softmax_of_presence(
    data: st.DataObject, frames: int, bits: int
) -> None:
    presence = data.draw(st.lists(numbers, min_size=frames, max_size=frames))
    flat = data.draw(st.lists(numbers, min_size=frames * bits, max_size=frames * bits))
    logits = np.array(flat).reshape(frames, bits)
    weights = [np.exp(p) / sum(np.exp(q) for q in presence) for p in presence]
    expected = [
        sum(w * row[bit] for w, row in zip(weights, logits, strict=True)) for bit in range(bits)
    ]
    pooled = pool(np.array(presence, np.float32), logits.astype(np.float32))
    assert pooled.shape == (bits,)
    np.testing.assert_allclose(pooled, expected, rtol=1e-4, atol=1e-4)


def test_pooling_survives_logits_of_any_size() -> None:
    presence = np.array([-1e4, 500.0, 500.0], np.float32)
    logits = np.array([[9.0], [1.0], [3.0]], np.float32)
    np.testing.assert_allclose(pool(presence, logits), [2.0])


# Stretches


def strongest(chance: Samples) -> float:
    """Try every stretch there is."""
    gains = (2 * chance.astype(np.float64) - 1) * FRAME_S
    walk = np.concatenate([[0], np.cumsum(gains)])
    return max(0.0, max(walk[b] - walk[a] for a in range(len(walk)) for b in range(a, len(walk))))


# Eighths add up exactly, so that evidence at the threshold is at the threshold.
chances = st.lists(st.integers(0, 8), min_size=1, max_size=120).map(lambda v: np.array(v) / 8)
runs = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 60)), min_size=1, max_size=6).map(
    lambda made: np.concatenate([np.full(n, v / 8) for v, n in made])
)


@relaxed
@given(st.one_of(chances, runs), st.floats(0.03, 1.0))
def test_stretches_are_in_order_apart_and_strong(chance: Samples, least_s: float) -> None:
    most, found = stretches(chance.astype(np.float32), FRAME_S, least_s)
    assert most <= strongest(chance) + 1e-9
    assert bool(found) == (strongest(chance) >= least_s + 1e-9) or most == pytest.approx(least_s)
    for start, stop in found:
        assert 0 <= start < stop <= len(chance)
        assert (2 * chance[start:stop] - 1).sum() * FRAME_S >= least_s - 1e-9
        assert chance[start] > 0.5
        assert chance[stop - 1] > 0.5
    for (_, stop), (start, _) in pairwise(found):
        lost = (1 - 2 * chance[stop:start]).sum() * FRAME_S
        assert lost >= least_s - 1e-9  # else it would be one stretch


@relaxed
@given(st.one_of(chances, runs))
def test_one_stretch_is_as_strong_as_any(chance: Samples) -> None:
    most, found = stretches(chance.astype(np.float32), FRAME_S, 1e9)
    assert most == pytest.approx(strongest(chance))
    assert found == []


@relaxed
@given(st.one_of(chances, runs))
def test_parts_are_trimmed_and_cut_at_pauses(chance: Samples) -> None:
    parts = split(chance.astype(np.float32), (0, len(chance)), FRAME_S)
    likely = set(np.flatnonzero(chance >= 0.5).tolist())
    if not likely:
        assert parts == [(0, len(chance))]
        return
    assert likely == {i for a, b in parts for i in range(a, b)} & likely
    for start, stop in parts:
        assert {start, stop - 1} <= likely
    for (_, stop), (start, _) in pairwise(parts):
        assert start - stop >= 25


def detect(chance: Samples, end_s: float | None = None, bits: int = 16) -> Any:
    presence = np.log(np.clip(chance, 1e-4, 1 - 1e-4) / (1 - np.clip(chance, 1e-4, 1 - 1e-4)))
    logits = np.ones((len(chance), bits), np.float32)
    length_s = len(chance) * FRAME_S
    return weigh(presence.astype(np.float32), logits, FRAME_S, end_s or length_s, 0.3, TAIL)


def test_nothing_and_everything() -> None:
    nothing = detect(np.zeros(200))
    assert (nothing.present, nothing.spans, nothing.marks) == (False, (), ())
    everything = detect(np.ones(200), end_s=3.99)
    assert everything.present
    (span,) = everything.spans
    assert (span.start_s, span.end_s, round(span.score, 3)) == (0.0, 3.99, 1.0)
    assert everything.evidence_s == pytest.approx(4.0, abs=0.01)


def test_a_short_recording_is_marked_if_its_mean_says_so() -> None:
    wavering = np.tile([0.9, 0.1, 0.1], 17)  # too little evidence in any stretch of it
    found = detect(wavering)
    assert found.evidence_s < found.evidence_threshold_s
    assert found.present
    assert len(found.spans) == 1
    vague = detect(np.full(50, 0.35))  # no frame is more likely marked than not
    assert vague.present
    assert (vague.spans[0].start_s, vague.spans[0].end_s) == (0.0, 1.0)


def test_evidence_of_a_short_recording_counts_from_where_it_does_in_three_seconds() -> None:
    tail = Tail(above_s=0.1, rate_hz=0.01, scale_s=0.1)
    least_s = tail.threshold(SHORT_S, FALSE_ALARMS)
    for share_s, marked in ((least_s - 0.1, False), (least_s + 0.1, True)):
        presence = np.full(50, -20.0, np.float32)
        presence[: round(share_s / FRAME_S)] = 20.0
        found = weigh(presence, np.zeros((50, 16)), FRAME_S, 1.0, 1.1, tail, 1e-2)
        assert found.present is marked
        assert found.evidence_threshold_s == pytest.approx(least_s)
        assert (found.evidence_s > tail.threshold(1.0), found.false_alarms) == (True, 1e-2)


def test_a_sentence_in_an_hour_is_found_where_it_is() -> None:
    hour = np.full(180_000, 0.01)
    hour[90_000:90_150] = 0.99
    found = detect(hour)
    (span,) = found.spans
    assert (span.start_s, span.end_s) == (pytest.approx(1800), pytest.approx(1803))
    assert found.present
    hour[90_000:90_050] = 0.01
    hour[90_100:90_150] = 0.01  # a second may be chance in an hour, though not in ten seconds
    assert not detect(hour).present
    assert detect(hour[89_800:90_300]).present


@pytest.mark.parametrize(("gap", "count"), [(1, 1), (24, 1), (25, 2), (120, 2), (5_000, 2)])
def test_a_gap_of_half_a_second_parts_two_spans(gap: int, count: int) -> None:
    chance = np.concatenate([np.ones(200), np.zeros(gap), np.ones(200)])
    spans = detect(chance).spans
    assert len(spans) == count
    assert spans[0].start_s == 0
    assert spans[-1].end_s == pytest.approx((400 + gap) * FRAME_S)


# The tail


def test_the_threshold_rises_with_the_logarithm_of_length() -> None:
    steps = [TAIL.threshold(10.0 ** (n + 1)) - TAIL.threshold(10.0**n) for n in range(1, 5)]
    assert steps == pytest.approx([TAIL.scale_s * np.log(10)] * 4)
    assert TAIL.threshold(1e-9) == TAIL.above_s


@pytest.mark.parametrize("length_s", [10, 300, 10_000])
def test_one_unmarked_recording_in_a_hundred_holds_more(length_s: float) -> None:
    rng = np.random.default_rng(0)
    count = rng.poisson(TAIL.rate_hz * length_s, 20_000)
    most = [TAIL.above_s + rng.exponential(TAIL.scale_s, n).max(initial=0) for n in count]
    assert np.mean(np.array(most) > TAIL.threshold(length_s)) == pytest.approx(0.01, abs=0.003)


# Marks


def marks_of(codes: list[Samples], lengths: list[int], noise: float = 0.0) -> Any:
    rng = np.random.default_rng(0)
    edges = np.cumsum([0, *lengths])
    parts: list[Stretch] = [(int(a), int(b)) for a, b in pairwise(edges)]
    logits = np.concatenate([np.tile(c, (n, 1)) for c, n in zip(codes, lengths, strict=True)])
    logits = (logits + noise * rng.standard_normal(logits.shape)).astype(np.float32)
    spans = [Span(a * FRAME_S, b * FRAME_S, 1.0) for a, b in parts]
    return gather(spans, parts, np.zeros(len(logits), np.float32), logits)


def test_spans_of_one_code_are_one_mark_and_others_their_own() -> None:
    rng = np.random.default_rng(1)
    one = rng.choice([-1.0, 1.0], 16)
    other = one * np.repeat([1.0, -1.0], 8)
    marks = marks_of([one, other, one, one], [40, 60, 200, 30], noise=2.0)
    assert [len(mark.spans) for mark in marks] == [3, 1]
    assert marks[0].spans[0].start_s == 0
    np.testing.assert_array_equal(marks[0].code_logits > 0, one > 0)
    np.testing.assert_array_equal(marks[1].code_logits > 0, other > 0)


def test_pooling_spans_reads_what_none_of_them_says_alone() -> None:
    one = np.random.default_rng(2).choice([-1.0, 1.0], 16)
    marks = marks_of([one] * 30, [25] * 30, noise=5.0)
    np.testing.assert_array_equal(marks[0].code_logits > 0, one > 0)
    assert len(marks[0].spans) > 20


def test_marks_are_not_without_number() -> None:
    rng = np.random.default_rng(3)
    codes = [rng.choice([-1.0, 1.0], 64) for _ in range(20)]
    assert len(marks_of(codes, [50] * 20)) == MOST_MARKS
