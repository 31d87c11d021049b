"""ID3v2 tags, and what stands at the end of an MP3: Lyrics3, APE and ID3v1."""

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

from keybound.audio.metadata.model import (
    LIMIT_PIECES,
    Collector,
    Meaning,
    Metadata,
    Picture,
    Piece,
    splice,
)

# Frames of ID3v2.4 and the names of their fields. TXXX holds what is not here.
_FIELDS = {
    "TIT2": "title", "TPE1": "artist", "TALB": "album", "TPE2": "albumartist", "TDRC": "date",
    "TCON": "genre", "TRCK": "tracknumber", "TCOP": "copyright", "TCOM": "composer",
    "TPOS": "discnumber", "TSRC": "isrc", "TPUB": "publisher", "TENC": "encodedby",
    "TSSE": "software", "TEXT": "lyricist", "TBPM": "bpm", "TLAN": "language",
    "TIT1": "grouping", "TIT3": "subtitle", "TPE3": "conductor", "COMM": "comment",
    "USLT": "lyrics",
}  # fmt: skip
_FRAMES = {field: frame for frame, field in _FIELDS.items()}
_OLD = {
    "TYER": "TDRC", "TT2": "TIT2", "TP1": "TPE1", "TAL": "TALB", "TP2": "TPE2", "TYE": "TDRC",
    "TCO": "TCON", "TRK": "TRCK", "TCR": "TCOP", "TCM": "TCOM", "TPA": "TPOS", "COM": "COMM",
    "ULT": "USLT", "PIC": "APIC", "TXX": "TXXX",
}  # fmt: skip
_CODECS = ("latin-1", "utf-16", "utf-16-be", "utf-8")
_APE = {"year": "date", "track": "tracknumber", "album artist": "albumartist"}


def length_of(data: bytes, at: int) -> int:
    """Return the bytes of an ID3v2 tag that starts here, as it says; 0 if none does."""
    head = data[at : at + 10]
    if len(head) < 10 or head[:3] != b"ID3" or max(head[6:]) > 0x7F:
        return 0
    return 10 + _seven(head[6:]) + (10 if head[5] & 0x10 else 0)


def read(data: bytes) -> Metadata:
    """Read the tags before and behind the frames of an MP3."""
    found, meaning, start = Collector(), Meaning(), 0
    while (size := length_of(data, start)) and not found.full:
        if found.add("ID3v2", data, start, size):
            meaning |= meaning_of(found.pieces[-1].data)
        start = min(start + size, len(data))
    behind = []
    for name, at, size in itertools.islice(_trailers(data, start), 8):
        if found.add(name, data, at, size, behind=True):
            behind.append(found.pieces.pop())
            meaning |= _trailing(behind[-1])
    pieces = (*found.pieces, *reversed(behind))
    return Metadata("MP3", pieces, meaning, tuple(found.lost))


def write(part: Path, pieces: tuple[Piece, ...]) -> None:
    """Put tags before and behind the frames."""
    with part.open("rb+") as file:
        splice(file, 0, 0, b"".join(one.data for one in pieces if not one.behind))
        file.seek(0, 2)
        file.write(b"".join(one.data for one in pieces if one.behind))


def made(meaning: Meaning) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """Return a tag that says this; it can say all of it."""
    some = meaning.fields or meaning.pictures
    return ((Piece("ID3v2", tag_of(meaning)),) if some else ()), ()


def tag_of(meaning: Meaning) -> bytes:
    """Return a tag of ID3v2.4 in UTF-8."""
    values: dict[str, list[str]] = {}
    for name, value in meaning.fields:
        values.setdefault(name, []).append(value.replace("\0", " "))
    frames = []
    for name, many in values.items():
        frame, text = _FRAMES.get(name, "TXXX"), "\0".join(many)
        if frame in ("COMM", "USLT"):  # language, no description, one text
            text = "und\0" + "\n".join(many)
        elif frame == "TXXX":
            text = f"{name}\0{text}"
        frames.append((frame, b"\3" + text.encode()))
    for one in meaning.pictures:
        mime = one.mime.encode("latin-1", "replace") + b"\0"
        words = one.description.replace("\0", " ").encode() + b"\0"
        frames.append(("APIC", b"\3" + mime + bytes([one.kind & 0xFF]) + words + one.data))
    body = b"".join(
        frame.encode() + _sevens(len(content)) + b"\0\0" + content for frame, content in frames
    )
    return b"ID3\4\0\0" + _sevens(len(body)) + body


def meaning_of(tag: bytes) -> Meaning:
    """Read a tag; what cannot be read of it is among the rest."""
    fields: list[tuple[str, str]] = []
    pictures: list[Picture] = []
    rest: list[str] = []
    for number, (frame, content) in enumerate(_frames(tag)):
        try:
            said = _said(_OLD.get(frame, frame), frame, content)
        except (ValueError, IndexError):
            said = Meaning(rest=(frame,))
        fields += said.fields
        pictures += said.pictures
        rest += said.rest
        if number > LIMIT_PIECES or len(fields) > LIMIT_PIECES:
            return Meaning(rest=("ID3v2",))
    return Meaning(tuple(fields), tuple(pictures), tuple(rest))


def _said(frame: str, own: str, content: bytes | None) -> Meaning:
    if content is None or not content:
        return Meaning(rest=(own,))
    if frame == "APIC":
        return Meaning(pictures=(_picture(content, own),))
    if frame in ("COMM", "USLT"):
        words, text = _split(content[4:], content[0])
        if words and frame == "COMM":  # programs keep their own numbers under such names
            return Meaning(rest=(f"COMM:{words}",))
        return Meaning(((_FIELDS[frame], _text(text, content[0])[0]),))
    texts = _text(content[1:], content[0]) if frame[0] == "T" else []
    if frame == "TXXX" and len(texts) > 1:
        return Meaning(tuple((texts[0].lower() or "txxx", text) for text in texts[1:]))
    if frame in _FIELDS and any(texts):
        return Meaning(tuple((_FIELDS[frame], text) for text in texts if text))
    return Meaning(rest=(own,))


def _picture(content: bytes, own: str) -> Picture:
    if own == "PIC":
        mime, after = f"image/{content[1:4].decode('latin-1').lower()}", content[4:]
    else:
        named, after = _split(content[1:], 0)
        mime = named
    words, data = _split(after[1:], content[0])
    return Picture(data, mime, words, after[0])


def _frames(tag: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Yield the frames of a tag; None for the content of one that is packed or encrypted."""
    version, flags, at = tag[3], tag[5], 10
    size = min(len(tag), 10 + _seven(tag[6:10]))
    tag = tag[:size]
    if version not in (2, 3, 4) or (version == 2 and flags & 0x40):
        yield "ID3v2", None
        return
    if flags & 0x80 and version < 4:
        tag = tag[:10] + tag[10:].replace(b"\xff\0", b"\xff")
    if flags & 0x40 and len(tag) >= 14:
        extra = tag[10:14]
        at += _seven(extra) if version == 4 else 4 + int.from_bytes(extra, "big")
    wide = version > 2
    while at + (10 if wide else 6) <= len(tag) and tag[at]:
        name = tag[at : at + (4 if wide else 3)].decode("latin-1")
        counted, at = tag[at + len(name) : at + 2 * len(name)], at + 2 * len(name)
        plain = version < 4 or max(counted) > 0x7F  # as some programs write by mistake
        length = int.from_bytes(counted, "big") if plain else _seven(counted)
        bits = tag[at + 1] if wide else 0
        at += 2 if wide else 0
        if not name.isalnum() or at + length > len(tag):
            yield "ID3v2", None
            return
        yield name, _unpacked(tag[at : at + length], bits, version)
        at += length


def _unpacked(content: bytes, bits: int, version: int) -> bytes | None:
    if bits & (0xC0 if version == 3 else 0x0C):
        return None
    skip = bool(bits & (0x20 if version == 3 else 0x40)) + (4 if version == 4 and bits & 1 else 0)
    content = content[skip:]
    return content.replace(b"\xff\0", b"\xff") if version == 4 and bits & 2 else content


def _text(data: bytes, codec: int) -> list[str]:
    if codec >= len(_CODECS):
        raise ValueError("no such text")
    return data.decode(_CODECS[codec], "replace").rstrip("\0").replace("\ufeff", "").split("\0")


def _split(data: bytes, codec: int) -> tuple[str, bytes]:
    """Split what a terminator ends from what follows it."""
    if codec not in (1, 2):
        first, _, rest = data.partition(b"\0")
        return _text(first, codec)[0], rest
    for at in range(0, min(len(data), 1 << 16) - 1, 2):
        if data[at : at + 2] == b"\0\0":
            return _text(data[:at], codec)[0], data[at + 2 :]
    raise ValueError("no end")


def _trailers(data: bytes, start: int) -> Iterator[tuple[str, int, int]]:
    """Yield name, start and size of the tags at the end, the last one first."""
    end = len(data)
    while found := _trailer(data, start, end):
        _, end, _ = found
        yield found


def _trailer(data: bytes, start: int, end: int) -> tuple[str, int, int] | None:
    """Find the tag that ends here."""
    if end - start >= 128 and data[end - 128 : end - 125] == b"TAG":
        return "ID3v1", end - 128, 128
    if end - start >= 32 and data[end - 32 : end - 24] == b"APETAGEX":
        _, size, _, flags = struct.unpack_from("<4I", data, end - 24)
        size += 32 if flags >> 31 else 0
        if 32 <= size <= end - start:
            return "APE", end - size, size
    digits = data[max(start, end - 15) : end - 9]
    if data[max(start, end - 9) : end] == b"LYRICS200" and len(digits) == 6 and digits.isdigit():
        size = int(digits) + 15
        if size <= end - start and data[end - size : end - size + 11] == b"LYRICSBEGIN":
            return "Lyrics3", end - size, size
    return None


def _trailing(piece: Piece) -> Meaning:
    data = piece.data
    if piece.name == "ID3v1":
        offsets = {"title": (3, 33), "artist": (33, 63), "album": (63, 93), "date": (93, 97)}
        texts = {
            name: data[a:b].split(b"\0")[0].decode("latin-1").strip()
            for name, (a, b) in (offsets | {"comment": (97, 125)}).items()
        }
        return Meaning(tuple((name, text) for name, text in texts.items() if text))
    if piece.name == "Lyrics3":
        return Meaning(rest=("Lyrics3",))
    at = 32 if data[:8] == b"APETAGEX" else 0
    fields, rest = [], []
    while at + 8 < len(data) - 32:
        size, flags = struct.unpack_from("<2I", data, at)
        name, _, _ = data[at + 8 : at + 8 + 256].partition(b"\0")
        at += 9 + len(name)
        key = name.decode("latin-1").lower()
        if flags & 6 or at + size > len(data) - 32:
            rest.append(f"APE {key}")
        else:
            text = data[at : at + size].decode("utf-8", "replace").replace("\0", "; ")
            fields.append((_APE.get(key, key), text))
        at += size
    return Meaning(tuple(fields), (), tuple(rest))


def _seven(data: bytes) -> int:
    """Return a number from bytes of seven bits."""
    made = 0
    for byte in data:
        made = made << 7 | byte & 0x7F
    return made


def _sevens(number: int) -> bytes:
    return bytes(number >> shift & 0x7F for shift in (21, 14, 7, 0))
