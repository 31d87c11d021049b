"""The search for a seal: where it lies, at which speed, and what is not found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keybound import audio, seal, search
from keybound.keys import Key
from keybound.search import Places, Sealed
from made_seal import CODE, KEY, RATE, Floats, heard, sealed, six_seconds

few = settings(max_examples=15, deadline=None)


@pytest.fixture(scope="module")
def host() -> Floats:
    return six_seconds()


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
