"""A mark is heard whatever was done to the channels, each sound once, and chance is not helped."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st
from made_channels import arranged
from numpy.typing import NDArray

from keybound.crypto.keys import Key
from keybound.model.detection import weigh_views
from keybound.provenance import fingerprint
from keybound.seal.search import SealSearch
from keybound.types import Analysis
from keybound.watermark import channels, files
from keybound.watermark.channels import ChannelFeeder
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]

KEY = Key(bytes(range(32)))
PAYLOAD, POSITION = 0x5EED, 7
RATE = 16_000
HOWS: dict[str, Any] = {"key": KEY, "payload": PAYLOAD, "position": POSITION}


@pytest.fixture(scope="module")
def host(clips: dict[str, Samples]) -> Samples:
    return np.tile(clips["flite-rms"], 2).astype(np.float32)  # 7.5 s


@pytest.fixture(scope="module")
def voice(clips: dict[str, Samples], host: Samples) -> Samples:
    return np.tile(clips["espeak-ng-gb"], 2)[: len(host)].astype(np.float32)


@pytest.fixture(scope="module")
def fixed(marker: Watermarker, host: Samples) -> Samples:
    return marker.embed(host, RATE, **HOWS, check=False)


def test_equal_channels_are_heard_once(marker: Watermarker, fixed: Samples) -> None:
    alone = marker.analyse(fixed, RATE)
    for count in (2, 3, 12):
        found = marker.analyse(np.stack([fixed] * count, axis=1), RATE)
        assert (
            found.detection.channel,
            found.detection.channels_tried,
            found.detection.others,
        ) == (None, 1, ())
        assert set(found.levels) == {None}
        np.testing.assert_array_equal(
            found.detection.frame_presence, alone.detection.frame_presence
        )
        np.testing.assert_array_equal(found.detection.frame_logits, alone.detection.frame_logits)
        np.testing.assert_array_equal(found.levels[None], alone.levels[None])
        verdicts = [
            marker.judge(one, key=KEY, payload=PAYLOAD, search=SealSearch())
            for one in (found, alone)
        ]
        assert verdicts[0] == verdicts[1]  # presence, thresholds, bound, p and all


def test_the_network_runs_once_for_each_sound(
    marker: Watermarker, fixed: Samples, voice: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    session = marker.networks._detector

    class Counted:
        def run(self, names: Any, given: Any) -> Any:
            calls.append(len(given["x"]))
            return session.run(names, given)

    monkeypatch.setattr(marker.networks, "_detector", Counted())
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
        found = marker.analyse(heard, RATE)
        assert found.detection.channels_tried == 9
        assert found.detection.present is present
        assert set(found.levels) <= {None, *range(8)}


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


def alike(found: Analysis, expected: Analysis) -> None:
    one, other = found.detection, expected.detection
    kept = ("present", "threshold", "evidence_threshold_s", "channel", "channels_tried")
    assert [getattr(one, name) for name in kept] == [getattr(other, name) for name in kept]
    assert one.presence == pytest.approx(other.presence, abs=1e-4)
    np.testing.assert_allclose(one.frame_presence, other.frame_presence, rtol=0, atol=2e-3)
    np.testing.assert_allclose(one.frame_logits, other.frame_logits, rtol=0, atol=4e-2)
    assert len(one.spans) == len(other.spans)
    assert list(found.levels) == list(expected.levels)
    for own, its in zip(found.levels.values(), expected.levels.values(), strict=True):
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
    whole = marker.analyse(heard, rate)
    edges = sorted(data.draw(st.lists(st.integers(0, length), max_size=8)))
    stream = marker.detector(rate, channels=count, levels=True)
    scores = [stream.push(heard[a:b]) for a, b in pairwise([0, *edges, length])]
    scores.append(stream.flush())
    alike(stream.analysis(), whole)
    assert len(np.concatenate(scores)) == len(whole.detection.frame_presence)
    assert (np.concatenate(scores) >= whole.detection.frame_presence - 2e-3).all()


def test_channels_that_part_late_are_heard_as_from_the_start(
    marker: Watermarker, fixed: Samples, voice: Samples
) -> None:
    """What came before the parting counts for each channel as if it had come alone."""
    right = np.concatenate([fixed[:RATE], voice[RATE:]])
    found = marker.analyse(np.stack([fixed, right], axis=1), RATE)
    for channel, sound in enumerate((fixed, right)):
        alone = channels.levels_of(sound)
        np.testing.assert_allclose(found.levels[channel], alone, rtol=0, atol=0.13)
    first = marker.detect(fixed, RATE)
    assert found.detection.channel == 0
    np.testing.assert_allclose(found.detection.frame_presence, first.frame_presence, atol=2e-3)


def test_files_are_heard_as_arrays(
    marker: Watermarker, fixed: Samples, voice: Samples, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(files, "BLOCK_S", 0.7)
    heard = arranged("beside a louder voice", fixed, voice / 8)
    sf.write(tmp_path / "a.wav", heard, RATE, subtype="FLOAT")
    found, whole = (
        files.analyse(marker, tmp_path / "a.wav"),
        marker.analyse(heard, RATE),
    )
    alike(found, whole)
    assert fingerprint.take(files.levels_of(tmp_path / "a.wav")) == fingerprint.take(
        whole.levels[None]
    )


# Levels


def test_no_sign_delay_or_gain_hides_a_channel_from_the_levels(
    fixed: Samples, voice: Samples
) -> None:
    mono = channels.levels_of(fixed)
    np.testing.assert_array_equal(channels.levels_of(np.stack([fixed, -fixed], 1)), mono)
    silent = channels.levels_of(np.stack([fixed, 0 * fixed], 1)).astype(float)
    loud = mono > -60
    np.testing.assert_allclose(silent[loud], mono[loud] - 10 * np.log10(2), atol=0.1)
    both = channels.levels_of(np.stack([fixed, -voice], 1)).astype(float)
    power = [10 ** (channels.levels_of(one).astype(float) / 10) for one in (fixed, voice)]
    np.testing.assert_allclose(both, 10 * np.log10(np.mean(power, axis=0)), atol=0.1)


def test_single_levels_are_kept_for_so_long(
    marker: Watermarker, fixed: Samples, voice: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = np.stack([fixed, voice], axis=1)
    seconds = 2 * len(channels.levels_of(fixed)) * fingerprint.STEP_S
    for most_s, kept in ((seconds + 0.1, {0, 1}), (seconds - 0.1, set()), (0.5, set())):
        monkeypatch.setattr(channels, "MOST_LEVELS_S", most_s)
        found = marker.analyse(heard, RATE)
        assert set(found.levels) - {None} == kept
        np.testing.assert_array_equal(found.levels[None], channels.levels_of(heard))


def test_levels_that_add_nothing_are_not_searched(fixed: Samples, voice: Samples) -> None:
    for sounds, kept in (
        ([fixed, -fixed], set()),
        ([fixed, 0 * fixed], set()),
        ([fixed, voice], {0, 1}),
        ([fixed, voice, -fixed, 0 * fixed], {0, 1}),
    ):
        feeder = ChannelFeeder(RATE, len(sounds), levels=True)
        feeder.push(np.stack(sounds, axis=1), end=True)
        assert set(feeder.levels(last=True)) - {None} == kept


# Chance


def test_chance_has_no_more_of_it_in_more_views(marker: Watermarker) -> None:
    """The least that is called a mark lies as high as false alarms stay as rare."""
    card = marker.card
    rng = np.random.default_rng(0)
    quiet = np.full((500, 17), -4.9, np.float32)
    rule: dict[str, Any] = {"tail": card.tail, "false_alarms": 1e-3}
    one = weigh_views({None: quiet}, 0.02, 10.0, threshold=0.5, tries=1, **rule)
    views: dict[int | None, Any] = {None: quiet, 0: quiet + 0.01, 1: quiet + 0.02}
    three = weigh_views(views, 0.02, 10.0, threshold=0.5, tries=3, **rule)
    assert (one.channels_tried, three.channels_tried) == (1, 3)
    assert three.evidence_threshold_s == card.tail.threshold(30.0, 1e-3)
    assert card.threshold_of(3) == pytest.approx(card.threshold + card.excess * np.log(3))
    # Scores of unmarked seconds as the card says they are: the most of three passes no more often.
    scores = card.threshold + rng.exponential(card.excess, (200_000, 3)) - 4 * card.excess
    alone = np.mean(scores[:, 0] >= card.threshold)
    assert np.mean(scores.max(axis=1) >= card.threshold_of(3)) <= 1.05 * alone
