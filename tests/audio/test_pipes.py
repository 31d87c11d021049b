"""WAV and FLAC come through pipes as they are in files, in pieces of any size."""

import io
import struct
from pathlib import Path
from typing import Any

import mutagen.flac
import numpy as np
import pytest
import soundfile as sf
from made_audio import refusal
from numpy.typing import NDArray

from keybound.audio import pipes, recordings
from keybound.audio.metadata import LIMIT_BYTES
from keybound.demo import SPEECH

KINDS = [
    ("WAV", "PCM_U8"), ("WAV", "PCM_16"), ("WAVEX", "PCM_24"), ("WAV", "PCM_32"), ("WAV", "FLOAT"),
    ("WAV", "DOUBLE"), ("WAV", "ULAW"), ("WAV", "ALAW"), ("RF64", "PCM_16"), ("FLAC", "PCM_S8"),
    ("FLAC", "PCM_16"), ("FLAC", "PCM_24"),
]  # fmt: skip
FRAMES = 20_000


class Pipe(io.RawIOBase):
    """Bytes that come in pieces and only once."""

    def __init__(self, data: bytes, piece: int = 999) -> None:
        self._data, self._piece = io.BytesIO(data), piece

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        came = self._data.read(min(len(buffer), self._piece))
        buffer[: len(came)] = came
        return len(came)


def piped(data: bytes, piece: int = 999) -> io.BufferedReader:
    return io.BufferedReader(Pipe(data, piece))


def made(kind: str, subtype: str, endian: str = "FILE") -> bytes:
    samples, rate = sf.read(SPEECH, frames=FRAMES)
    file = io.BytesIO()
    both = np.stack([samples, -samples[::-1]], axis=1)
    sf.write(file, both, rate, subtype, endian, kind)
    return file.getvalue()


def passed(data: bytes, piece: int = 999) -> tuple[NDArray[Any], NDArray[Any], bytes]:
    """Send a recording from one pipe to another: what was read, written and sent."""
    source, out = pipes.opened(piped(data, piece)), io.BytesIO()
    sink = source.output(out)
    blocks = list(source.blocks(3_000))
    assert max(map(len, blocks)) <= 3_000
    back = []
    for block in blocks:
        back.append(sink.encode(block))
        sink.send()
    sink.close()
    source.check_end()
    assert sink.frames == sum(map(len, blocks))
    return np.concatenate(blocks), np.concatenate(back), out.getvalue()


@pytest.mark.parametrize(("kind", "subtype"), KINDS)
def test_what_goes_through_is_what_a_file_holds(kind: str, subtype: str, tmp_path: Path) -> None:
    data = made(kind, subtype)
    (path := tmp_path / "a").write_bytes(data)
    read, back, out = passed(data)
    expected = recordings.read(path).samples
    assert read.dtype == expected.dtype
    np.testing.assert_array_equal(read, expected)
    np.testing.assert_array_equal(back, expected)
    np.testing.assert_array_equal(passed(out)[0], expected)
    assert len(out) == len(data)
    if subtype.startswith("PCM") and kind != "FLAC":  # others have a length, a peak, or two zeros
        assert out == data


def test_an_order_of_bytes_is_kept() -> None:
    data = made("WAV", "PCM_16", "BIG")
    assert data[:4] == b"RIFX"
    assert passed(data)[2] == data


def test_chunks_around_the_sound_go_through() -> None:
    data = made("WAV", "PCM_U8")
    info = b"LIST" + struct.pack("<I", 7) + b"INFOabc\0"
    stale = b"MD5 " + struct.pack("<I", 16) + bytes(16)
    for chunk in (info, stale):
        for whole in (data + chunk, data[:12] + chunk + data[12:]):
            assert passed(whole)[2] == whole.replace(b"MD5 ", b"JUNK")


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0, 0x7FFFFFFF, 0x7FFFF000, 0x80000000])
def test_a_length_that_is_not_told(size: int) -> None:
    data = bytearray(made("WAV", "PCM_16"))
    whole = passed(bytes(data))[0]
    at = data.index(b"data")
    data[4:8], data[at + 4 : at + 8] = struct.pack("<I", size), struct.pack("<I", size)
    assert pipes.opened(piped(bytes(data))).frames == 0
    read, _, out = passed(bytes(data), piece=333)
    np.testing.assert_array_equal(read, whole)
    assert out == data
    with pipes.spooled(piped(bytes(data))) as path:
        np.testing.assert_array_equal(recordings.read(path).samples, whole)


def test_a_flac_of_unknown_length_with_all_that_it_says(tmp_path: Path) -> None:
    (path := tmp_path / "a.flac").write_bytes(made("FLAC", "PCM_16"))
    file = mutagen.flac.FLAC(path)
    file["TITLE"] = "Ein Brüllen"
    file.save()
    whole, _, out = passed(path.read_bytes())
    source = pipes.opened(piped(out))
    assert source.frames == 0
    (tmp_path / "b.flac").write_bytes(out)
    assert mutagen.flac.FLAC(tmp_path / "b.flac")["TITLE"] == ["Ein Brüllen"]
    with pipes.spooled(piped(out)) as spooled:
        np.testing.assert_array_equal(recordings.read(spooled).samples, whole)


def test_a_spool_takes_any_format(tmp_path: Path) -> None:
    sf.write(tmp_path / "a.mp3", sf.read(SPEECH)[0], 24_000)
    data = (tmp_path / "a.mp3").read_bytes()
    with pipes.spooled(piped(data)) as path:
        assert recordings.read(path).format == "MP3"
    assert not path.exists()
    with pytest.raises(Exception, match="standard input is not a recording"):  # noqa: SIM117
        with pipes.spooled(piped(b"no sound at all, only words")) as path:
            recordings.read(path)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_what_ends_too_early_is_read_to_there(kind: str) -> None:
    data = made(kind, "PCM_16")
    source = pipes.opened(piped(data[: len(data) // 2]))
    done = sum(map(len, source.blocks(3_000)))
    assert 0 < done < FRAMES
    assert "cut short" in refusal(source.check_end)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"RIFF", "neither wav nor flac"),
        (bytes(5_000), "neither wav nor flac"),
        (b"RIFF\0\0\0\0WAVE", "ends before its sound"),
        (b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0" + bytes(16) + b"data\0\0\0\0", "of a kind that is not"),
        (b"RIFF\0\0\0\0WAVEjunk" + struct.pack("<I", LIMIT_BYTES), "too much before its sound"),
        (b"fLaC\0\0\0\x22" + bytes(20), "ends before its sound"),
        (b"fLaC\x80\0\0\x22" + bytes(34) + bytes(range(256)) * 9, "damaged flac"),
    ],
)
def test_what_is_no_recording_is_refused(data: bytes, why: str) -> None:
    assert why in refusal(lambda: pipes.opened(piped(data)))


def test_a_header_alone_holds_no_samples() -> None:
    file = io.BytesIO()
    sf.write(file, np.zeros(0), 16_000, "PCM_16", format="WAV")
    source = pipes.opened(piped(file.getvalue()))
    assert list(source.blocks(100)) == []
    assert "holds no samples" in refusal(source.check_end)


def test_a_flac_that_breaks_in_the_middle_is_damaged() -> None:
    data = made("FLAC", "PCM_16")
    noise = np.random.default_rng(2).bytes(len(data) // 2)
    source = pipes.opened(piped(data[: len(data) // 2] + noise))
    list(source.blocks(3_000))
    assert "damaged" in refusal(source.check_end)


def test_what_is_raised_while_a_flac_is_read_is_raised() -> None:
    class Stopped(Pipe):
        def readinto(self, buffer: Any) -> int:
            if self._data.tell() > 20_000:
                raise KeyboardInterrupt
            return super().readinto(buffer)

    source = pipes.opened(io.BufferedReader(Stopped(made("FLAC", "PCM_16"))))
    with pytest.raises(KeyboardInterrupt):
        list(source.blocks(3_000))
