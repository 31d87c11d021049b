"""The keyed pattern: its derivation, its embedding and its statistic."""

import hashlib
import hmac
import itertools
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_seal import CODE, KEY, RATE, Floats, heard, sealed, six_seconds, whole

from keybound.crypto import keystream
from keybound.crypto.keys import Key
from keybound.errors import CodeError
from keybound.seal import chance, odds, pattern, search
from keybound.seal.search import SealSearch

few = settings(max_examples=15, deadline=None)
keys = st.binary(min_size=32, max_size=32).map(Key)


@pytest.fixture(scope="module")
def host() -> Floats:
    return six_seconds()


def packed(signs: pattern.Signs) -> str:
    return np.packbits(signs > 0).tobytes().hex()


# The pattern


def test_signs_known_answers() -> None:
    assert packed(pattern.signs(KEY, CODE, 0, 0, 2)) == SIGNS_0
    assert packed(pattern.signs(KEY, CODE, 7, 255, 2)) == SIGNS_7  # over the edge of a page


def test_signs_by_hand() -> None:
    info = (15).to_bytes(4, "big") + b"keybound-1/seal" + (6).to_bytes(4, "big")
    bound = (7).to_bytes(4, "big") + bytes.fromhex("d78f")
    seed = hmac.new(KEY.secret, info + bound + b"\x01", "sha256").digest()
    page = hashlib.shake_256(seed + (1).to_bytes(4, "big")).digest(2048)
    assert packed(pattern.signs(KEY, CODE, 7, 256, 256)) == page.hex()


SIGNS_0 = "de3de896206bf27244ebe9d18bfe2f96"
SIGNS_7 = "f238cbf30b5bc0049650663896cffc23"


@few
@given(keys, st.integers(0, keystream.POSITIONS - 1), st.integers(0, 2000), st.integers(1, 600))
def test_any_part_of_a_pattern_is_part_of_the_whole(
    key: Key, position: int, first: int, count: int
) -> None:
    made = pattern.signs(key, CODE, position, first, count)
    assert made.shape == (count, pattern.BANDS)
    assert set(np.unique(made)) <= {-1, 1}
    middle = count // 2
    joined = [
        pattern.signs(key, CODE, position, first, middle),
        pattern.signs(key, CODE, position, first + middle, count - middle),
    ]
    np.testing.assert_array_equal(np.concatenate(joined), made)


@few
@given(keys, st.integers(0, keystream.POSITIONS - 2))
def test_positions_codes_and_keys_share_nothing(key: Key, position: int) -> None:
    one = pattern.signs(key, CODE, position, 0, 512).astype(int)
    other = Key(bytes(b ^ 1 for b in key.secret))
    for two in (
        pattern.signs(key, CODE, position + 1, 0, 512),
        pattern.signs(key, 1 - CODE, position, 0, 512),
        pattern.signs(other, CODE, position, 0, 512),
    ):
        assert abs((one * two).sum()) < 6 * math.sqrt(one.size)


@pytest.mark.parametrize("position", [-1, keystream.POSITIONS])
def test_a_position_that_does_not_exist_is_refused(position: int) -> None:
    with pytest.raises(CodeError, match="does not exist"):
        pattern.signs(KEY, CODE, position, 0, 1)
    with pytest.raises(CodeError, match="does not exist"):
        pattern.embedder(KEY, CODE, position)


def test_a_position_is_the_one_asked_for_or_a_random_usual_one() -> None:
    assert keystream.choose_position(9_999) == 9_999
    chosen = {keystream.choose_position(None) for _ in range(400)}
    assert chosen <= set(SealSearch().positions)
    assert len(chosen) > 100


def test_the_tiles_cover_speech() -> None:
    assert pattern.BANDS == 64
    assert (np.diff(pattern.EDGES) > 0).all()
    assert pattern.EDGES[0] * 25 == 100
    assert pattern.EDGES[-1] * 25 == 7675


# Embedding


@few
@given(st.data())
def test_a_stream_is_sealed_and_heard_as_the_whole_is(host: Floats, data: st.DataObject) -> None:
    clip = host[: data.draw(st.integers(1, 40_000))]
    edges = sorted(data.draw(st.lists(st.integers(0, len(clip)), max_size=8)))
    for make in (lambda: pattern.embedder(KEY, CODE, 5), pattern.level_feeder):
        feeder, parts = make(), []
        for a, b in pairwise([0, *edges, len(clip)]):
            parts += feeder.push(clip[a:b])
        cut = np.concatenate([*parts, *feeder.flush()])
        np.testing.assert_allclose(cut, whole(make(), clip), rtol=0, atol=1e-6)


def test_the_carrier_waits_for_a_few_blocks_only(host: Floats) -> None:
    done = whole(pattern.embedder(KEY, CODE, 5), host[:32_000])
    other = np.concatenate([host[:16_000], np.zeros(16_000, np.float32)])
    cut = whole(pattern.embedder(KEY, CODE, 5), other)
    known = (50 - pattern.AHEAD) * pattern.HOP
    np.testing.assert_array_equal(cut[:known], done[:known])
    assert (pattern.AHEAD + 1) * pattern.HOP <= 0.18 * RATE


def test_gains_are_parts_of_a_decibel(host: Floats) -> None:
    carrier = sealed(host) - host
    share_db = 10 * np.log10(np.square(carrier).sum() / np.square(host).sum())
    assert -30 < share_db < -20
    assert not whole(
        pattern.embedder(KEY, CODE, 0), np.zeros(RATE, np.float32)
    ).any()  # silence stays


def test_another_position_is_another_carrier(host: Floats) -> None:
    one, two = sealed(host, 1) - host, sealed(host, 2) - host
    alike = (one * two).sum() / np.sqrt(np.square(one).sum() * np.square(two).sum())
    assert abs(alike) < 0.15


# The statistic


def test_the_constant_is_the_published_one() -> None:
    # Bentkus and Dzindzalieta: c = 1 / (4 P(Z >= sqrt 2)) = 3.178...
    assert pytest.approx(3.178, abs=1e-3) == chance.RADEMACHER


@few
@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=12), st.integers(0, 4095))
def test_the_tail_holds_for_all_weights(weights: list[float], chosen: int) -> None:
    """Count every choice of signs: no threshold is passed more often than the bound says."""
    sums = np.array([0.0])
    for weight in weights:
        sums = np.concatenate([sums + weight, sums - weight])
    z = sums / math.sqrt(sum(w * w for w in weights))
    at = float(z[chosen % len(z)])
    assert np.mean(z >= at - 1e-9) <= search.p_bound(at - 1e-9, 1)


def test_the_tail_is_a_bound_on_places() -> None:
    assert search.p_bound(0.0, 1) == 1.0
    assert search.p_bound(8.0, 1000) == pytest.approx(1000 * search.p_bound(8.0, 1))
    values = [search.p_bound(z, 10) for z in np.linspace(0, 30, 50)]
    assert all(a >= b for a, b in itertools.pairwise(values))


def test_wrong_keys_pass_no_more_often_than_said(host: Floats) -> None:
    """20,000 wrong keys on a recording that is sealed with another: p is never too small."""
    rows = odds.odds_of(heard(sealed(host)))
    tiles = rows[:: pattern.COLUMN_STEPS].reshape(-1)
    rng = np.random.default_rng(0)
    signs = rng.integers(0, 2, (20_000, len(tiles)), np.int8) * 2 - 1
    z = (signs @ tiles) / math.sqrt(float(np.square(tiles).sum()))
    for level in (0.1, 0.01, 0.001):
        assert np.mean([search.p_bound(float(one), 1) < level for one in z]) <= level
    assert float(z.std()) == pytest.approx(1.0, abs=0.03)


def test_the_version_of_the_seal_is_that_of_its_numbers() -> None:
    """Whoever changes a number gives the seal a new version, so that figures name the right one."""
    numbers = [pattern.RATE, pattern.HOP, pattern.COLUMN_FRAMES, pattern.EDGES.tolist()]
    numbers += [pattern.STRENGTHS_DB, pattern.LEAST, pattern.TILT, pattern.PAST]
    numbers += [hashlib.sha256(odds.NETWORK.read_bytes()).hexdigest()]
    digest = hashlib.sha256(repr(numbers).encode()).hexdigest()[:16]
    assert (pattern.VERSION, digest) == (3, "43a8db1a1c7f484e")
