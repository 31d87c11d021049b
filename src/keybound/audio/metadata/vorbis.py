"""Vorbis comments, which FLAC, Ogg Vorbis and Opus share, and the pictures of FLAC."""

import base64
import binascii
import struct

from keybound.audio.metadata.model import LIMIT_PIECES, Meaning, Picture

PICTURE = "metadata_block_picture"
_ALIASES = {"album artist": "albumartist", "unsyncedlyrics": "lyrics"}
_PICTURE_LIMIT = (1 << 24) - 1  # of a FLAC block


def fields_of(comments: bytes) -> tuple[str, Meaning]:
    """Read a comment header: vendor and fields. Raise ValueError or struct.error if it is none."""
    vendor, at = _string(comments, 0)
    (count,) = struct.unpack_from("<I", comments, at)
    at += 4
    fields, pictures, rest = [], [], []
    if count > LIMIT_PIECES:
        raise ValueError("too many fields")
    for _ in range(count):
        text, at = _string(comments, at)
        name, equals, value = text.decode("utf-8", "replace").partition("=")
        name = _ALIASES.get(name.lower(), name.lower())
        if name == PICTURE:
            try:
                pictures.append(picture_of(base64.b64decode(value, validate=True)))
                continue
            except (ValueError, struct.error, binascii.Error):
                rest.append(name)
        elif equals and name:
            fields.append((name, value))
        else:
            rest.append("comment without a name")
    return vendor.decode("utf-8", "replace"), Meaning(tuple(fields), tuple(pictures), tuple(rest))


def comments_of(meaning: Meaning, vendor: str, *, pictures: bool) -> bytes:
    """Return a comment header that says all of this, pictures among the fields if wanted."""
    lines = [f"{_name(name)}={value}".encode() for name, value in meaning.fields]
    if pictures:
        lines += [
            f"{PICTURE.upper()}=".encode() + base64.b64encode(block_of(one))
            for one in meaning.pictures
        ]
    packed = [struct.pack("<I", len(line)) + line for line in (vendor.encode(), *lines)]
    return packed[0] + struct.pack("<I", len(lines)) + b"".join(packed[1:])


def picture_of(block: bytes) -> Picture:
    """Read a PICTURE block. Raise ValueError or struct.error if it is none."""
    (kind,) = struct.unpack_from(">I", block)
    mime, at = _string(block, 4, ">I")
    description, at = _string(block, at, ">I")
    data, _ = _string(block, at + 16, ">I")
    words = mime.decode("ascii", "replace"), description.decode("utf-8", "replace")
    return Picture(data, *words, kind)


def block_of(picture: Picture) -> bytes:
    """Return a PICTURE block; its size in pixels is left to the reader."""
    mime, words = picture.mime.encode("ascii", "replace"), picture.description.encode()
    made = struct.pack(">II", picture.kind, len(mime)) + mime
    made += struct.pack(">I", len(words)) + words + bytes(16)
    return made + struct.pack(">I", len(picture.data)) + picture.data


def fits(picture: Picture) -> bool:
    """Return whether a FLAC block holds the picture."""
    return len(block_of(picture)) <= _PICTURE_LIMIT


def _name(name: str) -> str:
    """Return a field's name as the format allows it."""
    return "".join(c if " " <= c <= "}" and c != "=" else "_" for c in name).upper() or "_"


def _string(data: bytes, at: int, size: str = "<I") -> tuple[bytes, int]:
    (length,) = struct.unpack_from(size, data, at)
    end = at + 4 + length
    if end > len(data):
        raise ValueError("beyond the end")
    return data[at + 4 : end], end
