"""How the recording of a request comes in: as its body, or from the link that it holds."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from fastapi import Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from keybound.server import links, refusals
from keybound.server.answers import Link
from keybound.server.limits import Limits, RefusedError, busy, too_large
from keybound.server.spool import Upload, receive
from keybound.server.state import State

SMALL_BYTES = 8 << 10  # of a request that holds JSON


class Uploaded(NamedTuple):
    """A recording that has come in, and what is done when its client has gone."""

    file: Upload
    gone: asyncio.Future[None]


@contextlib.asynccontextmanager
async def uploaded(request: Request, state: State) -> AsyncIterator[Uploaded]:
    """Yield the recording of a request, whose file is removed at the end."""
    if state.pool.full:  # known before the body comes in
        raise busy()
    with state.spool.upload() as upload:
        await _take(request, upload, state)
        leaving = asyncio.ensure_future(gone(request))
        try:
            yield Uploaded(upload, leaving)
        finally:
            leaving.cancel()


async def _take(request: Request, upload: Upload, state: State) -> None:
    """Write the recording of a request to an upload."""
    limits = state.limits
    kind = check_kind(request)
    size = request.headers.get("content-length")
    if size is not None and int(size) > limits.body_bytes:
        raise too_large(limits)
    try:
        if kind == "application/json":
            link = await _link(request, limits)
            if not state.fetches:
                raise RefusedError(422, "this service fetches no links", "upload the file")
            await links.fetch(link, upload, limits, state.allowed)
        else:
            await receive(request.stream(), upload, limits)
            refusals.body_is_read(request)
    except ClientDisconnect:
        raise RefusedError(499, "the client has gone") from None
    state.metrics.bytes += upload.size
    request.scope["keybound.bytes"] = upload.size


def check_kind(request: Request) -> str:
    """Return the content type of a request; refuse a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        raise RefusedError(415, "forms are not read", "send the file itself as the body")
    return kind


async def gone(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def small(request: Request, limits: Limits, most: int = SMALL_BYTES) -> bytes:
    """Return the body of a request that is small, such as JSON; refuse a long or a slow one."""
    body = bytearray()
    try:
        async with asyncio.timeout(limits.grace_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise RefusedError(422, "the JSON is too long", "send one question")
    except TimeoutError:
        raise RefusedError(408, "the request came in too slowly", "send it again") from None
    except ClientDisconnect:
        raise RefusedError(499, "the client has gone") from None
    refusals.body_is_read(request)
    return bytes(body)


async def _link(request: Request, limits: Limits) -> str:
    """Return the link in the JSON of a request."""
    try:
        return Link.model_validate_json(await small(request, limits)).url
    except ValidationError:
        raise RefusedError(422, "the JSON holds no link", 'send {"url": "https://…"}') from None
