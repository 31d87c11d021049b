"""The frame: what a second carries, and how it is read at any cut and under noise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keybound.identity import frame

blocks = st.integers(0, 2**64 - 1)


def soft(codes: frame.Bits, noise: float, seed: int) -> frame.Doubles:
    """Return codes as ±1 with noise."""
    return 2.0 * codes - 1 + noise * np.random.default_rng(seed).standard_normal(codes.shape)


@given(blocks, st.integers(-100, 100), st.integers(-100, 100))
def test_rotations_add_up_and_recur(block: int, one: int, two: int) -> None:
    assert frame.rotated(frame.rotated(block, one), two) == frame.rotated(block, one + two)
    assert frame.rotated(block, frame.PERIOD) == block


@given(blocks, st.integers(0, 40))
def test_the_matrix_gives_the_codes(block: int, first: int) -> None:
    bits = np.array([int(bit) for bit in f"{frame.rotated(block, first):064b}"])
    period = (frame.matrix().astype(int) @ bits % 2).reshape(frame.PERIOD, frame.BITS)
    np.testing.assert_array_equal(frame.codes(block, first, frame.PERIOD), period)


def test_any_four_seconds_give_the_whole_block() -> None:
    """And the number of the seed is the first for which they do."""
    assert _rank(frame.matrix()[: 4 * frame.BITS]) == 64


def _rank(rows: np.ndarray) -> int:
    inverse, chosen = frame._surest(rows.astype(np.uint8), np.arange(len(rows)))
    np.testing.assert_array_equal(rows[chosen] @ inverse % 2, np.eye(len(chosen)))
    return len(chosen)


@settings(max_examples=30, deadline=None)
@given(blocks, st.integers(0, 1000), st.integers(4, 50))
def test_a_clean_excerpt_of_any_beginning_is_read(block: int, first: int, seconds: int) -> None:
    best = frame.spelled(soft(frame.codes(block, first, seconds), 0.0, 0))[0]
    assert best.block == frame.rotated(block, first)
    assert best.fit == pytest.approx(1.0)


@pytest.mark.parametrize(("seconds", "noise"), [(6, 0.5), (10, 0.75), (20, 1.0), (64, 1.3)])
def test_a_noisy_excerpt_is_read(seconds: int, noise: float) -> None:
    """A bit in 44, 11, 6 and 4.5 is wrong here."""
    for seed in range(10):
        block = int(np.random.default_rng(seed).integers(2**63))
        read = frame.spelled(soft(frame.codes(block, 5, seconds), noise, seed))
        assert read[0].block == frame.rotated(block, 5)
        assert [one.fit for one in read] == sorted((one.fit for one in read), reverse=True)


def test_seconds_that_were_not_heard_do_not_matter() -> None:
    block = 0x0123456789ABCDEF
    heard = soft(frame.codes(block, 0, 12), 0.3, 1)
    heard[[1, 4, 5, 9, 11]] = 0.0
    assert frame.spelled(heard)[0].block == block


@pytest.mark.parametrize("seconds", [0, 1, 3])
def test_too_few_seconds_spell_nothing(seconds: int) -> None:
    assert frame.spelled(soft(frame.codes(5, 0, seconds), 0.0, 0)) == []
    assert frame.spelled(np.zeros((10, frame.BITS))) == []


def test_noise_fits_worse_than_a_mark_of_which_one_bit_in_ten_is_wrong() -> None:
    noise = [frame.spelled(soft(np.full((10, 16), 0.5), 1.0, n))[0].fit for n in range(20)]
    marks = [frame.spelled(soft(frame.codes(n, 0, 10), 0.8, n))[0].fit for n in range(20)]
    assert max(noise) < min(marks)
