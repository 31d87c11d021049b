"""Sound that comes in blocks is marked and judged as the whole is, within a fixed time."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import keybound
from keybound.audio import recordings
from keybound.crypto.keys import Key
from keybound.errors import AudioError
from keybound.watermark.options import EmbedOptions
from keybound.watermark.stream import StreamDetector, StreamEmbedder
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]

KEY = Key(bytes(range(32)))
PAYLOAD = 0x5EED
RATE = 16_000
RATES = [8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000, 192_000]
DATA = Path(__file__).parents[1] / "data"
few = settings(max_examples=12, deadline=None)


@pytest.fixture(scope="module")
def clip() -> Samples:
    return recordings.read(DATA / "flite-rms.flac").samples[:, 0]


def cut(data: st.DataObject, samples: Samples) -> list[Samples]:
    """Cut samples anywhere, into nothing too."""
    edges = sorted(data.draw(st.lists(st.integers(0, len(samples)), max_size=12)))
    return [samples[a:b] for a, b in pairwise([0, *edges, len(samples)])]


@few
@given(st.data(), st.sampled_from(RATES), st.integers(1, 2))
def test_a_stream_is_marked_as_the_whole_is_and_on_time(
    marker: Watermarker, clip: Samples, data: st.DataObject, rate: int, channels: int
) -> None:
    host = recordings.resample(clip[: data.draw(st.integers(1_700, 24_000))], RATE, rate)
    host = np.stack([host, 0.5 * host[::-1]], axis=1) if channels == 2 else host
    whole = marker.embed(host, rate, key=KEY, payload=PAYLOAD, position=0, excerpt=0.1, check=False)
    options = EmbedOptions(KEY, PAYLOAD, position=0, excerpt=0.1)  # short ones are marked so
    stream = marker.embedder(rate, options, channels=channels)
    assert stream.latency_s <= 0.2
    parts, taken = [], 0
    for block in cut(data, host):
        parts.append(stream.push(block))
        taken += len(block)
        assert sum(map(len, parts)) == max(0, taken - stream.latency)
    marked = np.concatenate([*parts, stream.flush()])
    assert (marked.shape, marked.dtype) == (whole.shape, whole.dtype)
    np.testing.assert_allclose(marked, whole, rtol=0, atol=1e-5)


@few
@given(st.data(), st.sampled_from(RATES))
def test_a_stream_is_heard_as_the_whole_is(
    marker: Watermarker, clip: Samples, data: st.DataObject, rate: int
) -> None:
    heard = recordings.resample(clip[: data.draw(st.integers(1_700, 24_000))], RATE, rate)
    whole = marker.detect(heard, rate)
    stream = marker.detector(rate)
    assert stream.latency_s <= 1.9
    parts, taken = [], 0
    for block in cut(data, heard):
        parts.append(stream.push(block))
        taken += len(block)
        assert sum(map(len, parts)) >= int((taken / rate - stream.latency_s) / 0.02)
    scores = np.concatenate([*parts, stream.flush()])
    np.testing.assert_allclose(scores, whole.frame_presence, rtol=0, atol=1e-3)
    found = stream.detection()
    np.testing.assert_allclose(found.frame_logits, whole.frame_logits, rtol=0, atol=1e-2)
    assert (found.present, len(found.spans)) == (whole.present, len(whole.spans))


def test_a_marked_stream_verifies(clip: Samples) -> None:
    embedder = StreamEmbedder(RATE, key=KEY, payload=PAYLOAD, position=0)
    detector = StreamDetector(RATE)
    for start in range(0, len(clip), 320):
        detector.push(embedder.push(clip[start : start + 320]))
    detector.push(embedder.flush())
    detector.flush()
    verdict = Watermarker().attribute(detector.detection(), key=KEY, payload=PAYLOAD)
    assert verdict.verified
    assert verdict.distance == 0


@pytest.mark.parametrize("dtype", ["int16", "int32", "float64"])
def test_the_type_of_the_samples_is_kept(clip: Samples, dtype: str) -> None:
    host = clip[:16_000].astype(np.float64)
    if dtype.startswith("int"):
        host = np.rint(host * (np.iinfo(dtype).max + 1.0))
    host = host.astype(dtype)
    stream = StreamEmbedder(RATE, key=KEY, payload=PAYLOAD, position=0, excerpt=1.0)
    parts = [stream.push(host[:9_000]), stream.push(host[9_000:]), stream.flush()]
    assert {part.dtype for part in parts} == {host.dtype}
    whole = keybound.embed(host, RATE, key=KEY, payload=PAYLOAD, position=0)
    step = 0 if dtype == "float64" else 2**16 if dtype == "int32" else 1
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=max(step, 1e-5))


def test_a_stream_may_be_empty_or_short() -> None:
    stream = StreamEmbedder(48_000, key=KEY, payload=PAYLOAD, position=0, channels=2)
    assert stream.flush().shape == (0, 2)
    stream = StreamEmbedder(48_000, key=KEY, payload=PAYLOAD, position=0)
    assert stream.push(np.zeros(0, np.float32)).shape == (0,)
    assert stream.push(np.full(100, 0.1, np.float32)).shape == (0,)
    assert stream.flush().shape == (100,)
    heard = StreamDetector(RATE)
    heard.push(np.zeros(1_000, np.float32))
    with pytest.raises(AudioError, match="too short"):
        heard.detection()


def test_what_does_not_fit_the_stream_is_refused() -> None:
    stream = StreamEmbedder(RATE, key=KEY, payload=PAYLOAD, position=0)
    with pytest.raises(AudioError, match="the stream has 1 channels, and the block 2"):
        stream.push(np.zeros((10, 2), np.float32))
    with pytest.raises(AudioError, match="finite"):
        stream.push(np.array([np.nan]))
    with pytest.raises(AudioError, match="sample rate"):
        StreamEmbedder(4_000, key=KEY, payload=PAYLOAD, position=0)


# Position


@pytest.fixture(scope="module")
def marked(marker: Watermarker, clip: Samples) -> Samples:
    return marker.embed(clip, RATE, key=KEY, payload=PAYLOAD, position=0)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_second_decodes_as_an_aligned_second_does(
    marker: Watermarker, marked: Samples, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(marked) - RATE))
    stop = data.draw(st.integers(start + RATE, len(marked)))
    verdict = marker.verify(marked[start:stop], RATE, key=KEY, payload=PAYLOAD)
    assert verdict.verified
    assert verdict.distance == 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 8_000), st.integers(0, 40_000), st.integers(0, 40_000))
def test_a_pasted_sentence_is_found_at_its_edges(
    marker: Watermarker, clip: Samples, marked: Samples, skip: int, before: int, after: int
) -> None:
    sentence = marked[skip : skip + 40_000]
    parts = [np.roll(clip, before)[:before], sentence, np.roll(clip, -after)[:after]]
    found = marker.detect(np.concatenate(parts), RATE)
    (span,) = found.spans
    # Three quarters of a second of unmarked speech at an end may be taken for a part of the
    # sentence, since run 14b; half a second with the detector before it.
    assert span.start_s == pytest.approx(before / RATE, abs=0.8)
    assert span.end_s == pytest.approx((before + len(sentence)) / RATE, abs=0.8)
    assert marker.attribute(found, key=KEY, payload=PAYLOAD).verified
