"""The metadata blocks of FLAC."""

import struct
from pathlib import Path

from keybound.audio.metadata import vorbis
from keybound.audio.metadata.id3 import length_of
from keybound.audio.metadata.model import Collector, Meaning, Metadata, Piece, splice

STREAMINFO, PADDING, SEEKTABLE, COMMENT, PICTURE = 0, 1, 3, 4, 6
_NAMES = {2: "APPLICATION", COMMENT: "VORBIS_COMMENT", 5: "CUESHEET", PICTURE: "PICTURE"}
_OWN = (STREAMINFO, PADDING, SEEKTABLE)  # of one stream; frames of another lie elsewhere


def read(data: bytes) -> Metadata:
    """Read the blocks before the sound."""
    found, meaning = Collector(), Meaning()
    start = length_of(data, 0)  # a tag that has no place here, though players skip it
    if start:
        found.lost.append("ID3")
    for kind, at, size in _blocks(data, start):
        name = _NAMES.get(kind, f"block {kind}")
        if kind in _OWN or not found.add(name, data, at, size + 4):
            continue
        block = found.pieces.pop().data
        found.pieces.append(Piece(name, bytes([kind]) + block[1:]))  # which is last may change
        meaning += _meaning(kind, name, block[4:])
    return Metadata("FLAC", tuple(found.pieces), meaning, tuple(found.lost))


def write(part: Path, pieces: tuple[Piece, ...]) -> None:
    """Put blocks behind STREAMINFO; the file's own comments stay if there are no others."""
    with part.open("rb+") as file:
        head = file.read(1 << 16)
        _, at, size = _blocks(head, 0)[-1]
        sound = at + 4 + size
        splice(file, 0, sound, with_pieces(head[:sound], pieces))


def with_pieces(data: bytes, pieces: tuple[Piece, ...]) -> bytes:
    """Return the beginning of a FLAC with blocks behind STREAMINFO, as `write` puts them."""
    own = _blocks(data, 0)
    kinds = {one.data[0] & 0x7F for one in pieces}
    made = [data[4 : 4 + 38], *(one.data for one in pieces)]
    made += [
        data[at : at + size + 4]
        for kind, at, size in own
        if kind not in kinds and kind not in (STREAMINFO, PADDING)
    ]
    flags = [*[0] * (len(made) - 1), 0x80]  # the last one says so
    blocks = [
        bytes([one[0] & 0x7F | last]) + one[1:] for one, last in zip(made, flags, strict=True)
    ]
    _, at, size = own[-1]
    return b"".join([data[:4], *blocks, data[at + 4 + size :]])


def made(meaning: Meaning) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """Return blocks that say this, and the names of what they cannot say."""
    bodies = [(COMMENT, vorbis.comments_of(meaning, "KeyBound", pictures=False))]
    bodies = bodies if meaning.fields else []
    bodies += [(PICTURE, vorbis.block_of(one)) for one in meaning.pictures if vorbis.fits(one)]
    lost = ["picture" for one in meaning.pictures if not vorbis.fits(one)]
    if bodies and len(bodies[0][1]) >= 1 << 24:
        bodies, lost = bodies[1:], [*lost, *(name for name, _ in meaning.fields)]
    pieces = (
        Piece(_NAMES[kind], bytes([kind]) + len(body).to_bytes(3, "big") + body)
        for kind, body in bodies
    )
    return tuple(pieces), tuple(lost)


def _meaning(kind: int, name: str, body: bytes) -> Meaning:
    try:
        if kind == COMMENT:
            return vorbis.fields_of(body)[1]
        if kind == PICTURE:
            return Meaning(pictures=(vorbis.picture_of(body),))
    except (ValueError, struct.error):
        pass
    return Meaning(rest=(name,))


def _blocks(data: bytes, start: int) -> "list[tuple[int, int, int]]":
    """List kind, start and size of each block that lies within the data."""
    listed: list[tuple[int, int, int]] = []
    at, last = start + 4, data[start : start + 4] != b"fLaC"
    while not last and at + 4 <= len(data):
        last, kind = bool(data[at] & 0x80), data[at] & 0x7F
        size = int.from_bytes(data[at + 1 : at + 4], "big")
        if at + 4 + size > len(data):
            break
        listed.append((kind, at, size))
        at += 4 + size
    return listed
