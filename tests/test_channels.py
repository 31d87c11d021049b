"""A mark is heard whatever was done to the channels, each sound once, and chance is not helped."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from keybound import channels, codes, files, fingerprint, likeness
from keybound.channels import Hearing
from keybound.evidence import Detection
from keybound.keys import Key
from keybound.search import Places
from keybound.stream import weigh_views
from keybound.watermark import Watermarker

Samples = NDArray[Any]
Run = Callable[..., Any]

KEY, OTHER = Key(bytes(range(32))), Key(bytes(32))
PAYLOAD, POSITION = 0x5EED, 7
RATE = 16_000
HOWS: dict[str, Any] = {"key": KEY, "payload": PAYLOAD, "position": POSITION}


@pytest.fixture(scope="module")
def host(clips: dict[str, Samples]) -> Samples:
    return np.tile(clips["flite-rms"], 2).astype(np.float32)  # 7.5 s


@pytest.fixture(scope="module")
def voice(clips: dict[str, Samples], host: Samples) -> Samples:
    return np.tile(clips["espeak-ng-gb"], 2)[: len(host)].astype(np.float32)


@pytest.fixture(scope="module", params=["fixed", "rolling"])
def sealed(request: pytest.FixtureRequest, marker: Watermarker, host: Samples) -> Samples:
    return marker.mark(host, RATE, **HOWS, rolling=request.param == "rolling").samples


@pytest.fixture(scope="module")
def fixed(marker: Watermarker, host: Samples) -> Samples:
    return marker.mark(host, RATE, **HOWS).samples


def late(samples: Samples, delay_s: float) -> Samples:
    count = round(delay_s * RATE)
    return np.concatenate([np.zeros(count, np.float32), samples])[: len(samples)]


def arranged(name: str, marked: Samples, voice: Samples) -> Samples:
    """Do to the channels what hides a mark from their mix."""
    noise = np.random.default_rng(0).normal(0, 0.3, len(marked)).astype(np.float32)
    sounds = {
        "flipped": [marked, -marked],
        "late": [marked, late(marked, 0.005)],
        "almost flipped": [marked, -0.95 * marked],
        "silent": [marked, 0 * marked],
        "beside a louder voice": [marked, 4 * voice],
        "beside loud noise": [noise, marked],
        "one of six": [voice, -voice, late(voice, 0.01), marked, 0.2 * noise, -0.1 * noise],
        "six": [marked, -marked, late(marked, 0.003), 0.5 * marked, 0 * marked, -0.9 * marked],
    }
    return np.stack(sounds[name], axis=1)


ARRANGEMENTS = [
    "flipped", "late", "almost flipped", "silent", "beside a louder voice", "beside loud noise",
    "one of six", "six",
]  # fmt: skip


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_the_mark_its_seal_and_its_record_are_found(
    marker: Watermarker, sealed: Samples, voice: Samples, name: str
) -> None:
    heard = arranged(name, sealed, voice)
    found = marker.detect(heard, RATE, levels=True)
    assert found.present
    places = Places((POSITION,))
    verdict = marker.judge(found, key=KEY, payload=PAYLOAD, places=places)
    assert (verdict.grade, verdict.verified, verdict.distance) == ("sealed", True, 0)
    known = fingerprint.take(fingerprint.hear(sealed))
    assert likeness.match(known, found.heard).decision == "same"
    wrong = marker.judge(found, key=OTHER, payload=PAYLOAD, places=places)
    assert min(wrong.seal.p, wrong.roll.p) > 1e-4


@pytest.mark.parametrize("name", ["flipped", "beside a louder voice", "one of six"])
def test_a_rolling_code_is_read_in_the_view_that_holds_it(
    marker: Watermarker, host: Samples, voice: Samples, name: str
) -> None:
    rolled = marker.mark(host, RATE, **HOWS, rolling=True).samples
    found = marker.detect(arranged(name, rolled, voice), RATE, levels=True)
    verdict = marker.judge(found, key=KEY, payload=PAYLOAD, places=Places((POSITION,)))
    assert verdict.roll.holds
    assert verdict.distance == 0
    alone = marker.detect(rolled, RATE, levels=True)
    mono = marker.judge(alone, key=KEY, payload=PAYLOAD, places=Places((POSITION,)))
    assert verdict.roll.places == len(found.views) * mono.roll.places


def test_equal_channels_are_heard_once(marker: Watermarker, fixed: Samples) -> None:
    alone = marker.detect(fixed, RATE, levels=True)
    for count in (2, 3, 12):
        found = marker.detect(np.stack([fixed] * count, axis=1), RATE, levels=True)
        assert (found.channel, found.channels_tried, found.others) == (None, 1, ())
        assert found.channel_levels == {}
        np.testing.assert_array_equal(found.frame_presence, alone.frame_presence)
        np.testing.assert_array_equal(found.frame_logits, alone.frame_logits)
        np.testing.assert_array_equal(found.levels, alone.levels)
        verdicts = [
            marker.judge(one, key=KEY, payload=PAYLOAD, places=Places()) for one in (found, alone)
        ]
        assert verdicts[0] == verdicts[1]  # presence, thresholds, bound, p and all


def test_the_network_runs_once_for_each_sound(
    marker: Watermarker, fixed: Samples, voice: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    session = marker.engine._detector

    class Counted:
        def run(self, names: Any, given: Any) -> Any:
            calls.append(len(given["x"]))
            return session.run(names, given)

    monkeypatch.setattr(marker.engine, "_detector", Counted())
    short, other = fixed[:RATE], voice[:RATE]
    for sounds, count in (
        ([short], 1),
        ([short, short], 1),
        ([short, 0 * short], 2),  # the mix is half of it
        ([short, -short], 2),  # the mix is silent
        ([short, other], 3),
        ([short, other, short, other], 3),
    ):
        calls.clear()
        found = marker.detect(np.stack(sounds, axis=1), RATE)
        assert (len(calls), found.channels_tried) == (count, count)


@pytest.mark.parametrize("name", ["flipped", "beside a louder voice", "beside loud noise"])
def test_the_strongest_view_is_named(
    marker: Watermarker, fixed: Samples, voice: Samples, name: str
) -> None:
    found = marker.detect(arranged(name, fixed, voice), RATE)
    alone = marker.detect(fixed, RATE)
    assert found.channel == (1 if name == "beside loud noise" else 0)
    np.testing.assert_allclose(found.frame_presence, alone.frame_presence, atol=2e-3)
    assert found.frame_logits.dtype == np.float32
    assert found.channels_tried == (2 if name == "flipped" else 3)


def test_of_many_channels_eight_and_the_mix_are_heard(
    marker: Watermarker, fixed: Samples, voice: Samples
) -> None:
    others = [voice * np.float32(-1) ** n * (1 + n) / 20 for n in range(11)]
    for channel, present in ((7, True), (8, False)):
        heard = np.stack([*others[:channel], fixed / 50, *others[channel:]], axis=1)
        found = marker.detect(heard, RATE, levels=True)
        assert found.channels_tried == 9
        assert found.present is present
        assert set(found.channel_levels) <= set(range(8))


# The command line


@pytest.mark.parametrize("rolling", [False, True])
@pytest.mark.parametrize("name", ["flipped", "almost flipped", "late", "beside a louder voice"])
def test_a_file_whose_channels_hide_the_mark_is_sealed_and_of_its_record(
    run: Run, home: Path, host: Samples, voice: Samples, name: str, rolling: bool
) -> None:
    KEY.write(home / "alice.key")
    run("party", "add", "alice", "--key", "alice.key", "--payload", "0x5eed")
    sf.write(home / "host.wav", host, RATE)
    run("embed", "host.wav", "marked.wav", "--party", "alice", *["--rolling"] * rolling)
    marked, _ = sf.read(home / "marked.wav", dtype="float32")
    hidden = arranged(name, marked, voice)
    sf.write(home / "hidden.wav", hidden / np.abs(hidden).max(), RATE)
    found = run("detect", "hidden.wav", "--json")
    tried = 2 if name == "flipped" else 3
    assert (found.code, found.json["present"], found.json["channels_tried"]) == (0, True, tried)
    assert found.json["channel"] in (None, 0, 1)
    verdict = run("verify", "hidden.wav", "--party", "alice", "--require", "sealed", "--json")
    assert (verdict.code, verdict.json["grade"], verdict.json["distance"]) == (0, "sealed", 0)
    assert (verdict.json["origin"]["match"], verdict.json["origin"]["record"]) == ("same", 1)
    run("batch", "verify", "hid*.wav", "--any", "--results", "r.jsonl")
    row = json.loads((home / "r.jsonl").read_text())
    assert (row["grade"], row["origin"], row["party"]) == ("sealed", "same", "alice")


def test_a_stereo_host_is_marked_recorded_and_known_mixed_down(
    run: Run, home: Path, host: Samples, voice: Samples
) -> None:
    KEY.write(home / "alice.key")
    run("party", "add", "alice", "--key", "alice.key", "--payload", "0x5eed")
    sf.write(home / "host.wav", np.stack([host, voice], axis=1), RATE)
    made = run("embed", "host.wav", "marked.wav", "--party", "alice", "--json")
    assert (made.code, made.json["grade"]) == (0, "sealed")
    marked, _ = sf.read(home / "marked.wav")
    for name, sound in (("left", marked[:, 0]), ("mixed", marked.mean(axis=1))):
        sf.write(home / f"{name}.wav", sound, RATE)
        verdict = run("verify", f"{name}.wav", "--party", "alice", "--json")
        assert verdict.json["origin"]["match"] in (
            ("same",) if name == "mixed" else ("same", "unclear")
        )
        assert verdict.json["grade"] == "sealed"


# Two parties


def test_each_channel_may_carry_another_party(
    marker: Watermarker, host: Samples, voice: Samples
) -> None:
    one = marker.mark(host, RATE, key=KEY, payload=PAYLOAD, position=1).samples
    two = marker.mark(voice, RATE, key=OTHER, payload=0xBEE, position=2).samples
    found = marker.detect(np.stack([one, two], axis=1), RATE, levels=True)
    assert {mark.channel for mark in found.marks} >= {0, 1}
    for key, payload in ((KEY, PAYLOAD), (OTHER, 0xBEE)):
        verdict = marker.judge(found, key=key, payload=payload, places=Places())
        assert (verdict.grade, verdict.distance) == ("sealed", 0)
        assert verdict.marks == len(found.marks)
        assert verdict.bound == pytest.approx(len(found.marks) * codes.bound(16, 2))


def test_one_mark_in_two_channels_is_one_mark(marker: Watermarker, host: Samples) -> None:
    marked = marker.mark(np.stack([host, late(host, 0.01)], axis=1), RATE, **HOWS).samples
    found = marker.detect(marked, RATE)
    assert len(found.others) == 2
    assert len(found.marks) == 1
    assert marker.judge(found, key=KEY, payload=PAYLOAD).bound == codes.bound(16, 2)


def test_spans_that_only_another_channel_holds_are_told(
    marker: Watermarker, fixed: Samples, voice: Samples
) -> None:
    half = len(fixed) // 2
    left = np.concatenate([fixed[:half], voice[half:]])
    right = np.concatenate([-3 * voice[:half], fixed[half:]])
    found = marker.detect(np.stack([left, right], axis=1), RATE)
    assert found.spans[0].start_s < 0.3
    assert found.spans[-1].end_s > len(fixed) / RATE - 0.3
    assert list(found.spans) == sorted(found.spans, key=lambda span: span.start_s)


# Blocks, files, streams


def alike(one: Detection, other: Detection) -> None:
    kept = ("present", "threshold", "evidence_threshold_s", "channel", "channels_tried")
    assert [getattr(one, name) for name in kept] == [getattr(other, name) for name in kept]
    assert one.presence == pytest.approx(other.presence, abs=1e-4)
    np.testing.assert_allclose(one.frame_presence, other.frame_presence, rtol=0, atol=2e-3)
    np.testing.assert_allclose(one.frame_logits, other.frame_logits, rtol=0, atol=4e-2)
    assert len(one.spans) == len(other.spans)
    assert list(one.heard) == list(other.heard)
    for own, its in zip(one.heard.values(), other.heard.values(), strict=True):
        np.testing.assert_allclose(own.astype(float), its.astype(float), rtol=0, atol=0.13)


@settings(max_examples=15, deadline=None)
@given(st.data(), st.sampled_from([16_000, 44_100]), st.integers(2, 4))
def test_however_it_is_cut_the_answer_is_the_same(
    marker: Watermarker, fixed: Samples, voice: Samples, data: st.DataObject, rate: int, count: int
) -> None:
    length = data.draw(st.integers(4_500, 40_000))
    heard = np.repeat(fixed[:length, None], count, axis=1)
    for channel in range(1, count):  # equal up to some moment, or throughout
        begin = data.draw(st.integers(0, length))
        sign = data.draw(st.sampled_from([-1, 0, 0.5]))
        heard[begin:, channel] = sign * heard[begin:, channel] if sign else voice[begin:length]
    whole = marker.detect(heard, rate, levels=True)
    edges = sorted(data.draw(st.lists(st.integers(0, length), max_size=8)))
    stream = marker.detector(rate, channels=count, levels=True)
    scores = [stream.push(heard[a:b]) for a, b in pairwise([0, *edges, length])]
    scores.append(stream.flush())
    alike(stream.detection(), whole)
    assert len(np.concatenate(scores)) == len(whole.frame_presence)
    assert (np.concatenate(scores) >= whole.frame_presence - 2e-3).all()


def test_channels_that_part_late_are_heard_as_from_the_start(
    marker: Watermarker, fixed: Samples, voice: Samples
) -> None:
    """What came before the parting counts for each channel as if it had come alone."""
    right = np.concatenate([fixed[:RATE], voice[RATE:]])
    found = marker.detect(np.stack([fixed, right], axis=1), RATE, levels=True)
    for channel, sound in enumerate((fixed, right)):
        alone = fingerprint.hear(sound)
        np.testing.assert_allclose(found.channel_levels[channel], alone, rtol=0, atol=0.13)
    first = marker.detect(fixed, RATE)
    assert found.channel == 0
    np.testing.assert_allclose(found.frame_presence, first.frame_presence, atol=2e-3)


def test_files_are_heard_as_arrays(
    marker: Watermarker, fixed: Samples, voice: Samples, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(files, "BLOCK_S", 0.7)
    heard = arranged("beside a louder voice", fixed, voice / 8)
    sf.write(tmp_path / "a.wav", heard, RATE, subtype="FLOAT")
    found, whole = (
        files.detect(marker, tmp_path / "a.wav", levels=True),
        marker.detect(heard, RATE, levels=True),
    )
    alike(found, whole)
    assert fingerprint.take(files.listen(tmp_path / "a.wav")) == fingerprint.take(whole.heard[None])


# Levels


def test_no_sign_delay_or_gain_hides_a_channel_from_the_levels(
    fixed: Samples, voice: Samples
) -> None:
    mono = fingerprint.hear(fixed)
    np.testing.assert_array_equal(fingerprint.hear(np.stack([fixed, -fixed], 1)), mono)
    silent = fingerprint.hear(np.stack([fixed, 0 * fixed], 1)).astype(float)
    loud = mono > -60
    np.testing.assert_allclose(silent[loud], mono[loud] - 10 * np.log10(2), atol=0.1)
    both = fingerprint.hear(np.stack([fixed, -voice], 1)).astype(float)
    power = [10 ** (fingerprint.hear(one).astype(float) / 10) for one in (fixed, voice)]
    np.testing.assert_allclose(both, 10 * np.log10(np.mean(power, axis=0)), atol=0.1)


def test_single_levels_are_kept_for_so_long(
    marker: Watermarker, fixed: Samples, voice: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = np.stack([fixed, voice], axis=1)
    seconds = 2 * len(fingerprint.hear(fixed)) * fingerprint.STEP_S
    for most_s, kept in ((seconds + 0.1, {0, 1}), (seconds - 0.1, set()), (0.5, set())):
        monkeypatch.setattr(channels, "MOST_LEVELS_S", most_s)
        found = marker.detect(heard, RATE, levels=True)
        assert set(found.channel_levels) == kept
        np.testing.assert_array_equal(found.heard[None], fingerprint.hear(heard))


def test_levels_that_add_nothing_are_not_searched(fixed: Samples, voice: Samples) -> None:
    for sounds, kept in (
        ([fixed, -fixed], set()),
        ([fixed, 0 * fixed], set()),
        ([fixed, voice], {0, 1}),
        ([fixed, voice, -fixed, 0 * fixed], {0, 1}),
    ):
        hearing = Hearing(RATE, len(sounds), levels=True)
        hearing.hear(np.stack(sounds, axis=1), end=True)
        assert set(hearing.levels(last=True)[1]) == kept


def test_p_counts_the_channels(marker: Watermarker, fixed: Samples, voice: Samples) -> None:
    places = Places((POSITION,))
    mono = marker.verify(fixed, RATE, key=KEY, payload=PAYLOAD, places=places)
    heard = arranged("beside a louder voice", fixed, voice)
    both = marker.verify(heard, RATE, key=KEY, payload=PAYLOAD, places=places)
    assert both.seal.places == 3 * mono.seal.places
    assert both.seal.channel == 0
    assert "in channel 0 alone" in both.words
    assert mono.seal.channel is None


def test_a_recording_of_two_voices_is_the_same_mixed_down(
    host: Samples, voice: Samples, marker: Watermarker
) -> None:
    both = np.stack([host, voice], axis=1)
    known = fingerprint.take(fingerprint.hear(both))
    assert likeness.match(known, fingerprint.hear(both.mean(axis=1))).decision == "same"
    assert likeness.match(known, fingerprint.hear(host[::-1])).decision != "same"
    heard = marker.detect(np.stack([voice, host[::-1]], axis=1), RATE, levels=True).heard
    assert likeness.match(known, heard).p >= likeness.match(known, heard[None]).p / 3


def test_a_sketch_holds_the_channels(host: Samples, voice: Samples, marker: Watermarker) -> None:
    found = marker.detect(np.stack([host, 4 * voice], axis=1), RATE, levels=True)
    sent = likeness.Sketch.parse(likeness.Sketch.of(found.heard).to_bytes())
    assert [one.channel for one in (sent, *sent.others)] == [None, 0, 1]
    known = fingerprint.take(fingerprint.hear(host))
    direct, there = likeness.match(known, found.heard), likeness.match(known, sent)
    assert (direct.decision, direct.channel) == (there.decision, there.channel) == ("same", 0)


# Chance


def test_chance_has_no_more_of_it_in_more_views(marker: Watermarker) -> None:
    """The least that is called a mark lies as high as false alarms stay as rare."""
    card = marker.card
    rng = np.random.default_rng(0)
    quiet = np.full((500, 17), -4.9, np.float32)
    one = weigh_views({None: quiet}, 0.02, 10.0, card)
    views: dict[int | None, Any] = {None: quiet, 0: quiet + 0.01, 1: quiet + 0.02}
    three = weigh_views(views, 0.02, 10.0, card)
    assert (one.channels_tried, three.channels_tried) == (1, 3)
    assert three.evidence_threshold_s == card.tail.threshold(30.0)
    assert three.threshold == pytest.approx(card.threshold + card.excess * np.log(3))
    # Scores of unmarked seconds as the card says they are: the most of three passes no more often.
    scores = card.threshold + rng.exponential(card.excess, (200_000, 3)) - 4 * card.excess
    alone = np.mean(scores[:, 0] >= card.threshold)
    assert np.mean(scores.max(axis=1) >= card.threshold_of(3)) <= 1.05 * alone
