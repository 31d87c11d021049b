"""The annotation of AU: bytes between the header and the sound."""

import struct
from pathlib import Path

from keybound.audio.metadata.chunks import decoded
from keybound.audio.metadata.model import Collector, Meaning, Metadata, Piece, splice

_HEADER_BYTES = 24


def read(data: bytes) -> Metadata:
    """Read the annotation."""
    order = "<" if data[:4] == b"dns." else ">"
    (start,) = struct.unpack_from(f"{order}I", data, 4)
    found, size = Collector(), min(start, len(data)) - _HEADER_BYTES
    if size > 0 and data[_HEADER_BYTES : _HEADER_BYTES + min(size, 1 << 16)].strip(b"\0"):
        found.add("annotation", data, _HEADER_BYTES, size)
    text = "".join(decoded(one.data) for one in found.pieces)
    meaning = Meaning((("comment", text),)) if text else Meaning()
    return Metadata("AU", tuple(found.pieces), meaning, tuple(found.lost))


def write(part: Path, pieces: tuple[Piece, ...]) -> None:
    """Put an annotation behind the header."""
    data = b"".join(one.data for one in pieces)
    data += bytes(-len(data) % 8)
    with part.open("rb+") as file:
        order = "<" if file.read(4) == b"dns." else ">"
        (start,) = struct.unpack(f"{order}I", file.read(4))
        splice(file, _HEADER_BYTES, start, data)
        file.seek(4)
        file.write(struct.pack(f"{order}I", _HEADER_BYTES + len(data)))


def made(meaning: Meaning) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """Return an annotation: the comment, which is all that an AU can say."""
    words = meaning.joined()
    comment = words.pop("comment", "")
    lost = (*words, *["picture"][: len(meaning.pictures)])
    return ((Piece("annotation", comment.encode() + b"\0"),) if comment else ()), lost
