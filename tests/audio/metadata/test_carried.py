"""All that a host says beside its sound is in what is written in the same format."""

import dataclasses
import subprocess
from pathlib import Path

import made_metadata as made
import mutagen
import mutagen.apev2
import mutagen.flac
import mutagen.id3
import mutagen.mp4
import mutagen.wave
import numpy as np
import pytest
import soundfile as sf

from keybound.audio import metadata, recordings
from keybound.audio.metadata import Metadata
from keybound.crypto.keys import Key
from keybound.errors import AudioError
from keybound.watermark import files
from keybound.watermark.options import EmbedOptions
from keybound.watermark.watermarker import Watermarker

KEY, PAYLOAD = Key(bytes(range(32))), 0x5EED


def carried(path: Path) -> Path:
    """Write a host again, with and without what it says; the sound must be the same."""
    output, plain = path.with_name("b" + path.suffix), path.with_name("c" + path.suffix)
    with recordings.Reader(path) as host:
        samples = np.concatenate(list(host.blocks(1_000)))
        with recordings.writing(output, host, host.frames, 1) as file:
            file.write(samples)
        assert file.not_carried == ()
        bare = recordings.Recording(
            samples, 16_000, host.format, host.subtype, Metadata(), host.bitrate_bps, host.endian
        )
        recordings.write(plain, samples, bare)
    np.testing.assert_array_equal(sf.read(output)[0], sf.read(plain)[0])
    np.testing.assert_array_equal(recordings.read(output).samples, recordings.read(plain).samples)
    return output


def blocks(path: Path) -> list[tuple[int, bytes]]:
    return [(one.code, one.write()) for one in mutagen.flac.FLAC(path).metadata_blocks]


def test_flac_blocks(tmp_path):
    host = made.flac(tmp_path / "a.flac")
    output = carried(host)
    kept = [one for one in blocks(host) if one[0] not in (0, 1, 3)]
    assert [code for code, _ in kept] == [4, 6, 6, 2, 5]
    assert [one for one in blocks(output) if one[0] not in (0, 1)] == kept
    before, after = mutagen.flac.FLAC(host), mutagen.flac.FLAC(output)
    assert dict(before.tags) == dict(after.tags)
    assert after.seektable is None  # of another stream
    fresh = mutagen.flac.FLAC(output.with_name("c.flac")).info
    assert (after.info.md5_signature, after.info.length) == (fresh.md5_signature, fresh.length)


@pytest.mark.parametrize("name", ["a.ogg", "a.opus"])
def test_ogg_comments(tmp_path, name):
    host = made.ogg(tmp_path / name)
    output = carried(host)
    before, after = mutagen.File(host), mutagen.File(output)
    assert sorted(before.tags) == sorted(after.tags)
    assert len(after.tags) >= 8
    assert after.info.length == pytest.approx(before.info.length, abs=0.02)
    data, at, numbers = output.read_bytes(), 0, []
    while at < len(data):  # every page is whole, numbered and signed
        table = data[at + 27 : at + 27 + data[at + 26]]
        end = at + 27 + len(table) + sum(table)
        page = bytearray(data[at:end])
        numbers.append(int.from_bytes(page[18:22], "little"))
        signed, page[22:26] = bytes(page[22:26]), bytes(4)
        assert ogg_crc(page) == signed
        at = end
    assert numbers == list(range(len(numbers)))
    assert at == len(data)


def ogg_crc(page: bytes) -> bytes:
    crc = 0
    for byte in page:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x104C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
    return crc.to_bytes(4, "little")


@pytest.mark.parametrize("version", [3, 4])
def test_mp3_tags(tmp_path, version):
    host = made.mp3(tmp_path / "a.mp3", version)
    output = carried(host)
    before, after = mutagen.id3.ID3(host), mutagen.id3.ID3(output)
    assert dict(before.items()) == dict(after.items())
    assert {"TPE2", "USLT::deu", "APIC:Titel", "TXXX:own_tag"} < set(after)
    ape = mutagen.apev2.APEv2
    assert dict(ape(host)) == dict(ape(output)) == {"Publisher": "a house"}
    plain, data = output.with_name("c.mp3").read_bytes(), output.read_bytes()
    ends = [one[one.rindex(b"TAG") :] for one in (host.read_bytes(), data)]
    assert ends[0] == ends[1]
    assert plain in data


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [("WAV", "PCM_16"), ("WAV", "PCM_U8"), ("WAV", "FLOAT"), ("WAVEX", "PCM_24"),
     ("RF64", "PCM_16")],
)  # fmt: skip
def test_wav_chunks(tmp_path, kind, subtype):
    host = made.riff(tmp_path / "a.wav", kind, subtype)
    output = carried(host)
    data = output.read_bytes()
    sound = data.index(b"data")
    for piece in made.BEFORE[: 2 if kind == "RF64" else 3]:
        assert data.count(piece) == 1
        assert data.index(piece) < sound
    for piece in made.BEHIND:
        assert data.count(piece) == 1
        assert data.index(piece) > sound
    assert sf.info(output).format == kind
    tags = [mutagen.wave.WAVE(path).tags for path in (host, output)] if kind != "RF64" else [0, 0]
    assert tags[0] == tags[1]
    size = int.from_bytes(data[20:28] if kind == "RF64" else data[4:8], "little")
    assert size == len(data) - 8
    if subtype != "PCM_U8":
        assert sf.SoundFile(output).copy_metadata()["title"] == "Ein Brüllen"


def test_big_endian_wav_chunks(tmp_path):
    path = tmp_path / "a.wav"
    sf.write(path, np.zeros(999), 16_000, format="WAV", subtype="PCM_16", endian="BIG")
    cue = made.chunk(b"cue ", bytes(28), ">")
    data = path.read_bytes() + cue
    path.write_bytes(data[:4] + (len(data) - 8).to_bytes(4, "big") + data[8:])
    output = carried(path).read_bytes()
    assert output[:4] == b"RIFX"
    assert output.endswith(cue)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_S8", "ULAW", "FLOAT"])
def test_aiff_chunks(tmp_path, subtype):
    host = made.aiff(tmp_path / "a.aiff", subtype)
    output = carried(host)
    data = output.read_bytes()
    for piece in (*made.AIFF_BEFORE, *made.AIFF_BEHIND):
        assert data.count(piece) == 1
        assert (data.index(piece) < data.index(b"SSND")) == (piece in made.AIFF_BEFORE)
    assert int.from_bytes(data[4:8], "big") == len(data) - 8
    assert recordings.read(host).tags["comment"] == "said; again"


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_S8", "ALAC_16"])
def test_caf_chunks(tmp_path, subtype):
    output = carried(made.caf(tmp_path / "a.caf", subtype))
    data = output.read_bytes()
    assert all(data.count(piece) == 1 for piece in made.CAF)
    assert data.index(b"info") < data.index(b"data") < data.index(b"uuid")
    assert recordings.read(output).tags == {"title": "Ein Brüllen", "artist": "one", "own": "mine"}


def test_w64_chunks(tmp_path):
    data = carried(made.w64(tmp_path / "a.w64")).read_bytes()
    assert all(data.count(piece) == 1 for piece in made.W64_PIECES)
    assert int.from_bytes(data[16:24], "little") == len(data)


@pytest.mark.parametrize("name", ["a.mp3", "a.ogg", "a.opus"])
def test_a_picture_is_no_bit_rate(tmp_path, name):
    plain = made.sound(tmp_path / ("p" + name), *made.KINDS[name], frames=48_000)
    rate = recordings.read(plain).bitrate_bps
    said = recordings.read(made.HOSTS[name](tmp_path / ("h" + name))).metadata
    metadata.add(plain, made.KINDS[name][0], 48_000, said)
    assert recordings.read(plain).bitrate_bps == pytest.approx(rate, rel=0.05)


def test_au_annotation(tmp_path):
    output = carried(made.au(tmp_path / "a.au"))
    assert output.read_bytes()[24:40] == b"what was said\0\0\0"


@pytest.mark.parametrize("name", made.HOSTS)
def test_a_marked_file_says_what_its_host_says(
    marker: Watermarker, tmp_path: Path, name: str
) -> None:
    speech = recordings.read(Path(__file__).parents[2] / "data" / "flite-rms.flac")
    host = made.HOSTS[name](tmp_path / name)
    said = recordings.read(host)
    recordings.write(host, speech.samples, said)
    output = tmp_path / ("out" + host.suffix)
    written = files.embed(marker, host, output, EmbedOptions(KEY, PAYLOAD, position=0))
    assert written.not_carried == ()
    again = recordings.read(output)
    pieces = [[(one.name, one.data) for one in r.metadata.pieces] for r in (said, again)]
    assert pieces[0] == pieces[1] != []
    assert said.metadata.meaning == again.metadata.meaning


@made.with_ffmpeg
def test_m4a_boxes_and_chapters(tmp_path):
    made.sound(tmp_path / "a.wav", "WAV", frames=48_000)
    chapters = ";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=1500\ntitle=one\n"
    chapters += "[CHAPTER]\nTIMEBASE=1/1000\nSTART=1500\nEND=3000\ntitle=zwei\n"
    (tmp_path / "chapters").write_text(chapters)
    command = f"ffmpeg -v error -i {tmp_path}/a.wav -f ffmetadata -i {tmp_path}/chapters"
    command += f" -map_chapters 1 -c:a aac {tmp_path}/a.m4a"
    subprocess.run(command.split(), check=True)
    file = mutagen.mp4.MP4(tmp_path / "a.m4a")
    cover = mutagen.mp4.MP4Cover(made.PICTURE, mutagen.mp4.MP4Cover.FORMAT_PNG)
    tags = {"\xa9nam": ["Ein Brüllen"], "aART": ["all of them"], "\xa9lyr": ["la\nla"]}
    tags |= {"covr": [cover], "----:com.apple.iTunes:own": [b"mine"], "tmpo": [120]}
    tags |= {"trkn": [(3, 12)], "----:org.example:else": [b"theirs"]}
    file.update(tags)
    file.save()
    with recordings.Reader(tmp_path / "a.m4a") as host:
        (samples,) = host.blocks(1 << 20)
        with recordings.writing(tmp_path / "b.m4a", host, host.frames, 1) as writer:
            writer.write(samples)
    assert writer.not_carried == ()
    after = mutagen.mp4.MP4(tmp_path / "b.m4a")
    assert {key: after.tags[key] for key in tags} == tags
    assert [(one.start, one.title) for one in after.chapters] == [(0, "one"), (1.5, "zwei")]
    bare = recordings.Recording(samples, 16_000, "M4A", "AAC", Metadata(), host.bitrate_bps)
    recordings.write(tmp_path / "c.m4a", samples, bare)
    first, second = (recordings.read(tmp_path / name).samples for name in ("b.m4a", "c.m4a"))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", made.HOSTS)
def test_no_room_for_metadata_leaves_nothing(tmp_path, name):
    resource = pytest.importorskip("resource")
    read = recordings.read(made.HOSTS[name](tmp_path / name))
    recordings.write(tmp_path / name, read.samples, dataclasses.replace(read, metadata=Metadata()))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = (tmp_path / name).stat().st_size + 8
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(AudioError):
            recordings.write(tmp_path / ("b" + name), read.samples, read)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == [name]
