"""Payload, mask and code; the bound and the p-values."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.errors import CodeError

relaxed = settings(deadline=None)
keys = st.binary(min_size=32, max_size=32).map(Key)
nonces = st.binary(max_size=16)
sizes = st.integers(1, 256)
# (payload, bits)
payloads = sizes.flatmap(lambda bits: st.tuples(st.integers(0, 2**bits - 1), st.just(bits)))

KEY = Key(bytes(range(32)))


def bit_array(text: str) -> codes.Bits:
    return np.array([int(bit) for bit in text], dtype=np.uint8)


# Known answers: secret 00 01 ... 1f. Made with `openssl kdf ... HKDF`, as in test_keys.py, from
# INFO 0000000f "keybound-1/mask" 00000000, which gives 896216eb..., and by hand with
# hmac.new(secret, INFO + b"\x01", "sha256") for the nonce "clip-1", which gives 034e6cd9...


def test_mask_known_answers() -> None:
    assert codes.mask(KEY, 16).tolist() == bit_array("1000100101100010").tolist()  # 8962
    assert codes.mask(KEY, 11).tolist() == bit_array("10001001011").tolist()
    clip = codes.mask(KEY, 16, b"clip-1")
    assert clip.tolist() == bit_array("0000001101001110").tolist()  # 034e
    whole = "896216eb4e8e86a063b1f22adf623edde1a203eeecaad1bade548e89eafcdbb8"
    assert codes.from_bits(codes.mask(KEY, 256)) == int(whole, 16)


def test_code_known_answers() -> None:
    # 5eed = 0101 1110 1110 1101; XOR 8962 = d78f; XOR 034e = 5da3
    assert codes.encode(0x5EED, KEY, 16).tolist() == bit_array("1101011110001111").tolist()
    assert codes.from_bits(codes.encode(0x5EED, KEY, 16, b"clip-1")) == 0x5DA3


def test_decode_known_answer() -> None:
    logits = np.where(bit_array("1101011110001111") == 1, 0.5, -3.0)
    assert codes.from_bits(codes.decode(logits, KEY)) == 0x5EED


def test_bits_are_most_significant_first() -> None:
    assert codes.to_bits(0b110, 5).tolist() == [0, 0, 1, 1, 0]
    assert codes.to_bits(1, 9).tolist() == [0] * 8 + [1]
    assert codes.to_bits(1, 9).dtype == np.uint8
    assert codes.from_bits([1, 0, 0]) == 4


# Algebra


@relaxed
@given(payloads)
def test_bits_round_trip(case: tuple[int, int]) -> None:
    payload, bits = case
    array = codes.to_bits(payload, bits)
    assert array.shape == (bits,)
    assert codes.from_bits(array) == payload


@relaxed
@given(payloads, keys, nonces)
def test_encoding_twice_gives_the_payload_back(
    case: tuple[int, int], key: Key, nonce: bytes
) -> None:
    payload, bits = case
    code = codes.from_bits(codes.encode(payload, key, bits, nonce))
    assert codes.from_bits(codes.encode(code, key, bits, nonce)) == payload
    assert codes.from_bits(codes.encode(0, key, bits, nonce)) == codes.from_bits(
        codes.mask(key, bits, nonce)
    )


@relaxed
@given(payloads, keys, nonces, st.data())
def test_decode_undoes_encode(
    case: tuple[int, int], key: Key, nonce: bytes, data: st.DataObject
) -> None:
    payload, bits = case
    sizes = data.draw(st.lists(st.floats(1e-30, 1e30), min_size=bits, max_size=bits))
    signs = 2.0 * codes.encode(payload, key, bits, nonce) - 1.0
    decoded = codes.decode(signs * np.array(sizes), key, nonce)
    assert decoded.dtype == np.uint8
    assert codes.from_bits(decoded) == payload


@relaxed
@given(payloads, keys, st.data())
def test_each_wrong_logit_costs_one_bit(
    case: tuple[int, int], key: Key, data: st.DataObject
) -> None:
    payload, bits = case
    wrong = data.draw(st.sets(st.integers(0, bits - 1)))
    logits = 2.0 * codes.encode(payload, key, bits) - 1.0
    logits[list(wrong)] *= -1.0
    assert codes.distance(codes.decode(logits, key), codes.to_bits(payload, bits)) == len(wrong)


@relaxed
@given(keys, sizes, sizes, nonces)
def test_a_shorter_mask_is_a_prefix(key: Key, a: int, b: int, nonce: bytes) -> None:
    short, long = sorted((a, b))
    expected = codes.mask(key, long, nonce)[:short]
    assert codes.mask(key, short, nonce).tolist() == expected.tolist()


@relaxed
@given(keys, nonces, nonces)
def test_nonces_give_different_masks(key: Key, a: bytes, b: bytes) -> None:
    same = codes.mask(key, 256, a).tolist() == codes.mask(key, 256, b).tolist()
    assert same == (a == b)


@relaxed
@given(payloads, st.data())
def test_distance_counts_set_bits_of_the_xor(case: tuple[int, int], data: st.DataObject) -> None:
    payload, bits = case
    other = data.draw(st.integers(0, 2**bits - 1))
    a, b = codes.to_bits(payload, bits), codes.to_bits(other, bits)
    assert codes.distance(a, b) == codes.distance(b, a) == (payload ^ other).bit_count()


# Wrong keys


def wrong_key_distances(count: int, bits: int) -> np.ndarray:
    """Decode one party's code with many other keys, numbered so that the test repeats."""
    payload = 0x5EED
    logits = 2.0 * codes.encode(payload, KEY, bits) - 1.0
    target = codes.to_bits(payload, bits)
    wrong = (Key(b"wrong" + number.to_bytes(27, "big")) for number in range(count))
    return np.array([codes.distance(codes.decode(logits, key), target) for key in wrong])


def test_wrong_keys_decode_at_chance() -> None:
    count, bits = 20_000, 16
    distances = wrong_key_distances(count, bits)
    # Binomial(16, 1/2): mean 8, standard deviation 2; five standard errors.
    assert abs(distances.mean() - bits / 2) < 5 * 2 / math.sqrt(count)
    for rho in range(bits):
        expected = codes.bound(bits, rho)
        error = math.sqrt(expected * (1 - expected) / count)
        assert abs((distances <= rho).mean() - expected) < 5 * error + 1 / count


def test_wrong_nonce_decodes_at_chance() -> None:
    logits = 2.0 * codes.encode(0x5EED, KEY, 16, b"right") - 1.0
    target = codes.to_bits(0x5EED, 16)
    nonces = (number.to_bytes(4, "big") for number in range(2000))
    distances = [codes.distance(codes.decode(logits, KEY, nonce), target) for nonce in nonces]
    assert abs(np.mean(distances) - 8) < 5 * 2 / math.sqrt(2000)


def test_every_mask_bit_is_fair() -> None:
    count = 4000
    masks = np.array([codes.mask(Key(n.to_bytes(32, "big")), 64) for n in range(count)])
    assert np.abs(masks.mean(axis=0) - 0.5).max() < 5 * 0.5 / math.sqrt(count)


# Bound and p-values


def test_bound_of_the_paper() -> None:
    assert codes.bound(16, 2) == 137 / 2**16
    assert codes.bound(16, 16) == 1.0
    assert codes.bound(256, 0) == 2.0**-256


@pytest.mark.parametrize("bits", range(1, 11))
def test_bound_equals_enumeration(bits: int) -> None:
    weights = [sum(word) for word in itertools.product((0, 1), repeat=bits)]
    for rho in range(bits + 1):
        share = Fraction(sum(weight <= rho for weight in weights), len(weights))
        assert codes.bound(bits, rho) == float(share)


@relaxed
@given(sizes.flatmap(lambda bits: st.tuples(st.just(bits), st.integers(0, bits - 1))))
def test_bound_grows_with_rho_and_is_symmetric(case: tuple[int, int]) -> None:
    bits, rho = case
    assert 0 < codes.bound(bits, rho) <= codes.bound(bits, rho + 1) <= 1
    # At most rho wrong, or at most n - rho - 1 right: one or the other, never both.
    assert codes.bound(bits, rho) + codes.bound(bits, bits - rho - 1) == pytest.approx(1)


@relaxed
@given(st.fractions(0, 1, max_denominator=10**6), st.integers(1, 200))
def test_corrected_equals_the_exact_value(share: Fraction, tries: int) -> None:
    exact = float(1 - (1 - share) ** tries)
    assert codes.corrected(float(share), tries) == pytest.approx(exact, rel=1e-9)


def test_corrected_keeps_small_and_large_bounds() -> None:
    assert codes.corrected(1e-30, 1000) == pytest.approx(1e-27, rel=1e-12)
    assert codes.corrected(137 / 2**16, 1) == pytest.approx(137 / 2**16, rel=1e-15)
    assert codes.corrected(137 / 2**16, 100) == pytest.approx(0.1888191188794796, rel=1e-12)
    assert codes.corrected(0.0, 5) == 0.0
    assert codes.corrected(1.0, 5) == 1.0
    assert codes.corrected(0.5, 10**9) == 1.0


# Refusals


@pytest.mark.parametrize("bits", [-1, 0, 257])
def test_bits_out_of_range_are_refused(bits: int) -> None:
    for call in (
        lambda: codes.mask(KEY, bits),
        lambda: codes.to_bits(0, bits),
        lambda: codes.encode(0, KEY, bits),
        lambda: codes.bound(bits, 0),
    ):
        with pytest.raises(CodeError, match="1 to 256 bits"):
            call()


@pytest.mark.parametrize(("payload", "bits"), [(-1, 16), (2**16, 16), (2, 1), (2**256, 256)])
def test_payloads_that_do_not_fit_are_refused(payload: int, bits: int) -> None:
    with pytest.raises(CodeError, match="does not fit") as caught:
        codes.encode(payload, KEY, bits)
    assert caught.value.hint is not None
    assert f"{2**bits - 1:#x}" in caught.value.hint


def test_impossible_rho_tries_and_bounds_are_refused() -> None:
    for rho in (-1, 17):
        with pytest.raises(CodeError, match="wrong bits of 16"):
            codes.bound(16, rho)
    with pytest.raises(CodeError, match="not 0"):
        codes.corrected(0.1, 0)
    for value in (-0.1, 1.1, math.nan):
        with pytest.raises(CodeError, match="between 0 and 1"):
            codes.corrected(value, 1)


def test_arrays_of_other_shapes_are_refused() -> None:
    with pytest.raises(CodeError, match=r"shape \(16, 50\)"):
        codes.decode(np.zeros((16, 50)), KEY)
    with pytest.raises(CodeError, match="not numbers"):
        codes.decode([1.0, math.nan], KEY)
    with pytest.raises(CodeError, match="1 to 256 bits"):
        codes.decode([], KEY)
    with pytest.raises(CodeError, match="differ in length"):
        codes.distance([0, 1], [0, 1, 1])
    for array in ([0, 2], [[0, 1]], [0.5]):
        with pytest.raises(CodeError, match="only 0 and 1"):
            codes.from_bits(array)


def test_inputs_are_left_as_they_were() -> None:
    logits = np.ones(16, dtype=np.float32)
    codes.decode(logits, KEY)
    assert logits.tolist() == [1.0] * 16


def test_tolerances_accept_a_random_payload_as_rarely_as_two_of_sixteen() -> None:
    assert [codes.tolerance(bits) for bits in (0, 10, 16, 32, 40)] == [0, 0, 2, 7, 10]
