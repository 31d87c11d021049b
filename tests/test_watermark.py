"""Marks come back from marked speech, for the right key only, and leave the rest of it alone."""

import itertools
import types
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from numpy.typing import NDArray

import keybound
from keybound import audio, codes, seal
from keybound.blocks import Sum
from keybound.demo import SPEECH
from keybound.errors import AudioError, CodeError, KeyBoundError
from keybound.evidence import Detection, Mark, Tail
from keybound.keys import Key
from keybound.search import Places, Sealed
from keybound.verdict import GRADES, Verdict
from keybound.watermark import MarkWarning, Watermarker

Samples = NDArray[Any]

KEY = Key(bytes(range(32)))
PAYLOAD = 0x5EED
RATE = 16_000
DATA = Path(__file__).parent / "data"
RECORDED = Path(__file__).resolve().parents[2] / "shared" / "speech" / "test"


@pytest.fixture(scope="module")
def marker() -> Watermarker:
    return Watermarker()


@pytest.fixture(scope="module")
def clips() -> dict[str, Samples]:
    """Synthetic speech of three voices at 16 kHz."""
    read = {path.stem: audio.read(path) for path in (SPEECH, *sorted(DATA.glob("*.flac")))}
    return {n: audio.resample(r.samples[:, 0], r.sample_rate, RATE) for n, r in read.items()}


@pytest.fixture(scope="module")
def clip(clips: dict[str, Samples]) -> Samples:
    return clips["flite-rms"]


@pytest.fixture(scope="module")
def marked(marker: Watermarker, clip: Samples) -> Samples:
    return marker.embed(clip, RATE, key=KEY, payload=PAYLOAD, position=0)


@pytest.fixture(scope="module")
def found(marker: Watermarker, marked: Samples) -> Detection:
    return marker.detect(marked, RATE)


@pytest.fixture(scope="module")
def exact(found: Detection) -> Detection:
    """A detection whose bits are all right: what the rule makes of it is no matter of training."""
    return replace(found, present=True, marks=(Mark(found.spans, logits_of(PAYLOAD)),))


def logits_of(payload: int) -> Samples:
    return 2 * codes.encode(payload, KEY, 16).astype(np.float32) - 1


# From mark to verdict


@pytest.mark.parametrize("path", [SPEECH, *sorted(DATA.glob("*.flac"))], ids=lambda p: p.stem)
def test_a_marked_recording_verifies_and_the_host_does_not(path: Path) -> None:
    host, rate = sf.read(path, dtype="float32")
    marked = keybound.embed(host, rate, key=KEY, payload=PAYLOAD, position=0)
    assert keybound.detect(marked, rate).present
    verdict = keybound.verify(marked, rate, key=KEY, payload=PAYLOAD)
    assert verdict.verified
    assert verdict.distance == 0
    assert verdict.bound == pytest.approx(codes.bound(16, 2))
    assert not keybound.verify(marked, rate, key=Key(bytes(32)), payload=PAYLOAD).verified
    assert not keybound.detect(host, rate).present
    assert not keybound.verify(host, rate, key=KEY, payload=PAYLOAD).verified


@pytest.mark.parametrize("payload", [0, 1, 0x8000, 0xA5A5, 0xFFFF])
def test_every_payload_comes_back(marker: Watermarker, clip: Samples, payload: int) -> None:
    marked = marker.embed(clip, RATE, key=KEY, payload=payload, position=0)
    assert codes.from_bits(codes.decode(marker.detect(marked, RATE).code_logits, KEY)) == payload


def test_wrong_keys_are_at_chance_and_pass_as_seldom_as_the_bound_says(
    marker: Watermarker, exact: Detection
) -> None:
    keys = [Key(n.to_bytes(32)) for n in range(2000)]
    verdicts = [marker.judge(exact, key=key, payload=PAYLOAD) for key in keys]
    distances = [verdict.distance for verdict in verdicts]
    assert distances == [codes.distance(codes.mask(KEY, 16), codes.mask(k, 16)) for k in keys]
    assert np.mean(distances) == pytest.approx(8, abs=0.2)
    assert [verdict.verified for verdict in verdicts] == [d <= 2 for d in distances]
    assert np.mean([verdict.verified for verdict in verdicts]) < 2.5 * codes.bound(16, 2)


@pytest.mark.parametrize(("wrong", "verified"), [(0, True), (1, True), (2, True), (3, False)])
def test_the_rule_ends_at_rho(
    marker: Watermarker, exact: Detection, wrong: int, verified: bool
) -> None:
    claimed = PAYLOAD ^ (0x0421 & ((1 << 4 * wrong) - 1))
    verdict = marker.judge(exact, key=KEY, payload=claimed)
    assert verdict.distance == wrong
    assert verdict.verified is verified


@pytest.mark.parametrize("payload", [PAYLOAD ^ 0xFFFF, PAYLOAD ^ 0x0F00, 0, 0xFFFF, 0x1234])
def test_a_wrong_payload_does_not_verify(
    marker: Watermarker, exact: Detection, payload: int
) -> None:
    verdict = marker.judge(exact, key=KEY, payload=payload)
    assert not verdict.verified
    assert verdict.present


def test_rho_of_the_caller_takes_the_place_of_the_models(
    marker: Watermarker, exact: Detection
) -> None:
    near = PAYLOAD ^ 1
    strict = marker.judge(exact, key=KEY, payload=near, rho=0)
    assert (strict.verified, strict.distance, strict.rho) == (False, 1, 0)
    assert strict.bound == pytest.approx(2**-16)
    assert marker.judge(exact, key=KEY, payload=near, rho=1).verified


def test_nobody_is_judged_by_bits_without_presence(marker: Watermarker, exact: Detection) -> None:
    verdict = marker.judge(replace(exact, present=False), key=KEY, payload=PAYLOAD)
    assert not verdict.verified
    assert verdict.distance <= verdict.rho


def test_the_bound_is_corrected_for_the_parties_tried(
    marker: Watermarker, exact: Detection
) -> None:
    one, many = (marker.judge(exact, key=KEY, payload=PAYLOAD, tries=n) for n in (1, 100))
    assert many.bound == pytest.approx(1 - (1 - one.bound) ** 100)
    assert many.tries == 100


def test_every_mark_is_tried_and_the_bound_knows(marker: Watermarker, exact: Detection) -> None:
    others = [Mark((), logits_of(PAYLOAD ^ flip)) for flip in (0xFFFF, 0x0FF0)]
    several = replace(exact, marks=(*others, *exact.marks))
    verdict = marker.judge(several, key=KEY, payload=PAYLOAD, tries=10)
    assert verdict.verified
    assert (verdict.distance, verdict.marks, verdict.tries) == (0, 3, 10)
    assert verdict.bound == pytest.approx(1 - (1 - 3 * codes.bound(16, 2)) ** 10)
    wide = marker.judge(replace(exact, marks=exact.marks * 8), key=KEY, payload=PAYLOAD, rho=15)
    assert wide.bound == 1


def test_only_the_same_nonce_verifies(marker: Watermarker, clip: Samples) -> None:
    marked = marker.embed(clip, RATE, key=KEY, payload=PAYLOAD, position=0, nonce=b"clip 1")
    found = marker.detect(marked, RATE)
    right = marker.judge(found, key=KEY, payload=PAYLOAD, nonce=b"clip 1")
    assert right.verified
    assert right.distance == 0
    for nonce in (b"", b"clip 2", b"clip 1 "):
        verdict = marker.judge(found, key=KEY, payload=PAYLOAD, nonce=nonce)
        masks = codes.mask(KEY, 16, b"clip 1"), codes.mask(KEY, 16, nonce)
        assert verdict.distance == codes.distance(*masks)
        assert not verdict.verified


@pytest.mark.parametrize("payload", [-1, 1 << 16])
def test_a_payload_that_does_not_fit_is_refused(
    marker: Watermarker, clip: Samples, found: Detection, payload: int
) -> None:
    with pytest.raises(CodeError, match="does not fit in 16 bits"):
        marker.embed(clip, RATE, key=KEY, payload=payload, position=0)
    with pytest.raises(CodeError, match="does not fit in 16 bits"):
        marker.judge(found, key=KEY, payload=payload)


SURE = Sealed(0.0, 40.0, 0, 0.0, 1.0, 10)


def test_grades_are_ordered() -> None:
    none = Verdict(
        verified=False, present=False, presence=0.1, threshold=0.47, distance=8, bits=16, rho=2,
        bound=0.00209, tries=1, marks=1, spans=(),
    )  # fmt: skip
    present = replace(none, present=True)
    attributed = replace(present, verified=True)
    verdicts = [none, present, attributed, replace(attributed, seal=SURE)]
    assert tuple(verdict.grade for verdict in verdicts) == GRADES
    for low, high in itertools.combinations(range(4), 2):
        assert verdicts[high].reaches(GRADES[low])
        assert not verdicts[low].reaches(GRADES[high])
    assert replace(none, seal=SURE).grade == "sealed"  # the mark is gone, the seal is not


def test_a_mark_is_sealed_where_it_is_wanted(marker: Watermarker, clip: Samples) -> None:
    whose = {"key": KEY, "payload": PAYLOAD}
    marked = marker.embed(clip, RATE, **whose, seal=False)
    assert marker.verify(marked, RATE, **whose).grade == "attributed"
    marked = marker.embed(clip, RATE, **whose, position=7)
    for places, grade in (
        (Places(), "sealed"),
        (Places((7,)), "sealed"),
        (Places((8,)), "attributed"),
        (Places(()), "attributed"),
    ):
        assert marker.verify(marked, RATE, **whose, places=places).grade == grade
    for other in ({"payload": PAYLOAD ^ 1}, {"nonce": b"n"}, {"key": Key(bytes(32))}):
        verdict = marker.verify(marked, RATE, **whose | other, places=Places((7,)))
        assert not verdict.seal.holds  # the seal speaks for key, payload and nonce


def test_each_recording_gets_a_position_that_is_told(marker: Watermarker, clip: Samples) -> None:
    whose = {"key": KEY, "payload": PAYLOAD}
    made = [marker.mark(clip[:RATE], RATE, **whose) for _ in range(12)]
    assert len({one.position for one in made}) > 1  # all alike once in 10^26
    for one in made[:2]:
        again = marker.embed(clip[:RATE], RATE, **whose, position=one.position)
        np.testing.assert_array_equal(one.samples, again)
    assert marker.mark(clip, RATE, **whose, seal=False).position is None
    with pytest.raises(CodeError, match="without a seal"):
        marker.embed(clip, RATE, **whose, position=3, seal=False)


def test_levels_are_heard_only_where_they_are_asked_for(
    marker: Watermarker, clip: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    whose = {"key": KEY, "payload": PAYLOAD}
    heard = marker.detect(clip, RATE, levels=True)
    assert heard.levels is not None
    assert len(heard.levels) == pytest.approx(100 * len(clip) / RATE, abs=2)
    monkeypatch.setattr(seal, "listener", lambda: pytest.fail("nobody asked"))
    found = marker.detect(clip, RATE)
    assert found.levels is None
    marker.judge(found, **whose)
    with pytest.raises(KeyBoundError, match="does not hold what a seal is looked for in"):
        marker.judge(found, **whose, places=Places())


def test_a_verdict_reads_as_a_sentence() -> None:
    good = Verdict(
        verified=True, present=True, presence=0.9, threshold=0.47, distance=1, bits=16, rho=2,
        bound=0.00209, tries=1, marks=1, spans=(),
    )  # fmt: skip
    sentences = {
        good: "marked, payload agrees in 15 of 16 bits; a wrong key passes with probability 0.0021",
        replace(good, tries=3, bound=0.00626): (
            "marked, payload agrees in 15 of 16 bits; "
            "one of 3 wrong keys passes with probability 0.0063"
        ),
        replace(good, seal=Sealed(3e-13, 9.0, 0, 0.0, 1.0, 10)): (
            "marked, payload agrees in 15 of 16 bits, sealed evidence p < 1e-12"
        ),
        replace(good, verified=False, present=False, presence=0.1, seal=SURE): (
            "sealed evidence p < 1e-300, though no mark is left (presence 0.100)"
        ),
        replace(good, verified=False, distance=7): (
            "marked, but not by this key and payload: payload agrees in 9 of 16 bits, 14 needed"
        ),
        replace(good, verified=False, present=False, presence=0.1): (
            "no mark found (presence 0.100 under 0.470)"
        ),
    }
    for verdict, words in sentences.items():
        assert verdict.words == words


# What the caller gets back


@pytest.mark.parametrize("shape", ["mono", "column", "stereo"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int32"])
def test_shape_and_type_are_kept(
    marker: Watermarker, clip: Samples, dtype: str, shape: str
) -> None:
    mono = clip[:40_000].astype(np.float64)
    panned = np.stack([mono, 0.4 * mono], axis=1)
    host = {"mono": mono, "column": mono[:, None], "stereo": panned}[shape]
    if dtype.startswith("int"):
        host = np.rint(host * (np.iinfo(dtype).max + 1.0))
    host = host.astype(dtype)
    given = host.copy()
    marked = marker.embed(host, RATE, key=KEY, payload=PAYLOAD, position=0)
    assert marked.dtype == host.dtype
    assert marked.shape == host.shape
    np.testing.assert_array_equal(host, given)  # the caller's array is the caller's
    assert marker.verify(marked, RATE, key=KEY, payload=PAYLOAD).verified
    full_scale = 1.0 if dtype.startswith("float") else np.iinfo(dtype).max
    expected = marker.embed(mono, RATE, key=KEY, payload=PAYLOAD, position=0)
    channel = marked.reshape(len(marked), -1)[:, 0] / full_scale
    np.testing.assert_allclose(channel, expected, rtol=0, atol=1e-4)  # whatever the type


def test_each_channel_carries_the_mark_by_itself(
    marker: Watermarker, clips: dict[str, Samples]
) -> None:
    stereo = np.stack([clips["flite-rms"][:56_000], clips["espeak-ng-gb"][:56_000]], axis=1)
    # Heard together two voices may blur each other's mark; each channel must hold its own.
    marked = marker.embed(stereo, RATE, key=KEY, payload=PAYLOAD, position=0, check=False)
    for channel in marked.T:
        assert marker.verify(channel, RATE, key=KEY, payload=PAYLOAD).verified


def test_integers_stop_at_full_scale(marker: Watermarker, clip: Samples) -> None:
    loud = np.clip(np.rint(clip / np.abs(clip).max() * 3 * 2**15), -(2**15), 2**15 - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MarkWarning)  # this much clipping is not the matter here
        marked = marker.embed(loud.astype(np.int16), RATE, key=KEY, payload=PAYLOAD, position=0)
    change = marked.astype(int) - loud
    assert np.abs(change).max() < 2**15  # where a sum wrapped around it would be 2**16
    assert np.count_nonzero(np.abs(marked.astype(int)) >= 2**15 - 1) > 0


def test_marking_is_deterministic(marker: Watermarker, clip: Samples, marked: Samples) -> None:
    np.testing.assert_array_equal(
        marker.embed(clip, RATE, key=KEY, payload=PAYLOAD, position=0), marked
    )


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000, 96_000, 192_000])
def test_a_mark_is_read_at_every_rate(marker: Watermarker, clip: Samples, rate: int) -> None:
    host = audio.resample(clip, RATE, rate)
    marked = marker.embed(host, rate, key=KEY, payload=PAYLOAD, position=0)
    assert marked.shape == host.shape
    verdict = marker.verify(marked, rate, key=KEY, payload=PAYLOAD)
    assert verdict.verified
    assert verdict.distance == 0
    assert not marker.detect(host, rate).present


@pytest.mark.parametrize(("made", "heard"), [(48_000, 16_000), (16_000, 44_100), (44_100, 8_000)])
def test_a_mark_outlives_a_change_of_rate(
    marker: Watermarker, clip: Samples, made: int, heard: int
) -> None:
    marked = marker.embed(
        audio.resample(clip, RATE, made), made, key=KEY, payload=PAYLOAD, position=0
    )
    verdict = marker.verify(audio.resample(marked, made, heard), heard, key=KEY, payload=PAYLOAD)
    assert verdict.verified


def above_hz(samples: Samples, rate: int, edge_hz: float) -> float:
    """Give the energy above a frequency."""
    power = np.abs(np.fft.rfft(samples * np.hanning(len(samples)))) ** 2
    return float(power[np.fft.rfftfreq(len(samples), 1 / rate) > edge_hz].sum())


@pytest.mark.parametrize("rate", [44_100, 48_000, 192_000])
def test_what_lies_above_8_khz_is_left_alone(marker: Watermarker, clip: Samples, rate: int) -> None:
    narrow = audio.resample(clip.astype(np.float64), RATE, rate)
    hiss = np.fft.rfft(0.03 * np.random.default_rng(0).standard_normal(len(narrow)))
    hiss[np.fft.rfftfreq(len(narrow), 1 / rate) < 9_000] = 0
    host = narrow + np.fft.irfft(hiss, len(narrow))
    carrier = marker.embed(host, rate, key=KEY, payload=PAYLOAD, position=0) - host
    whole = above_hz(carrier, rate, 0)
    assert above_hz(carrier, rate, 8_000) < 1e-8 * whole
    assert above_hz(carrier, rate, 8_000) < 1e-8 * above_hz(host, rate, 8_000)
    # Nor does what lies there change the carrier.
    without = marker.embed(narrow, rate, key=KEY, payload=PAYLOAD, position=0) - narrow
    assert above_hz(carrier - without, rate, 0) < 1e-6 * whole


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_the_carrier_comes_neither_early_nor_late(
    marker: Watermarker, clip: Samples, rate: int
) -> None:
    host = audio.resample(clip, RATE, rate).astype(np.float64)
    host[:rate] = 0  # a second of silence has no carrier, so its end shows where the carrier lies
    carrier = np.abs(marker.embed(host, rate, key=KEY, payload=PAYLOAD, position=0) - host)
    assert carrier[: int(0.95 * rate)].max() < 1e-5
    assert carrier[int(0.99 * rate) : int(1.2 * rate)].max() > 1e-4


# Too little to mark


def test_silence_is_marked_with_a_warning_and_left_silent(marker: Watermarker) -> None:
    silence = np.zeros(2 * RATE, np.float32)
    with pytest.warns(MarkWarning, match=r"cannot be read back: the recording is silent$"):
        marked = marker.embed(silence, RATE, key=KEY, payload=PAYLOAD, position=0)
    np.testing.assert_array_equal(marked, silence)


@pytest.mark.parametrize("level", [0.0, 1e-4, 0.1])
def test_silence_and_noise_are_not_marked(marker: Watermarker, level: float) -> None:
    noise = level * np.random.default_rng(0).standard_normal(3 * RATE)
    found = marker.detect(noise, RATE)
    assert not found.present
    assert found.spans == ()


def test_the_warning_points_at_the_caller() -> None:
    with pytest.warns(MarkWarning) as caught:
        keybound.Watermarker().embed(np.zeros(RATE), RATE, key=KEY, payload=PAYLOAD, position=0)
    assert caught[0].filename == __file__


def test_a_warning_comes_just_where_the_mark_cannot_be_read(
    marker: Watermarker, clip: Samples
) -> None:
    outcomes = set()
    pieces = [clip[start : start + 3_200] for start in range(0, len(clip) - 3_200, 3_200)]
    for host in [*pieces, np.zeros(3_200, np.float32)]:  # 0.2 s each
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            marked = marker.embed(host, RATE, key=KEY, payload=PAYLOAD, position=0)
        verified = marker.verify(marked, RATE, key=KEY, payload=PAYLOAD).verified
        assert [str(w.message) for w in caught] in (
            [[]] if verified else [[f"the mark cannot be read back: {why}"] for why in SHORT]
        )
        outcomes.add(verified)
    assert False in outcomes


SHORT = ("the recording is only 0.20 s long", "the recording is silent")


def test_a_short_recording_is_called_short(
    marker: Watermarker, clip: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = replace(marker.card, threshold=1.1, tail=Tail(1e9, 1.0, 1.0))  # never present
    monkeypatch.setattr(marker.engine, "card", deaf)
    for length, why in ((3_200, "only 0.20 s long"), (40_000, "mostly silence, or not speech")):
        with pytest.warns(MarkWarning, match=f"{why}$"):
            marker.embed(clip[8_000 : 8_000 + length], RATE, key=KEY, payload=PAYLOAD, position=0)


def test_no_check_no_warning(marker: Watermarker) -> None:
    marker.embed(np.zeros(RATE), RATE, key=KEY, payload=PAYLOAD, position=0, check=False)


@pytest.mark.parametrize(("frames", "rate"), [(160, 16_000), (1, 192_000), (799, 8_000)])
@pytest.mark.parametrize("check", [True, False])
def test_hardly_any_sound_is_refused(
    marker: Watermarker, clip: Samples, frames: int, rate: int, check: bool
) -> None:
    with pytest.raises(AudioError, match=r"ms is too short for a mark$") as caught:
        marker.embed(clip[:frames], rate, key=KEY, payload=PAYLOAD, position=0, check=check)
    assert caught.value.hint
    with pytest.raises(AudioError, match=r"ms is too short for a mark$"):
        marker.detect(clip[:frames], rate)


def test_the_shortest_sound_is_judged(marker: Watermarker, clip: Samples) -> None:
    found = marker.detect(clip[:1_600], RATE)
    assert found.frame_presence.shape == (5,)
    assert np.isfinite(found.code_logits).all()


# Detection: frames, pooling, spans


def test_a_detection_is_made_of_its_frames(marker: Watermarker, found: Detection) -> None:
    presence, logits = found.frame_presence, found.frame_logits
    assert found.frame_s == 0.02
    assert logits.shape == (len(presence), 16)
    assert presence.min() >= 0
    assert presence.max() <= 1
    assert found.presence == pytest.approx(float(presence.mean()), abs=1e-6)
    assert found.threshold == marker.card.threshold
    assert found.evidence_threshold_s == marker.card.tail.threshold(len(presence) * 0.02)
    assert found.present
    (span,) = found.spans
    inside = slice(round(span.start_s / 0.02), -int(-span.end_s // 0.02))
    odds = (presence.astype(np.float64) / (1 - presence))[inside]  # exponentials of the logits
    expected = (odds[:, None] * logits[inside]).sum(0) / odds.sum()
    np.testing.assert_allclose(found.code_logits, expected, rtol=1e-3, atol=1e-3)


def test_detection_needs_no_key_and_agrees_with_the_verdict(
    marker: Watermarker, marked: Samples, found: Detection
) -> None:
    verdict = marker.verify(marked, RATE, key=KEY, payload=PAYLOAD)
    assert (verdict.present, verdict.presence) == (found.present, found.presence)
    assert (verdict.threshold, verdict.spans) == (found.threshold, found.spans)


def test_the_spans_of_a_recording_end_with_it(marker: Watermarker, clip: Samples) -> None:
    for frames in (32_000, 32_001, 32_319):
        marked = marker.embed(clip[:frames], RATE, key=KEY, payload=PAYLOAD, position=0)
        spans = marker.detect(marked, RATE).spans
        assert spans
        assert spans[-1].end_s <= frames / RATE


@pytest.mark.parametrize(
    "order",
    [
        ("flite-rms", "speech", "espeak-ng-gb"),
        ("espeak-ng-gb", "flite-rms", "speech"),
        ("speech", "espeak-ng-gb", "flite-rms"),
    ],
    ids=lambda order: order[1],
)
def test_a_marked_sentence_is_found_between_unmarked_ones(
    marker: Watermarker, clips: dict[str, Samples], order: tuple[str, str, str]
) -> None:
    before, sentence, after = (clips[name][: int(3.5 * RATE)] for name in order)
    marked = marker.embed(sentence, RATE, key=KEY, payload=PAYLOAD, position=0)
    found = marker.detect(np.concatenate([before, marked, after]), RATE)
    (span,) = found.spans
    assert span.start_s == pytest.approx(3.5, abs=0.25)
    assert span.end_s == pytest.approx(7.0, abs=0.25)
    verdict = marker.judge(found, key=KEY, payload=PAYLOAD)
    assert verdict.verified
    assert (verdict.distance, verdict.marks) == (0, 1)


def test_a_stretch_cut_out_anywhere_verifies(marker: Watermarker, marked: Samples) -> None:
    for start in (0, 1_234, 9_999, 20_001):
        piece = marked[start : start + 2 * RATE]
        assert marker.verify(piece, RATE, key=KEY, payload=PAYLOAD).verified, start


# The package


def test_public_names_are_exported_once() -> None:
    names = keybound.__all__
    assert len(names) == len(set(names))
    assert names == sorted(names)
    public = {
        name
        for name, value in vars(keybound).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(names)


def test_the_functions_are_the_methods_of_the_shipped_model(
    marker: Watermarker, clip: Samples, marked: Samples
) -> None:
    own = keybound.embed(clip, RATE, key=KEY, payload=PAYLOAD, position=0, nonce=b"n")
    np.testing.assert_array_equal(
        own, marker.embed(clip, RATE, key=KEY, payload=PAYLOAD, position=0, nonce=b"n")
    )
    verdict = keybound.verify(own, RATE, key=KEY, payload=PAYLOAD, nonce=b"n")
    assert verdict == marker.verify(own, RATE, key=KEY, payload=PAYLOAD, nonce=b"n")
    assert keybound.detect(marked, RATE).presence == marker.detect(marked, RATE).presence


# Recorded speech


@pytest.fixture(scope="module")
def recorded() -> list[Samples]:
    """The first second of forty recordings, each of another speaker."""
    files = sorted(RECORDED.glob("*.flac"))[:40]
    if len(files) < 40:
        pytest.skip("no recorded speech in ../shared/speech/test")
    return [sf.read(file, frames=RATE, dtype="float32")[0] for file in files]


def test_one_second_of_recorded_speech(marker: Watermarker, recorded: list[Samples]) -> None:
    right, wrong, passed = [], [], []
    for index, host in enumerate(recorded):
        key, payload = Key(bytes([index]) * 32), 0x1234 * index & 0xFFFF
        marked = marker.embed(host, RATE, key=key, payload=payload, position=0, check=False)
        found = marker.detect(marked, RATE)
        right.append(1 - marker.judge(found, key=key, payload=payload).distance / 16)
        for other in range(10):
            key = Key(bytes([100 + index, other]) * 16)
            verdict = marker.judge(found, key=key, payload=payload)
            wrong.append(1 - verdict.distance / 16)
            passed.append(verdict.verified)
    assert np.mean(right) >= 0.99
    assert np.mean(wrong) == pytest.approx(0.5, abs=0.03)
    assert np.mean(passed) <= 0.01


# Sealed evidence against those who have the networks but not the key


def test_a_forger_with_the_networks_and_a_payload_is_attributed_but_never_sealed(
    marker: Watermarker, clip: Samples
) -> None:
    """Knowing one payload gives the reused mask, and with it V_A on any host; not the seal."""
    code = codes.encode(PAYLOAD, KEY, 16)  # what a marked recording shows to anybody
    host = clip[::-1].copy()
    for theirs in range(3):
        own = Key(bytes([theirs]) * 32)
        carrier = Sum([marker.engine.embedder(code), seal.embedder(own, code, 0)])
        made = np.concatenate([carrier.push(host), carrier.flush()])[: len(host)]
        verdict = marker.verify(host + made, RATE, key=KEY, payload=PAYLOAD)
        assert verdict.grade == "attributed"


def test_a_residual_on_another_host_is_not_sealed(
    marker: Watermarker, clip: Samples, marked: Samples
) -> None:
    verdict = marker.verify(clip[::-1] + marked - clip, RATE, key=KEY, payload=PAYLOAD)
    assert not verdict.seal.holds


def test_a_mean_of_recordings_keeps_the_seals_of_all(marker: Watermarker, clip: Samples) -> None:
    """Patterns differ by position, so averaging marked copies cancels none of them wholly."""
    whose = {"key": KEY, "payload": PAYLOAD}
    long = np.concatenate([clip, clip[::-1]])
    copies = [marker.embed(long, RATE, **whose, position=p, check=False) for p in range(2)]
    found = marker.detect(np.mean(copies, axis=0), RATE, levels=True)
    for position in range(2):
        assert marker.judge(found, **whose, places=Places((position,))).seal.holds
