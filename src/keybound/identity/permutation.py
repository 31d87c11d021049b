"""A keyed permutation of blocks: what an identifier is encrypted with.

A Feistel network of twelve rounds over HMAC-SHA256. Two blocks show nothing in common, and one
known block opens no other. Knows keys and numbers: no audio, no codes.
"""

import hashlib

from keybound.crypto.keys import Key
from keybound.errors import CodeError

LABEL = "keybound-1/identifier"
BLOCK_BITS = 64
ROUNDS = 12


class Permutation:
    """The permutation of a key under a label: `encrypt` and `decrypt` are inverse to each other."""

    def __init__(self, key: Key, bits: int = BLOCK_BITS, label: str = LABEL) -> None:
        self.bits = bits
        self._half_bytes = bits // 16
        # HMAC by its definition (RFC 2104), with what it hashes of the secret hashed but once:
        # thousands of blocks are opened of a recording.
        secret = key.derive(label, 32).ljust(hashlib.sha256().block_size, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in secret))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in secret))

    def encrypt(self, block: int) -> int:
        """Return the encrypted block."""
        left, right = self._halves(block)
        for number in range(ROUNDS):
            left, right = right, left ^ self._round(number, right)
        return left << self.bits // 2 | right

    def decrypt(self, block: int) -> int:
        """Return the block that was encrypted."""
        left, right = self._halves(block)
        for number in reversed(range(ROUNDS)):
            left, right = right ^ self._round(number, left), left
        return left << self.bits // 2 | right

    def _round(self, number: int, half: int) -> int:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(bytes([number]) + half.to_bytes(self._half_bytes, "big"))
        outer.update(inner.digest())
        return int.from_bytes(outer.digest()[: self._half_bytes], "big")

    def _halves(self, block: int) -> tuple[int, int]:
        if not 0 <= block < 1 << self.bits:
            hint = f"a number from 0 to 2^{self.bits} - 1"
            raise CodeError(f"a block has {self.bits} bits", hint=hint)
        return divmod(block, 1 << self.bits // 2)
