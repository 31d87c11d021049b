"""Server-sent events of speech: audio in base64 in events, out of them and into them again."""

import base64
import binascii
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from keybound.server.limits import RefusedError

KIND = "text/event-stream"
DELTA, DONE, ERROR = "speech.audio.delta", "speech.audio.done", "error"
LINE_BYTES = 8 << 20  # of the line of an event
CHUNK_BYTES = 3 << 14  # of audio in an event: whole groups of base64


class Events:
    """The events of an upstream: their audio, and when that has ended what the last one says.

    Events of other kinds are left out: they might hold audio that is not marked.
    """

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._done: dict[str, Any] | None = None

    async def audio(self) -> AsyncIterator[bytes]:
        """Yield the audio as it comes; refuse what does not come to its end."""
        rest = b""
        async for chunk in self._chunks:
            *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
            if len(rest) > LINE_BYTES:
                raise _unread()
            for line in lines:
                if data := self._read(line):
                    yield data
        if self._done is None:
            raise RefusedError(502, "the upstream server broke off")

    def _read(self, line: bytes) -> bytes:
        """Return the audio in a line."""
        name, _, text = line.partition(b":")
        if name != b"data" or text.strip() == b"[DONE]":
            return b""
        try:
            said = json.loads(text)
            if said["type"] == DELTA:
                return base64.b64decode(said["audio"], validate=True)
        except (ValueError, TypeError, KeyError, binascii.Error) as error:
            raise _unread() from error
        if said["type"] == ERROR:
            raise RefusedError(502, "the upstream server could not speak to the end")
        if said["type"] == DONE:
            self._done = {"type": DONE, "usage": said.get("usage")}
        return b""

    def body(self, data: bytes) -> bytes:
        """Return audio as an event."""
        return event({"type": DELTA, "audio": base64.b64encode(data).decode()})

    def end(self, said: dict[str, Any]) -> bytes:
        """Return the last event, which says whether the mark was read back."""
        mark = "present" if said.get("read") else "none"
        return event({**(self._done or {"type": DONE}), "keybound_mark": mark})

    def broken(self) -> bytes:
        """Return the event of audio that broke off."""
        what = "the speech could not be marked to its end: do not use it"
        error = {"message": what, "type": "server_error", "param": None, "code": "not_marked"}
        return event({"type": ERROR, "error": error})

    def write(self, audio: Path, output: Path, said: dict[str, Any]) -> None:
        """Write a file of audio as events."""
        with audio.open("rb") as source, output.open("wb") as sink:
            while chunk := source.read(CHUNK_BYTES):
                sink.write(self.body(chunk))
            sink.write(self.end(said))


def event(said: dict[str, Any]) -> bytes:
    """Return an event as it is sent."""
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def _unread() -> RefusedError:
    return RefusedError(502, "the events of the upstream server cannot be read")
