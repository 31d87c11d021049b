"""The bits of a recording, and how recordings are told apart by them."""

import hashlib
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from keybound import attacks
from keybound.audio import recordings
from keybound.errors import CodeError
from keybound.provenance import fingerprint, matching
from keybound.provenance.fingerprint import Fingerprint
from keybound.seal import pattern
from keybound.watermark import channels

Floats = NDArray[np.float32]

RATE = pattern.RATE
DATA = Path(__file__).parents[1] / "data"
few = settings(max_examples=15, deadline=None)


def voice(name: str, length_s: float = 3.0) -> Floats:
    samples = recordings.read(DATA / f"{name}.flac").samples[:, 0].astype(np.float32)
    return np.resize(samples, round(length_s * RATE))


@pytest.fixture(scope="module")
def one() -> Floats:
    return voice("flite-rms")


@pytest.fixture(scope="module")
def other() -> Floats:
    return voice("espeak-ng-gb")


def attacked(name: str, samples: Floats) -> Floats:
    hit = attacks.attack(name)
    parameters = hit.draw(np.random.default_rng(1), None)
    made: Floats = hit.apply(samples, RATE, parameters)
    return made


def compare(known: Floats, heard: Floats, **options: float) -> matching.Match:
    taken = fingerprint.take(channels.levels_of(known))
    return matching.match(taken, channels.levels_of(heard), **options)  # type: ignore[arg-type]


def made_up(steps: int) -> Floats:
    """Levels that every machine makes alike, in dB."""
    step, band = np.arange(steps)[:, None], np.arange(pattern.BANDS)
    levels: Floats = (step * step * 3 + band * 13 + step * band * 5) % 41 - np.float32(40)
    return levels


# The bits


def test_known_answer() -> None:
    assert fingerprint.take(made_up(40)).data.hex() == MADE_UP


MADE_UP = "9d65336db26da25352a28ef1573354db2499a49b"


def test_by_hand() -> None:
    levels = made_up(60)

    def loudness(step: int, band: int) -> float:
        power = 0.0
        for near in range(step - 4, step + 5):
            for own in range(fingerprint.EDGES[band], fingerprint.EDGES[band + 1]):
                width = pattern.EDGES[own + 1] - pattern.EDGES[own]
                power += width * 10 ** (float(levels[min(max(near, 0), 59)][own]) / 10)
        return 10 * math.log10(power / 9 + 1e-7)

    taken = np.unpackbits(np.frombuffer(fingerprint.take(levels).data, np.uint8)).reshape(-1, 16)
    for column, band in itertools.product(range(15), range(16)):
        later, earlier = min(4 * column + 8, 59), max(4 * column - 8, 0)
        rise = loudness(later, band) - loudness(later, band + 1)
        rise -= loudness(earlier, band) - loudness(earlier, band + 1)
        assert abs(rise) < 1e-3 or taken[column, band] == (rise > 0)


@few
@given(st.lists(st.integers(1, 20000), max_size=6))
def test_a_stream_gives_the_same_bits(cuts: list[int]) -> None:
    samples = voice("flite-rms", 1.5)
    feeder = pattern.level_feeder()
    made, first = [], 0
    for cut in cuts:
        made += feeder.push(samples[first : first + cut])
        first += cut
    made += [*feeder.push(samples[first:]), *feeder.flush()]
    levels = np.concatenate([part.reshape(-1, pattern.BANDS) for part in made])
    assert fingerprint.take(levels) == fingerprint.take(channels.levels_of(samples))


@few
@given(st.integers(0, 90_000), st.integers(50, 9_000))
def test_levels_that_come_bit_by_bit_give_the_same_bits(steps: int, cut: int) -> None:
    levels = np.random.default_rng(4).normal(-40, 9, (steps, pattern.BANDS)).astype(np.float16)
    taker = fingerprint.Taker()
    for start in range(0, steps, cut):
        taker.push(levels[start : start + cut])
    assert taker.finish() == fingerprint.take(levels)
    assert len(taker._held) < fingerprint.PART_STEPS + 2 * fingerprint.MARGIN + cut


def test_fifty_bytes_a_second(one: Floats) -> None:
    assert len(fingerprint.take(channels.levels_of(one)).data) == 150


def test_the_schedule_keeps_ten_minutes_and_then_ten_seconds_of_each() -> None:
    kept = fingerprint.kept(90_000)  # an hour
    assert kept[:15_250].all()
    assert not kept[15_250:16_500].any()
    assert kept[16_500]
    assert kept.sum() == 27_500


@pytest.mark.parametrize(("columns", "size"), [(3, 5), (3, 7), (-1, 0), (16_000, 32_000)])
def test_bits_that_do_not_fit_are_refused(columns: int, size: int) -> None:
    with pytest.raises(CodeError):
        Fingerprint(columns, bytes(size))


# Likeness


def test_hours_are_compared_bit_by_bit_as_minutes_are_at_once(
    one: Floats, other: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(one, attacked("noise-10", one)[RATE // 2 :]), (one, other)]
    at_once = [compare(*pair) for pair in pairs]
    monkeypatch.setattr(matching, "ROOMY", 0)
    for before, pair in zip(at_once, pairs, strict=True):
        after = compare(*pair)
        assert (after.decision, after.start_s) == (before.decision, before.start_s)
        assert math.isclose(after.agreement, before.agreement, abs_tol=1e-5)
        assert math.isclose(after.p, before.p, rel_tol=1e-2)


def test_decisions() -> None:
    long, short, tests = 75, 40, 1000
    assert matching._decide(1e-9, 0.5, long, tests) == "same"
    assert matching._decide(1e-9, 0.5, short, tests) == "same"
    assert matching._decide(1e-9, 0.4, long, tests) == "unclear"
    assert matching._decide(1e-9, 0.3, long, tests) == "other"
    assert matching._decide(1e-3, 0.5, long, tests) == "other"
    assert matching._decide(1e-3, 0.5, short, tests) == "unclear"
    assert matching._decide(1e-9, 0.3, short, tests) == "unclear"


def test_itself(one: Floats) -> None:
    found = compare(one, one)
    assert (found.decision, found.start_s, found.speed) == ("same", 0.0, 1.0)
    assert found.errors < 0.01
    assert found.agreement == pytest.approx(1)
    assert found.differs_s == ()


@pytest.mark.parametrize(
    "attack",
    ["mp3", "opus-16", "noise-10", "lowpass", "highpass", "gain", "echo", "griffin-lim", "mel"],
)
def test_what_a_mark_outlives_leaves_it_the_same(one: Floats, attack: str) -> None:
    assert compare(one, attacked(attack, one)).decision == "same"


def test_a_cut_is_found_where_it_was(one: Floats) -> None:
    found = compare(one, one[round(0.87 * RATE) : round(2.7 * RATE)])
    assert found.decision == "same"
    assert found.start_s == pytest.approx(0.87, abs=0.015)


def test_a_recording_inside_a_longer_one(one: Floats, other: Floats) -> None:
    found = compare(one, np.concatenate([other, one, other]))
    assert found.decision == "same"
    assert found.start_s == pytest.approx(-3, abs=0.015)
    assert (found.from_s, found.to_s) == (pytest.approx(3, abs=0.05), pytest.approx(6, abs=0.05))


@pytest.mark.parametrize("speed", [0.95, 1.05])
def test_a_change_of_speed_is_found(one: Floats, speed: float) -> None:
    found = compare(one, attacked(f"speed@{speed}", one))
    assert found.decision == "same"
    assert found.speed == pytest.approx(speed, abs=0.015)


def test_other_words_are_other(one: Floats, other: Floats) -> None:
    found = compare(one, other)
    assert found.decision == "other"
    assert found.p > 1e-4


def test_gains_of_one_host_on_another_are_other(one: Floats, other: Floats) -> None:
    """The copier: what marking did to each tile of one host is done to another."""
    rng = np.random.default_rng(2)
    gains = 10 ** (rng.choice([-1.0, 1.0], (151, 641)) / 20)

    def lay(samples: Floats) -> Floats:
        rows = samples[: 150 * 320].reshape(-1, 320)
        made = np.fft.irfft(np.fft.rfft(rows, 1280) * gains[: len(rows)], axis=1)[:, :320]
        return made.reshape(-1).astype(np.float32)

    assert compare(lay(one), lay(other)).decision == "other"


def test_too_short_to_say(one: Floats, other: Floats) -> None:
    assert compare(one, other[:RATE]).decision == "unclear"
    assert compare(one[: RATE // 2], one) == matching.NOTHING
    assert compare(one, one[:0]) == matching.NOTHING


def test_silence_is_like_nothing(one: Floats) -> None:
    silence = np.zeros(3 * RATE, np.float32)
    assert compare(silence, silence).decision != "same"
    assert compare(one, silence).decision != "same"


def test_a_part_that_was_replaced_is_named(one: Floats, other: Floats) -> None:
    whole = np.concatenate([one, voice("espeak-ng-gb", 9.0)[3 * RATE :]])
    forged = whole.copy()
    forged[3 * RATE : 6 * RATE] = other[::-1]
    found = compare(whole, forged)
    assert found.decision == "same"
    assert found.differs_s == ((pytest.approx(3, abs=0.1), pytest.approx(6, abs=0.1)),)


def test_more_fingerprints_share_the_chance(one: Floats) -> None:
    alone = compare(one, attacked("noise-10", one))
    many = compare(one, attacked("noise-10", one), tries=1000)
    assert many.p == pytest.approx(1000 * alone.p)


def test_a_long_recording_says_other_only_of_long_parts() -> None:
    columns = 40_000  # of which gaps of 50 s were not kept
    size = 2 * int(fingerprint.kept(columns).sum())
    known = Fingerprint(columns, hashlib.shake_256(b"long").digest(size))
    heard = channels.levels_of(voice("flite-rms", 20.0))
    assert matching.match(known, heard, speed=0).decision == "unclear"
    short = Fingerprint(1000, known.data[:2000])
    assert matching.match(short, heard, speed=0).decision == "other"


def test_a_sketch_is_compared_as_the_recording_is(one: Floats, other: Floats) -> None:
    known = fingerprint.take(channels.levels_of(one))
    slower = np.interp(np.arange(0, len(one), 0.97), np.arange(len(one)), one)
    for samples in (attacked("noise-10", one), slower, other, one[:0], voice("flite-rms", 30.0)):
        levels = channels.levels_of(samples)
        sent = matching.Sketch.of(levels).to_bytes()
        assert len(sent) <= 32 + 16 * len(levels) + 256_000
        near = matching.match(known, matching.Sketch.parse(sent))
        exact = matching.match(known, levels)
        assert (near.decision, near.speed) == (exact.decision, exact.speed)
        assert near.agreement == pytest.approx(exact.agreement, abs=0.01)
        assert math.log(near.p) == pytest.approx(math.log(exact.p), rel=0.02)
