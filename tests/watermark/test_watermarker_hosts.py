"""Marking leaves the rest of a recording alone, and says where there is too little to mark."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import keybound
from keybound.audio import recordings
from keybound.crypto.keys import Key
from keybound.errors import AudioError
from keybound.model.detection import Tail
from keybound.watermark.watermarker import MarkWarning, Watermarker

Samples = NDArray[Any]

KEY = Key(bytes(range(32)))
PAYLOAD = 0x5EED
RATE = 16_000


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
    host = recordings.resample(clip, RATE, rate)
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
        recordings.resample(clip, RATE, made), made, key=KEY, payload=PAYLOAD, position=0
    )
    verdict = marker.verify(
        recordings.resample(marked, made, heard), heard, key=KEY, payload=PAYLOAD
    )
    assert verdict.verified


def above_hz(samples: Samples, rate: int, edge_hz: float) -> float:
    """Give the energy above a frequency."""
    power = np.abs(np.fft.rfft(samples * np.hanning(len(samples)))) ** 2
    return float(power[np.fft.rfftfreq(len(samples), 1 / rate) > edge_hz].sum())


@pytest.mark.parametrize("rate", [44_100, 48_000, 192_000])
def test_what_lies_above_8_khz_is_left_alone(marker: Watermarker, clip: Samples, rate: int) -> None:
    narrow = recordings.resample(clip.astype(np.float64), RATE, rate)
    hiss = np.fft.rfft(0.03 * np.random.default_rng(0).standard_normal(len(narrow)))
    hiss[np.fft.rfftfreq(len(narrow), 1 / rate) < 9_000] = 0
    host = narrow + np.fft.irfft(hiss, len(narrow))
    carrier = marker.embed(host, rate, key=KEY, payload=PAYLOAD, position=0) - host
    whole = above_hz(carrier, rate, 0)
    assert above_hz(carrier, rate, 8_000) < 1e-8 * whole
    assert above_hz(carrier, rate, 8_000) < 1e-8 * above_hz(host, rate, 8_000)
    # Nor does what lies there change the carrier, but for bytes that its last remains move.
    without = marker.embed(narrow, rate, key=KEY, payload=PAYLOAD, position=0) - narrow
    assert above_hz(carrier - without, rate, 0) < 2e-4 * whole


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_the_carrier_comes_neither_early_nor_late(
    marker: Watermarker, clip: Samples, rate: int
) -> None:
    host = recordings.resample(clip, RATE, rate).astype(np.float64)
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
    monkeypatch.setattr(marker.networks, "card", deaf)
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
