"""A keyed permutation of 64 bits: what an identifier is encrypted with.

A Feistel network of twelve rounds over HMAC-SHA256. Two blocks show nothing in common, and one
known block opens no other. Knows keys and numbers: no audio, no codes.
"""

import hmac

from keybound.crypto.keys import Key
from keybound.errors import CodeError

LABEL = "keybound-1/identifier"
BLOCK_BITS = 64
HALF_BITS = BLOCK_BITS // 2
ROUNDS = 12
_HALF = (1 << HALF_BITS) - 1


class Permutation:
    """The permutation of a key: `encrypt` and `decrypt` are inverse to each other."""

    def __init__(self, key: Key) -> None:
        self._secret = key.derive(LABEL, 32)

    def encrypt(self, block: int) -> int:
        """Return the encrypted block."""
        left, right = _halves(block)
        for number in range(ROUNDS):
            left, right = right, left ^ self._round(number, right)
        return left << HALF_BITS | right

    def decrypt(self, block: int) -> int:
        """Return the block that was encrypted."""
        left, right = _halves(block)
        for number in reversed(range(ROUNDS)):
            left, right = right ^ self._round(number, left), left
        return left << HALF_BITS | right

    def _round(self, number: int, half: int) -> int:
        told = bytes([number]) + half.to_bytes(HALF_BITS // 8, "big")
        return int.from_bytes(hmac.digest(self._secret, told, "sha256")[: HALF_BITS // 8], "big")


def _halves(block: int) -> tuple[int, int]:
    if not 0 <= block < 1 << BLOCK_BITS:
        raise CodeError(f"a block has {BLOCK_BITS} bits", hint="a number from 0 to 2^64 - 1")
    return block >> HALF_BITS, block & _HALF
