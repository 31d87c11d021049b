"""What the files themselves say of their length: libsndfile passes over a missing end in silence.

Reads headers only, and knows nothing of samples, keys or networks.
"""

import mmap
import re
import struct
from pathlib import Path
from typing import Any

from keybound.errors import AudioError

WAVES = ("WAV", "WAVEX", "RF64")  # three headers of one family, all of them named .wav
_W64_BYTES = {
    "PCM_U8": 1, "PCM_16": 2, "PCM_24": 3, "PCM_32": 4, "FLOAT": 4, "DOUBLE": 8, "ULAW": 1,
    "ALAW": 1,
}  # fmt: skip
PASSED_BYTES = 50_000  # beyond that libsndfile reads a CAF from a wrong place
_W64_DATA = b"data" + bytes.fromhex("f3acd3118cd100c04f8edb8a")


def cut_short(path: Path, what: str) -> AudioError:
    return AudioError(f"{path} {what}", hint="get the whole file again, or repair it with ffmpeg")


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file, or say why there are none."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
            raise AudioError(f"{path} is not a file", hint="name one recording")
        with path.open("rb") as raw:
            head = raw.read(16)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AudioError(f"{path} cannot be read: {reason}", hint="check the name") from error
    if not head:
        raise AudioError(f"{path} is empty", hint="the file has no bytes; get it again")
    return head


def is_unknown(frames: int) -> bool:
    """Return whether libsndfile does not know a length: of a FLAC that was written to a pipe."""
    return not 0 <= frames < 1 << 48


def promised_frames(path: Path, file: Any) -> int:
    """Return how many frames a file must hold; raise an error if it is cut short or does not say.

    libsndfile reads what is left of an MP3, an Ogg or a file without compression silently.
    """
    whole, promised = True, int(file.frames)
    with path.open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if file.format in WAVES:
            whole = _data_chunk_end(data) <= len(data)
        elif file.format in ("AIFF", "CAF", "W64", "AU"):
            start, end = _sound_span(data)
            whole = end <= len(data)
            if file.format == "CAF" and start > PASSED_BYTES:
                what = f"{path} has more before its sound than can be passed over"
                raise AudioError(what, hint="convert it, for example to wav with ffmpeg")
            # libsndfile takes the chunks behind the sound of a W64 for sound.
            if file.format == "W64" and (width := _W64_BYTES.get(file.subtype)):
                promised = min(promised, (end - start) // (width * file.channels))
        elif file.format == "OGG":  # the last page is marked when the encoder came to its end
            page = data[max(0, data.rfind(b"OggS")) :]
            whole = len(page) > 26 and len(page) >= 27 + page[26] + sum(page[27 : 27 + page[26]])
            whole = whole and bool(page[5] & 4)
        elif file.subtype == "MPEG_LAYER_III":
            promised = _mp3_frames(data, promised, file.samplerate)
    if not whole:
        raise cut_short(path, "is cut short")
    if is_unknown(promised) and file.format != "FLAC":
        hint = "it was written as a stream; let ffmpeg copy it to a file with a header"
        raise AudioError(f"{path} does not say how long it is", hint=hint)
    # Encoders of MPEG disagree by one frame on what a header counts.
    return promised - (1_152 if file.subtype.startswith("MPEG") else 0)


def _sound_span(data: mmap.mmap) -> tuple[int, int]:
    """Return where an AIFF, CAF, W64 or AU says that its sound lies; zeros if it does not say."""
    if data[:4] in (b".snd", b"dns."):
        start, size = struct.unpack_from(">2I" if data[:1] == b"." else "<2I", data, 4)
        return (0, 0) if size == 0xFFFFFFFF else (start, start + size)
    start, header, sound, align, counted = {
        b"FORM": (12, ">4sI", b"SSND", 2, 0),
        b"caff": (8, ">4sq", b"data", 1, 0),  # a size of -1: to the end
        b"riff": (40, "<16sQ", _W64_DATA, 8, 24),  # sizes count the chunk's own header
    }[data[:4]]
    width = struct.calcsize(header)
    while start + width <= len(data):
        name, size = struct.unpack_from(header, data, start)
        start += width
        size -= counted
        if name == sound and size >= 0:
            return start, start + size
        if size < 0:
            break
        start += size + -size % align
    return 0, 0


def _data_chunk_end(data: mmap.mmap) -> int:
    order = ">" if data[:4] == b"RIFX" else "<"
    start, long_size = 12, 0
    while start + 8 <= len(data):
        name, size = struct.unpack_from(f"{order}4sI", data, start)
        start += 8
        if name == b"ds64":  # RF64 keeps long sizes here: of the file, then of the data
            (long_size,) = struct.unpack_from("<Q", data, start + 8)
        if name == b"data":
            # A program that writes to a pipe promises the most, because it cannot know.
            unknown = size >= 0xFFFFF000 or 0x7FFFF000 <= size <= 0x80000000
            return start + int(long_size if unknown else size)
        start += size + size % 2
    return 0


def _mp3_frames(data: mmap.mmap, frames: int, sample_rate: int) -> int:
    """Count the frames of an MP3 without a header for its length; -1 if they will not all be read.

    libsndfile then guesses from the size of the first MPEG frame and reads no further than that,
    which cuts a file of variable rate. At a constant rate (what speech services send) all MPEG
    frames begin alike but for the padding bit, so they can be counted, and the guess is near.
    """
    start = 0
    if data[:3] == b"ID3":  # its length is in four bytes of seven bits
        start = 10 + (data[6] << 21 | data[7] << 14 | data[8] << 7 | data[9])
    first = re.compile(rb"\xff[\xfa\xfb\xf2\xf3\xe2\xe3].", re.DOTALL).search(data, start)
    if not first or re.search(b"Xing|Info|VBRI", data[first.start() : first.start() + 256]):
        return frames
    sync, last = first[0][:2], first[0][2]
    alike = re.compile(re.escape(sync) + b"[" + re.escape(bytes([last, last ^ 2])) + b"]")
    each = 1_152 if sample_rate >= 32_000 else 576
    counted = each * sum(1 for _ in alike.finditer(data))
    return counted if -each <= frames - counted <= 3 * each + frames / 100 else -1
