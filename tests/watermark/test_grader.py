"""The verifier as an oracle: what its answers give to whoever may ask, and how many they need.

No audio: a forger has the public embedder, so they can submit a recording with any code they
choose. The rule hears the code's logits, and the forger never touches the key.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from keybound import Detection, Grader, Key, KeyBoundError, Verdict, Watermarker
from keybound.crypto import codes
from keybound.seal.search import SEALED_P, p_bound

BITS, RHO, PAYLOAD = 16, 2, 0x5EED
TILES = 1000  # of a recording: four seconds have 6400
PLACES = 256 * 82  # positions and cuts that a search counts

Bits = npt.NDArray[np.uint8]
Oracle = Callable[[Bits], Verdict]
Signs = npt.NDArray[np.float64]


def keys(count: int) -> list[Key]:
    return [Key(bytes([number] * 32)) for number in range(count)]


def oracle(marker: Watermarker, key: Key) -> Oracle:
    """Give the verdict on a recording that surely carries this code."""

    def ask(code: Bits) -> Verdict:
        logits = 8 * (2 * code.astype(np.float32) - 1)
        empty = np.zeros(0, np.float32)
        found = Detection(True, 0.9, 0.5, 1.0, 0.5, 1e-3, (), (), 0.02, empty, empty, logits)
        return marker.attribute(found, key=key, payload=PAYLOAD, rho=RHO)

    return ask


def flipped(code: Bits, bit: int) -> Bits:
    other = code.copy()
    other[bit] ^= 1
    return other


def climb_by_distance(ask: Oracle) -> tuple[Bits, int]:
    code = np.zeros(BITS, np.uint8)
    first = ask(code).distance
    right = [ask(flipped(code, bit)).distance > first for bit in range(BITS)]
    return np.where(right, code, 1 - code).astype(np.uint8), 1 + BITS


def climb_by_grade(ask: Oracle, rng: np.random.Generator) -> tuple[Bits, int]:
    """Guess until one code passes, go to the edge of what passes, and feel for each bit there."""
    asked = 0

    def passes(code: Bits) -> bool:
        nonlocal asked
        asked += 1
        return ask(code).grade == "attributed"

    code = rng.integers(0, 2, BITS, np.uint8)
    while not passes(code):
        code = rng.integers(0, 2, BITS, np.uint8)
    for bit in range(BITS):
        if passes(flipped(code, bit)):
            code = flipped(code, bit)
        else:
            break  # one more wrong bit is too many: the code has just as many as are forgiven
    right = [not passes(flipped(code, bit)) for bit in range(BITS)]
    return np.where(right, code, 1 - code).astype(np.uint8), asked


def test_seventeen_distances_give_the_code(marker: Watermarker) -> None:
    for key in keys(20):
        code, asked = climb_by_distance(oracle(marker, key))
        assert asked == 17
        assert np.array_equal(code, codes.encode(PAYLOAD, key, BITS))
        # With the payload known this is the mask, and any payload can be written.
        assert np.array_equal(code ^ codes.to_bits(PAYLOAD, BITS), codes.mask(key, BITS))


def test_grades_give_it_too_and_take_hundreds(marker: Watermarker) -> None:
    """Yes and no are an oracle as well: what helps is that so many are asked."""
    rng, counts = np.random.default_rng(5), []
    for key in keys(20):
        code, asked = climb_by_grade(oracle(marker, key), rng)
        assert np.array_equal(code, codes.encode(PAYLOAD, key, BITS))
        counts.append(asked)
    usual = 1 / codes.bound(BITS, RHO)  # 478 guesses, then some 20 questions
    assert 0.5 * usual < np.mean(counts) < 2 * usual


def test_a_few_grades_give_little(marker: Watermarker) -> None:
    """Whoever is answered ten times passes with ten times the chance of one, and no more."""
    rng, passed, forgers = np.random.default_rng(6), 0, 400
    for key in keys(20) * (forgers // 20):
        ask = oracle(marker, key)
        guesses = (rng.integers(0, 2, BITS, np.uint8) for _ in range(10))
        passed += any(ask(code).grade == "attributed" for code in guesses)
    assert passed <= 2 * forgers * 10 * codes.bound(BITS, RHO)  # 8.4 are expected, at most


def test_a_grader_says_the_grade_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    marker = Watermarker()
    verdict = Verdict(True, True, 0.9, 0.5, 1.0, 0.5, 1e-3, 1, BITS, RHO, 0.002, 1, 1, ())
    monkeypatch.setattr(marker, "verify", lambda *_, **__: verdict)
    grader = Grader(key=Key(bytes(32)), payload=PAYLOAD, answers=2, marker=marker)
    assert [grader.grade(np.zeros(1), 16000) for _ in range(2)] == ["attributed"] * 2
    with pytest.raises(KeyBoundError, match="no answers are left"):
        grader.grade(np.zeros(1), 16000)
    assert grader.left == 0


# The seal: a recording's contrasts q are the forger's to choose, its signs the key's


def z_of(signs: Signs, q: Signs) -> float:
    return float(signs @ q / np.sqrt(q @ q))


def is_sealed(signs: Signs, q: Signs) -> bool:
    return p_bound(z_of(signs, q), PLACES) < SEALED_P


def test_z_gives_a_sign_with_each_answer() -> None:
    signs = np.random.default_rng(7).choice([-1.0, 1.0], TILES)
    base = np.full(TILES, 0.1)
    first = z_of(signs, base)
    read = [z_of(signs, base + np.eye(1, TILES, tile)[0]) > first for tile in range(TILES)]
    learnt = np.where(read, 1.0, -1.0)
    assert np.mean(learnt == signs) > 0.95
    assert is_sealed(signs, learnt)  # and this recording was made without the key


def test_the_grade_tells_nothing_to_who_has_no_sealed_recording() -> None:
    rng = np.random.default_rng(8)
    signs = rng.choice([-1.0, 1.0], TILES)
    assert not any(is_sealed(signs, rng.normal(size=TILES)) for _ in range(5000))


def test_the_grade_gives_a_sign_with_each_answer_to_who_has_one() -> None:
    """Worn down until it only just passes, a sealed recording feels for the sign of any tile.

    What is learnt is the pattern of that position, which the records know the audio of.
    """
    rng = np.random.default_rng(9)
    signs = rng.choice([-1.0, 1.0], TILES)
    marked = rng.normal(size=TILES) + 0.5 * signs
    kept = TILES
    while is_sealed(signs, np.where(np.arange(TILES) < kept - 1, marked, 0)):
        kept -= 1
    edge = np.where(np.arange(TILES) < kept, marked, 0)
    assert kept < 0.8 * TILES
    tiles = range(kept, TILES)
    felt = [is_sealed(signs, edge + 3 * np.eye(1, TILES, tile)[0]) for tile in tiles]
    assert np.array_equal(np.where(felt, 1, -1), signs[kept:])
    elsewhere = rng.choice([-1.0, 1.0], TILES)  # another position of the same key
    assert not is_sealed(elsewhere, marked)
