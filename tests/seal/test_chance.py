"""Bounds on sums of fair signs, against all signs there are and against many of chance."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keybound.seal import chance


@given(
    st.lists(st.floats(0.001, 10), min_size=1, max_size=10),
    st.floats(0, 1),
)
def test_the_bound_is_never_below_what_all_signs_give(weights: list[float], share: float) -> None:
    of = np.array(weights)
    sums = np.array(list(product((-1, 1), repeat=len(of)))) @ of
    total = share * float(of.sum())
    exact = float(np.mean(sums >= total * (1 - 1e-12)))
    assert chance.of_sum(of, total) >= exact * (1 - 1e-9)


@given(st.integers(0, 1000), st.floats(0, 4))
def test_the_bound_holds_for_many_weights(seed: int, z: float) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.standard_t(4, size=100)
    signs = rng.integers(0, 2, (4000, 100)) * 2 - 1
    total = z * float(np.sqrt(np.square(weights).sum()))
    seen = float(np.mean(signs @ weights >= total))
    bound = chance.of_sum(weights, total)
    assert seen <= bound + 4 * np.sqrt(bound / 4000) + 1e-3
    assert bound <= chance.of_z(z) * (1 + 1e-9)


@pytest.mark.parametrize("z", [4.0, 6.0, 9.0])
def test_many_small_weights_need_less_than_half(z: float) -> None:
    weights = np.random.default_rng(0).normal(size=16_000)
    total = z * float(np.sqrt(np.square(weights).sum()))
    assert 0.1 * chance.of_z(z) < chance.of_sum(weights, total) < 0.5 * chance.of_z(z)


def test_nothing_proves_nothing() -> None:
    assert chance.of_sum(np.zeros(0), 0.0) == 1
    assert chance.of_sum(np.zeros(5), 0.0) == 1
    assert chance.of_sum(np.ones(5), -1.0) == 1
    assert chance.of_sum(np.ones(1), 1.0) >= 0.5
    assert chance.of_sum(np.array([1e3, 1e-9]), 1e3) >= 0.5
