"""Files of any length and kind: in blocks as whole, in little memory, kept as they were."""

import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from numpy.typing import NDArray

from keybound.audio import recordings
from keybound.audio.metadata import Metadata
from keybound.crypto.keys import Key
from keybound.errors import AudioError
from keybound.seal import odds, tiles
from keybound.watermark import files
from keybound.watermark.options import EmbedOptions
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]

KEY = Key(bytes(range(32)))
PAYLOAD = 0x5EED
OPTIONS = EmbedOptions(KEY, PAYLOAD, position=0)
DATA = Path(__file__).parents[1] / "data"
with_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is absent")


@pytest.fixture(scope="module")
def speech() -> Samples:
    """Ten seconds of synthetic speech at 16 kHz."""
    clips = [recordings.read(path).samples[:, 0] for path in sorted(DATA.glob("*.flac"))]
    return np.concatenate(clips * 3)[:160_000].astype(np.float32)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a little over a second, so that ten seconds are many."""
    monkeypatch.setattr(files, "BLOCK_S", 1.237)
    monkeypatch.setattr("keybound.audio.streaming.CHUNK_BLOCKS", 40)


Host = Callable[..., Path]


@pytest.fixture
def host(tmp_path: Path, speech: Samples) -> Host:
    def make(name: str, rate: int = 16_000, channels: int = 1, **kind: Any) -> Path:
        sound = recordings.resample(speech, 16_000, rate)
        sound = np.stack([sound, 0.6 * np.roll(sound, 999)][:channels], axis=1)
        sf.write(tmp_path / name, sound, rate, **kind)
        return tmp_path / name

    return make


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("name", "rate", "channels", "subtype"),
    [
        ("a.wav", 48_000, 2, "FLOAT"),
        ("a.wav", 44_100, 1, "PCM_24"),
        ("a.wav", 16_000, 2, "DOUBLE"),
        ("a.flac", 22_050, 2, "PCM_16"),
        ("a.wav", 8_000, 1, "PCM_16"),
    ],
)
def test_a_file_in_blocks_is_marked_as_the_whole(
    marker: Watermarker, host: Host, name: str, rate: int, channels: int, subtype: str
) -> None:
    source = host(name, rate, channels, subtype=subtype)
    output = source.with_name("marked" + source.suffix)
    seen: list[tuple[int, int]] = []
    written = files.embed(
        marker,
        source,
        output,
        OPTIONS,
        progress=lambda *at: seen.append(at),
    )
    assert written.verdict is not None
    assert written.verdict.verified
    assert (written.clipped, written.position) == (0, 0)
    read, made = recordings.read(source), recordings.read(output)
    kinds = [(r.sample_rate, r.format, r.subtype, r.samples.shape) for r in (read, made)]
    assert kinds[0] == kinds[1]
    whole = Watermarker().embed(read.samples, rate, key=KEY, payload=PAYLOAD, position=0)
    step = {"PCM_16": 2**-15, "PCM_24": 2**-23}.get(subtype, 0)
    np.testing.assert_allclose(made.samples, whole, rtol=0, atol=1e-5 + step)
    assert len(seen) > 10
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_a_file_in_blocks_is_heard_as_the_whole(marker: Watermarker, host: Host, rate: int) -> None:
    path = host("a.wav", rate, 2)
    found = files.detect(marker, path)
    whole = Watermarker().detect(recordings.read(path).samples, rate)
    np.testing.assert_allclose(found.frame_presence, whole.frame_presence, rtol=0, atol=1e-3)
    assert (found.present, found.spans) == (whole.present, whole.spans) == (False, ())


@pytest.mark.usefixtures("small_blocks")
def test_memory_hardly_grows_with_length(
    marker: Watermarker, tmp_path: Path, speech: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "PART", 500)
    monkeypatch.setattr(odds, "PART_STEPS", 500)
    peaks = []
    for repeats in (1, 4):
        sf.write(tmp_path / "a.wav", np.tile(speech, repeats), 16_000)
        tracemalloc.start()
        files.embed(
            marker,
            tmp_path / "a.wav",
            tmp_path / "b.wav",
            OPTIONS,
            replace=True,
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # By 30 s; the values of its frames take 3.4 kB a second, the search for the seal some 80 kB.
    assert peaks[1] - peaks[0] < 30 * 100_000


def test_peaks_beyond_full_scale_are_limited_and_counted(
    marker: Watermarker, tmp_path: Path, speech: Samples
) -> None:
    loud = speech / np.abs(speech).max()
    sf.write(tmp_path / "loud.wav", loud, 16_000, subtype="PCM_16")
    written = files.embed(marker, tmp_path / "loud.wav", tmp_path / "out.wav", OPTIONS)
    read = recordings.read(tmp_path / "loud.wav")
    whole = marker.embed(read.samples, 16_000, key=KEY, payload=PAYLOAD, position=0)
    assert written.clipped == np.count_nonzero(np.abs(whole) > 1.0)
    made = recordings.read(tmp_path / "out.wav").samples
    np.testing.assert_allclose(made, np.clip(whole, -1, 1), rtol=0, atol=2**-14)


def test_a_file_cut_short_leaves_nothing(marker: Watermarker, host: Host, tmp_path: Path) -> None:
    path = host("a.flac")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(AudioError, match="cut short"):
        files.embed(marker, path, tmp_path / "b.flac", OPTIONS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.flac"]


# AAC


@with_ffmpeg
@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (44_100, 2)])
def test_an_m4a_is_marked_and_stays_one(
    marker: Watermarker, host: Host, tmp_path: Path, rate: int, channels: int
) -> None:
    first = recordings.read(host("a.wav", rate, channels))
    tags = {"title": "a talk", "artist": "a voice"}
    said = Metadata.of(tags)
    like = recordings.Recording(
        first.samples, rate, "M4A", "AAC", metadata=said, bitrate_bps=96_000
    )
    recordings.write(tmp_path / "a.m4a", first.samples, like)
    read = recordings.read(tmp_path / "a.m4a")
    assert (read.sample_rate, read.format, read.subtype) == (rate, "M4A", "AAC")
    assert abs(len(read.samples) - len(first.samples)) <= 2_048
    assert {name: read.tags.get(name) for name in tags} == tags
    written = files.embed(marker, tmp_path / "a.m4a", tmp_path / "b.m4a", OPTIONS)
    assert written.verdict is not None
    assert written.verdict.verified
    again = recordings.read(tmp_path / "b.m4a")
    assert (again.sample_rate, again.samples.shape[1]) == (rate, channels)
    assert {name: again.tags.get(name) for name in tags} == tags
    files.embed(marker, tmp_path / "a.m4a", tmp_path / "b.flac", OPTIONS)
    names = {"a.wav", "a.m4a", "b.m4a", "b.flac"}
    assert {path.name for path in tmp_path.iterdir()} == names


@with_ffmpeg
def test_a_broken_m4a_is_refused(tmp_path: Path, host: Host) -> None:
    (tmp_path / "a.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(500))
    with pytest.raises(AudioError, match=r"a\.m4a cannot be decoded") as caught:
        recordings.read(tmp_path / "a.m4a")
    assert str(caught.value.hint).startswith("ffmpeg: ")
    first = recordings.read(host("a.wav", 22_051))
    with pytest.raises(AudioError, match="m4a cannot hold a rate of 22051 Hz"):
        recordings.write(tmp_path / "b.m4a", first.samples, first)


def test_without_ffmpeg_an_m4a_says_what_it_takes(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (tmp_path / "a.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(500))
    with pytest.raises(AudioError, match=r"to read .*a\.m4a takes ffmpeg") as caught:
        recordings.read(tmp_path / "a.m4a")
    assert "apt install ffmpeg" in str(caught.value.hint)
    first = recordings.read(host("a.wav"))
    with pytest.raises(AudioError, match=r"to write .*b\.m4a takes ffmpeg"):
        recordings.write(tmp_path / "b.m4a", first.samples, first)
    assert not (tmp_path / "b.m4a").exists()
