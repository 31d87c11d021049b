"""Run a service with uvicorn. Knows sockets, and nothing of audio."""

import asyncio
import contextlib
import logging
import socket
import sys
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from keybound.errors import KeyBoundError

HEAD_S = 10.0  # for the line and the headers of a request
CONNECTIONS = 1024
STOP_S = 10  # for requests that are under way when the service is stopped


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; raise an error where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        what = f"cannot listen on {host} port {port}: {reason}"
        raise KeyBoundError(what, hint="choose another --host or --port") from error


def server(app: ASGIApp) -> uvicorn.Server:
    """Return a server of an application, to be run with the socket it listens on."""
    config = uvicorn.Config(
        app,
        http=_on_time,  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=STOP_S,
    )
    # It would hold addresses and queries, whoever adds a handler to it.
    logging.getLogger("uvicorn.access").disabled = True
    return uvicorn.Server(config)


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until a signal stops it."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("keybound.server").setLevel(logging.INFO)
    # uvicorn's own word for that; the reason is raised below.
    logging.getLogger("uvicorn.error").addFilter(lambda one: "startup failed" not in str(one.msg))
    failed: list[KeyBoundError] = []
    made = server(_starting(app, failed))
    with contextlib.suppress(SystemExit):  # with which uvicorn may end where nothing starts
        made.run(sockets=[listening])
    if failed:
        raise failed[0]
    if not made.started:
        raise KeyBoundError("the service cannot start", hint="see the message above")


def _starting(app: ASGIApp, failed: list[KeyBoundError]) -> ASGIApp:
    """Return an application whose refusal to start is kept, in place of a traceback in the log."""

    async def starting(scope: Scope, receive: Receive, send: Send) -> None:
        async def say(message: Message) -> None:
            why = sys.exception()
            if message["type"] == "lifespan.startup.failed" and isinstance(why, KeyBoundError):
                failed.append(why)
                message = {"type": message["type"], "message": ""}
            await send(message)

        await app(scope, receive, say if scope["type"] == "lifespan" else send)

    return starting


def _on_time(*args: Any, **options: Any) -> H11Protocol:
    """Return a connection that is closed if no request comes in on it for a while.

    uvicorn waits for headers without an end.
    """
    made = H11Protocol(*args, **options)
    made.loop.call_later(HEAD_S, _watch, made, None)
    return made


def _watch(connection: H11Protocol, before: object) -> None:
    """Close a connection that has waited for a request since the last look at it."""
    cycle, transport = connection.cycle, connection.transport
    if transport is None or transport.is_closing():
        return
    waits = cycle is None or cycle.response_complete
    if waits and cycle is before:
        transport.close()
        return
    asyncio.get_running_loop().call_later(HEAD_S, _watch, connection, cycle if waits else 0)
