"""A stream over HTTP: its body goes in while what is marked of it already goes out.

What is marked waits on the disk until the client takes it, so that one who sends everything before
it reads anything is served too.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keybound.server import bodies, refusals
from keybound.server.limits import Limits, RefusedError, too_large
from keybound.server.marking import MARKED, RECORDED
from keybound.server.sending import CHUNK_BYTES
from keybound.server.spool import Upload
from keybound.server.state import State
from keybound.server.streams import Event, Stream

IDENTIFIER = "KeyBound-Identifier"


async def answered(request: Request, state: State, asked: dict[str, Any]) -> Response:
    """Return the marked stream of a request, when its first bytes were understood."""
    bodies.check_kind(request)
    async with contextlib.AsyncExitStack() as undo:
        upload = undo.enter_context(state.spool.upload())
        stream = await undo.enter_async_context(state.streams.stream(asked))
        feeding = asyncio.ensure_future(_feed(request, stream, state.limits))
        undo.callback(feeding.cancel)
        begun = (await stream.events.get()).check().said
        named = begun["identifier"]
        headers = {} if named is None else {IDENTIFIER: named}
        kind = begun["kind"]
        return Streamed(kind, headers, stream, upload, state.limits, undo.pop_all())


async def _feed(request: Request, stream: Stream, limits: Limits) -> None:
    """Push the body of a request; drop the stream if it does not come to its end."""
    size, body = 0, request.stream()
    try:
        while True:
            async with asyncio.timeout(limits.grace_s):
                chunk = await anext(body, None)
            if chunk is None:
                break
            size += len(chunk)
            if size > limits.body_bytes:
                raise too_large(limits)
            await stream.push(chunk)
            request.scope["keybound.bytes"] = size
        refusals.body_is_read(request)
        if not size:
            raise RefusedError(422, "there is no recording in the request", "send one as its body")
        stream.end()
    except ClientDisconnect:
        stream.fail(RefusedError(499, "the client has gone"))
    except TimeoutError:
        stream.fail(RefusedError(408, "the stream came in too slowly", "send it again"))
    except RefusedError as error:
        stream.fail(error)


class Shape(Protocol):
    """How a marked stream looks in a response."""

    def body(self, data: bytes) -> bytes:
        """Return what is sent for some of it."""

    def end(self, said: dict[str, Any]) -> bytes:
        """Return what is sent at its end."""

    def broken(self) -> bytes:
        """Return what is sent where it breaks off."""


class AsIs:
    """A marked stream that is sent as it is."""

    def body(self, data: bytes) -> bytes:
        """Return the data."""
        return data

    def end(self, _: dict[str, Any]) -> bytes:
        """Return nothing."""
        return b""

    def broken(self) -> bytes:
        """Return nothing."""
        return b""


AS_IS = AsIs()


class Streamed(Response):
    """A marked stream as a response. One that fails is cut off, so that its client sees it.

    `skip` bytes of it are left out at its beginning.
    """

    def __init__(
        self,
        kind: str,
        headers: Mapping[str, str],
        stream: Stream,
        upload: Upload,
        limits: Limits,
        held: contextlib.AsyncExitStack,
        *,
        shape: Shape = AS_IS,
        skip: int = 0,
    ) -> None:
        super().__init__(None, headers=headers, media_type=kind)
        del self.headers["content-length"]
        self._stream, self._upload, self._limits, self._held = stream, upload, limits, held
        self._shape, self._skip = shape, skip
        self._grew, self._ended = asyncio.Event(), False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what is marked as it comes."""
        del scope, receive
        async with self._held:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            passing = asyncio.ensure_future(self._pass_on(send))
            try:
                event = await self._collect()
                whole = event.kind == RECORDED
                last = self._shape.end(event.said) if whole else self._shape.broken()
                most_s = self._limits.grace_s + self._upload.size / self._limits.least_rate
                async with asyncio.timeout(most_s):
                    if whole or last:
                        await passing
                        body = {"body": last, "more_body": not whole}
                        await send({"type": "http.response.body", **body})
            except (TimeoutError, RefusedError):
                pass  # the connection is closed without the end of the response
            finally:
                passing.cancel()
                await asyncio.gather(passing, return_exceptions=True)

    async def _collect(self) -> Event:
        """Write what is marked to the disk; return how the stream ended."""
        while (event := await self._stream.events.get()).kind == MARKED:
            self._upload.write(event.data[self._skip :])
            self._skip = max(0, self._skip - len(event.data))
            self._grew.set()
        self._ended = True
        self._grew.set()
        return event

    async def _pass_on(self, send: Send) -> None:
        """Send what is on the disk, and wait for more until it has ended."""
        with self._upload.path.open("rb") as file:
            while True:
                ended = self._ended
                if chunk := file.read(CHUNK_BYTES):
                    body = {"body": self._shape.body(chunk), "more_body": True}
                    await send({"type": "http.response.body", **body})
                elif ended:
                    return
                else:
                    await self._grew.wait()
                    self._grew.clear()
