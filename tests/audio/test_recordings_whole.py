"""Recordings are written whole or not at all, and what is not whole is refused in one line."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from made_audio import LOSSY, host, name_of, recording, refusal, tone

from keybound.audio import recordings

# Whole or not at all


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, broken):
    path = tmp_path / "a.wav"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if broken == "fsync" else (Path, "replace")), fail)
    samples = tone(16_000, 1)
    assert "cannot be written" in refusal(
        lambda: recordings.write(path, samples, recording(samples))
    )
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
            refusal(lambda: recordings.write(tmp_path / name_of(kind), samples, like))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recordings, "encodable", interrupt)
    samples = tone(16_000, 1)
    with pytest.raises(KeyboardInterrupt):
        recordings.write(tmp_path / "a.wav", samples, recording(samples))
    assert list(tmp_path.iterdir()) == []


def test_a_private_file_stays_private_when_replaced(tmp_path):
    path = host(tmp_path / "a.wav", "WAV", "PCM_16")
    path.chmod(0o600)
    read = recordings.read(path)
    recordings.write(path, read.samples, read)
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
    assert word in refusal(lambda: recordings.read(tmp_path / name))


def test_a_folder_or_nothing_is_refused(tmp_path):
    assert "not a file" in refusal(lambda: recordings.read(tmp_path))
    assert "no such file" in refusal(lambda: recordings.read(tmp_path / "a.wav"))
    assert "too long" in refusal(lambda: recordings.read(tmp_path / ("x" * 300)))
    file = host(tmp_path / "a.wav", "WAV", "PCM_16")
    assert "not a directory" in refusal(lambda: recordings.read(file / "b.wav"))
    samples = tone(16_000, 1)
    refusal(lambda: recordings.write(file / "b.wav", samples, recording(samples)))
    (tmp_path / "c.wav").mkdir()
    refusal(lambda: recordings.write(tmp_path / "c.wav", samples, recording(samples)))
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
        ("AIFF", "PCM_16"),
        ("AIFF", "FLOAT"),
        ("CAF", "PCM_24"),
        ("CAF", "ALAC_16"),
        ("W64", "PCM_16"),
        ("AU", "ULAW"),
        *LOSSY,
    ],
)
def test_a_file_cut_short_is_refused(tmp_path, kind, subtype, kept):
    samples = np.random.default_rng(1).normal(0, 0.1, (48_000 * 3, 1))
    path = tmp_path / name_of(kind)
    sf.write(path, samples, 48_000, format=kind, subtype=subtype)
    recordings.read(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    assert "cut short" in refusal(lambda: recordings.read(path))


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [
        *((kind, "PCM_16") for kind in ("WAV", "FLAC", "AIFF", "CAF", "W64", "AU")),
        *LOSSY[:2],
    ],
)
def test_a_single_missing_byte_is_noticed(tmp_path, kind, subtype):
    path = host(tmp_path / name_of(kind), kind, subtype)
    path.write_bytes(path.read_bytes()[:-1])
    assert "cut short" in refusal(lambda: recordings.read(path))


def test_what_is_behind_the_sound_is_no_sound(tmp_path):
    for kind in ("W64", "AU", "AIFF", "CAF", "WAV"):
        path = host(tmp_path / name_of(kind), kind, "PCM_16")
        before = recordings.read(path).samples
        behind = bytes(16) + struct.pack("<Q", 64) + bytes(40)  # as W64 has it
        path.write_bytes(path.read_bytes() + bytes(-path.stat().st_size % 8) + behind)
        np.testing.assert_array_equal(recordings.read(path).samples, before)


def test_a_caf_with_much_before_its_sound_is_refused(tmp_path):
    path = host(tmp_path / "a.caf", "CAF", "PCM_16")
    content = path.read_bytes()
    at = content.index(b"data")
    for size in (1_000, 60_000):
        extra = struct.pack(">4sq", b"uuid", size) + bytes(size)
        path.write_bytes(content[:at] + extra + content[at:])
        if size < 50_000:
            assert len(recordings.read(path).samples) == 700
    assert "before its sound" in refusal(lambda: recordings.read(path))


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF])
def test_a_wav_from_a_pipe_is_read_to_its_end(tmp_path, size):
    path = host(tmp_path / "a.wav", "WAV", "PCM_16")
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, content.find(b"data") + 4, size)
    path.write_bytes(content)
    assert len(recordings.read(path).samples) == 700


def test_a_flac_of_unknown_length_is_read_to_its_end_within_limits(tmp_path):
    path = tmp_path / "a.flac"
    sf.write(path, np.random.default_rng(1).normal(0, 0.1, (90_000, 2)), 16_000)
    whole = recordings.read(path).samples
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0  # the length: 36 bits that end the first 18 bytes of STREAMINFO
    content[22:26] = bytes(4)
    path.write_bytes(content)
    with recordings.Reader(path, longest_s=6.0) as file:
        assert file.frames == 90_000
    assert np.array_equal(recordings.read(path).samples, whole)
    too_long = refusal(lambda: recordings.Reader(path, longest_s=5.0))
    assert too_long == f"{path} is longer than 5 s"
    path.write_bytes(content[:-3_000])
    assert "cut short" in refusal(lambda: recordings.read(path))


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
        assert abs(len(recordings.read(path).samples) - len(noise)) < 3 * 1_152
    without_header("VARIABLE", 0.2)
    assert "how long" in refusal(lambda: recordings.read(path))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_file_with_non_finite_samples_is_refused(tmp_path, value):
    sf.write(tmp_path / "a.wav", np.array([0.0, value]), 16_000, subtype="FLOAT")
    assert "finite" in refusal(lambda: recordings.read(tmp_path / "a.wav"))


def test_a_file_without_frames_or_with_a_strange_rate_or_format_is_refused(tmp_path):
    sf.write(tmp_path / "a.wav", np.zeros((0, 1)), 16_000)
    assert "no samples" in refusal(lambda: recordings.read(tmp_path / "a.wav"))
    for rate in (4_000, 384_000):
        sf.write(tmp_path / "a.wav", np.zeros(100), rate)
        assert "sample rate" in refusal(lambda: recordings.read(tmp_path / "a.wav"))
    sf.write(tmp_path / "a.wav", np.zeros(100), 16_000, format="NIST")
    assert "nist" in refusal(lambda: recordings.read(tmp_path / "a.wav"))


def test_the_content_decides_the_format_not_the_name(tmp_path):
    path = host(tmp_path / "a.mp3", "FLAC", "PCM_16")
    assert recordings.read(str(path)).format == "FLAC"
