"""The permutation of blocks: inverse, keyed, with known values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keybound.crypto.keys import Key
from keybound.errors import CodeError
from keybound.identity.permutation import Permutation

FIRST, SECOND = (Permutation(Key(bytes([n]) * 32)) for n in (1, 2))
WIDE = Permutation(Key(bytes([1]) * 32), 96, "test")
blocks = st.integers(0, 2**64 - 1)


@given(blocks)
def test_what_is_encrypted_is_decrypted(block: int) -> None:
    assert FIRST.decrypt(FIRST.encrypt(block)) == FIRST.encrypt(FIRST.decrypt(block)) == block
    assert FIRST.encrypt(block) != SECOND.encrypt(block)


@given(st.integers(0, 2**96 - 1))
def test_wide_blocks_too(block: int) -> None:
    assert WIDE.decrypt(WIDE.encrypt(block)) == WIDE.encrypt(WIDE.decrypt(block)) == block
    assert 0 <= WIDE.encrypt(block) < 2**96


@given(blocks, st.integers(0, 63))
def test_one_bit_changes_about_half_of_them(block: int, bit: int) -> None:
    changed = FIRST.encrypt(block) ^ FIRST.encrypt(block ^ 1 << bit)
    assert 8 < changed.bit_count() < 56  # chance: 1e-9 to be outside


def test_known_values() -> None:
    known = [0x656D513391AA70B8, 0xA86CF06E1A751BE7, 0x73B91406F88929F7]
    assert [FIRST.encrypt(block) for block in (0, 1, 2**64 - 1)] == known


@pytest.mark.parametrize("block", [-1, 2**64])
def test_other_numbers_are_refused(block: int) -> None:
    with pytest.raises(CodeError, match="a block has 64 bits"):
        FIRST.encrypt(block)
