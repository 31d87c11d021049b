"""Metadata: what a recording says beside its sound, carried from file to file.

Between files of one family the pieces go over as bytes; into another family goes what both can
say, and the rest is named. Knows no samples, no keys, no networks.
"""

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

from keybound.audio.metadata import au, c2pa, chunks, flac, id3, m4a, ogg
from keybound.audio.metadata.model import LIMIT_BYTES, Meaning, Metadata, Piece, unique

__all__ = ["LIMIT_BYTES", "Metadata", "add", "chapters_of", "read"]

Made = Callable[[Meaning], tuple[tuple[Piece, ...], tuple[str, ...]]]
_READ: dict[str, Callable[[bytes], Metadata]] = {
    "FLAC": flac.read, "OGG": ogg.read, "MP3": id3.read, "AU": au.read, "M4A": m4a.read,
    "ADTS": lambda _: Metadata("ADTS"),  # it has no place for any
}  # fmt: skip
_WRITE: dict[str, tuple[Made, Callable[[Path, tuple[Piece, ...]], None]]] = {
    "RIFF": (chunks.riff, chunks.write),
    "RIFX": (chunks.none, chunks.write),
    "AIFF": (chunks.aiff, chunks.write),
    "CAF": (chunks.caf, chunks.write),
    "W64": (chunks.none, chunks.write),
    "AU": (au.made, au.write),
    "FLAC": (flac.made, flac.write),
    "OGG": (ogg.made, ogg.write),
    "MP3": (id3.made, id3.write),
    "M4A": (m4a.made, m4a.write),
    "ADTS": (chunks.none, chunks.write),
}


def read(path: Path, kind: str, chapters: bytes = b"") -> Metadata:
    """Read what a file of a format says beside its sound, at most `LIMIT_BYTES` of it."""
    with path.open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        data = cast(bytes, mapped)  # a slice of either is bytes
        try:
            reads = _READ.get(kind, chunks.read)
            said = m4a.read(data, chapters) if kind == "M4A" else reads(data)
            return said if c2pa.media_type_of(data) is None else c2pa.without(said)
        except (struct.error, ValueError, IndexError):  # what no reader could foresee
            return Metadata(lost=("metadata",))


def add(part: Path, kind: str, frames: int, metadata: Metadata) -> tuple[str, ...]:
    """Add metadata to a file that was written without; return the names of what is not carried."""
    if kind == "AIFF":
        chunks.mend_aiff(part, frames)
    with part.open("rb") as file:
        family = kind if kind in _READ else chunks.family_of(file.read(4))
    make, write = _WRITE[family]
    pieces, lost = metadata.pieces, metadata.lost
    if metadata.family != family:
        pieces, unsaid = make(metadata.meaning)
        lost = (*lost, *unsaid, *metadata.meaning.rest)
    if pieces:
        write(part, pieces)
    return unique(lost)


def chapters_of(metadata: Metadata) -> bytes:
    """Return the chapters of an M4A in ffmpeg's words, or nothing."""
    return next((one.data for one in metadata.pieces if one.name == m4a.CHAPTERS), b"")
