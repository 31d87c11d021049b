"""The search for a seal: where it lies, at which speed, and what is not found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_seal import CODE, KEY, RATE, Floats, heard, sealed, six_seconds

from keybound.audio import recordings
from keybound.crypto.keys import Key
from keybound.seal import pattern, search
from keybound.seal.pattern import STEP, STEP_S
from keybound.seal.search import Ask, Sealed, SealSearch
from keybound.seal.sounds import sounds_of
from keybound.seal.tiles import NEAR, NEAR_TESTS, Spot, Tiles

few = settings(max_examples=15, deadline=None)


@pytest.fixture(scope="module")
def host() -> Floats:
    return six_seconds()


def test_a_seal_is_found_and_placed(host: Floats) -> None:
    found = search.find(heard(sealed(host, 77)), KEY, CODE)
    assert found.holds
    assert (found.position, found.start_s, found.speed) == (77, 0.0, 1.0)
    assert found.tests == 2 * 2 * 256  # the exact start has half of the chance of uncut ones
    cut = search.find(heard(sealed(host, 77)[16_000:]), KEY, CODE)
    assert cut.holds
    assert cut.tests == 2 * (500 + 6000) * 256


@few
@given(st.integers(-NEAR, NEAR))
def test_a_start_that_is_less_expected_counts_as_more_tests(host: Floats, steps: int) -> None:
    made = sealed(host, 7)
    moved = np.pad(made, (steps * STEP, 0)) if steps > 0 else made[-steps * STEP :]
    found = search.at_start(sounds_of(heard(moved)), [Ask([Spot(KEY, CODE, 7)])])[0].sealed
    assert round(found.start_s / STEP_S) == -steps
    assert found.holds
    assert found.tests == 2 * NEAR_TESTS[abs(steps)]


def test_the_chance_is_shared_by_all_starts_near_the_expected_one() -> None:
    assert 1 / NEAR_TESTS[0] + 2 * (1 / NEAR_TESTS[1:]).sum() == pytest.approx(1)
    assert len(NEAR_TESTS) == NEAR + 1


@few
@given(st.integers(0, 30_000), st.sampled_from([0, 5, 255]))
def test_a_cut_recording_is_found(host: Floats, cut: int, position: int) -> None:
    levels = heard(sealed(host, position)[cut:])
    found = search.find(levels, KEY, CODE, SealSearch((position,)))
    assert found.holds
    # Of a cut just beyond 0.2 s the last start of an uncut recording holds already.
    assert found.start_s == pytest.approx(cut / RATE, abs=0.0301)


def test_sound_before_it_does_no_harm(host: Floats) -> None:
    before = host[: RATE + 123]
    found = search.find(
        heard(np.concatenate([before, sealed(host)])), KEY, CODE, SealSearch(range(8))
    )
    assert found.holds
    assert found.position == 3
    assert found.start_s == pytest.approx(-len(before) / RATE, abs=0.0151)


@pytest.mark.parametrize("speed", [0.97, 1.02, 1.04])
def test_a_change_of_speed_is_found(host: Floats, speed: float) -> None:
    marked = sealed(host)
    faster = recordings.resample(marked, round(RATE * speed), RATE)
    assert not search.find(heard(faster), KEY, CODE, SealSearch((3,))).holds
    found = search.find(heard(faster), KEY, CODE, SealSearch((3,), speed=0.05))
    assert found.holds
    assert found.speed == pytest.approx(speed, abs=0.004)


def test_a_wrong_key_code_or_position_or_no_seal_is_not_found(host: Floats) -> None:
    levels = heard(sealed(host))
    assert search.find(levels, Key(bytes(32)), CODE, SealSearch(range(16))).p > 0.01
    assert search.find(levels, KEY, 1 - CODE, SealSearch(range(16))).p > 0.01
    assert search.find(levels, KEY, CODE, SealSearch(range(4, 20))).p > 0.01
    assert search.find(heard(host), KEY, CODE, SealSearch(range(16), speed=0.02)).p > 0.01


@pytest.mark.parametrize("samples", [np.zeros(RATE), np.ones(RATE), np.zeros(1)])
def test_nothing_proves_nothing(samples: Floats) -> None:
    found = search.find(
        heard(samples.astype(np.float32)), KEY, CODE, SealSearch(range(4), speed=0.01)
    )
    assert found.p == 1.0


def test_nowhere_is_nowhere(host: Floats) -> None:
    assert search.find(heard(sealed(host)), KEY, CODE, SealSearch(())).p == 1.0


def test_silence_around_it_does_no_harm(host: Floats) -> None:
    silence = np.zeros(3 * RATE, np.float32)
    found = search.find(heard(np.concatenate([silence, sealed(host), silence])), KEY, CODE)
    assert found.holds
    assert found.start_s == -3.0


def test_more_parties_weaken_what_is_found(host: Floats) -> None:
    levels = heard(sealed(host))
    one, many = (search.find(levels, KEY, CODE, SealSearch((3,)), tries) for tries in (1, 1000))
    assert many.p == pytest.approx(1000 * one.p)


def test_a_long_recording_is_judged_whole(host: Floats) -> None:
    long = np.tile(host, 12)  # 72 s, of which a minute is searched
    short = search.find(heard(sealed(host)), KEY, CODE, SealSearch((3,)))
    found = search.find(heard(sealed(long)), KEY, CODE, SealSearch((3,)))
    assert found.start_s == 0.0
    assert found.z > 2.5 * short.z


def test_evidence_holds_under_its_threshold() -> None:
    made = Sealed(p=0.9e-6, z=6.0, position=0, start_s=0.0, speed=1.0, tests=1)
    assert made.holds
    assert not Sealed(1e-6, 6.0, 0, 0.0, 1.0, 1).holds


@pytest.mark.parametrize("start", [0, 47_321, -20_002])
def test_a_long_recording_is_searched_window_by_window(start: int) -> None:
    """Levels of five minutes with the pattern from a step on: uncut, cut, or behind other sound."""
    steps = 30_000
    rng = np.random.default_rng(0)
    levels = rng.normal(-40, 3, (steps, pattern.BANDS)).astype(np.float16)
    inside = np.arange(max(0, -start), steps)
    column = (inside + start) // pattern.COLUMN_STEPS
    signs = pattern.signs(KEY, CODE, 5, int(column[0]), int(column[-1] - column[0]) + 1)
    levels[inside] += (0.8 * signs[column - column[0]]).astype(np.float16)
    found = search.find(levels, KEY, CODE, SealSearch((5,), reach_s=600.0))
    assert found.holds
    assert found.start_s == pytest.approx(start * pattern.STEP_S, abs=0.03)
    assert not search.find(levels, Key(bytes(32)), CODE, SealSearch((5,), reach_s=600.0)).holds


# What is not looked for


def test_short_recordings_are_searched_at_their_start_alone(
    host: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where hardly any cut recording could be proved, all starts are not tested."""
    with monkeypatch.context() as patch:
        patch.setattr(Tiles, "anywhere", lambda *_: pytest.fail("this was hopeless"))
        found = search.find(heard(sealed(host)[:RATE]), KEY, CODE, tries=2)
        assert found.searched == "start"
        assert search.find(heard(host[: RATE // 3]), KEY, CODE).searched == "short"
        begun = search.find(heard(sealed(host)), KEY, CODE)  # found at its start: enough
        assert (begun.holds, begun.searched) == (True, "start")
    assert search.find(heard(host[: 2 * RATE]), KEY, CODE).searched == "all"
    # One known position needs fewer tests, of which a cut second can pass one.
    assert search.find(heard(host[:RATE]), KEY, CODE, SealSearch((3,))).searched == "all"
    # Two hundred parties have more.
    longer = heard(host[: int(1.2 * RATE)])
    found = [search.find(longer, KEY, CODE, tries=tries).searched for tries in (1, 200)]
    assert found == ["all", "start"]


def test_a_search_that_would_cost_too_much_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    levels = rng.normal(-40, 3, (30_000, pattern.BANDS)).astype(np.float16)
    where = SealSearch((5, 6), reach_s=600.0)
    assert search.find(levels, KEY, CODE, where).searched == "all"
    monkeypatch.setattr(search, "MOST_WINDOWS", 8)
    assert search.find(levels, KEY, CODE, where).searched == "some"


def test_the_nearest_windows_come_first() -> None:
    rng = np.random.default_rng(0)
    levels = rng.normal(-40, 3, (30_000, pattern.BANDS)).astype(np.float16)
    tiles = Tiles(levels.astype(np.float32))
    first = tiles.part.start // pattern.COLUMN_STEPS
    windows = tiles.windows(60_000)
    assert windows[0] == max(0, first - 6)
    away = [abs(one - windows[0]) for one in windows]
    assert away == sorted(away)
    assert max(windows) >= first + 60_000 // pattern.COLUMN_STEPS - 1512


def test_wrong_keys_do_not_pass_more_often_than_p_says(host: Floats) -> None:
    """Whatever is tried first, and in whichever bands, p counts all tests."""
    sounds = sounds_of(heard(sealed(host)[: 2 * RATE]))
    asks = [
        Ask([Spot(Key(n.to_bytes(32, "big")), CODE, at) for at in range(4)]) for n in range(400)
    ]
    begun = search.at_start(sounds, asks)
    ps = np.array([one.sealed.p for one in search.everywhere(sounds, asks, begun, 10.0)])
    for level in (0.5, 0.1, 0.01):  # of 4,000 other keys .20, .048 and .004 pass
        assert np.mean(ps < level) <= level + 2 * np.sqrt(level / len(asks))
    named = [search.at_record(sounds, one, [(0, 0.0)]).sealed.p for one in asks]
    for level in (0.5, 0.1, 0.01):
        assert np.mean(np.array(named) < level) <= level + 2 * np.sqrt(level / len(asks))


def test_patterns_of_many_parties_are_found_as_those_of_one(host: Floats) -> None:
    levels = heard(sealed(host, 77)[16_000:])
    spots = [Spot(KEY, CODE, at) for at in range(256)]
    others = [Ask([one._replace(key=Key(bytes([n]) * 32)) for one in spots]) for n in range(3)]
    sounds, asks = sounds_of(levels), [*others, Ask(spots)]
    found = search.everywhere(sounds, asks, search.at_start(sounds, asks), 60.0)
    assert [one.sealed.holds for one in found] == [False, False, False, True]
    assert found[-1].sealed == search.find(levels, KEY, CODE)
    assert asks[-1].spots[found[-1].spot].position == 77
