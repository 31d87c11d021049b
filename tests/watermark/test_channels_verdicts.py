"""Verdicts on recordings whose channels hide a mark: its seal, its code, its record, its party."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from made_channels import arranged, late
from numpy.typing import NDArray

from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.identity import reading
from keybound.identity.identifier import keyed
from keybound.identity.permutation import Permutation
from keybound.provenance import fingerprint, matching
from keybound.seal.search import SealSearch
from keybound.watermark import channels
from keybound.watermark.options import EmbedOptions
from keybound.watermark.watermarker import Watermarker

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


@pytest.fixture(scope="module")
def fixed(marker: Watermarker, host: Samples) -> Samples:
    return marker.embed(host, RATE, **HOWS, check=False)


CARRIED = keyed(99, OTHER)


@pytest.fixture(scope="module")
def spelled(marker: Watermarker, host: Samples) -> Samples:
    """Return the host with a seal, and codes that spell an identifier."""
    options = EmbedOptions(KEY, PAYLOAD, position=POSITION, identifier=CARRIED)
    return marker._embed(host, RATE, options, check=False).samples


ARRANGEMENTS = [
    "flipped", "late", "almost flipped", "silent", "beside a louder voice", "beside loud noise",
    "one of six", "six",
]  # fmt: skip


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_the_mark_its_seal_and_its_record_are_found(
    marker: Watermarker, fixed: Samples, voice: Samples, name: str
) -> None:
    heard = arranged(name, fixed, voice)
    found = marker.analyse(heard, RATE)
    assert found.detection.present
    search = SealSearch((POSITION,))
    verdict = marker.judge(found, key=KEY, payload=PAYLOAD, search=search)
    assert (verdict.grade, verdict.verified, verdict.distance) == ("sealed", True, 0)
    known = fingerprint.take(channels.levels_of(fixed))
    assert matching.match(known, found.levels).decision == "same"
    wrong = marker.judge(found, key=OTHER, payload=PAYLOAD, search=search)
    assert wrong.seal.p > 1e-4


@pytest.mark.parametrize("name", ["flipped", "beside a louder voice", "one of six"])
def test_an_identifier_is_read_in_the_view_that_holds_it(
    marker: Watermarker, spelled: Samples, voice: Samples, name: str
) -> None:
    found = marker.analyse(arranged(name, spelled, voice), RATE)
    (one,) = reading.read(found.detection, [Permutation(OTHER)])
    assert (one.serial, one.start_s) == (99, pytest.approx(0, abs=0.11))
    assert one.tries == reading.MOST_BLOCKS
    search = SealSearch((POSITION,))
    own = marker.judge(found, key=KEY, payload=PAYLOAD, search=search, identifier=CARRIED)
    assert (own.grade, own.distance, own.marks) == ("sealed", 0, len(found.detection.views))


@pytest.mark.parametrize("name", ["flipped", "almost flipped", "late", "beside a louder voice"])
def test_a_file_whose_channels_hide_the_mark_is_sealed_and_of_its_record(
    run: Run, home: Path, host: Samples, voice: Samples, name: str
) -> None:
    KEY.write(home / "alice.key")
    run("party", "add", "alice", "--key", "alice.key", "--payload", "0x5eed")
    sf.write(home / "host.wav", host, RATE)
    run("embed", "host.wav", "marked.wav", "--party", "alice")
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


def test_each_channel_may_carry_another_party(
    marker: Watermarker, host: Samples, voice: Samples
) -> None:
    one = marker.embed(host, RATE, key=KEY, payload=PAYLOAD, position=1, check=False)
    two = marker.embed(voice, RATE, key=OTHER, payload=0xBEE, position=2, check=False)
    found = marker.analyse(np.stack([one, two], axis=1), RATE)
    assert {mark.channel for mark in found.detection.marks} >= {0, 1}
    for key, payload in ((KEY, PAYLOAD), (OTHER, 0xBEE)):
        verdict = marker.judge(found, key=key, payload=payload, search=SealSearch())
        assert (verdict.grade, verdict.distance) == ("sealed", 0)
        assert verdict.marks == len(found.detection.marks)
        assert verdict.bound == pytest.approx(len(found.detection.marks) * codes.bound(16, 2))


def test_one_mark_in_two_channels_is_one_mark(marker: Watermarker, host: Samples) -> None:
    marked = marker.embed(np.stack([host, late(host, 0.01)], axis=1), RATE, **HOWS, check=False)
    found = marker.detect(marked, RATE)
    assert len(found.others) == 2
    assert len(found.marks) == 1
    assert marker.attribute(found, key=KEY, payload=PAYLOAD).bound == codes.bound(16, 2)


def test_p_counts_the_channels(marker: Watermarker, fixed: Samples, voice: Samples) -> None:
    search = SealSearch((POSITION,))
    mono = marker.verify(fixed, RATE, key=KEY, payload=PAYLOAD, search=search)
    heard = arranged("beside a louder voice", fixed, voice)
    both = marker.verify(heard, RATE, key=KEY, payload=PAYLOAD, search=search)
    assert both.seal.tests == 3 * mono.seal.tests
    assert both.seal.channel == 0
    assert "in channel 0 alone" in both.words
    assert mono.seal.channel is None


def test_a_recording_of_two_voices_is_the_same_mixed_down(
    host: Samples, voice: Samples, marker: Watermarker
) -> None:
    both = np.stack([host, voice], axis=1)
    known = fingerprint.take(channels.levels_of(both))
    assert matching.match(known, channels.levels_of(both.mean(axis=1))).decision == "same"
    assert matching.match(known, channels.levels_of(host[::-1])).decision != "same"
    heard = marker.analyse(np.stack([voice, host[::-1]], axis=1), RATE).levels
    assert matching.match(known, heard).p >= matching.match(known, heard[None]).p / 3


def test_a_sketch_holds_the_channels(host: Samples, voice: Samples, marker: Watermarker) -> None:
    found = marker.analyse(np.stack([host, 4 * voice], axis=1), RATE)
    sent = matching.Sketch.parse(matching.Sketch.of(found.levels).to_bytes())
    assert [one.channel for one in (sent, *sent.others)] == [None, 0, 1]
    known = fingerprint.take(channels.levels_of(host))
    direct, there = matching.match(known, found.levels), matching.match(known, sent)
    assert (direct.decision, direct.channel) == (there.decision, there.channel) == ("same", 0)
