"""The boxes of M4A that hold tags. ffmpeg writes the sound and the chapters."""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

from keybound.audio.metadata.model import Collector, Meaning, Metadata, Picture, Piece

CHAPTERS = "chapters"  # a piece in ffmpeg's own words, which it gets when the sound is encoded
_FIELDS = {
    b"\xa9nam": "title", b"\xa9ART": "artist", b"\xa9alb": "album", b"aART": "albumartist",
    b"\xa9cmt": "comment", b"\xa9day": "date", b"\xa9gen": "genre", b"\xa9lyr": "lyrics",
    b"cprt": "copyright", b"\xa9wrt": "composer", b"\xa9grp": "grouping", b"\xa9too": "software",
    b"desc": "description", b"trkn": "tracknumber", b"disk": "discnumber",
}  # fmt: skip
_BOXES = {name: box for box, name in _FIELDS.items()}
_PAIRS = (b"trkn", b"disk")
_TEXT, _JPEG, _PNG = 1, 13, 14
_GAPLESS = "itunsmpb"  # the padding of one encoder's stream
_APPLE = b"com.apple.iTunes"


class Box(NamedTuple):
    """Where a box lies."""

    name: bytes
    start: int
    body: int
    end: int


def boxes(data: bytes, start: int, end: int) -> Iterator[Box]:
    """Yield the boxes that lie between two offsets."""
    while start + 8 <= end:
        size, name = struct.unpack_from(">I4s", data, start)
        body = start + 8
        if size == 1 and start + 16 <= end:
            (size,) = struct.unpack_from(">Q", data, body)
            body += 8
        size = size or end - start
        if start + size > end or start + size < body:
            return
        yield Box(name, start, body, start + size)
        start += size


def read(data: bytes, chapters: bytes = b"") -> Metadata:
    """Read the tags of a file, to which its chapters in ffmpeg's words are added."""
    found, said = Collector(), Meaning()
    for path, box in _leaves(data):
        if path == "ilst":
            said += _item(found, data, box)
        else:
            name = f"{path}/{_name(box.name)}"
            if found.add(name, data, box.start, box.end - box.start):
                said += Meaning(rest=(name,))
        if found.full:
            break
    if chapters:
        found.add(CHAPTERS, chapters, 0, len(chapters))
        said += Meaning(rest=(CHAPTERS,))
    return Metadata("M4A", tuple(found.pieces), said, tuple(found.lost))


def write(part: Path, pieces: tuple[Piece, ...]) -> None:
    """Put tags into a file of ffmpeg's: its index, which alone is rewritten, comes last."""
    inside = dict.fromkeys(("ilst", "udta", "moov", CHAPTERS), b"")
    for one in pieces:
        inside[one.name.partition("/")[0]] += one.data
    handler = _box(b"hdlr", bytes(8) + b"mdirappl" + bytes(9))
    meta = _box(b"meta", bytes(4) + handler + _box(b"ilst", inside["ilst"]))
    meta = meta if inside["ilst"] else b""
    with part.open("rb+") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            *_, last = boxes(cast(bytes, data), 0, len(data))
        if last.name != b"moov":
            raise OSError("the index is not at the end")
        file.seek(last.start)
        index = file.read()
        kept, own = b"", b""
        for box in boxes(index, last.body - last.start, len(index)):
            if box.name != b"udta":
                kept += index[box.start : box.end]
                continue
            for user in boxes(index, box.body, box.end):
                own += index[user.start : user.end] if user.name != b"meta" or not meta else b""
        file.seek(last.start)
        user_data = _box(b"udta", own + inside["udta"] + meta)
        file.write(_box(b"moov", kept + inside["moov"] + user_data))
        file.truncate()


def made(meaning: Meaning) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """Return items that say this; pictures only as JPEG or PNG."""
    items, values = [], dict[str, list[str]]()
    for name, value in meaning.fields:
        values.setdefault(name, []).append(value)
    for name, many in values.items():
        box = _BOXES.get(name)
        if box in _PAIRS:
            numbers = [int(n) if n.isdecimal() else 0 for n in f"{many[0]}/0".split("/")[:2]]
            packed = struct.pack(">4H", 0, *(min(n, 0xFFFF) for n in numbers), 0)
            content = _data(0, packed)
        else:
            content = b"".join(_data(_TEXT, value.encode()) for value in many)
        if box is None:
            box, own = b"----", _box(b"name", bytes(4) + name.encode())
            content = _box(b"mean", bytes(4) + _APPLE) + own + content
        items.append(Piece(f"ilst/{_name(box)}", _box(box, content)))
    kinds = {"image/jpeg": _JPEG, "image/jpg": _JPEG, "image/png": _PNG}
    covers = [one for one in meaning.pictures if one.mime.lower() in kinds]
    content = b"".join(_data(kinds[one.mime.lower()], one.data) for one in covers)
    items += [Piece("ilst/covr", _box(b"covr", content))] if covers else []
    return tuple(items), ("picture",) if len(covers) < len(meaning.pictures) else ()


def _leaves(data: bytes) -> Iterator[tuple[str, Box]]:
    """Yield the boxes that tags are in, with where they belong."""
    for movie in boxes(data, 0, len(data)):
        for box in boxes(data, movie.body, movie.end) if movie.name == b"moov" else ():
            if box.name == b"meta":
                yield "moov", box
            for user in boxes(data, box.body, box.end) if box.name == b"udta" else ():
                if user.name == b"meta":
                    # QuickTime leaves version and flags out.
                    skip = 0 if data[user.body + 4 : user.body + 8] == b"hdlr" else 4
                    for one in boxes(data, user.body + skip, user.end):
                        for item in boxes(data, one.body, one.end) if one.name == b"ilst" else ():
                            yield "ilst", item
                elif user.name != b"chpl":  # chapters, which ffmpeg reads
                    yield "udta", user


def _item(found: Collector, data: bytes, box: Box) -> Meaning:
    """Take one item of the list of tags, and read it."""
    if not found.add(f"ilst/{_name(box.name)}", data, box.start, box.end - box.start):
        return Meaning()
    content = found.pieces[-1].data[box.body - box.start :]
    name, fields, pictures = _FIELDS.get(box.name, ""), [], []
    for inner in boxes(content, 0, len(content)):
        value = content[inner.body : inner.end]
        if inner.name == b"name":
            name = value[4:].decode("utf-8", "replace").lower()
        if inner.name != b"data" or len(value) < 8:
            continue
        kind, value = int.from_bytes(value[1:4], "big"), value[8:]
        if box.name == b"covr":
            pictures.append(Picture(value, "image/png" if kind == _PNG else "image/jpeg"))
        elif box.name in _PAIRS and len(value) >= 6:
            number, of = struct.unpack_from(">2H", value, 2)
            fields.append((name, f"{number}/{of}" if of else str(number)))
        elif kind == _TEXT and name:
            fields.append((name, value.decode("utf-8", "replace")))
    if box.name == b"----" and name == _GAPLESS:
        found.pieces.pop()
        return Meaning()
    rest = () if fields or pictures else (_name(box.name),)
    return Meaning(tuple(fields), tuple(pictures), rest)


def _name(name: bytes) -> str:
    return "".join(c if c.isprintable() else "?" for c in name.decode("latin-1"))


def _data(kind: int, value: bytes) -> bytes:
    return _box(b"data", struct.pack(">2I", kind, 0) + value)


def _box(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(body), name) + body
