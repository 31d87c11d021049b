"""Where a file holds a C2PA manifest. It is signed over the bytes of its file, and fits no other.

Knows where manifests lie, and nothing of what is in them.
"""

import mmap
from dataclasses import replace
from pathlib import Path
from typing import cast

from keybound.audio.metadata import chunks, id3, m4a
from keybound.audio.metadata.model import Metadata, Piece

NAME = "C2PA manifest"
_CHUNK = b"C2PA"
_OBJECT = b"application/c2pa"  # in a frame GEOB, of FLAC too
_BOX = bytes.fromhex("d8fec3d61b0e483c92975828877ec481")


def media_type(path: Path) -> str | None:
    """Return the media type of a file that holds a manifest; None where it holds none."""
    if not path.is_file() or path.stat().st_size == 0:  # a pipe is read once
        return None
    with path.open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return media_type_of(cast(bytes, mapped))


def media_type_of(data: bytes) -> str | None:
    """Return the media type of a file with these bytes that holds a manifest, else None."""
    if data[:4] == b"RIFF":
        found = (one.name == _CHUNK for one in chunks.listed(data, chunks.LAYOUTS["RIFF"]))
        return "audio/wav" if any(found) else None
    if size := id3.length_of(data, 0):
        if data.find(_OBJECT, 0, size) < 0:
            return None
        return "audio/flac" if data[size : size + 4] == b"fLaC" else "audio/mpeg"
    if data[4:8] == b"ftyp":
        tops = m4a.boxes(data, 0, len(data))
        found = (one.name == b"uuid" and data[one.body : one.body + 16] == _BOX for one in tops)
        return "audio/mp4" if any(found) else None
    return None


def without(said: Metadata) -> Metadata:
    """Return metadata without the manifest, which another file must not carry."""
    pieces, rest = [], said.meaning.rest
    for one in said.pieces:
        if one.name == "ID3v2" and _OBJECT in one.data:  # written anew: words and pictures stay
            meaning = id3.meaning_of(one.data)
            if meaning.fields or meaning.pictures:
                pieces.append(Piece(one.name, id3.tag_of(meaning)))
        elif one.name != _CHUNK.decode():
            pieces.append(one)
    kept = tuple(name for name in rest if name not in (_CHUNK.decode(), "GEOB"))
    meaning = replace(said.meaning, rest=kept)
    return replace(said, pieces=tuple(pieces), meaning=meaning, lost=(*said.lost, NAME))
