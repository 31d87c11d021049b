"""The proxy over HTTP: one route, its errors in OpenAI's form, and its log.

The log has one line for each request, as that of the service has: no header, no text, no audio.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from keybound.server import bodies, refusals
from keybound.server.app import observed
from keybound.server.limits import RefusedError
from keybound.server.proxy import replies
from keybound.server.proxy.replies import UnmarkedError
from keybound.server.proxy.state import State

ROUTE = "/v1/audio/speech"
REQUEST_BYTES = 1 << 20  # of text and all that is asked with it


def make(state: State) -> ASGIApp:
    """Return the proxy as an ASGI application."""
    app = FastAPI(
        openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=state.open
    )
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(HTTPException, _unrouted)

    @app.post(ROUTE)
    async def speech(request: Request) -> Response:
        body = await bodies.small(request, state.limits, REQUEST_BYTES)
        gone = asyncio.ensure_future(bodies.gone(request))
        try:
            return await _unless(gone, replies.answered(request, body, state, gone))
        except BaseException:
            gone.cancel()
            raise

    return observed(app, state.metrics)


async def _unless(
    gone: asyncio.Future[None], work: Coroutine[Any, Any, tuple[Response, bool]]
) -> Response:
    """Return the response, unless the client goes before it; then what it began ends."""
    task = asyncio.ensure_future(work)
    first: set[asyncio.Future[Any]] = {task, gone}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RefusedError(499, "the client has gone")
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    response, watches = task.result()
    if not watches:
        gone.cancel()
    return response


def _error(status: int, message: str, code: str | None) -> JSONResponse:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": error}, status, {replies.MARK: "none"})


async def _refused(request: Request, error: Exception) -> Any:
    assert isinstance(error, RefusedError)
    what = error.message if error.hint is None else f"{error.message} ({error.hint})"
    code = "not_marked" if isinstance(error, UnmarkedError) else None
    made = _error(error.status, what, code)
    if error.retry_s is not None:
        made.headers["Retry-After"] = str(error.retry_s)
    return made if refusals.READ in request.scope else refusals.lingering(made)


async def _unrouted(request: Request, error: Exception) -> Any:
    assert isinstance(error, HTTPException)
    made = _error(error.status_code, f"the proxy has no route but POST {ROUTE}", None)
    made.headers.update(error.headers or {})
    return made if request.method in ("GET", "HEAD") else refusals.lingering(made)
