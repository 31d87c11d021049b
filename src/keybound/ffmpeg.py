"""AAC, which libsndfile neither reads nor writes, through the ffmpeg of the machine.

Files go through a WAV of floats beside them, in blocks on both sides. Only the demuxers named here
are used: left to itself ffmpeg would follow playlists to other files. Knows no keys, no networks.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from keybound.errors import AudioError

TAGS = ("title", "artist", "album", "comment", "copyright", "date", "genre", "tracknumber")
_NAMES = {"tracknumber": "track"}  # where ffmpeg has another word


def demuxer(head: bytes) -> str | None:
    """Name ffmpeg's reader for a file that begins like this; None if it is not AAC."""
    if head[4:8] == b"ftyp":
        return "mov"
    return "aac" if head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xF6 == 0xF0 else None


def decode(path: Path, reader: str, wav: Path) -> None:
    """Write the first sound track of a file as a WAV of floats, with its tags."""
    program = find(path, "read")
    source = ("-protocol_whitelist", "file", "-f", reader, "-i", f"file:{path}")
    form = ("-map", "0:a:0", "-c:a", "pcm_f32le", "-rf64", "auto", "-f", "wav")
    _run(program, (*source, *form, f"file:{wav}"), f"{path} cannot be decoded")


def encode(wav: Path, path: Path, bitrate_bps: int, tags: Mapping[str, str]) -> None:
    """Write a WAV as AAC in an M4A."""
    program = find(path, "write")
    said = [
        word
        for name, value in tags.items()
        if name in TAGS
        for word in ("-metadata", f"{_NAMES.get(name, name)}={value}")
    ]
    form = ("-map_metadata", "-1", *said, "-c:a", "aac", "-b:a", str(bitrate_bps), "-f", "ipod")
    what = "the recording cannot be encoded as aac"  # `path` is a name in between
    _run(program, ("-i", f"file:{wav}", *form, f"file:{path}"), what)


def find(path: Path, verb: str) -> str:
    """Find ffmpeg, or say that a file cannot be read or written without."""
    program = shutil.which("ffmpeg")
    if program is None:
        hint = "install it (apt install ffmpeg), or convert to flac"
        raise AudioError(f"{path} is aac, and to {verb} it takes ffmpeg", hint=hint)
    return program


def _run(program: str, arguments: Sequence[str], failure: str) -> None:
    command = [program, "-nostdin", "-hide_banner", "-v", "error", "-y", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = done.stderr.strip().splitlines()
        reason = said[-1].split(": ", 1)[-1].lower() if said else f"status {done.returncode}"
        raise AudioError(failure, hint=f"ffmpeg: {reason}")
