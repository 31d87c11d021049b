"""How a request is refused: one form for all errors, which also reaches a client that still sends.

A connection that is closed while data come in loses the answer on its way. So after an answer that
comes early some more of the body is read and thrown away, for a short time, before it is closed.
"""

import asyncio
import contextlib
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from keybound.server.answers import Error
from keybound.server.limits import RefusedError

LINGER_S = 2.0
LINGER_BYTES = 4 << 20
READ = "keybound.read"


def add(app: FastAPI) -> None:
    """Let a service refuse requests in one form."""
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unrouted)


def body_is_read(request: Request) -> None:
    """Note that nothing more of a body is to come."""
    request.scope[READ] = True


def _answer(status: int, error: str, hint: str | None) -> JSONResponse:
    return JSONResponse(Error(error=error, hint=hint).model_dump(), status)


async def _refused(request: Request, error: Exception) -> Any:
    assert isinstance(error, RefusedError)
    made = _answer(error.status, error.message, error.hint)
    if error.retry_s is not None:
        made.headers["Retry-After"] = str(error.retry_s)
    if error.status == 401:
        made.headers["WWW-Authenticate"] = "Bearer"
    return made if READ in request.scope else lingering(made)


async def _invalid(_: Request, error: Exception) -> Any:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return lingering(_answer(422, f"{first['loc'][-1]}: {str(first['msg']).lower()}", None))


async def _unrouted(request: Request, error: Exception) -> Any:
    assert isinstance(error, HTTPException)
    made = _answer(error.status_code, str(error.detail).lower(), None)
    made.headers.update(error.headers or {})
    return made if request.method in ("GET", "HEAD") else lingering(made)


def lingering(made: JSONResponse) -> Any:
    """Return an answer that is sent whole and ends a little later, with its connection."""

    async def call(_: Scope, receive: Receive, send: Send) -> None:
        headers = [*made.raw_headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": made.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": made.body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await _drain(receive)
        await send({"type": "http.response.body", "body": b""})

    return call


async def _drain(receive: Receive) -> None:
    """Read a body to its end, or as much as is allowed."""
    left = LINGER_BYTES
    while left > 0:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return
        left -= len(message.get("body", b""))
