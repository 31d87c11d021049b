"""The service: its routes, what they accept and answer, its headers and its log.

The log has one line for each request: method, route, status, bytes, seconds. It holds no audio, no
address, no name of a file and nothing of what was found.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import keybound
from keybound.model.detection import FALSE_ALARMS
from keybound.server import bodies, private, refusals, resolution, site
from keybound.server.answers import BODY, REFUSALS, FalseAlarms, Found, Health
from keybound.server.bodies import Uploaded
from keybound.server.counting import in_fixed_time
from keybound.server.metrics import Metrics
from keybound.server.state import State

log = logging.getLogger("keybound.server")
METHODS = ("GET", "HEAD", "POST")  # that are counted by their names


def make(state: State) -> ASGIApp:
    """Return the service as an ASGI application."""
    app = describe(state)
    return observed(app, state.metrics, site.HEADERS)


def describe(state: State) -> FastAPI:
    """Return the routes of the service, without headers and log."""
    app = FastAPI(
        title="KeyBound detector",
        version=keybound.__version__,
        description="Detects whether speech carries a KeyBound mark, and who issued it.",
        docs_url=None,  # both load scripts from elsewhere
        redoc_url=None,
        lifespan=state.open,
    )
    refusals.add(app)

    @app.post("/detect", responses=REFUSALS, response_model=Found, openapi_extra=BODY)
    async def detect(request: Request, false_alarms: FalseAlarms = FALSE_ALARMS) -> Response:
        """Detect whether a recording carries a mark, and where.

        The body is the recording itself, or as JSON a link to it. The answer is that of
        `keybound detect --json`. Nothing is kept.
        """
        async with bodies.uploaded(request, state) as recording:
            found = await _detected(request, recording, state, false_alarms)
        return JSONResponse(found)

    if state.place is not None:
        private.add(app, state)
        resolution.add(app, state)

    @app.get("/health", responses={503: {"model": Health}})
    async def health(response: Response) -> Health:
        """Say whether the service can detect, and with which weights."""
        pool = state.pool
        response.status_code = 200 if pool.alive else 503
        status = "ok" if pool.alive else "no worker runs"
        return Health(status=status, version=keybound.__version__, weights=pool.weights)

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Return counters in Prometheus' text format."""
        text = state.metrics.text(_gauges(state))
        return Response(text, media_type="text/plain; version=0.0.4")

    site.add(app, state.limits, links=state.fetches, model=state.model)
    return app


async def _detected(
    request: Request, recording: Uploaded, state: State, false_alarms: float
) -> dict[str, Any]:
    """Return the detection in a file, with what the registry says of an identifier it issued."""
    said = await state.pool.ask("detect", *recording, false_alarms=false_alarms)
    tracks: list[dict[str, Any]] = said["tracks"]
    if said["own"]:
        state.count_public(request)
        asked = state.pool.ask("look up", *recording, false_alarms=false_alarms)
        told = await in_fixed_time(state.limits.fixed_s, asked, lambda one: one["seconds"])
        for found, records in zip(tracks, told["tracks"], strict=True):
            for one in found["claimed"]:
                one["record"] = records.get(one["identifier"])
    return _joined(tracks)


def _joined(tracks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the detection in a recording, or in the most evident of several tracks with all."""
    if len(tracks) == 1:
        return tracks[0]
    numbered = [{"track": number} | one for number, one in enumerate(tracks, 1)]
    best = max(numbered, key=lambda one: (one["present"], one["evidence_s"]))
    return best | {"tracks": numbered}


def _gauges(state: State) -> dict[str, float]:
    return {
        "workers": state.pool.alive,
        "workers_busy": state.pool.busy,
        "workers_replaced": state.pool.replaced,
        "recordings_waiting": state.pool.waiting,
        "uploads": state.spool.count,
        "upload_bytes_held": state.spool.held,
        "streams": 0 if state.place is None else state.streams.count,
    }


def observed(
    app: ASGIApp, metrics: Metrics, headers: Sequence[tuple[bytes, bytes]] = ()
) -> ASGIApp:
    """Return an application with some headers, whose requests are counted and logged."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        try:
            await app(scope, receive, answer)
        finally:
            spent = time.perf_counter() - begun
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            metrics.count(method, route, status, spent)
            size = scope.get("keybound.bytes", 0)
            log.info("%s %s %d %d bytes %.3f s", method, route, status, size, spent)

    return call
