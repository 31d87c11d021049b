"""Identifiers: a serial with a check, encrypted as one block that the codes of a recording spell.

A keyed identifier is encrypted under a key of a registry: whoever has none learns neither serial
nor record. A public one is encrypted under the published key and names its issuer: anyone reads it,
and anyone can write one. The block itself can be read, linked between copies and copied by anyone.
Knows keys and numbers: no audio, no detections.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from keybound.crypto.codes import Bits, check_integer
from keybound.crypto.keys import Key
from keybound.errors import CodeError
from keybound.identity.frame import KEYED, PUBLIC, Frame
from keybound.identity.permutation import Permutation

SERIAL_BITS = 40
ISSUER_BITS = 16
CHECK_BITS = KEYED.block_bits - SERIAL_BITS  # zeros beside the serial, before it is encrypted
PUBLIC_CHECK_BITS = PUBLIC.block_bits - SERIAL_BITS - ISSUER_BITS
PUBLIC_LABEL = "keybound-1/public-identifier"
PUBLISHED = Key(hashlib.sha256(b"keybound public identifiers").digest())


@dataclass(frozen=True)
class Identifier:
    """What the codes of a recording spell: an encrypted block, and how it is spread."""

    block: int
    frame: Frame = KEYED

    def codes(self, first: int, count: int) -> Bits:
        """Return the codes of some seconds of the recording: (count, bits)."""
        return self.frame.codes(self.block, first, count)

    def of_blocks(self, blocks: npt.NDArray[np.int64], block_s: float) -> Bits:
        """Return the code of each block of samples of the recording: (blocks, bits)."""
        seconds = np.maximum(0, np.floor((blocks + 0.5) * block_s)).astype(np.int64)
        first = int(seconds.min())
        own: Bits = self.codes(first, int(seconds.max()) - first + 1)[seconds - first]
        return own


class Opened(NamedTuple):
    """What a block holds: a serial; the number of the key, or the issuer of a public one."""

    serial: int
    key: int | None
    issuer: int | None


def draw() -> int:
    """Return a random serial."""
    return secrets.randbits(SERIAL_BITS)


def written(serial: int) -> str:
    """Return a serial as people see it: ten hex digits."""
    return f"{serial:0{SERIAL_BITS // 4}x}"


def keyed(serial: int, key: Permutation | Key) -> Identifier:
    """Return the identifier of a serial under a key of a registry, or under its permutation."""
    own = Permutation(key) if isinstance(key, Key) else key
    return Identifier(own.encrypt(check_serial(serial) << CHECK_BITS))


def public(serial: int, issuer: int) -> Identifier:
    """Return the public identifier of a serial of an issuer."""
    told = check_serial(serial) << ISSUER_BITS | check_issuer(issuer)
    return Identifier(published().encrypt(told << PUBLIC_CHECK_BITS), PUBLIC)


@cache
def published() -> Permutation:
    """Return the permutation of public identifiers, whose key is published."""
    return Permutation(PUBLISHED, PUBLIC.block_bits, PUBLIC_LABEL)


def opened(block: int, frame: Frame, keys: Sequence[Permutation]) -> list[Opened]:
    """Return what a block holds under each key, where the check holds; public ones need none."""
    if frame == PUBLIC:
        told, check = divmod(published().decrypt(block), 1 << PUBLIC_CHECK_BITS)
        serial, issuer = divmod(told, 1 << ISSUER_BITS)
        return [Opened(serial, None, issuer)] if check == 0 else []
    found = []
    for number, key in enumerate(keys):
        serial, check = divmod(key.decrypt(block), 1 << CHECK_BITS)
        if check == 0:
            found.append(Opened(serial, number, None))
    return found


def check_serial(serial: int) -> int:
    """Return a serial; raise `CodeError` for a number that is none."""
    return _checked("serial", serial, SERIAL_BITS)


def check_issuer(issuer: int) -> int:
    """Return the number of an issuer; raise `CodeError` for a number that is none."""
    return _checked("issuer", issuer, ISSUER_BITS)


def _checked(what: str, number: int, bits: int) -> int:
    hint = f"from 0 to {(1 << bits) - 1}"
    number = check_integer(what, number, hint)
    if not 0 <= number < 1 << bits:
        raise CodeError(f"{what} {number} does not exist", hint=hint)
    return number
