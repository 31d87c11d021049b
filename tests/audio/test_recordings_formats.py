"""Recordings come back as they were written, in the format that host and name choose."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st
from made_audio import LOSSY, host, name_of, recording, refusal, tone

from keybound.audio import formats, recordings
from keybound.audio.metadata import Metadata
from keybound.batch import manifest

EXACT = [
    *(("WAV", s) for s in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
    *(("WAV", s) for s in ("ULAW", "ALAW")),
    ("WAVEX", "PCM_24"),
    ("RF64", "PCM_16"),
    *(("FLAC", s) for s in ("PCM_S8", "PCM_16", "PCM_24")),
    *(("AIFF", s) for s in ("PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
    *(("CAF", s) for s in ("PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
    ("CAF", "ALAC_16"),
    *(("W64", s) for s in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
    *(("AU", s) for s in ("PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
    *((kind, s) for kind in ("AIFF", "CAF", "W64", "AU") for s in ("ULAW", "ALAW")),
]


# Round trips


@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("rate", [8_000, 44_100, 192_000])
@pytest.mark.parametrize(("kind", "subtype"), EXACT)
def test_what_is_read_is_written_back_bit_for_bit(tmp_path, kind, subtype, rate, channels):
    first = host(tmp_path / name_of(kind), kind, subtype, rate, channels)
    read = recordings.read(first)
    assert (read.sample_rate, read.samples.shape) == (rate, (700, channels))
    assert (read.format, read.subtype) == (kind, subtype)
    assert read.bitrate_bps is None
    second = tmp_path / ("b" + first.suffix)
    assert recordings.write(second, read.samples, read) == 0
    again = recordings.read(second)
    assert (again.format, again.subtype, again.sample_rate) == (kind, subtype, rate)
    kept, _ = sf.read(first, dtype="float64", always_2d=True)
    back, _ = sf.read(second, dtype="float64", always_2d=True)
    np.testing.assert_array_equal(back, kept)
    np.testing.assert_array_equal(read.samples, kept)


@pytest.mark.parametrize("frames", [700, 701])
@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_U8", "ULAW", "PCM_16", "PCM_24"])
def test_an_aiff_has_as_many_frames_as_were_written(tmp_path, subtype, frames):
    samples = np.full((frames, 1), 0.25)
    recordings.write(tmp_path / "a.aiff", samples, recording(samples, kind="AIFF", sub=subtype))
    assert len(recordings.read(tmp_path / "a.aiff").samples) == frames


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "AIFF", "CAF", "W64", "AU"])
def test_every_16_bit_level_survives(tmp_path, kind):
    levels = np.arange(-(2**15), 2**15).astype(np.int16)
    path = tmp_path / name_of(kind)
    sf.write(path, levels, 16_000, format=kind, subtype="PCM_16")
    read = recordings.read(path)
    recordings.write(path, read.samples, read)
    np.testing.assert_array_equal(sf.read(path, dtype="int16")[0], levels)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=40))
def test_pcm_rounds_to_the_nearest_level_in_every_format(tmp_path_factory, kind, values):
    samples = np.array(values, np.float32)
    path = tmp_path_factory.mktemp("pcm") / name_of(kind)
    assert recordings.write(path, samples, recording(samples, kind=kind)) == 0
    expected = np.clip(np.rint(samples * 2.0**15), -(2**15), 2**15 - 1)
    np.testing.assert_array_equal(sf.read(path, dtype="int16")[0], expected)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
@pytest.mark.parametrize(("kind", "subtype"), LOSSY)
def test_lossy_formats_keep_length_and_sound(tmp_path, kind, subtype, rate, channels):
    samples = tone(rate, channels)
    path = tmp_path / name_of(kind)
    assert recordings.write(path, samples, recording(samples, rate, kind, subtype)) == 0
    back = recordings.read(path)
    assert (back.format, back.subtype, back.sample_rate) == (kind, subtype, rate)
    assert back.samples.shape == samples.shape
    # libsndfile's Opus encoder does not flush: the last 6 ms may come back as anything.
    samples, error = samples[: -rate // 100], (back.samples - samples)[: -rate // 100]
    assert 10 * np.log10((samples**2).sum() / (error**2).sum()) > 25


@pytest.mark.parametrize(("kind", "subtype"), LOSSY)
@pytest.mark.parametrize("level", [0.3, 0.8])
def test_lossy_output_has_the_hosts_bitrate_or_more(tmp_path, kind, subtype, level):
    samples = np.random.default_rng(1).normal(0, 0.1, (48_000 * 2, 2))
    path = tmp_path / name_of(kind)
    mode = {"bitrate_mode": "CONSTANT"} if kind == "MP3" else {}
    sf.write(path, samples, 48_000, subtype, format=kind, compression_level=level, **mode)
    read = recordings.read(path)
    assert read.bitrate_bps
    recordings.write(tmp_path / ("b" + path.suffix), read.samples, read)
    again = recordings.read(tmp_path / ("b" + path.suffix))
    assert again.bitrate_bps
    assert again.bitrate_bps > 0.95 * read.bitrate_bps


def test_lossy_formats_hold_peaks_beyond_full_scale(tmp_path):
    samples = 8 * tone(48_000, 1)
    for kind, subtype in LOSSY:
        path = tmp_path / name_of(kind)
        assert recordings.write(path, samples, recording(samples, 48_000, kind, subtype)) == 0
        assert np.abs(recordings.read(path).samples).max() > 1.5


def test_a_long_vorbis_file_does_not_overrun_the_encoder(tmp_path):
    samples = np.zeros((2_880_000, 2), np.float32)  # in one piece this ends the process
    recordings.write(tmp_path / "a.ogg", samples, recording(samples, 48_000))
    assert sf.info(tmp_path / "a.ogg").frames == 2_880_000


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3", "AIFF", "CAF"])
def test_tags_travel(tmp_path, kind):
    samples = tone(16_000, 1)
    tags = {"title": "Ein Brüllen", "artist": "nobody", "date": "2024", "own": "word"}
    said = Metadata.of(tags)
    recordings.write(tmp_path / name_of(kind), samples, replace(recording(samples), metadata=said))
    read = recordings.read(tmp_path / name_of(kind))
    assert read.tags == tags
    recordings.write(tmp_path / "b.flac", samples, read)
    assert recordings.read(tmp_path / "b.flac").tags == tags


# Choice of format, clipping


@pytest.mark.parametrize(
    ("kind", "subtype", "name", "expected"),
    [
        ("WAV", "PCM_24", "b.flac", ("FLAC", "PCM_24")),
        ("WAV", "FLOAT", "b.flac", ("FLAC", "PCM_24")),
        ("WAV", "PCM_U8", "b.FLAC", ("FLAC", "PCM_S8")),
        ("WAV", "ULAW", "b.flac", ("FLAC", "PCM_16")),
        ("FLAC", "PCM_S8", "b.wav", ("WAV", "PCM_U8")),
        ("FLAC", "PCM_24", "b.wav", ("WAV", "PCM_24")),
        ("MP3", "MPEG_LAYER_III", "b.wav", ("WAV", "PCM_16")),
        ("MP3", "MPEG_LAYER_II", "b.mp3", ("MP3", "MPEG_LAYER_III")),
        ("WAV", "MPEG_LAYER_III", "b.wav", ("WAV", "PCM_16")),
        ("WAV", "PCM_16", "b.ogg", ("OGG", "VORBIS")),
        ("OGG", "OPUS", "b.ogg", ("OGG", "OPUS")),
        ("OGG", "VORBIS", "b.opus", ("OGG", "OPUS")),
        ("WAV", "IMA_ADPCM", "b.wav", ("WAV", "IMA_ADPCM")),
        ("AIFF", "IMA_ADPCM", "b.aifc", ("AIFF", "IMA_ADPCM")),
        ("AIFF", "PCM_U8", "b.aif", ("AIFF", "PCM_U8")),
        ("WAV", "PCM_24", "b.aif", ("AIFF", "PCM_24")),
        ("WAV", "PCM_U8", "b.aiff", ("AIFF", "PCM_S8")),
        ("AIFF", "PCM_S8", "b.w64", ("W64", "PCM_U8")),
        ("FLAC", "PCM_24", "b.caf", ("CAF", "PCM_24")),
        ("CAF", "ALAC_16", "b.caf", ("CAF", "ALAC_16")),
        ("CAF", "ALAC_24", "b.caf", ("CAF", "PCM_24")),
        ("CAF", "ALAC_32", "b.caf", ("CAF", "PCM_32")),
        ("CAF", "ALAC_24", "b.wav", ("WAV", "PCM_24")),
        ("CAF", "ALAC_20", "b.flac", ("FLAC", "PCM_24")),
        ("W64", "FLOAT", "b.au", ("AU", "FLOAT")),
        ("AU", "ULAW", "b.snd", ("AU", "ULAW")),
    ],
)
def test_the_extension_and_the_host_choose_the_format(tmp_path, kind, subtype, name, expected):
    samples = tone(16_000, 1)
    recordings.write(tmp_path / name, samples, recording(samples, 16_000, kind, subtype))
    info = sf.info(tmp_path / name)
    assert (info.format, info.subtype) == expected


def test_a_wav_that_outgrows_its_header_becomes_rf64(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "WAV_LIMIT_BYTES", 1_000)
    samples = tone(16_000, 1)
    recordings.write(tmp_path / "a.wav", samples, recording(samples))
    assert recordings.read(tmp_path / "a.wav").format == "RF64"


def test_an_aiff_that_outgrows_its_header_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "WAV_LIMIT_BYTES", 1_000)
    samples = tone(16_000, 1)
    assert "4 GB" in refusal(
        lambda: recordings.write(tmp_path / "a.aif", samples, recording(samples))
    )


def test_long_alac_becomes_pcm(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_ALAC_FRAMES", 1_000)
    samples = tone(16_000, 1)
    recordings.write(tmp_path / "a.caf", samples, recording(samples, kind="CAF", sub="ALAC_16"))
    assert recordings.read(tmp_path / "a.caf").subtype == "PCM_16"


@pytest.mark.parametrize(
    ("name", "endian", "start"),
    [("a.wav", "BIG", b"RIFX"), ("a.au", "LITTLE", b"dns."), ("a.aiff", "LITTLE", b"FORM")],
)
def test_the_order_of_bytes_is_kept(tmp_path, name, endian, start):
    sf.write(tmp_path / name, tone(16_000, 1), 16_000, subtype="PCM_16", endian=endian)
    read = recordings.read(tmp_path / name)
    recordings.write(tmp_path / ("b" + name), read.samples, read)
    again = recordings.read(tmp_path / ("b" + name))
    assert (again.endian, (tmp_path / ("b" + name)).read_bytes()[:4]) == (endian, start)
    np.testing.assert_array_equal(again.samples, read.samples)


def test_every_suffix_is_written_and_read(tmp_path):
    samples = tone(48_000, 1)
    for suffix in formats.SNDFILE_SUFFIXES:
        recordings.write(tmp_path / f"a{suffix}", samples, recording(samples, 48_000))
        assert len(recordings.read(tmp_path / f"a{suffix}").samples) == len(samples)
    assert set(formats.SUFFIXES) == {*formats.SNDFILE_SUFFIXES, ".m4a", ".aac"}
    items = manifest.read(str(tmp_path))
    assert {Path(item.path).suffix for item in items} == set(formats.SNDFILE_SUFFIXES)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_32", "ULAW"])
def test_samples_beyond_full_scale_are_limited_and_counted(tmp_path, subtype):
    samples = np.array([0.0, 1.0, -1.0, 1.5, -2.0, 1.0001])
    assert recordings.write(tmp_path / "a.wav", samples, recording(samples, sub=subtype)) == 3
    back = recordings.read(tmp_path / "a.wav").samples[:, 0]
    assert back[3] == back[1] > 0.97
    assert back[4] == back[2] < -0.97


def test_float_files_are_not_clipped(tmp_path):
    samples = np.array([1.5, -2.0], np.float32)
    assert recordings.write(tmp_path / "a.wav", samples, recording(samples, sub="FLOAT")) == 0
    np.testing.assert_array_equal(recordings.read(tmp_path / "a.wav").samples[:, 0], samples)


@pytest.mark.parametrize(
    ("name", "rate", "channels", "word"),
    [
        ("a.opus", 44_100, 1, "opus"),
        ("a.mp3", 96_000, 1, "mp3"),
        ("a.mp3", 48_000, 3, "channels"),
        ("a.flac", 48_000, 9, "channels"),
        ("a.xyz", 48_000, 1, "known format"),
        ("a", 48_000, 1, "known format"),
        ("nowhere/a.wav", 48_000, 1, "is not a folder"),
        ("x" * 300 + "/a.wav", 48_000, 1, "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, name, rate, channels, word):
    samples = tone(rate, channels, 0.1)
    path = tmp_path / name
    assert word in refusal(lambda: recordings.write(path, samples, recording(samples, rate)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")
def test_aac_without_a_container_is_written_and_read(tmp_path):
    samples = tone(48_000, 1)
    tagged = replace(recording(samples, 48_000), metadata=Metadata.of({"title": "a"}))
    recordings.write(tmp_path / "a.aac", samples, tagged)
    assert (tmp_path / "a.aac").read_bytes()[:1] == b"\xff"
    read = recordings.read(tmp_path / "a.aac")
    assert (read.format, read.subtype, read.sample_rate) == ("ADTS", "AAC", 48_000)
    assert 0 <= len(read.samples) - len(samples) < 4096  # priming and padding stay
    recordings.write(tmp_path / "b.aac", read.samples, read)
    assert recordings.suffix_of(tmp_path / "b.aac") == ".aac"
