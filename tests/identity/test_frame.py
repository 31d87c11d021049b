"""The frame at both sizes of block: what a second carries, and how it is read at any cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keybound.identity import frame
from keybound.identity.frame import BITS, KEYED, PERIOD, PUBLIC, Frame

framed = st.sampled_from([KEYED, PUBLIC]).flatmap(
    lambda one: st.tuples(st.just(one), st.integers(0, 2**one.block_bits - 1))
)
both = pytest.mark.parametrize("own", [KEYED, PUBLIC])


def soft(codes: frame.Bits, noise: float, seed: int) -> frame.Doubles:
    """Return codes as ±1 with noise."""
    return 2.0 * codes - 1 + noise * np.random.default_rng(seed).standard_normal(codes.shape)


@given(framed, st.integers(-100, 100), st.integers(-100, 100))
def test_rotations_add_up_and_recur(pair: tuple[Frame, int], one: int, two: int) -> None:
    own, block = pair
    assert own.rotated(own.rotated(block, one), two) == own.rotated(block, one + two)
    assert own.rotated(block, PERIOD) == block


@given(framed, st.integers(0, 40))
def test_the_matrix_gives_the_codes(pair: tuple[Frame, int], first: int) -> None:
    own, block = pair
    bits = np.array([int(bit) for bit in f"{own.rotated(block, first):0{own.block_bits}b}"])
    period = (own.matrix.astype(int) @ bits % 2).reshape(PERIOD, BITS)
    np.testing.assert_array_equal(own.codes(block, first, PERIOD), period)


@both
def test_the_seed_is_the_first_with_which_as_few_seconds_as_can_be_give_the_block(
    own: Frame,
) -> None:
    name, _, number = own.seed.decode().rpartition(" ")
    for other in range(1, int(number)):
        rows = Frame(own.words, f"{name} {other}".encode(), own.order).matrix
        assert _rank(rows[: own.block_bits]) < own.block_bits
    assert _rank(own.matrix[: own.least_seconds * BITS]) == own.block_bits


def _rank(rows: np.ndarray) -> int:
    inverse, chosen = frame._surest(rows.astype(np.uint8), np.arange(len(rows)))
    np.testing.assert_array_equal(rows[chosen] @ inverse % 2, np.eye(len(rows[0]))[: len(chosen)])
    return len(chosen)


@settings(max_examples=30, deadline=None)
@given(framed, st.integers(0, 1000), st.integers(0, 44))
def test_a_clean_excerpt_of_any_beginning_is_read(
    pair: tuple[Frame, int], first: int, more: int
) -> None:
    own, block = pair
    codes = own.codes(block, first, own.least_seconds + more)
    best = own.spelled(soft(codes, 0.0, 0))[0]
    assert best.block == own.rotated(block, first)
    assert best.fit == pytest.approx(1.0)


@pytest.mark.parametrize(("seconds", "noise"), [(6, 0.5), (10, 0.75), (20, 1.0), (64, 1.3)])
@both
def test_a_noisy_excerpt_is_read(own: Frame, seconds: int, noise: float) -> None:
    """A bit in 44, 11, 6 and 4.5 is wrong here; a larger block needs half as much time again."""
    for seed in range(10):
        block = int(np.random.default_rng(seed).integers(2**63))
        codes = own.codes(block, 5, seconds * own.words // 2)
        read = own.spelled(soft(codes, noise, seed))
        assert read[0].block == own.rotated(block, 5)
        assert [one.fit for one in read] == sorted((one.fit for one in read), reverse=True)


@both
def test_seconds_that_were_not_heard_do_not_matter(own: Frame) -> None:
    block = 0x0123456789ABCDEF
    heard = soft(own.codes(block, 0, 18), 0.3, 1)
    heard[[1, 4, 5, 9, 11, 16]] = 0.0
    assert own.spelled(heard)[0].block == block


@both
def test_too_few_seconds_spell_nothing(own: Frame) -> None:
    for seconds in (0, 1, own.least_seconds - 1):
        assert own.spelled(soft(own.codes(5, 0, seconds), 0.0, 0)) == []
    few = soft(own.codes(5, 0, 20), 0.0, 0)
    few[own.least_seconds - 1 :] = 0.0
    assert own.spelled(few) == []
    assert own.spelled(np.zeros((10, BITS))) == []


def test_noise_fits_worse_than_a_mark_of_which_one_bit_in_ten_is_wrong() -> None:
    noise = [KEYED.spelled(soft(np.full((10, 16), 0.5), 1.0, n))[0].fit for n in range(20)]
    marks = [KEYED.spelled(soft(KEYED.codes(n, 0, 10), 0.8, n))[0].fit for n in range(20)]
    assert max(noise) < min(marks)
