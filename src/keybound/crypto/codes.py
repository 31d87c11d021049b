"""Payload, mask and code, and how much a match between decoded bits and a payload proves.

A payload is an int. A bit array is a numpy uint8 array of shape (bits,) that holds 0 and 1, most
significant bit first; masks, codes and decoded payloads are bit arrays. No audio and no networks:
logits come in as a plain array, already pooled over frames. Nothing here is random.
"""

import math
import operator

import numpy as np
import numpy.typing as npt

from keybound.crypto.keys import Key
from keybound.errors import CodeError

Bits = npt.NDArray[np.uint8]

MAX_BITS = 256
MASK_LABEL = "keybound-1/mask"


def mask(key: Key, bits: int, nonce: bytes = b"") -> Bits:
    """Derive the mask: the first `bits` bits that the key gives under the mask label.

    The empty nonce is the fixed mask of the paper. Another nonce gives an unrelated mask, and
    the verifier needs the same one. A shorter mask is a prefix of a longer one.
    """
    bits = check_bits(bits)
    check_secret(key, nonce)
    data = key.derive(MASK_LABEL, (bits + 7) // 8, nonce)
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8))[:bits]


def to_bits(payload: int, bits: int) -> Bits:
    """Write a payload as a bit array, most significant bit first."""
    payload = check_payload(payload, bits)
    data = payload.to_bytes((bits + 7) // 8, "big")
    # The bytes are filled from the right, so what is left over stands at the front.
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8))[-bits:]


def from_bits(array: npt.ArrayLike) -> int:
    """Read a bit array as a payload, most significant bit first."""
    return int("".join("1" if bit else "0" for bit in _check_array(array)), 2)


def encode(payload: int, key: Key, bits: int, nonce: bytes = b"") -> Bits:
    """Return the code, payload XOR mask: what the networks see of a payload."""
    return to_bits(payload, bits) ^ mask(key, bits, nonce)


def decode(logits: npt.ArrayLike, key: Key, nonce: bytes = b"") -> Bits:
    """Read the payload from pooled logits of the code, one for each bit.

    Flips the sign of each logit whose mask bit is set; a logit above zero then is a 1. The
    wrong key, or the wrong nonce, gives bits at chance.
    """
    values = np.asarray(logits, dtype=np.float64)  # (bits,)
    if values.ndim != 1:
        raise CodeError(f"logits have shape {values.shape}, not (bits,)", hint="pool over frames")
    if np.isnan(values).any():
        raise CodeError("logits hold values that are not numbers")
    signs = 1.0 - 2.0 * mask(key, len(values), nonce)
    return (values * signs > 0).astype(np.uint8)


def distance(a: npt.ArrayLike, b: npt.ArrayLike) -> int:
    """Count the bits in which two bit arrays differ (the Hamming distance)."""
    first, second = _check_array(a), _check_array(b)
    if first.shape != second.shape:
        raise CodeError(f"bit arrays differ in length: {len(first)} and {len(second)}")
    return int(np.count_nonzero(first != second))


def bound(bits: int, rho: int) -> float:
    """Return beta(bits, rho): the probability that a wrong key is accepted, at most.

    The share of all bit arrays that lie at most `rho` bits from a payload. It is computed in
    integers and rounded once, to the nearest float.
    """
    check_rho(bits, rho)
    return sum(math.comb(bits, i) for i in range(rho + 1)) / (1 << bits)


def tolerance(bits: int) -> int:
    """Return the most wrong bits at which a random payload passes no oftener than with 2 of 16.

    That is 2.1e-3 for 2 of 16; so 0 of 10 bits (9.8e-4), 10 of 40 (1.1e-3).
    """
    return max((rho for rho in range(bits) if bound(bits, rho) <= bound(16, 2)), default=0)


def corrected(bound: float, tries: int) -> float:
    """Return the probability that at least one of `tries` wrong keys is accepted.

    This is 1 - (1 - bound)^tries, for parties with keys of their own. Where their bounds
    differ, give the largest: the result then is an upper limit.
    """
    if not 0.0 <= bound <= 1.0:
        raise CodeError(f"a bound lies between 0 and 1, and {bound} does not")
    if check_integer("tries", tries, "the number of parties") < 1:
        raise CodeError(f"a bound is corrected for 1 or more tries, not {tries}")
    # Written out, 1 - bound would drop every bound below 1e-16.
    return 1.0 if bound == 1.0 else -math.expm1(tries * math.log1p(-bound))


def check_bits(bits: int) -> int:
    """Return a number of bits; raise `CodeError` for one that no code has."""
    if not 1 <= operator.index(bits) <= MAX_BITS:
        raise CodeError(f"a code has 1 to {MAX_BITS} bits, not {bits}")
    return operator.index(bits)


def check_payload(payload: int, bits: int) -> int:
    """Return a payload; raise `CodeError` where it does not fit in `bits` bits."""
    limit = 1 << check_bits(bits)
    hint = f"a payload of {bits} bits lies between 0 and {limit - 1:#x}"
    payload = check_integer("payload", payload, hint)
    if not 0 <= payload < limit:
        raise CodeError(f"payload {payload:#x} does not fit in {bits} bits", hint=hint)
    return payload


def check_rho(bits: int, rho: int) -> int:
    """Return a number of wrong bits; raise `CodeError` for one below 0 or above `bits`."""
    hint = f"rho and distances lie between 0 and {check_bits(bits)}"
    rho = check_integer("rho", rho, hint)
    if not 0 <= rho <= bits:
        raise CodeError(f"{rho} wrong bits of {bits} cannot be", hint=hint)
    return rho


def check_integer(name: str, value: int, hint: str) -> int:
    """Return an argument as an integer; raise `CodeError` for what is none, bools included."""
    try:
        if not isinstance(value, (bool, np.bool_)):
            return operator.index(value)
    except TypeError:
        pass
    raise CodeError(f"{name} must be an integer, not {value!r}", hint=hint)


def check_secret(key: Key, nonce: bytes = b"") -> None:
    """Raise `CodeError` for what is not a key or a nonce, without showing it."""
    if not isinstance(key, Key):
        hint = "Key.read and Key.parse give one, Key.generate makes a new one"
        raise CodeError(f"key must be a keybound.Key, not {type(key).__name__}", hint=hint)
    if not isinstance(nonce, bytes):
        hint = "text can be turned into them with encode"
        raise CodeError(f"nonce must be bytes, not {nonce!r}", hint=hint)


def _check_array(array: npt.ArrayLike) -> Bits:
    values = np.asarray(array)
    if values.ndim != 1 or not np.isin(values, (0, 1)).all():
        raise CodeError("a bit array has one dimension and holds only 0 and 1")
    check_bits(len(values))
    return values.astype(np.uint8)
