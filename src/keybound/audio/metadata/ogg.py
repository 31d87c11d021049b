"""The comments of Ogg Vorbis and Opus: a packet that may span pages, each with a checksum."""

import struct
import zlib
from pathlib import Path
from typing import IO, NamedTuple

from keybound.audio.metadata import vorbis
from keybound.audio.metadata.model import LIMIT_BYTES, Meaning, Metadata, Piece, splice

_HEAD = struct.Struct("<4sBBqIIIB")  # capture, version, flags, granule, serial, number, crc, laces
_STARTS = {b"\x01vorbis": (b"\x03vorbis", 3), b"OpusHead": (b"OpusTags", 2)}  # and header packets
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_CONTINUED, _FIRST = 1, 2
_CRC_AT = 22


class Headers(NamedTuple):
    """The header packets of a stream, and the pages that hold them."""

    packets: list[bytes]
    serial: int
    first: int  # where the pages behind the first one start
    end: int  # where the sound starts
    pages: int


def read(data: bytes) -> Metadata:
    """Read the comments of the first Vorbis or Opus stream."""
    try:
        found = _headers(data)
        if found is None:
            return Metadata("OGG", lost=("comments",))
        start, _ = _STARTS[_kind(found.packets[0])]
        body = found.packets[1].removeprefix(start)
        _, meaning = vorbis.fields_of(body)
    except (ValueError, IndexError, struct.error):
        return Metadata("OGG", lost=("comments",))
    if meaning == Meaning():
        return Metadata("OGG")
    (vendor,) = struct.unpack_from("<I", body)
    return Metadata("OGG", (Piece("comments", _list(body[4 + vendor :], start)),), meaning)


def write(part: Path, pieces: tuple[Piece, ...]) -> None:
    """Put the fields of a comment header in; vendor and setup stay the encoder's own."""
    with part.open("rb+") as file:
        found = _headers(file.read(1 << 20))
        if found is None:
            raise ValueError("an ogg file without headers")
        start, headers = _STARTS[_kind(found.packets[0])]
        if len(found.packets) != headers:
            raise ValueError("an ogg file with sound among its headers")
        body = found.packets[1].removeprefix(start)
        (vendor,) = struct.unpack_from("<I", body)
        comments = start + body[: 4 + vendor] + _list(pieces[0].data, start)
        comments += b"\1" if start == b"\x03vorbis" else b""  # the framing bit
        packets = [comments, *found.packets[2:]]
        pages = _pages(packets, found.serial)
        splice(file, found.first, found.end, b"".join(pages))
        more = len(pages) - found.pages
        if more:
            _renumber(file, found.first + sum(map(len, pages)), more)


def made(meaning: Meaning) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """Return comments that say this; they can say all of it."""
    body = vorbis.comments_of(meaning, "", pictures=True)[4:]
    return ((Piece("comments", body),) if meaning.fields or meaning.pictures else ()), ()


def _list(fields: bytes, start: bytes) -> bytes:
    """Return the list of fields, in Opus with what follows where its first bit asks for that."""
    at = 4
    for _ in range(struct.unpack_from("<I", fields)[0]):
        at += 4 + struct.unpack_from("<I", fields, at)[0]
    kept = start == b"OpusTags" and len(fields) > at and fields[at] & 1
    return fields if kept else fields[:at]


def checksum(page: bytes) -> int:
    """Return Ogg's CRC-32, which is zlib's with all bits turned round and nothing inverted."""
    turned = zlib.crc32(page.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{turned:032b}"[::-1], 2)


def _kind(packet: bytes) -> bytes:
    return next((start for start in _STARTS if packet.startswith(start)), b"")


def _headers(data: bytes) -> Headers | None:
    """Find the header packets of the first stream of sound; None if there is none or no end."""
    at, serial, wanted, packets, packet = 0, None, 0, [], bytearray()
    first = pages = taken = 0
    while at + _HEAD.size <= len(data):
        capture, _, flags, _, stream, _, _, laces = _HEAD.unpack_from(data, at)
        body = at + _HEAD.size + laces
        table = data[at + _HEAD.size : body]
        end = body + sum(table)
        if capture != b"OggS" or end > len(data):
            return None
        if serial is None and (kind := _kind(data[body : body + 8])):
            serial, wanted = stream, _STARTS[kind][1]
        if serial is None and not flags & _FIRST:  # all streams begin before any goes on
            return None
        taken += end - at
        if taken > LIMIT_BYTES:
            return None
        if stream == serial:
            pages += 1
            for lace in table:
                packet += data[body : body + lace]
                body += lace
                if lace < 255:
                    packets.append(bytes(packet))
                    packet.clear()
            if len(packets) == 1 and not packet and not first:
                first, pages = end, 0
            if len(packets) >= wanted:
                return Headers(packets, stream, first, end, pages)
        at = end
    return None


def _pages(packets: list[bytes], serial: int) -> list[bytes]:
    """Lay packets into pages from number 1 on."""
    laces, body = bytearray(), b"".join(packets)
    for packet in packets:
        laces += b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255])
    made: list[bytes] = []
    at = continued = 0
    for start in range(0, len(laces), 255):
        table = laces[start : start + 255]
        end = at + sum(table)
        granule = 0 if any(lace < 255 for lace in table) else -1  # -1: no packet ends here
        fixed = (b"OggS", 0, continued, granule, serial, len(made) + 1, 0, len(table))
        made.append(_signed(_HEAD.pack(*fixed) + table + body[at:end]))
        at, continued = end, _CONTINUED if table[-1] == 255 else 0
    return made


def _renumber(file: IO[bytes], at: int, more: int) -> None:
    """Raise the numbers of all pages from here on."""
    file.seek(at)
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        values = list(_HEAD.unpack(head))
        table = file.read(values[7])
        values[5:7] = values[5] + more & 0xFFFFFFFF, 0
        page = _signed(_HEAD.pack(*values) + table + file.read(sum(table)))
        file.seek(at)
        file.write(page)
        at += len(page)
        file.seek(at)


def _signed(page: bytes) -> bytes:
    return page[:_CRC_AT] + struct.pack("<I", checksum(page)) + page[_CRC_AT + 4 :]
