"""AAC, which libsndfile neither reads nor writes, through the ffmpeg of the machine.

Files go through a WAV of floats beside them, in blocks on both sides. Only the demuxers named here
are used: left to itself ffmpeg would follow playlists to other files. Knows no keys, no networks.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from keybound import output
from keybound.errors import AudioError


def demuxer(head: bytes) -> str | None:
    """Return ffmpeg's demuxer for a file that begins like this; None if it is not AAC."""
    if head[4:8] == b"ftyp":
        return "mov"
    return "aac" if head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xF6 == 0xF0 else None


def decode(path: Path, reader: str, wav: Path) -> None:
    """Write the first sound track of a file as a WAV of floats."""
    program = find(path, "read")
    source = ("-protocol_whitelist", "file", "-f", reader, "-i", f"file:{path}")
    form = ("-map", "0:a:0", "-map_metadata", "-1", "-c:a", "pcm_f32le", "-rf64", "auto")
    _run(program, (*source, *form, "-f", "wav", f"file:{wav}"), f"{path} cannot be decoded")


def chapters(path: Path, reader: str) -> bytes:
    """Return the chapters of a file in the words of ffmpeg's own format, or nothing."""
    program = find(path, "read")
    source = ("-protocol_whitelist", "file", "-f", reader, "-i", f"file:{path}")
    what = f"the chapters of {path} cannot be read"
    said = _run(program, (*source, "-f", "ffmetadata", "-"), what)
    _, mark, rest = said.partition(b"[CHAPTER]")
    return b";FFMETADATA1\n" + mark + rest if mark else b""


def encode(wav: Path, path: Path, bitrate_bps: int, chapters: bytes = b"") -> None:
    """Write a WAV as AAC in an M4A, with chapters as `chapters` gives them."""
    program = find(path, "write")
    sources, form = ["-i", f"file:{wav}"], ["-map", "0:a"]
    if chapters:
        sources += ["-protocol_whitelist", "pipe", "-f", "ffmetadata", "-i", "pipe:0"]
        form += ["-map_chapters", "1"]
    form += ["-c:a", "aac", "-b:a", str(bitrate_bps), "-f", "ipod", f"file:{path}"]
    what = "the recording cannot be encoded as aac"  # `path` is a name in between
    try:
        _run(program, (*sources, *form), what, chapters)
    except AudioError as error:
        if output.is_full(path.parent):
            raise output.unwritable(path, error) from error
        raise


def find(path: Path, verb: str) -> str:
    """Return the path of ffmpeg; raise an error where it is not installed."""
    program = shutil.which("ffmpeg")
    if program is None:
        hint = "install it (apt install ffmpeg), or convert to flac"
        raise AudioError(f"{path} is aac, and to {verb} it takes ffmpeg", hint=hint)
    return program


def _run(program: str, arguments: Sequence[str], failure: str, said: bytes = b"") -> bytes:
    command = [program, "-nostdin", "-hide_banner", "-v", "error", "-y", *arguments]
    done = subprocess.run(command, capture_output=True, input=said)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = lines[-1].split(": ", 1)[-1].lower() if lines else f"status {done.returncode}"
        raise AudioError(failure, hint=f"ffmpeg: {reason}")
    return done.stdout
