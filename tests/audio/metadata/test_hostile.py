"""Whatever a file holds, reading it is bounded, and what is written stays whole."""

import contextlib
import random
import struct
import tracemalloc
import wave
from pathlib import Path

import made_metadata as made
import numpy as np
import pytest
import soundfile as sf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keybound.audio import metadata, recordings
from keybound.audio.metadata import chunks, id3, m4a, model, ogg, vorbis
from keybound.audio.metadata.model import Meaning, Metadata, Picture, Piece
from keybound.audio.silence import silence
from keybound.errors import KeyBoundError

KINDS = {name: kind for name, (kind, _) in made.KINDS.items()}
easily = settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@easily
@given(
    st.binary(max_size=60), st.integers(0, 60), st.integers(0, 60), st.binary(max_size=40),
    st.integers(1, 9),
)  # fmt: skip
def test_splice_is_a_slice(tmp_path, content, start, size, new, block):
    path, start = tmp_path / "file", min(start, len(content))
    end = min(start + size, len(content))
    path.write_bytes(content)
    usual, model._BLOCK_BYTES = model._BLOCK_BYTES, block
    try:
        with path.open("rb+") as file:
            model.splice(file, start, end, new)
    finally:
        model._BLOCK_BYTES = usual
    assert path.read_bytes() == content[:start] + new + content[end:]


# Random pieces go over as they are, and the sound stays


NAMES = st.sampled_from([b"kbx1", b"kbx2", b"KBX ", b"zz~z"])
BODIES = st.one_of(st.integers(0, 40), st.integers(0, 200_000))
PIECES = st.lists(st.tuples(NAMES, BODIES, st.booleans()), max_size=6)


@easily
@pytest.mark.parametrize("name", ["a.wav", "a.aiff", "a.caf", "a.w64"])
@given(PIECES)
def test_random_chunks(tmp_path, name, pieces):
    path = made.sound(tmp_path / name, KINDS[name])
    layout = chunks.LAYOUTS[chunks.family_of(path.read_bytes())]
    suffix = made.W64 if name == "a.w64" else b""
    pieces = [(key, bytes(range(256)) * (size // 256 + 1), size, at) for key, size, at in pieces]
    pieces = [(key, body[:size], behind) for key, body, size, behind in pieces]
    built = tuple(
        Piece("x", struct.pack(layout.header, key + suffix, len(body) + layout.counted) + body,
              behind)
        for key, body, behind in pieces
    )  # fmt: skip
    samples = sf.read(path)[0]
    assert metadata.add(path, KINDS[name], 8_001, Metadata(chunks.family_of(path.read_bytes()),
                                                          built)) == ()  # fmt: skip
    np.testing.assert_array_equal(recordings.read(path).samples[:, 0], samples.astype(np.float32))
    found = metadata.read(path, KINDS[name]).pieces
    assert sorted(one.data for one in found) == sorted(one.data for one in built)
    if name in ("a.wav", "a.aiff"):
        moved = [one for one in built if not one.behind] + [one for one in built if one.behind]
        assert [one.data for one in found] == [one.data for one in moved]
    if name == "a.wav":
        with wave.open(str(path)) as file:  # another reader agrees
            assert file.getnframes() == len(samples)


FIELDS = st.lists(
    st.tuples(st.sampled_from(["title", "own tag", "x"]), st.text(max_size=20)),
    max_size=3,
    unique_by=lambda field: field[0],
)
PICTURES = st.lists(st.integers(0, 300_000).map(lambda n: Picture(bytes(n), "image/png")),
                    max_size=2)  # fmt: skip


@easily
@pytest.mark.parametrize("name", ["a.ogg", "a.opus", "a.flac", "a.mp3", "a.wav", "a.aiff"])
@given(FIELDS, PICTURES)
def test_random_words_and_pictures(tmp_path, name, fields, pictures):
    fields = [(key, text.replace("\0", "").strip().replace("\ufeff", "")) for key, text in fields]
    said = Meaning(tuple((key, text) for key, text in fields if text), tuple(pictures))
    path = made.sound(tmp_path / name, *made.KINDS[name])
    samples = sf.read(path)[0]
    assert metadata.add(path, KINDS[name], 8_001, Metadata(meaning=said)) == ()
    np.testing.assert_array_equal(sf.read(path)[0], samples)
    back = metadata.read(path, KINDS[name]).meaning
    ours = [field for field in back.fields if field[0] != "encoder"]
    assert sorted(set(ours)) == sorted(set(said.fields))
    assert sorted(len(one.data) for one in back.pictures) == sorted(
        len(one.data) for one in said.pictures
    )


@easily
@given(st.lists(st.binary(max_size=70_000), min_size=1, max_size=4))
def test_pages_hold_their_packets(packets):
    data = b"".join(ogg._pages([b"\x01vorbis", *packets], 7))
    found, at, open_packet = [], 0, b""
    while at < len(data):
        table = data[at + 27 : at + 27 + data[at + 26]]
        assert (data[at + 5] & 1) == bool(open_packet)
        at += 27 + len(table)
        for lace in table:
            open_packet += data[at : at + lace]
            at += lace
            if lace < 255:
                found.append(open_packet)
                open_packet = b""
    assert found == [b"\x01vorbis", *packets]


BOXES = st.lists(st.tuples(st.sampled_from(["ilst", "udta"]), NAMES, st.binary(max_size=40)))


@easily
@given(BOXES, FIELDS, PICTURES)
def test_random_boxes(tmp_path, boxes, fields, pictures):
    path, box = tmp_path / "a.m4a", m4a._box
    start = box(b"ftyp", b"M4A \0\0\0\0") + box(b"mdat", bytes(range(200)))
    chapters = box(b"chpl", bytes(9))
    index = box(b"mvhd", bytes(100)) + box(b"udta", box(b"meta", bytes(4)) + chapters)
    path.write_bytes(start + box(b"moov", index))
    pieces = tuple(
        Piece(f"{place}/{name.decode()}", box(name, data)) for place, name, data in boxes
    )
    pieces += m4a.made(Meaning(tuple(fields), tuple(pictures)))[0]
    metadata.add(path, "M4A", 0, Metadata("M4A", pieces))
    data = path.read_bytes()
    assert data.startswith(start)
    assert int.from_bytes(data[len(start) : len(start) + 4], "big") == len(data) - len(start)
    assert box(b"mvhd", bytes(100)) in data
    assert chapters in data
    found = metadata.read(path, "M4A")
    assert sorted(one.data for one in found.pieces) == sorted(one.data for one in pieces)
    assert set(fields) <= set(found.meaning.fields)
    assert [one.data for one in found.meaning.pictures] == [one.data for one in pictures]


@easily
@given(st.integers(0, 1 << 40))
def test_damaged_boxes_are_read(tmp_path, seed):
    items = b"".join(one.data for one in m4a.made(Meaning((("title", "a"), ("own", "b"))))[0])
    meta = m4a._box(b"meta", bytes(4) + m4a._box(b"ilst", items))
    whole = m4a._box(b"ftyp", b"M4A ") + m4a._box(b"moov", m4a._box(b"udta", meta * 3))
    (tmp_path / "a.m4a").write_bytes(damaged(whole, random.Random(seed)))
    said = metadata.read(tmp_path / "a.m4a", "M4A")
    assert said.family == "M4A"


# Damage


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    return {name: make(folder / name).read_bytes() for name, make in made.HOSTS.items()}


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Flip bytes where headers are, write sizes beyond the file, cut it, put noise in."""
    broken = bytearray(data)
    for _ in range(chance.choice([1, 3, 20])):
        at = chance.choice([chance.randrange(len(broken)), chance.randrange(min(300, len(broken)))])
        kind = chance.randrange(4)
        if kind == 0:
            broken[at] = chance.randrange(256)
        elif kind == 1:
            size = chance.choice([b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4), b"\xff" * 8])
            broken[at : at + len(size)] = size
        elif kind == 2:
            broken[at:at] = chance.randbytes(chance.randrange(1, 50))
        elif chance.random() < 0.3:
            broken = broken[: max(40, at)]
    return bytes(broken)


@settings(easily, max_examples=150)
@pytest.mark.parametrize("name", KINDS)
@given(st.integers(0, 1 << 40))
def test_damage_is_read_and_carried_without_harm(tmp_path, hosts, name, seed):
    path = tmp_path / name
    path.write_bytes(damaged(hosts[name], random.Random(seed)))
    said = metadata.read(path, KINDS[name])
    assert sum(len(one.data) for one in said.pieces) <= len(path.read_bytes())
    try:
        recordings.read(path)  # a header may promise more samples than there is memory for
    except KeyBoundError:
        return  # nobody marks what cannot be read
    fresh = made.sound(tmp_path / ("b" + path.suffix), *made.KINDS[name])
    samples = sf.read(fresh)[0]
    metadata.add(fresh, KINDS[name], 8_001, said)
    with silence():
        after = sf.read(fresh)[0]
    np.testing.assert_array_equal(after, samples)
    other = made.sound(tmp_path / "c.flac", "FLAC")
    samples = sf.read(other)[0]
    metadata.add(other, "FLAC", 8_001, Metadata(meaning=said.meaning))
    np.testing.assert_array_equal(sf.read(other)[0], samples)


@easily
@given(st.binary(max_size=300))
def test_noise_is_no_tag(noise):
    for tag in (b"ID3\4\0\0\0\0\2\x2c" + noise, b"ID3\3\0\x80\0\0\2\x2c" + noise):
        id3.meaning_of(tag)
    id3.read(noise + b"LYRICS200")
    with contextlib.suppress(ValueError, struct.error):
        vorbis.fields_of(noise)
    chunks.read(b"RIFF\0\0\0\0WAVE" + noise)


def peak(path: Path, kind: str) -> tuple[Metadata, int]:
    tracemalloc.start()
    said = metadata.read(path, kind)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return said, most


def test_what_is_too_large_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(model, "LIMIT_BYTES", 100_000)
    host = made.sound(tmp_path / "a.wav", "WAV")
    host.write_bytes(
        host.read_bytes() + made.chunk(b"tiny", bytes(9)) + made.chunk(b"huge", bytes(2_000_000))
    )
    said, most = peak(host, "WAV")
    assert ([one.name for one in said.pieces], said.lost) == (["tiny"], ("huge",))
    assert most < 200_000
    read = recordings.read(host)
    with recordings.writing(tmp_path / "b.wav", read, 8_001, 1) as file:
        file.write(read.samples)
    assert file.not_carried == ("huge",)


def test_a_million_empty_chunks_take_little(tmp_path):
    host = made.sound(tmp_path / "a.wav", "WAV")
    host.write_bytes(host.read_bytes() + made.chunk(b"none", b"") * 1_000_000)
    said, most = peak(host, "WAV")
    assert len(said.pieces) <= model.LIMIT_PIECES
    assert said.lost == ("more chunks",)
    assert most < 8_000_000
    host.write_bytes(made.sound(host, "WAV").read_bytes() + made.chunk(b"JUNK", b"") * 1_100_000)
    assert metadata.read(host, "WAV").lost == ("more chunks",)


def test_a_million_empty_fields_take_little(tmp_path):
    host = made.sound(tmp_path / "a.flac", "FLAC")
    body = struct.pack("<II", 0, 1_000_000) + bytes(4_000_000)
    block = b"\4" + len(body).to_bytes(3, "big") + body
    metadata.add(host, "FLAC", 8_001, Metadata("FLAC", (Piece("VORBIS_COMMENT", block),)))
    said, most = peak(host, "FLAC")
    assert (said.pieces[0].data, said.meaning.fields) == (block, ())
    assert most < 20_000_000


def test_a_chunk_cut_short_is_named(tmp_path):
    host = made.sound(tmp_path / "a.wav", "WAV")
    host.write_bytes(host.read_bytes() + made.chunk(b"kbx1", bytes(50))[:-20])
    assert metadata.read(host, "WAV").lost == ("kbx1",)
