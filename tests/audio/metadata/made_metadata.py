"""Hosts that say all that their formats can, made with mutagen or by hand."""

import base64
import shutil
import struct
from pathlib import Path

import mutagen.apev2
import mutagen.flac
import mutagen.id3
import mutagen.mp4
import mutagen.oggopus
import mutagen.oggvorbis
import numpy as np
import pytest
import soundfile as sf

PICTURE = b"\x89PNG\r\n\x1a\n" + np.random.default_rng(3).bytes(90_000)  # more than an Ogg page
WORDS = {
    "TITLE": ["Ein Brüllen"],
    "ARTIST": ["one", "two"],
    "ALBUMARTIST": ["all of them"],
    "LYRICS": ["la\nla"],
    "OWN_TAG": ["mine"],
    "REPLAYGAIN_TRACK_GAIN": ["-3.2 dB"],
}
W64 = bytes.fromhex("f3acd3118cd100c04f8edb8a")


def sound(path: Path, kind: str, subtype: str | None = None, frames: int = 8_001) -> Path:
    samples = np.random.default_rng(5).normal(0, 0.1, (frames, 1))
    sf.write(path, samples, 16_000, format=kind, subtype=subtype)
    return path


def picture() -> mutagen.flac.Picture:
    made = mutagen.flac.Picture()
    made.type, made.mime, made.desc, made.data = 3, "image/png", "Titelbild", PICTURE
    made.width, made.height, made.depth = 640, 480, 24
    return made


def flac(path: Path) -> Path:
    file = mutagen.flac.FLAC(sound(path, "FLAC", "PCM_16"))
    file.update(WORDS)
    file.add_picture(picture())
    second = picture()
    second.type, second.desc = 4, "Rückseite"
    file.add_picture(second)
    own = mutagen.flac.MetadataBlock(b"keyb" + bytes(range(50)))
    own.code = 2  # APPLICATION
    sheet = mutagen.flac.CueSheet(None)
    sheet.media_catalog_number, sheet.compact_disc = b"1234567890123", False
    sheet.tracks = [mutagen.flac.CueSheetTrack(1, 0), mutagen.flac.CueSheetTrack(255, 8_001)]
    sheet.tracks[0].indexes = [mutagen.flac.CueSheetTrackIndex(1, 0)]
    table = mutagen.flac.SeekTable(struct.pack(">QQH", 0, 0, 4_096))
    file.metadata_blocks += [own, sheet, table]
    file.save()
    return path


def ogg(path: Path) -> Path:
    opus = path.suffix == ".opus"
    sound(path, "OGG", "OPUS" if opus else "VORBIS")
    file = (mutagen.oggopus.OggOpus if opus else mutagen.oggvorbis.OggVorbis)(path)
    file.update(WORDS)
    file["METADATA_BLOCK_PICTURE"] = [base64.b64encode(picture().write()).decode()]
    file.save()
    return path


def id3_tag() -> mutagen.id3.ID3:
    tag = mutagen.id3.ID3()
    tag.add(mutagen.id3.TIT2(encoding=1, text=["Ein Brüllen"]))
    tag.add(mutagen.id3.TPE1(encoding=3, text=["one", "two"]))
    tag.add(mutagen.id3.TPE2(encoding=3, text=["all of them"]))
    tag.add(mutagen.id3.TXXX(encoding=3, desc="own_tag", text=["mine"]))
    tag.add(mutagen.id3.COMM(encoding=3, lang="eng", desc="", text=["said"]))
    tag.add(mutagen.id3.USLT(encoding=1, lang="deu", desc="", text="la\nla"))
    tag.add(mutagen.id3.APIC(encoding=1, mime="image/png", type=3, desc="Titel", data=PICTURE))
    tag.add(mutagen.id3.PRIV(owner="someone", data=bytes(range(256))))
    return tag


def mp3(path: Path, version: int = 4) -> Path:
    sound(path, "MP3")
    tag = id3_tag()
    if version == 3:
        tag.update_to_v23()
    tag.save(path, v1=2, v2_version=version)
    ape = mutagen.apev2.APEv2()
    ape["Publisher"] = "a house"
    ape.save(path)
    return path


def chunk(name: bytes, body: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}4sI", name, len(body)) + body + bytes(len(body) % 2)


def info(**texts: str) -> bytes:
    said = b"".join(chunk(name.encode(), text.encode() + b"\0") for name, text in texts.items())
    return chunk(b"LIST", b"INFO" + said)


BEFORE = [
    chunk(b"bext", b"a description".ljust(602, b"\0") + b"A=PCM,F=16000,W=16,M=mono!\r\n"),
    chunk(b"iXML", b"<BWFXML><PROJECT>a test</PROJECT></BWFXML>"),
    chunk(b"odd ", b"\1\2\3"),
]
BEHIND = [
    chunk(b"cue ", struct.pack("<IIIIIII", 1, 7, 0, 0x61746164, 0, 0, 4_000)),
    chunk(b"LIST", b"adtl" + chunk(b"labl", struct.pack("<I", 7) + b"here\0")),
    info(INAM="Ein Brüllen", IART="one", ISBJ="a subject"),
    chunk(b"smpl", bytes(36)),
    chunk(b"zzzz", np.random.default_rng(1).bytes(70_001)),
]


def riff(path: Path, kind: str = "WAV", subtype: str = "PCM_16") -> Path:
    """A WAV with chunks before and behind its sound, and an ID3 tag."""
    content = sound(path, kind, subtype).read_bytes()
    tag = path.with_suffix(".id3")
    id3_tag().save(tag, v1=0)
    behind = [*BEHIND, chunk(b"id3 ", tag.read_bytes())]
    tag.unlink()
    at = content.index(b"data")
    before = BEFORE[:2] if kind == "RF64" else BEFORE  # libsndfile refuses the odd one there
    path.write_bytes(_sized(content[:at] + b"".join(before) + content[at:] + b"".join(behind)))
    return path


def _sized(made: bytes) -> bytes:
    if made[:4] == b"RF64":
        return made[:20] + struct.pack("<Q", len(made) - 8) + made[28:]
    order = {b"RIFF": "<", b"FORM": ">"}[made[:4]]
    return made[:4] + struct.pack(f"{order}I", len(made) - 8) + made[8:]


AIFF_BEFORE = [chunk(b"NAME", "Ein Brüllen".encode(), ">"), chunk(b"AUTH", b"one", ">")]
AIFF_BEHIND = [
    chunk(b"ANNO", b"said", ">"),
    chunk(b"ANNO", b"again", ">"),
    chunk(b"(c) ", b"nobody", ">"),
    chunk(b"MARK", struct.pack(">HHIB", 1, 1, 4_000, 3) + b"her", ">"),
    chunk(b"COMT", struct.pack(">HIHH", 1, 0, 0, 4) + b"word", ">"),
    chunk(b"APPL", b"abcdown data!", ">"),
]


def aiff(path: Path, subtype: str = "PCM_16") -> Path:
    content = sound(path, "AIFF", subtype).read_bytes()
    at = content.index(b"SSND")
    made = content[:at] + b"".join(AIFF_BEFORE) + content[at:] + b"".join(AIFF_BEHIND)
    path.write_bytes(_sized(made))
    return path


def caf_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">4sq", name, len(body)) + body


CAF_INFO = b"title\0Ein Br\xc3\xbcllen\0artist\0one\0own\0mine\0"
CAF = [
    caf_chunk(b"info", struct.pack(">I", 3) + CAF_INFO),
    caf_chunk(b"uuid", bytes(range(16)) + b"own data"),
    caf_chunk(b"umid", bytes(64)),
]


def caf(path: Path, subtype: str = "PCM_16") -> Path:
    content = sound(path, "CAF", subtype).read_bytes()
    at = content.index(b"data")
    end = at + 12 + struct.unpack_from(">q", content, at + 4)[0]
    path.write_bytes(content[:at] + CAF[0] + content[at:end] + CAF[1] + CAF[2])
    return path


def w64_chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<Q", 24 + len(body)) + body + bytes(-len(body) % 8)


W64_PIECES = [w64_chunk(b"bext" + W64, b"a description"), w64_chunk(bytes(range(16)), b"own")]


def w64(path: Path) -> Path:
    content = sound(path, "W64", "PCM_16").read_bytes()
    at = content.index(b"data" + W64)
    made = content[:at] + W64_PIECES[0] + content[at:]
    made += bytes(-len(made) % 8) + W64_PIECES[1]
    path.write_bytes(made[:16] + struct.pack("<Q", len(made)) + made[24:])
    return path


def au(path: Path) -> Path:
    content = sound(path, "AU", "PCM_16").read_bytes()
    note = b"what was said\0\0\0"
    head = content[:4] + struct.pack(">I", 24 + len(note)) + content[8:24]
    path.write_bytes(head + note + content[24:])
    return path


HOSTS = {
    "a.flac": flac, "a.ogg": ogg, "a.opus": ogg, "a.mp3": mp3, "a.wav": riff, "a.aiff": aiff,
    "a.caf": caf, "a.w64": w64, "a.au": au,
}  # fmt: skip
KINDS = {
    "a.flac": ("FLAC", "PCM_16"), "a.ogg": ("OGG", "VORBIS"), "a.opus": ("OGG", "OPUS"),
    "a.mp3": ("MP3", None), "a.wav": ("WAV", "PCM_16"), "a.aiff": ("AIFF", "PCM_16"),
    "a.caf": ("CAF", "PCM_16"), "a.w64": ("W64", "PCM_16"), "a.au": ("AU", "PCM_16"),
}  # fmt: skip
with_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is absent")
