"""The keyed pattern: its derivation, its embedding, its statistic and the search for it."""

import hashlib
import hmac
import itertools
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from keybound import audio, codes, seal, search
from keybound.blocks import Feeder
from keybound.errors import CodeError
from keybound.keys import Key
from keybound.search import Places, Sealed

Floats = NDArray[np.float32]

KEY = Key(bytes(range(32)))
CODE = codes.encode(0x5EED, KEY, 16)  # d78f
RATE = seal.RATE
DATA = Path(__file__).parent / "data"
few = settings(max_examples=15, deadline=None)
keys = st.binary(min_size=32, max_size=32).map(Key)


@pytest.fixture(scope="module")
def host() -> Floats:
    """Six seconds of synthetic speech."""
    names = ("flite-rms", "espeak-ng-gb")
    parts = [audio.read(DATA / f"{name}.flac").samples[: 3 * RATE, 0] for name in names]
    return np.concatenate(parts).astype(np.float32)


def whole(feeder: Feeder, samples: Floats) -> Floats:
    return np.concatenate([*feeder.push(samples), *feeder.flush()])


def sealed(host: Floats, position: int = 3, key: Key = KEY) -> Floats:
    carrier = whole(seal.embedder(key, CODE, position), host)
    return host + carrier[: len(host)]


def heard(samples: Floats) -> Floats:
    return whole(seal.listener(), samples).reshape(-1, seal.BANDS)


def packed(signs: seal.Signs) -> str:
    return np.packbits(signs > 0).tobytes().hex()


# The pattern


def test_signs_known_answers() -> None:
    assert packed(seal.signs(KEY, CODE, 0, 0, 2)) == SIGNS_0
    assert packed(seal.signs(KEY, CODE, 7, 255, 2)) == SIGNS_7  # over the edge of a page


def test_signs_by_hand() -> None:
    info = (15).to_bytes(4, "big") + b"keybound-1/seal" + (6).to_bytes(4, "big")
    bound = (7).to_bytes(4, "big") + bytes.fromhex("d78f")
    seed = hmac.new(KEY.secret, info + bound + b"\x01", "sha256").digest()
    page = hashlib.shake_256(seed + (1).to_bytes(4, "big")).digest(2048)
    assert packed(seal.signs(KEY, CODE, 7, 256, 256)) == page.hex()


SIGNS_0 = "de3de896206bf27244ebe9d18bfe2f96"
SIGNS_7 = "f238cbf30b5bc0049650663896cffc23"


@few
@given(keys, st.integers(0, seal.POSITIONS - 1), st.integers(0, 2000), st.integers(1, 600))
def test_any_part_of_a_pattern_is_part_of_the_whole(
    key: Key, position: int, first: int, count: int
) -> None:
    made = seal.signs(key, CODE, position, first, count)
    assert made.shape == (count, seal.BANDS)
    assert set(np.unique(made)) <= {-1, 1}
    middle = count // 2
    joined = [
        seal.signs(key, CODE, position, first, middle),
        seal.signs(key, CODE, position, first + middle, count - middle),
    ]
    np.testing.assert_array_equal(np.concatenate(joined), made)


@few
@given(keys, st.integers(0, seal.POSITIONS - 2))
def test_positions_codes_and_keys_share_nothing(key: Key, position: int) -> None:
    one = seal.signs(key, CODE, position, 0, 512).astype(int)
    other = Key(bytes(b ^ 1 for b in key.secret))
    for two in (
        seal.signs(key, CODE, position + 1, 0, 512),
        seal.signs(key, 1 - CODE, position, 0, 512),
        seal.signs(other, CODE, position, 0, 512),
    ):
        assert abs((one * two).sum()) < 6 * math.sqrt(one.size)


@pytest.mark.parametrize("position", [-1, seal.POSITIONS])
def test_a_position_that_does_not_exist_is_refused(position: int) -> None:
    with pytest.raises(CodeError, match="does not exist"):
        seal.signs(KEY, CODE, position, 0, 1)
    with pytest.raises(CodeError, match="does not exist"):
        seal.embedder(KEY, CODE, position)


def test_a_recording_is_placed_as_asked_or_by_chance() -> None:
    assert seal.place(9_999, wanted=True) == 9_999
    assert seal.place(None, wanted=False) is None
    drawn = {seal.place(None, wanted=True) for _ in range(400)}
    assert drawn <= set(Places().positions)
    assert len(drawn) > 100
    with pytest.raises(CodeError, match="without a seal"):
        seal.place(0, wanted=False)


def test_the_tiles_cover_speech() -> None:
    assert seal.BANDS == 64
    assert (np.diff(seal.EDGES) > 0).all()
    assert seal.EDGES[0] * 25 == 100
    assert seal.EDGES[-1] * 25 == 7675


# Embedding


@few
@given(st.data())
def test_a_stream_is_sealed_and_heard_as_the_whole_is(host: Floats, data: st.DataObject) -> None:
    clip = host[: data.draw(st.integers(1, 40_000))]
    edges = sorted(data.draw(st.lists(st.integers(0, len(clip)), max_size=8)))
    for make in (lambda: seal.embedder(KEY, CODE, 5), seal.listener):
        feeder, parts = make(), []
        for a, b in pairwise([0, *edges, len(clip)]):
            parts += feeder.push(clip[a:b])
        cut = np.concatenate([*parts, *feeder.flush()])
        np.testing.assert_allclose(cut, whole(make(), clip), rtol=0, atol=1e-6)


def test_the_carrier_waits_for_a_few_blocks_only(host: Floats) -> None:
    done = whole(seal.embedder(KEY, CODE, 5), host[:32_000])
    other = np.concatenate([host[:16_000], np.zeros(16_000, np.float32)])
    cut = whole(seal.embedder(KEY, CODE, 5), other)
    known = (50 - seal.AHEAD) * seal.HOP
    np.testing.assert_array_equal(cut[:known], done[:known])
    assert (seal.AHEAD + 1) * seal.HOP <= 0.18 * RATE


def test_gains_are_parts_of_a_decibel(host: Floats) -> None:
    carrier = sealed(host) - host
    share_db = 10 * np.log10(np.square(carrier).sum() / np.square(host).sum())
    assert -30 < share_db < -20
    assert not whole(seal.embedder(KEY, CODE, 0), np.zeros(RATE, np.float32)).any()  # silence stays


def test_another_position_is_another_carrier(host: Floats) -> None:
    one, two = sealed(host, 1) - host, sealed(host, 2) - host
    alike = (one * two).sum() / np.sqrt(np.square(one).sum() * np.square(two).sum())
    assert abs(alike) < 0.15


# The statistic


def test_the_constant_is_the_published_one() -> None:
    # Bentkus and Dzindzalieta: c = 1 / (4 P(Z >= sqrt 2)) = 3.178...
    assert pytest.approx(3.178, abs=1e-3) == search.RADEMACHER


@few
@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=12), st.integers(0, 4095))
def test_the_tail_holds_for_all_weights(weights: list[float], chosen: int) -> None:
    """Count every choice of signs: no threshold is passed more often than the bound says."""
    sums = np.array([0.0])
    for weight in weights:
        sums = np.concatenate([sums + weight, sums - weight])
    z = sums / math.sqrt(sum(w * w for w in weights))
    at = float(z[chosen % len(z)])
    assert np.mean(z >= at - 1e-9) <= search.tail(at - 1e-9, 1)


def test_the_tail_is_a_bound_on_places() -> None:
    assert search.tail(0.0, 1) == 1.0
    assert search.tail(8.0, 1000) == pytest.approx(1000 * search.tail(8.0, 1))
    values = [search.tail(z, 10) for z in np.linspace(0, 30, 50)]
    assert all(a >= b for a, b in itertools.pairwise(values))


def test_wrong_keys_pass_no_more_often_than_said(host: Floats) -> None:
    """20,000 wrong keys on a recording that is sealed with another: p is never too small."""
    rows = np.concatenate([*seal.contrasts(heard(sealed(host)), 0)])
    tiles = rows[:: seal.COLUMN_STEPS].reshape(-1)
    rng = np.random.default_rng(0)
    signs = rng.integers(0, 2, (20_000, len(tiles)), np.int8) * 2 - 1
    z = (signs @ tiles) / math.sqrt(float(np.square(tiles).sum()))
    for level in (0.1, 0.01, 0.001):
        assert np.mean([search.tail(float(one), 1) < level for one in z]) <= level
    assert float(z.std()) == pytest.approx(1.0, abs=0.03)


# The search


def test_a_seal_is_found_and_placed(host: Floats) -> None:
    found = search.find(heard(sealed(host, 77)), KEY, CODE)
    assert found.holds
    assert (found.position, found.start_s, found.speed) == (77, 0.0, 1.0)
    assert found.places == 2 * 2 * 41 * 256
    cut = search.find(heard(sealed(host, 77)[16_000:]), KEY, CODE)
    assert cut.holds
    assert cut.places == 2 * 2 * (500 + 6000) * 256


@few
@given(st.integers(0, 30_000), st.sampled_from([0, 5, 255]))
def test_a_cut_recording_is_found(host: Floats, cut: int, position: int) -> None:
    levels = heard(sealed(host, position)[cut:])
    found = search.find(levels, KEY, CODE, Places((position,)))
    assert found.holds
    assert found.start_s == pytest.approx(cut / RATE, abs=0.0151)


def test_sound_before_it_does_no_harm(host: Floats) -> None:
    before = host[: RATE + 123]
    found = search.find(heard(np.concatenate([before, sealed(host)])), KEY, CODE, Places(range(8)))
    assert found.holds
    assert found.position == 3
    assert found.start_s == pytest.approx(-len(before) / RATE, abs=0.0151)


@pytest.mark.parametrize("speed", [0.97, 1.012, 1.04])
def test_a_change_of_speed_is_found(host: Floats, speed: float) -> None:
    marked = sealed(host)
    faster = audio.resample(marked, round(RATE * speed), RATE)
    assert not search.find(heard(faster), KEY, CODE, Places((3,))).holds
    found = search.find(heard(faster), KEY, CODE, Places((3,), speed=0.05))
    assert found.holds
    assert found.speed == pytest.approx(speed, abs=0.004)


def test_a_wrong_key_code_or_position_or_no_seal_is_not_found(host: Floats) -> None:
    levels = heard(sealed(host))
    assert search.find(levels, Key(bytes(32)), CODE, Places(range(16))).p > 0.01
    assert search.find(levels, KEY, 1 - CODE, Places(range(16))).p > 0.01
    assert search.find(levels, KEY, CODE, Places(range(4, 20))).p > 0.01
    assert search.find(heard(host), KEY, CODE, Places(range(16), speed=0.02)).p > 0.01


@pytest.mark.parametrize("samples", [np.zeros(RATE), np.ones(RATE), np.zeros(1)])
def test_nothing_proves_nothing(samples: Floats) -> None:
    found = search.find(heard(samples.astype(np.float32)), KEY, CODE, Places(range(4), speed=0.01))
    assert found.p == 1.0


def test_nowhere_is_nowhere(host: Floats) -> None:
    assert search.find(heard(sealed(host)), KEY, CODE, Places(())).p == 1.0


def test_silence_around_it_does_no_harm(host: Floats) -> None:
    silence = np.zeros(3 * RATE, np.float32)
    found = search.find(heard(np.concatenate([silence, sealed(host), silence])), KEY, CODE)
    assert found.holds
    assert found.start_s == -3.0


def test_more_parties_weaken_what_is_found(host: Floats) -> None:
    levels = heard(sealed(host))
    one, many = (search.find(levels, KEY, CODE, Places((3,)), tries) for tries in (1, 1000))
    assert many.p == pytest.approx(1000 * one.p)


def test_a_long_recording_is_judged_whole(host: Floats) -> None:
    long = np.tile(host, 12)  # 72 s, of which a minute is searched
    short = search.find(heard(sealed(host)), KEY, CODE, Places((3,)))
    found = search.find(heard(sealed(long)), KEY, CODE, Places((3,)))
    assert found.start_s == 0.0
    assert found.z > 2.5 * short.z


def test_evidence_holds_under_its_threshold() -> None:
    made = Sealed(p=0.9e-6, z=6.0, position=0, start_s=0.0, speed=1.0, places=1)
    assert made.holds
    assert not Sealed(1e-6, 6.0, 0, 0.0, 1.0, 1).holds


@pytest.mark.parametrize("start", [0, 47_321, -20_002])
def test_a_long_recording_is_searched_window_by_window(start: int) -> None:
    """Levels of five minutes with the pattern from a step on: uncut, cut, or behind other sound."""
    steps = 30_000
    rng = np.random.default_rng(0)
    levels = rng.normal(-40, 3, (steps, seal.BANDS)).astype(np.float16)
    inside = np.arange(max(0, -start), steps)
    column = (inside + start) // seal.COLUMN_STEPS
    signs = seal.signs(KEY, CODE, 5, int(column[0]), int(column[-1] - column[0]) + 1)
    levels[inside] += (0.8 * signs[column - column[0]]).astype(np.float16)
    found = search.find(levels, KEY, CODE, Places((5,), reach_s=600.0))
    assert found.holds
    assert found.start_s == pytest.approx(start * seal.STEP_S, abs=0.03)
    assert not search.find(levels, Key(bytes(32)), CODE, Places((5,), reach_s=600.0)).holds
