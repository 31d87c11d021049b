"""How much evidence unmarked speech holds: peaks, and the fit that extends to other lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keybound.model import tail
from keybound.model.detection import stretches


@given(st.lists(st.integers(0, 8), min_size=1, max_size=200))
def test_the_highest_peak_is_what_the_strongest_stretch_holds(eighths: list[int]) -> None:
    chance = np.array(eighths, np.float32) / 8
    most, _ = stretches(chance, 0.02, 1e9)
    assert tail.peaks(chance, 0.02).max(initial=0) == pytest.approx(most)


def test_the_fit_finds_an_exponential_tail_and_the_worst_attack() -> None:
    rng = np.random.default_rng(0)
    negatives = [
        tail.Negative("clean", (0.01,) * 9, 1000.0),
        tail.Negative("mild", tuple(rng.exponential(0.05, 500)), 1000.0),
        tail.Negative("harsh", tuple(rng.exponential(0.1, 400)), 1000.0),
    ]
    fitted = tail.fit(negatives)
    assert 0.1 <= fitted.scale_s <= 0.16  # 0.1, and caution
    beyond = np.mean(
        [rng.exponential(0.1, rng.poisson(400)).max() > fitted.threshold(1000) for _ in range(3000)]
    )
    assert beyond <= 0.01


def test_the_excess_holds_several_views_to_the_rate_of_one() -> None:
    rng = np.random.default_rng(0)
    mild, harsh = rng.exponential(0.03, 1000), rng.exponential(0.12, 1000)
    negatives = [
        tail.Negative("mild", (), 1000.0, tuple(mild)),
        tail.Negative("harsh", (), 1000.0, tuple(harsh)),
    ]
    excess = tail.fit_excess(negatives)
    assert 0.12 <= excess <= 0.2  # and caution
    views = rng.exponential(0.12, (100_000, 3))
    threshold = np.quantile(views, 0.98)
    assert np.mean(views.max(axis=1) >= threshold + excess * np.log(3)) <= 0.02
    assert tail.fit_excess([tail.Negative("clean", (), 9.0, (0.1,) * 9)]) == tail.LEAST_EXCESS


def test_the_fit_of_hardly_anything_is_still_one() -> None:
    assert tail.fit([tail.Negative("clean", (), 60.0)]).threshold(3600) > 0.2
    one = tail.fit([tail.Negative("clean", (0.04,), 60.0)])
    assert one.threshold(3600) > one.threshold(60) > 0.04
