"""AAC and video, which libsndfile neither reads nor writes, through the ffmpeg of the machine.

Files go through a WAV of floats beside them, in blocks on both sides. Only the demuxers named here
are used: left to itself ffmpeg would follow playlists to other files. It gets limits of memory and
time, which a damaged file may reach and a recording does not. Knows no keys, no networks.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keybound import output
from keybound.errors import AudioError

MOST_BYTES = 4 << 30  # of address space; ten hours of speech take a tenth of it
MOST_CPU_S = 3600
ENDED_BY = {"SIGXFSZ": "it decodes to more than may be written", "SIGXCPU": "it took too long"}


def demuxer(head: bytes) -> str | None:
    """Return ffmpeg's demuxer for a file that begins like this; None if libsndfile is to try."""
    if head[4:8] == b"ftyp":
        return "mov"
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "matroska"
    return "aac" if head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xF6 == 0xF0 else None


def decode(path: Path, reader: str, wav: Path, track: int = 0) -> None:
    """Write a sound track of a file, by default the first, as a WAV of floats."""
    form = ("-map", f"0:a:{track}", "-map_metadata", "-1", "-c:a", "pcm_f32le", "-rf64", "auto")
    arguments = (*source(path, reader), *form, "-f", "wav", f"file:{wav}")
    run(find(path, "read"), arguments, f"{path} cannot be decoded")


def source(path: Path, reader: str) -> tuple[str, ...]:
    """Return the arguments for a file as input: with this demuxer, and nothing but files."""
    return "-protocol_whitelist", "file", "-f", reader, "-i", f"file:{path}"


def chapters(path: Path, reader: str) -> bytes:
    """Return the chapters of a file in the words of ffmpeg's own format, or nothing."""
    what = f"the chapters of {path} cannot be read"
    said = run(find(path, "read"), (*source(path, reader), "-f", "ffmetadata", "-"), what)
    _, mark, rest = said.partition(b"[CHAPTER]")
    return b";FFMETADATA1\n" + mark + rest if mark else b""


def probe(path: Path, reader: str, *asked: str) -> Any:
    """Return what ffprobe, which comes with ffmpeg, tells of a file."""
    arguments = ("-v", "error", *asked, "-of", "json", *source(path, reader))
    program = find(path, "read", "ffprobe")
    return json.loads(_run([program, *arguments], f"{path} cannot be read", b""))


def encode(wav: Path, path: Path, bitrate_bps: int, chapters: bytes = b"") -> None:
    """Write a WAV as AAC, in an M4A with chapters as `chapters` gives them, or by itself."""
    program = find(path, "write")
    sources, form = ["-i", f"file:{wav}"], ["-map", "0:a"]
    if chapters:
        sources += ["-protocol_whitelist", "pipe", "-f", "ffmetadata", "-i", "pipe:0"]
        form += ["-map_chapters", "1"]
    form += ["-c:a", "aac", "-b:a", str(bitrate_bps)]
    form += ["-f", "adts" if path.suffix.lower() == ".aac" else "ipod", f"file:{path}"]
    what = "the recording cannot be encoded as aac"  # `path` is a name in between
    try:
        run(program, (*sources, *form), what, chapters)
    except AudioError as error:
        if output.is_full(path.parent):
            raise output.unwritable(path, error) from error
        raise


def find(path: Path, verb: str, program: str = "ffmpeg") -> str:
    """Return the path of ffmpeg; raise an error where it is not installed."""
    found = shutil.which(program)
    if found is None:
        hint = "install it (apt install ffmpeg), or convert to flac"
        raise AudioError(f"to {verb} {path} takes {program}", hint=hint)
    return found


def run(program: str, arguments: Sequence[str], failure: str, said: bytes = b"") -> bytes:
    """Run ffmpeg within its limits and return what it prints; raise `failure` with its reason."""
    command = [program, "-nostdin", "-hide_banner", "-v", "error", "-y", *arguments]
    return _run(command, failure, said)


def _run(command: Sequence[str], failure: str, said: bytes) -> bytes:
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        _limit(process.pid)
        try:
            out, complaint = process.communicate(said)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise AudioError(failure, hint=f"ffmpeg: {_reason(process.returncode, complaint)}")
    return out


def _limit(process: int) -> None:
    """Limit memory and time of a process, where the system can."""
    if sys.platform == "linux":
        import resource

        limits = {resource.RLIMIT_AS: MOST_BYTES, resource.RLIMIT_CPU: MOST_CPU_S}
        for kind, most in limits.items():
            # It has ended, or has inherited a lower limit.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                resource.prlimit(process, kind, (most, most))


def _reason(status: int, complaint: bytes) -> str:
    """Return why ffmpeg failed, by the signal that ended it or its own last words."""
    if status < 0:
        name = signal.Signals(-status).name
        return ENDED_BY.get(name, f"ended by {name}")
    lines = complaint.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].split(": ", 1)[-1].lower() if lines else f"status {status}"
