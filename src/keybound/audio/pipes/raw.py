"""The bytes of pipes: taken from the front, sent and counted. Knows no formats."""

import contextlib
import hashlib
import sys
from typing import BinaryIO

from keybound.audio.metadata import LIMIT_BYTES
from keybound.errors import AudioError

NAME = "standard input"
HINT = "wav and flac are marked as they come; ffmpeg ... -f wav - makes one of them"
PIPE_BYTES = 1 << 20  # what a pipe is asked to hold, and what is read from it at once
SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ of Linux


def widen(stream: BinaryIO) -> None:
    """Let a pipe hold more, where the system can: larger blocks take less time in all."""
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError, ValueError):
            fcntl.fcntl(stream.fileno(), SET_PIPE_SIZE, PIPE_BYTES)


def exactly(stream: BinaryIO, size: int) -> bytes:
    """Return so many bytes, or as many as come before the end."""
    parts, left = [], size
    while left and (part := stream.read(min(left, PIPE_BYTES))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def header(stream: BinaryIO, size: int, taken: int) -> bytes:
    """Return so many bytes of a header of which some were taken; raise an error where it ends."""
    if taken + size > LIMIT_BYTES:
        raise AudioError(f"{NAME} has too much before its sound", hint=HINT)
    made = exactly(stream, size)
    if len(made) < size:
        raise AudioError(f"{NAME} ends before its sound", hint=HINT)
    return made


class Sink:
    """A pipe to write to, with the hash of what has gone into it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._hash = stream, hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Send bytes at once."""
        if data:
            self._stream.write(data)
            self._stream.flush()
            self._hash.update(data)

    @property
    def sha256(self) -> str:
        """Return the hash of what has gone."""
        return self._hash.hexdigest()
