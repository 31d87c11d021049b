"""What no sound, key, payload or rate can be is refused at the door, by name; no answer is NaN."""

import json
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import keybound
from keybound.audio import arrays
from keybound.crypto.keys import Key
from keybound.errors import AudioError, KeyBoundError
from keybound.seal.search import SealSearch
from keybound.watermark import files
from keybound.watermark.stream import StreamDetector, StreamEmbedder
from keybound.watermark.watermarker import MarkWarning, Watermarker

Samples = NDArray[Any]
Run = Callable[..., Any]

KEY = Key(bytes(range(32)))
PAYLOAD = 0x5EED
RATE = 16_000
WHOSE: dict[str, Any] = {"key": KEY, "payload": PAYLOAD}


@pytest.fixture(scope="module")
def host(clip: Samples) -> Samples:
    return clip[:24_000].astype(np.float64)


# Samples that no sound has


def doors(marker: Watermarker) -> Iterator[Callable[[Samples], object]]:
    """Every way in for samples."""
    yield lambda x: marker.embed(x, RATE, **WHOSE)
    yield lambda x: marker.embed_with_position(x, RATE, **WHOSE, check=False)
    yield lambda x: marker.detect(x, RATE)
    yield lambda x: marker.verify(x, RATE, **WHOSE)
    yield lambda x: keybound.embed(x, RATE, **WHOSE)
    yield lambda x: keybound.detect(x, RATE)
    yield lambda x: keybound.verify(x, RATE, **WHOSE)
    yield lambda x: StreamEmbedder(RATE, **WHOSE).push(x)
    yield lambda x: StreamEmbedder(RATE, **WHOSE).flush(x)
    yield lambda x: StreamDetector(RATE).push(x)
    yield lambda x: StreamDetector(RATE).flush(x)


@pytest.mark.parametrize("value", [1e20, -1e20, 1.1e6, -3e38, 1e300])
def test_what_is_no_sound_is_refused_in_one_line(
    marker: Watermarker, host: Samples, value: float
) -> None:
    broken = host.copy()
    broken[777] = value
    for door in doors(marker):
        with pytest.raises(AudioError, match=r"^the array holds a sample of .*e\+.*no sound$") as e:
            door(broken)
        assert "1e+06" in (e.value.hint or "")
        assert "[-1, 1]" in (e.value.hint or "")
    with pytest.raises(AudioError, match="no sound"):
        marker.detect(np.stack([host, broken], axis=1), RATE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(marker: Watermarker, host: Samples, value: float) -> None:
    broken = host.copy()
    broken[777] = value
    for door in doors(marker):
        with pytest.raises(AudioError, match="not finite"):
            door(broken)


def test_files_with_what_is_no_sound_are_refused(
    run: Run, refused: Run, home: Path, key: Path, host: Samples
) -> None:
    broken = host.astype(np.float32)
    broken[777] = 1e20
    (home / "all").mkdir()
    sf.write(home / "broken.wav", broken, RATE, subtype="FLOAT")
    sf.write(home / "all" / "broken.wav", broken, RATE, subtype="FLOAT")
    whose = ("--key", key, "--payload", "5")
    for verb in (
        ("detect", "broken.wav", "--json"),
        ("verify", "broken.wav", *whose, "--json"),
        ("embed", "broken.wav", "out.wav", *whose),
    ):
        assert "broken.wav holds a sample of 1e+20, which is no sound (" in refused(*verb).err
    with pytest.raises(AudioError, match="no sound"):
        files.levels_of(home / "broken.wav")
    done = run("batch", "detect", "all", "--results", "r.jsonl")
    assert done.code != 0
    (row,) = [json.loads(line) for line in (home / "r.jsonl").read_text().splitlines()]
    assert (row["status"], "which is no sound" in row["error"]) == ("failed", True)


def finite(found: object) -> None:
    """Refuse NaN anywhere in an answer, as strict JSON does."""
    json.dumps(found, allow_nan=False, default=lambda one: vars(one))


spikes = st.lists(st.tuples(st.integers(0, 23_999), st.sampled_from([1e6, -1e6, 1.0])), max_size=4)


@settings(max_examples=40, deadline=None)
@given(
    gain=st.sampled_from([0.0, 1e-320, 1e-200, 1e-40, 1e-20, 1e-6, 1.0, 1e3, 1e6]),
    offset=st.sampled_from([0.0, 1e-310, 0.5, -1e3, 9e5, -1e6]),
    spikes=spikes,
    dtype=st.sampled_from([np.float64, np.float32, np.float16]),
    stereo=st.booleans(),
)
def test_no_answer_holds_what_is_no_number(
    marker: Watermarker,
    host: Samples,
    gain: float,
    offset: float,
    spikes: list[tuple[int, float]],
    dtype: type,
    stereo: bool,
) -> None:
    most = min(arrays.LOUDEST, float(np.finfo(dtype).max))
    sound = host / np.abs(host).max() * gain + offset
    for at, value in spikes:
        sound[at] = value
    sound = np.clip(sound, -most, most).astype(dtype)
    if stereo:
        sound = np.stack([sound, -sound[::-1]], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy says what it could not compute
        made = marker.embed(sound, RATE, **WHOSE, position=0, check=False)
        assert np.isfinite(made).all()
        assert made.dtype == dtype
        for heard in (sound, np.clip(made, -most, most)):
            found = marker.analyse(heard, RATE)
            assert 0 <= found.detection.presence <= 1
            assert np.isfinite(found.detection.frame_logits).all()
            assert np.isfinite(found.levels[None]).all()
            finite(
                [
                    found.detection.presence,
                    found.detection.evidence_s,
                    found.detection.threshold,
                    list(found.detection.spans),
                ]
            )
            finite(marker.judge(found, **WHOSE, search=SealSearch((0,))))


def test_integers_are_taken_to_their_ends(marker: Watermarker) -> None:
    for dtype in (np.int8, np.int16, np.int32):
        ends = np.tile([np.iinfo(dtype).min, np.iinfo(dtype).max], RATE).astype(dtype)
        assert 0 <= marker.detect(ends, RATE).presence <= 1
        assert marker.embed(ends, RATE, **WHOSE, check=False).dtype == dtype


def test_the_loudest_that_is_taken_is_taken(marker: Watermarker, host: Samples) -> None:
    loud = host / np.abs(host).max() * 1e6
    assert np.isfinite(marker.embed(loud, RATE, **WHOSE, check=False)).all()


# Rates


def by_rate(marker: Watermarker, host: Samples, rate: Any) -> Iterator[Callable[[], object]]:
    yield lambda: marker.embed(host, rate, **WHOSE, position=0)
    yield lambda: marker.embed(host, rate, **WHOSE, position=0, check=False)
    yield lambda: marker.detect(host, rate).presence
    yield lambda: marker.verify(host, rate, **WHOSE)
    yield lambda: keybound.detect(host, rate).presence
    yield lambda: StreamEmbedder(rate, **WHOSE, position=0).flush(host)
    yield lambda: StreamDetector(rate).flush(host)


@pytest.mark.parametrize(
    "rate", [16_000.0, np.int64(16_000), np.float32(16_000), np.uint16(16_000)]
)
def test_any_number_that_is_whole_is_a_rate(
    marker: Watermarker, host: Samples, rate: float
) -> None:
    for given_, expected in zip(
        by_rate(marker, host, rate), by_rate(marker, host, RATE), strict=True
    ):
        np.testing.assert_equal(given_(), expected())
    assert StreamDetector(rate).sample_rate == RATE
    assert type(StreamEmbedder(rate, **WHOSE).sample_rate) is int  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [None, "16000", b"16000", [16_000], True, 16_000j])
def test_what_is_no_rate_is_refused_by_name(
    marker: Watermarker, host: Samples, rate: object
) -> None:
    for call in by_rate(marker, host, rate):
        with pytest.raises(AudioError, match=r"^sample_rate must be a number, not ") as caught:
            call()
        assert "8000" in (caught.value.hint or "")


@pytest.mark.parametrize("rate", [16_000.5, math.nan, math.inf, 0, -16_000, 7_999, 192_001, 1e300])
def test_a_rate_outside_is_refused(marker: Watermarker, host: Samples, rate: float) -> None:
    for call in by_rate(marker, host, rate):
        with pytest.raises(AudioError, match=r"^a sample rate of .* Hz is not supported$"):
            call()


# Keys, payloads, nonces, positions, tolerances

WRONG: dict[str, tuple[list[Any], str]] = {
    "payload": (["5", 5.0, None, b"5", True, np.True_, [5]], "payload must be an integer, not "),
    "nonce": (["x", 7, None, [1]], "nonce must be bytes, not "),
    "key": (["abc", b"abc", None, 7], "key must be a keybound.Key, not "),
    "position": (["3", 3.0, True, b""], "position must be an integer, not "),
    "rho": (["2", 2.0, True, [2]], "rho must be an integer, not "),
}


def takers(
    marker: Watermarker, host: Samples, found: Any, name: str
) -> Iterator[Callable[[Any], object]]:
    """Every call that takes an argument of this name."""
    if name == "rho":
        yield lambda w: marker.verify(host, RATE, **WHOSE, rho=w)
        yield lambda w: marker.judge(found, **WHOSE, rho=w)
        yield lambda w: marker.attribute(found.detection, **WHOSE, rho=w)
        return
    yield lambda w: marker.embed(host, RATE, **WHOSE | {name: w})
    yield lambda w: marker.embed_with_position(host, RATE, **WHOSE | {name: w}, check=False)
    yield lambda w: keybound.embed(host, RATE, **WHOSE | {name: w})
    yield lambda w: StreamEmbedder(RATE, **WHOSE | {name: w})
    if name not in ("payload", "position"):
        yield lambda w: marker.decode(found.detection, **{"key": KEY, name: w})
    if name == "position":
        yield lambda w: marker.judge(found, **WHOSE, search=SealSearch((w,)))
        return
    yield lambda w: marker.verify(host, RATE, **WHOSE | {name: w})
    yield lambda w: keybound.verify(host, RATE, **WHOSE | {name: w})
    yield lambda w: marker.attribute(found.detection, **WHOSE | {name: w})
    yield lambda w: marker.judge(found, **WHOSE | {name: w}, search=SealSearch((0,)))


@pytest.mark.parametrize("name", list(WRONG))
def test_an_argument_that_is_wrong_is_refused_by_name(
    marker: Watermarker, host: Samples, name: str
) -> None:
    found = marker.analyse(host, RATE)
    values, words = WRONG[name]
    for value in values:
        for call in takers(marker, host, found, name):
            with pytest.raises(KeyBoundError) as caught:
                call(value)
            assert caught.value.message.startswith(words)
            assert "\n" not in caught.value.message
            assert caught.value.hint
            if name == "key" and isinstance(value, str | bytes):
                assert "abc" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("channels", [0, -1, 1.5, "2", None, True])
def test_a_number_of_channels_is_refused_by_name(channels: Any) -> None:
    for begin in (
        lambda: StreamDetector(RATE, channels=channels),
        lambda: StreamEmbedder(RATE, **WHOSE, channels=channels),
    ):
        with pytest.raises(AudioError, match=r"^channels must be an integer above 0, not "):
            begin()


def test_numbers_of_numpy_are_taken(marker: Watermarker, host: Samples) -> None:
    whose: dict[str, Any] = {"key": KEY, "payload": np.uint16(PAYLOAD)}
    marked = marker.embed(host, RATE, **whose, position=np.int64(3))
    verdict = marker.verify(
        marked,
        RATE,
        **whose,
        rho=np.int8(2),
        search=SealSearch((np.int32(3),)),  # type: ignore[arg-type]
    )
    assert verdict.verified


def test_warnings_are_of_the_mark_alone(marker: Watermarker) -> None:
    with pytest.warns(MarkWarning):
        marker.embed(np.full(RATE, 1e-300), RATE, **WHOSE)
