"""What an upstream says, marked: as it comes where its format allows it, else as a whole.

Nothing goes out before a second of it has come and is marked. What cannot be marked is refused.
"""

import asyncio
import contextlib
import json
import re
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import Request, Response

from keybound.server.answers import KINDS
from keybound.server.limits import Limits, RefusedError, too_large
from keybound.server.proxy import upstream
from keybound.server.proxy.events import KIND as EVENTS
from keybound.server.proxy.events import Events
from keybound.server.proxy.state import LEAST_S, State
from keybound.server.proxy.upstream import Reply
from keybound.server.sending import Sent
from keybound.server.spool import Upload
from keybound.server.streaming import AS_IS, IDENTIFIER, Shape, Streamed
from keybound.server.streams import Stream

MARK, RECORD = "KeyBound-Mark", "KeyBound-Record"
PRESENT, STREAMING, NONE = "present", "streaming", "none"
HEAD_BYTES = 12  # that tell a wav or a flac
ERROR_BYTES = 1 << 20
# Of an upstream's error; with those whose names begin like the last.
PASSED = (b"content-type", b"retry-after", b"www-authenticate", b"x-request-id", b"x-ratelimit-")
RAW = ("", "audio/pcm", "audio/raw", "application/octet-stream")
WAVES = (b"RIFF", b"RIFX", b"RF64")


class UnmarkedError(RefusedError):
    """Speech that cannot be marked."""

    def __init__(self, why: RefusedError) -> None:
        super().__init__(502, f"the speech cannot be marked: {why.message}", why.hint)


async def answered(
    request: Request, body: bytes, state: State, gone: asyncio.Future[None]
) -> tuple[Response, bool]:
    """Return the response to a request, and whether it ends by itself when the client goes."""
    raw = _is_raw(body)
    async with contextlib.AsyncExitStack() as undo:
        query = request.scope["query_string"]
        headers = request.headers.raw
        asking = upstream.asked(state.upstream, headers, query, body, state.limits)
        reply = await undo.enter_async_context(asking)
        if reply.status != 200:
            return await _failed(reply), False
        if reply.header(b"content-encoding").lower() not in ("", "identity"):
            raise RefusedError(502, "the upstream server answered with compressed content")
        speech = Speech(reply, state.limits, request)
        head = await speech.begin()
        job = _Job(state, speech, gone, undo)
        if head[:4] == b"fLaC" or (head[:4] in WAVES and head[8:12] == b"WAVE"):
            return await job.stream(b"")
        if raw and (speech.events is not None or reply.kind in RAW):
            return await job.stream(wav_head(_rate(reply) or state.pcm_hz))
        return await job.file()


def _is_raw(body: bytes) -> bool:
    """Return whether a request asks for samples without a header; refuse one that is no JSON."""
    try:
        asked = json.loads(body)
    except ValueError as error:
        raise RefusedError(400, "the request is not JSON") from error
    if not isinstance(asked, dict):
        raise RefusedError(400, "the request is not a JSON object")
    return asked.get("response_format") == "pcm"


async def _failed(reply: Reply) -> Response:
    """Return the error of an upstream. Audio is no error: it might be speech."""
    if reply.status < 400 or not (reply.kind.startswith("text/") or reply.kind.endswith("json")):
        status = reply.status if reply.status >= 400 else 502
        raise RefusedError(status, f"the upstream server answered with status {reply.status}")
    body = b""
    async for chunk in reply.chunks():
        body = (body + chunk)[:ERROR_BYTES]
    made = Response(body, reply.status, {MARK: NONE})
    for name, value in reply.headers:
        if name.startswith(PASSED):
            made.headers[name.decode()] = value.decode("latin-1")
    return made


def _rate(reply: Reply) -> int | None:
    """Return the rate that a content type names, such as audio/pcm;rate=24000."""
    said = re.search(r";\s*rate=(\d{4,6})\b", reply.header(b"content-type"))
    return int(said[1]) if said else None


def wav_head(rate: int) -> bytes:
    """Return the header of a WAV of one channel of 16 bits, of unknown length."""
    form = struct.pack("<4sI2H2I2H", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", 0xFFFFFFFF, b"WAVE") + form + b"data\xff\xff\xff\xff"


class Speech:
    """The audio of a reply as it comes, out of its events where it has some."""

    def __init__(self, reply: Reply, limits: Limits, request: Request) -> None:
        self.kind, self._limits, self._request = reply.kind, limits, request
        self.events = Events(reply.chunks()) if reply.kind == EVENTS else None
        self._audio = reply.chunks() if self.events is None else self.events.audio()
        self._head = b""

    async def begin(self) -> bytes:
        """Return the first bytes, which come again."""
        while len(self._head) < HEAD_BYTES:
            chunk = await anext(self._audio, None)
            if chunk is None:
                break
            self._head += chunk
        if not self._head:
            raise UnmarkedError(RefusedError(502, "the upstream server said nothing"))
        return self._head

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all of it; refuse what is too large."""
        size = len(self._head)
        yield self._head
        async for chunk in self._audio:
            size += len(chunk)
            if size > self._limits.body_bytes:
                raise too_large(self._limits)
            self._request.scope["keybound.bytes"] = size
            yield chunk


class _Job:
    """The marking of one reply; `undo` ends all that it holds."""

    def __init__(
        self,
        state: State,
        speech: Speech,
        gone: asyncio.Future[None],
        undo: contextlib.AsyncExitStack,
    ) -> None:
        self._state, self._speech, self._gone, self._undo = state, speech, gone, undo
        self._maker = state.maker.plain()

    async def file(self) -> tuple[Response, bool]:
        """Return a reply that was marked and read back as a whole."""
        upload = self._undo.enter_context(self._state.spool.upload())
        async for chunk in self._speech.chunks():
            upload.write(chunk)
        asked = {"maker": self._maker, "least_s": LEAST_S}
        try:
            said = await self._state.pool.ask("embed", upload, self._gone, **asked)
        except RefusedError as error:
            return self._unmarked(error, upload), False
        output = Path(said["output"])
        upload.hold(output.stat().st_size)
        names = {MARK: PRESENT, RECORD: said["record"], IDENTIFIER: said["identifier"]}
        headers = {name: str(value) for name, value in names.items() if value is not None}
        return self._sent(upload, output, headers, KINDS[output.suffix]), False

    async def stream(self, before: bytes) -> tuple[Response, bool]:
        """Return a reply that is marked as it comes, with a header before it that is left out."""
        state, undo = self._state, self._undo
        asked = {"maker": self._maker, "least_s": LEAST_S, "unread_ok": state.unmarked_ok}
        upload = undo.enter_context(state.spool.upload())
        stream = await undo.enter_async_context(state.streams.stream(asked))
        feeding = _Feeding(self._speech, stream, before)
        if state.unmarked_ok:
            feeding.spare = undo.enter_context(state.spool.upload())
        task = asyncio.ensure_future(feeding.run())
        undo.callback(task.cancel)
        try:
            begun = (await stream.events.get()).check().said
        except RefusedError as error:
            stream.give_up()
            if feeding.spare is not None and error.status == 422:
                await task  # the rest of it comes
            if feeding.failed is not None:
                return self._unmarked(feeding.failed, None), False
            return self._unmarked(error, feeding.spare), False
        feeding.spare = None
        self._gone.add_done_callback(lambda one: None if one.cancelled() else feeding.leave())
        undo.callback(self._gone.cancel)
        named = begun["identifier"]
        headers = {MARK: STREAMING} | ({} if named is None else {IDENTIFIER: named})
        kind = self._kind("audio/pcm" if before else begun["kind"])
        shape: Shape = self._speech.events or AS_IS
        held = (upload, state.limits, undo.pop_all())
        return Streamed(kind, headers, stream, *held, shape=shape, skip=len(before)), True

    def _unmarked(self, error: RefusedError, upload: Upload | None) -> Response:
        """Return what cannot be marked where that is allowed; refuse it else."""
        if error.status != 422:
            raise error
        if upload is None or not self._state.unmarked_ok:
            raise UnmarkedError(error) from error
        return self._sent(upload, upload.path, {MARK: NONE}, "application/octet-stream")

    def _sent(self, upload: Upload, audio: Path, headers: dict[str, str], kind: str) -> Response:
        """Return a response with a file, as events where the upstream sent some."""
        if self._speech.events is not None:
            output = upload.folder / "events"
            read: dict[str, Any] = {"read": headers[MARK] == PRESENT}
            self._speech.events.write(audio, output, read)
            upload.hold(output.stat().st_size)
            audio = output
        limits = self._state.limits
        return Sent(audio, self._kind(kind), headers, limits, self._undo.pop_all())

    def _kind(self, usual: str) -> str:
        """Return the content type of the upstream, or a usual one."""
        named = self._speech.kind
        return named if named == EVENTS or named.startswith("audio/") else usual


class _Feeding:
    """Speech on its way to where it is marked; `spare` keeps it as it came."""

    def __init__(self, speech: Speech, stream: Stream, before: bytes) -> None:
        self._speech, self._stream, self._before = speech, stream, before
        self.spare: Upload | None = None
        self.failed: RefusedError | None = None

    async def run(self) -> None:
        """Push all of it; drop the stream if it does not come to its end."""
        try:
            if self._before:
                await self._stream.push(self._before)
            async for chunk in self._speech.chunks():
                if self.spare is not None:
                    self.spare.write(chunk)
                await self._stream.push(chunk)
            self._stream.end()
        except RefusedError as error:
            self.failed = error
            self._stream.fail(error)

    def leave(self) -> None:
        """Drop the stream: the client has gone."""
        self._stream.fail(RefusedError(499, "the client has gone"))
