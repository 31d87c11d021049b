"""The chunks of WAV, RF64, W64, AIFF and CAF, as bytes and as words."""

import itertools
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, cast

from keybound.audio.headers import PASSED_BYTES
from keybound.audio.metadata import id3
from keybound.audio.metadata.model import (
    LIMIT_PIECES,
    Collector,
    Meaning,
    Metadata,
    Piece,
    splice,
)


@dataclass(frozen=True)
class Layout:
    """How a family of formats lays its chunks out."""

    start: int  # of the first chunk
    header: str  # name and size
    own: frozenset[bytes]  # what belongs to the sound, or only fills
    sound: bytes = b"data"
    align: int = 2
    counted: int = 0  # bytes of its own header in a chunk's size


class Chunk(NamedTuple):
    """Where a chunk lies."""

    name: bytes
    start: int
    body: int
    end: int


_GUID = bytes.fromhex("f3acd3118cd100c04f8edb8a")
_FILL = (b"JUNK", b"junk", b"PAD ", b"FLLR", b"free")
_RIFF = frozenset((b"fmt ", b"data", b"fact", b"ds64", b"PEAK", b"slnt", *_FILL))
LAYOUTS = {
    "RIFF": Layout(12, "<4sI", _RIFF),
    "RIFX": Layout(12, ">4sI", _RIFF),
    "AIFF": Layout(12, ">4sI", frozenset((b"COMM", b"SSND", b"FVER", b"PEAK", *_FILL)), b"SSND"),
    "CAF": Layout(
        8, ">4sQ", frozenset((b"desc", b"data", b"pakt", b"kuki", b"peak", b"ovvw", *_FILL)),
        align=1,
    ),
    "W64": Layout(
        40, "<16sQ", frozenset(name + _GUID for name in (*_RIFF, b"junk")), b"data" + _GUID,
        align=8, counted=24,
    ),
}  # fmt: skip
_DIGESTS = (b"MD5 ",)  # of the host's samples
_INFO = {
    b"INAM": "title", b"IART": "artist", b"IPRD": "album", b"ICMT": "comment", b"ICRD": "date",
    b"IGNR": "genre", b"ITRK": "tracknumber", b"ICOP": "copyright", b"ISFT": "software",
    b"IPRT": "tracknumber",
}  # fmt: skip
_TEXTS = {b"NAME": "title", b"AUTH": "artist", b"(c) ": "copyright", b"ANNO": "comment"}
_CAF = {
    "track number": "tracknumber", "comments": "comment", "recorded date": "date", "year": "date",
    "source application": "software", "album artist": "albumartist",
}  # fmt: skip
_UNKNOWN = 0xFFFFFFFF


def family_of(head: bytes) -> str:
    """Return the family of a file that starts like this."""
    return {b"RIFX": "RIFX", b"FORM": "AIFF", b"caff": "CAF", b"riff": "W64"}.get(head[:4], "RIFF")


def listed(data: bytes, layout: Layout) -> Iterator[Chunk]:
    """Yield the chunks, the last one though it be cut; sound of no known size fills the data."""
    at, header, long_size = layout.start, struct.Struct(layout.header), 0
    while at + header.size <= len(data):
        name, size = header.unpack_from(data, at)
        body = at + header.size
        size -= layout.counted
        if name == b"ds64" and body + 16 <= len(data):
            (long_size,) = struct.unpack_from("<Q", data, body + 8)
        if name == layout.sound:
            unknown = size == _UNKNOWN or size >= 1 << 63
            size = min(long_size or len(data) if unknown else size, len(data) - body)
        if size < 0:
            return
        yield Chunk(name, at, body, body + size)
        at = body + size + -size % layout.align


def read(data: bytes) -> Metadata:
    """Read all chunks but those of the sound."""
    family = family_of(data[:4])
    layout, found = LAYOUTS[family], Collector()
    behind, said, tagged = False, Meaning(), Meaning()
    for number, chunk in enumerate(listed(data, layout)):
        behind = behind or chunk.name == layout.sound
        if number > 100 * LIMIT_PIECES or found.full:
            found.lost.append("more chunks")
            break
        name = _name_of(chunk.name)
        if chunk.name in layout.own:
            continue
        if chunk.name in _DIGESTS:
            found.lost.append(name)
        elif found.add(name, data, chunk.start, chunk.end - chunk.start, behind=behind):
            body = found.pieces[-1].data[chunk.body - chunk.start :]
            if chunk.name.lower() == b"id3 " and id3.length_of(body, 0):
                tagged |= id3.meaning_of(body)
            else:
                said += _meaning(chunk.name, name, body, layout)
    return Metadata(family, tuple(found.pieces), tagged | said, tuple(found.lost))


def write(part: Path, pieces: tuple[Piece, ...]) -> None:
    """Put chunks before and behind the sound, and correct the size of the file in its header."""
    with part.open("rb+") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            family = family_of(head := data[:20])
            layout = LAYOUTS[family]
            there = list(listed(cast(bytes, data), layout))
        sound = next(chunk for chunk in there if chunk.name == layout.sound)
        own = {chunk.name for chunk in there} - {b"LIST"}
        kept = [one for one in pieces if one.data[: len(layout.sound)] not in own]
        before, behind = bytearray(), bytearray()
        for one in kept:
            filled = one.data + bytes(-len(one.data) % layout.align)
            start = sound.start + len(before) + len(filled)
            if (one.behind and family != "W64") or not _passable(filled, start, family, head):
                behind += filled
            else:
                before += filled
        if behind:
            last = there[-1]
            file.truncate(last.end)  # some formats fill the last chunk, some do not
            file.seek(last.end)
            file.write(bytes(-(last.end - last.body) % layout.align) + bytes(behind))
        splice(file, sound.start, sound.start, bytes(before))
        _correct(file, family, head)


def _passable(data: bytes, start: int, family: str, head: bytes) -> bool:
    """Return whether libsndfile finds the sound behind this chunk, where it would then start.

    It loses its way behind a chunk of odd size in an RF64, and behind more than some bytes in a
    CAF or W64. (What is behind the sound of a W64 it takes for sound, hence all come first there.)
    """
    if head[:4] == b"RF64":
        return data[4] % 2 == 0  # the lowest byte of its size
    return family not in ("CAF", "W64") or start <= PASSED_BYTES


def mend_aiff(part: Path, frames: int) -> None:
    """Correct the length of an AIFF: libsndfile counts the byte that makes it even as sound."""
    with part.open("rb+") as file:
        chunks = {one.name: one for one in listed(file.read(1 << 16), LAYOUTS["AIFF"])}
        common, sound = chunks[b"COMM"], chunks[b"SSND"]
        file.seek(common.body + 2)
        (counted,) = struct.unpack(">I", file.read(4))
        if counted == frames + 1:
            file.seek(common.body + 2)
            file.write(struct.pack(">I", frames))
            file.seek(sound.start + 4)
            file.write(struct.pack(">I", frames + 8))


def riff(meaning: Meaning) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """Return chunks for a WAV: LIST INFO, and an ID3 tag where that does not say all."""
    ids = {name: key for key, name in reversed(_INFO.items())}
    said = [(ids[name], text) for name, text in meaning.joined().items() if name in ids]
    body = b"INFO" + b"".join(_chunk(key, text.encode() + b"\0") for key, text in said)
    pieces = [Piece("LIST", _chunk(b"LIST", body))] if said else []
    if meaning.pictures or any(name not in ids for name, _ in meaning.fields):
        pieces.append(Piece("id3", _chunk(b"id3 ", id3.tag_of(meaning))))
    return tuple(pieces), ()


def aiff(meaning: Meaning) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """Return chunks for an AIFF: its texts, and an ID3 tag where they do not say all."""
    ids, layout = {name: key for key, name in _TEXTS.items()}, LAYOUTS["AIFF"]
    pieces = [
        Piece(ids[name].decode(), _chunk(ids[name], text.encode(), layout.header))
        for name, text in meaning.joined().items()
        if name in ids
    ]
    if meaning.pictures or any(name not in ids for name, _ in meaning.fields):
        pieces.append(Piece("ID3", _chunk(b"ID3 ", id3.tag_of(meaning), layout.header)))
    return tuple(pieces), ()


def caf(meaning: Meaning) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """Return an information chunk for a CAF, which has no pictures."""
    ids = {name: key for key, name in reversed(_CAF.items())}
    said = [(ids.get(name, name), text) for name, text in meaning.joined().items()]
    body = b"".join(part.replace("\0", " ").encode() + b"\0" for pair in said for part in pair)
    data = _chunk(b"info", struct.pack(">I", len(said)) + body, LAYOUTS["CAF"].header)
    lost = ("picture",) if meaning.pictures else ()
    return ((Piece("info", data),) if said else ()), lost


def none(meaning: Meaning) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """Return nothing: W64 and ADTS have no words of their own for this."""
    return (), (*meaning.joined(), *["picture"][: len(meaning.pictures)])


def decoded(text: bytes) -> str:
    """Read text of an unknown encoding."""
    text = text.split(b"\0")[0]
    try:
        return text.decode("utf-8").strip()
    except UnicodeDecodeError:
        return text.decode("latin-1").strip()


def _meaning(key: bytes, name: str, body: bytes, layout: Layout) -> Meaning:
    if key == b"LIST" and body[:4] == b"INFO":
        return _info(body, layout)
    if key in _TEXTS and layout.sound == b"SSND":
        return Meaning(((_TEXTS[key], decoded(body)),))
    if key == b"info" and layout.align == 1:
        parts = body[4:].split(b"\0", 2 * LIMIT_PIECES)
        pairs = zip(parts[::2], parts[1::2], strict=False)
        fields = ((decoded(key).lower(), decoded(value)) for key, value in pairs)
        return Meaning(tuple((_CAF.get(key, key), value) for key, value in fields if key))
    return Meaning(rest=(f"LIST {_name_of(body[:4])}" if key == b"LIST" else name,))


def _info(body: bytes, layout: Layout) -> Meaning:
    fields, rest = [], []
    inner = Layout(4, layout.header, frozenset(), sound=b"")
    for chunk in itertools.islice(listed(body, inner), LIMIT_PIECES):
        if text := decoded(body[chunk.body : chunk.end]):
            if chunk.name in _INFO:
                fields.append((_INFO[chunk.name], text))
            else:
                rest.append(_name_of(chunk.name))
    return Meaning(tuple(fields), (), tuple(rest))


def _name_of(name: bytes) -> str:
    name = name.removesuffix(_GUID)
    if len(name) > 4:
        return name.hex()
    return "".join(chr(c) if 32 <= c < 127 else "?" for c in name)


def _chunk(name: bytes, body: bytes, header: str = "<4sI") -> bytes:
    filled = bytes(len(body) % 2) if "I" in header else b""
    return struct.pack(header, name, len(body)) + body + filled


def _correct(file: IO[bytes], family: str, head: bytes) -> None:
    size = file.seek(0, os.SEEK_END)
    if family == "W64":
        file.seek(16)
        file.write(struct.pack("<Q", size))
    elif head[:4] == b"RF64":  # ds64 comes first: the size of the file, of the sound, ...
        file.seek(20)
        file.write(struct.pack("<Q", size - 8))
    elif family != "CAF":
        file.seek(4)
        file.write(struct.pack("<I" if family == "RIFF" else ">I", size - 8))
