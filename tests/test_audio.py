"""Recordings come back as they were written, and what is not a recording is refused in one line."""

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st

from keybound import audio, formats
from keybound.audio import Recording
from keybound.errors import AudioError

# Synthetic. flite 2.2, voice rms (free licence of CMU): "The library opens at nine and closes in
# the evening." espeak-ng 1.51, en-gb (the engine is GPL-3, what it speaks is not): "Please keep
# the small blue box on the second shelf near the door."
DATA = Path(__file__).parent / "data"
DEMO = Path(audio.__file__).parent / "demo" / "speech.flac"

PCM = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32}
EXACT = [
    *(("WAV", s) for s in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
    *(("WAV", s) for s in ("ULAW", "ALAW")),
    ("WAVEX", "PCM_24"),
    ("RF64", "PCM_16"),
    *(("FLAC", s) for s in ("PCM_S8", "PCM_16", "PCM_24")),
]
LOSSY = [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]
EXTENSIONS = {"WAVEX": "wav", "RF64": "wav"}


def name_of(kind: str) -> str:
    return "a." + EXTENSIONS.get(kind, kind.lower())


def host(path: Path, kind: str, subtype: str, rate: int = 16_000, channels: int = 1) -> Path:
    """A file made by soundfile alone, of every level that an integer format has at its ends."""
    rng = np.random.default_rng(7)
    if bits := PCM.get(subtype):
        levels = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (700, channels))
        levels[:4] = np.array([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, -1])[:, None]
        samples: Any = (levels << (32 - bits)).astype(np.int32)
    else:
        samples = rng.uniform(
            -1.5 if subtype in ("FLOAT", "DOUBLE") else -0.9, 0.9, (700, channels)
        )
    sf.write(path, samples, rate, format=kind, subtype=subtype)
    return path


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(AudioError) as caught:
        call()
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert not caught.value.message.endswith(".")
    return caught.value.message


def tone(rate: int, channels: int, seconds: float = 1.0) -> np.ndarray:
    time_s = np.arange(int(rate * seconds))[:, None] / rate
    return 0.2 * np.sin(2 * np.pi * time_s * (300 + 170 * np.arange(channels)))


def recording(samples: np.ndarray, rate: int = 16_000, kind: str = "WAV", sub: str = "PCM_16"):
    return Recording(samples, rate, kind, sub)


# Round trips


@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("rate", [8_000, 44_100, 192_000])
@pytest.mark.parametrize(("kind", "subtype"), EXACT)
def test_what_is_read_is_written_back_bit_for_bit(tmp_path, kind, subtype, rate, channels):
    first = host(tmp_path / name_of(kind), kind, subtype, rate, channels)
    read = audio.read(first)
    assert (read.sample_rate, read.samples.shape) == (rate, (700, channels))
    assert (read.format, read.subtype) == (kind, subtype)
    assert read.bitrate_bps is None
    second = tmp_path / ("b" + first.suffix)
    assert audio.write(second, read.samples, read) == 0
    again = audio.read(second)
    assert (again.format, again.subtype, again.sample_rate) == (kind, subtype, rate)
    kept, _ = sf.read(first, dtype="float64", always_2d=True)
    back, _ = sf.read(second, dtype="float64", always_2d=True)
    np.testing.assert_array_equal(back, kept)
    np.testing.assert_array_equal(read.samples, kept)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_every_16_bit_level_survives(tmp_path, kind):
    levels = np.arange(-(2**15), 2**15).astype(np.int16)
    path = tmp_path / name_of(kind)
    sf.write(path, levels, 16_000, format=kind, subtype="PCM_16")
    read = audio.read(path)
    audio.write(path, read.samples, read)
    np.testing.assert_array_equal(sf.read(path, dtype="int16")[0], levels)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=40))
def test_pcm_rounds_to_the_nearest_level_in_every_format(tmp_path_factory, kind, values):
    samples = np.array(values, np.float32)
    path = tmp_path_factory.mktemp("pcm") / name_of(kind)
    assert audio.write(path, samples, recording(samples, kind=kind)) == 0
    expected = np.clip(np.rint(samples * 2.0**15), -(2**15), 2**15 - 1)
    np.testing.assert_array_equal(sf.read(path, dtype="int16")[0], expected)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
@pytest.mark.parametrize(("kind", "subtype"), LOSSY)
def test_lossy_formats_keep_length_and_sound(tmp_path, kind, subtype, rate, channels):
    samples = tone(rate, channels)
    path = tmp_path / name_of(kind)
    assert audio.write(path, samples, recording(samples, rate, kind, subtype)) == 0
    back = audio.read(path)
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
    read = audio.read(path)
    assert read.bitrate_bps
    audio.write(tmp_path / ("b" + path.suffix), read.samples, read)
    again = audio.read(tmp_path / ("b" + path.suffix))
    assert again.bitrate_bps
    assert again.bitrate_bps > 0.95 * read.bitrate_bps


def test_lossy_formats_hold_peaks_beyond_full_scale(tmp_path):
    samples = 8 * tone(48_000, 1)
    for kind, subtype in LOSSY:
        path = tmp_path / name_of(kind)
        assert audio.write(path, samples, recording(samples, 48_000, kind, subtype)) == 0
        assert np.abs(audio.read(path).samples).max() > 1.5


def test_a_long_vorbis_file_does_not_overrun_the_encoder(tmp_path):
    samples = np.zeros((2_880_000, 2), np.float32)  # in one piece this ends the process
    audio.write(tmp_path / "a.ogg", samples, recording(samples, 48_000))
    assert sf.info(tmp_path / "a.ogg").frames == 2_880_000


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_tags_travel(tmp_path, kind):
    samples = tone(16_000, 1)
    tags = {"title": "Ein Brüllen", "artist": "nobody", "date": "2024"}
    audio.write(tmp_path / name_of(kind), samples, replace(recording(samples), tags=tags))
    read = audio.read(tmp_path / name_of(kind))
    assert read.tags == tags
    audio.write(tmp_path / "b.flac", samples, read)
    assert audio.read(tmp_path / "b.flac").tags == tags


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
    ],
)
def test_the_extension_and_the_host_choose_the_format(tmp_path, kind, subtype, name, expected):
    samples = tone(16_000, 1)
    audio.write(tmp_path / name, samples, recording(samples, 16_000, kind, subtype))
    info = sf.info(tmp_path / name)
    assert (info.format, info.subtype) == expected


def test_a_wav_that_outgrows_its_header_becomes_rf64(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "WAV_LIMIT_BYTES", 1_000)
    samples = tone(16_000, 1)
    audio.write(tmp_path / "a.wav", samples, recording(samples))
    assert audio.read(tmp_path / "a.wav").format == "RF64"


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_32", "ULAW"])
def test_samples_beyond_full_scale_are_limited_and_counted(tmp_path, subtype):
    samples = np.array([0.0, 1.0, -1.0, 1.5, -2.0, 1.0001])
    assert audio.write(tmp_path / "a.wav", samples, recording(samples, sub=subtype)) == 3
    back = audio.read(tmp_path / "a.wav").samples[:, 0]
    assert back[3] == back[1] > 0.97
    assert back[4] == back[2] < -0.97


def test_float_files_are_not_clipped(tmp_path):
    samples = np.array([1.5, -2.0], np.float32)
    assert audio.write(tmp_path / "a.wav", samples, recording(samples, sub="FLOAT")) == 0
    np.testing.assert_array_equal(audio.read(tmp_path / "a.wav").samples[:, 0], samples)


@pytest.mark.parametrize(
    ("name", "rate", "channels", "word"),
    [
        ("a.opus", 44_100, 1, "opus"),
        ("a.mp3", 96_000, 1, "mp3"),
        ("a.mp3", 48_000, 3, "channels"),
        ("a.flac", 48_000, 9, "channels"),
        ("a.xyz", 48_000, 1, "known format"),
        ("a", 48_000, 1, "known format"),
        ("nowhere/a.wav", 48_000, 1, "cannot be written"),
        ("x" * 300 + "/a.wav", 48_000, 1, "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, name, rate, channels, word):
    samples = tone(rate, channels, 0.1)
    path = tmp_path / name
    assert word in refusal(lambda: audio.write(path, samples, recording(samples, rate)))
    assert list(tmp_path.iterdir()) == []


# Whole or not at all


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, broken):
    path = tmp_path / "a.wav"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if broken == "fsync" else (Path, "replace")), fail)
    samples = tone(16_000, 1)
    assert "cannot be written" in refusal(lambda: audio.write(path, samples, recording(samples)))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("kind", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), *LOSSY])
def test_a_full_disc_leaves_nothing(tmp_path, kind, subtype):
    resource = pytest.importorskip("resource")
    samples = np.random.default_rng(1).normal(0, 0.1, (96_000, 1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    like = recording(samples, 48_000, kind, subtype)
    for room in (100, 10_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            refusal(lambda: audio.write(tmp_path / name_of(kind), samples, like))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(audio, "encodable", interrupt)
    samples = tone(16_000, 1)
    with pytest.raises(KeyboardInterrupt):
        audio.write(tmp_path / "a.wav", samples, recording(samples))
    assert list(tmp_path.iterdir()) == []


def test_a_private_file_stays_private_when_replaced(tmp_path):
    path = host(tmp_path / "a.wav", "WAV", "PCM_16")
    path.chmod(0o600)
    read = audio.read(path)
    audio.write(path, read.samples, read)
    assert path.stat().st_mode & 0o777 == 0o600


# Files that are not whole recordings


@pytest.mark.parametrize(
    ("content", "name", "word"),
    [
        (b"", "a.wav", "is empty"),
        (b"this is no sound at all\n" * 90, "a.wav", "not a recording"),
        (b"this is no sound at all\n" * 90, "a.mp3", "not a recording"),
        (b"this is no sound at all\n" * 90, "a.raw", "not a recording"),
        (bytes(5_000), "a.flac", "not a recording"),
        (b"RIFF\x24\0\0\0WAVE", "a.wav", "cut short"),
        (b"fLaC\0\0\0\x22", "a.flac", "cut short"),
    ],
)
def test_other_content_is_refused(tmp_path, content, name, word):
    (tmp_path / name).write_bytes(content)
    assert word in refusal(lambda: audio.read(tmp_path / name))


def test_a_folder_or_nothing_is_refused(tmp_path):
    assert "not a file" in refusal(lambda: audio.read(tmp_path))
    assert "no such file" in refusal(lambda: audio.read(tmp_path / "a.wav"))
    assert "too long" in refusal(lambda: audio.read(tmp_path / ("x" * 300)))
    file = host(tmp_path / "a.wav", "WAV", "PCM_16")
    assert "not a directory" in refusal(lambda: audio.read(file / "b.wav"))
    samples = tone(16_000, 1)
    refusal(lambda: audio.write(file / "b.wav", samples, recording(samples)))
    (tmp_path / "c.wav").mkdir()
    refusal(lambda: audio.write(tmp_path / "c.wav", samples, recording(samples)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.wav", "c.wav"]


@pytest.mark.parametrize("kept", [0.05, 0.5, 0.97])
@pytest.mark.parametrize(
    ("kind", "subtype"),
    [
        ("WAV", "PCM_16"),
        ("WAV", "FLOAT"),
        ("WAVEX", "PCM_24"),
        ("RF64", "PCM_16"),
        ("FLAC", "PCM_16"),
        *LOSSY,
    ],
)
def test_a_file_cut_short_is_refused(tmp_path, kind, subtype, kept):
    samples = np.random.default_rng(1).normal(0, 0.1, (48_000 * 3, 1))
    path = tmp_path / name_of(kind)
    sf.write(path, samples, 48_000, format=kind, subtype=subtype)
    audio.read(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    assert "cut short" in refusal(lambda: audio.read(path))


@pytest.mark.parametrize(("kind", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), *LOSSY[:2]])
def test_a_single_missing_byte_is_noticed(tmp_path, kind, subtype):
    path = host(tmp_path / name_of(kind), kind, subtype)
    path.write_bytes(path.read_bytes()[:-1])
    assert "cut short" in refusal(lambda: audio.read(path))


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF])
def test_a_wav_from_a_pipe_is_read_to_its_end(tmp_path, size):
    path = host(tmp_path / "a.wav", "WAV", "PCM_16")
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, content.find(b"data") + 4, size)
    path.write_bytes(content)
    assert len(audio.read(path).samples) == 700


def test_a_flac_of_unknown_length_is_refused(tmp_path):
    path = host(tmp_path / "a.flac", "FLAC", "PCM_16")
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0  # the length: 36 bits that end the first 18 bytes of STREAMINFO
    content[22:26] = bytes(4)
    path.write_bytes(content)
    assert "how long" in refusal(lambda: audio.read(path))


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_an_mp3_without_a_header_is_read_only_at_a_constant_rate(tmp_path, rate):
    noise = np.random.default_rng(1).normal(0, 0.1, (rate * 3, 1))
    noise[rate:] *= np.geomspace(1, 1e-4, rate * 2)[:, None]
    path = tmp_path / "a.mp3"

    def without_header(mode: str, level: float) -> None:
        sf.write(path, noise, rate, bitrate_mode=mode, compression_level=level)
        content = path.read_bytes()
        second = content.find(content[:2], 100)  # the header fills the first MPEG frame
        if b"Info" in content[:second] or b"Xing" in content[:second]:  # none if it has no room
            path.write_bytes(content[second:])

    for level in (0.2, 0.9):
        without_header("CONSTANT", level)
        assert abs(len(audio.read(path).samples) - len(noise)) < 3 * 1_152
    without_header("VARIABLE", 0.2)
    assert "how long" in refusal(lambda: audio.read(path))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_file_with_non_finite_samples_is_refused(tmp_path, value):
    sf.write(tmp_path / "a.wav", np.array([0.0, value]), 16_000, subtype="FLOAT")
    assert "finite" in refusal(lambda: audio.read(tmp_path / "a.wav"))


def test_a_file_without_frames_or_with_a_strange_rate_or_format_is_refused(tmp_path):
    sf.write(tmp_path / "a.wav", np.zeros((0, 1)), 16_000)
    assert "no samples" in refusal(lambda: audio.read(tmp_path / "a.wav"))
    for rate in (4_000, 384_000):
        sf.write(tmp_path / "a.wav", np.zeros(100), rate)
        assert "sample rate" in refusal(lambda: audio.read(tmp_path / "a.wav"))
    sf.write(tmp_path / "a.wav", np.zeros(100), 16_000, format="AIFF")
    assert "aiff" in refusal(lambda: audio.read(tmp_path / "a.wav"))


def test_the_content_decides_the_format_not_the_name(tmp_path):
    path = host(tmp_path / "a.mp3", "FLAC", "PCM_16")
    assert audio.read(str(path)).format == "FLAC"


# Arrays


def test_check_gives_frames_by_channels():
    assert audio.check(np.zeros(5), 16_000).shape == (5, 1)
    assert audio.check([[0.0, 0.5]] * 3, 8_000).shape == (3, 2)
    assert audio.check(np.zeros(5, np.float16), 16_000).dtype == np.float32
    assert audio.check(np.zeros(5, np.float64), 16_000).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_check_scales_integers_by_their_full_scale(dtype):
    info = np.iinfo(dtype)
    checked = audio.check(np.array([info.min, 0, info.max], dtype), 16_000)[:, 0]
    np.testing.assert_array_equal(checked, [-1, 0, 1 + 1 / info.min])


def test_check_centres_unsigned_bytes():
    checked = audio.check(np.array([0, 128, 255], np.uint8), 16_000)[:, 0]
    np.testing.assert_array_equal(checked, [-1, 0, 127 / 128])


@pytest.mark.parametrize(
    ("samples", "rate", "word"),
    [
        (np.zeros((2, 48_000)), 48_000, "channels came first"),
        (np.zeros((1, 9)), 48_000, "channels came first"),
        (np.zeros(0), 48_000, "no samples"),
        (np.zeros((0, 2)), 48_000, "no samples"),
        (np.zeros((5, 0)), 48_000, "no samples"),
        (np.array([0, np.nan]), 48_000, "finite"),
        (np.array([0, -np.inf]), 48_000, "finite"),
        (np.float64(1), 48_000, "dimensions"),
        (np.zeros((2, 3, 4)), 48_000, "dimensions"),
        (np.zeros(5, np.int64), 48_000, "full scale"),
        (np.zeros(5, bool), 48_000, "full scale"),
        (np.zeros(5, complex), 48_000, "full scale"),
        (np.array(["a"]), 48_000, "full scale"),
        (np.zeros(5), 7_999, "sample rate"),
        (np.zeros(5), 192_001, "sample rate"),
        (np.zeros(5), 16_000.5, "sample rate"),
    ],
)
def test_check_refuses(samples, rate, word):
    assert word in refusal(lambda: audio.check(samples, rate))


def test_to_mono_is_the_mean():
    np.testing.assert_array_equal(audio.to_mono(np.array([[0.0, 1.0], [1.0, 1.0]])), [0.5, 1.0])


# Resampling

RATES = st.sampled_from([8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000, 192_000])


@settings(deadline=None)
@given(st.integers(0, 3_000), st.integers(1, 3), RATES, RATES)
def test_resample_gives_the_exact_length(frames, channels, from_hz, to_hz):
    samples = np.zeros((frames, channels), np.float32)
    resampled = audio.resample(samples, from_hz, to_hz)
    assert resampled.shape == (round(Fraction(frames * to_hz, from_hz)), channels)
    assert resampled.dtype == np.float32
    assert audio.resample(samples[:, 0], from_hz, to_hz).shape == resampled.shape[:1]


def test_resample_keeps_time_and_level():
    there = audio.resample(tone(44_100, 2), 44_100, 16_000)
    np.testing.assert_allclose(there[800:-800], tone(16_000, 2)[800:-800], atol=1e-5)
    samples = tone(16_000, 1)
    assert audio.resample(samples, 16_000, 16_000) is samples


# The clips that come with the package and its tests


@pytest.mark.parametrize("path", [DEMO, *sorted(DATA.glob("*.flac"))], ids=lambda path: path.stem)
def test_the_clips_are_speech_at_a_sane_level(path):
    clip = audio.read(path)
    assert clip.samples.shape[1] == 1
    assert 3 <= len(clip.samples) / clip.sample_rate <= 8
    assert abs(10 * np.log10((clip.samples**2).mean()) + 23) < 0.5
    assert np.abs(clip.samples).max() < 0.98
