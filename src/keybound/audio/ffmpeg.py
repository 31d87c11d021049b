"""AAC, which libsndfile neither reads nor writes, through the ffmpeg of the machine.

Files go through a WAV of floats beside them, in blocks on both sides. Only the demuxers named here
are used: left to itself ffmpeg would follow playlists to other files. It gets limits of memory and
time, which a damaged file may reach and a recording does not. Knows no keys, no networks.
"""

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from keybound import output
from keybound.errors import AudioError

MOST_BYTES = 4 << 30  # of address space; ten hours of speech take a tenth of it
MOST_CPU_S = 3600
ENDED_BY = {"SIGXFSZ": "it decodes to more than may be written", "SIGXCPU": "it took too long"}


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
