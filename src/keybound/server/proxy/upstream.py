"""The server that speaks: one request to it, and its reply as it comes.

Headers go on as they came, Authorization too, and are kept nowhere. Knows nothing of audio.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

import h11

from keybound.errors import KeyBoundError
from keybound.server.limits import Limits, RefusedError

PORTS = {"http": 80, "https": 443}
ROUTE = "/audio/speech"
READ_BYTES = 1 << 16
# What belongs to a connection, and what is said anew.
OWN = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"host", b"content-length", b"accept-encoding", b"expect",
}  # fmt: skip
Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Upstream:
    """Where an upstream server is: its address up to /v1, as clients of OpenAI's take it."""

    parts: SplitResult
    secure: ssl.SSLContext | None = field(compare=False)

    @classmethod
    def at(cls, url: str) -> "Upstream":
        """Return the upstream at an address; raise an error for what is none."""
        hint = "such as https://api.openai.com/v1 or http://127.0.0.1:8880/v1"
        try:
            parts = urlsplit(url)
            known = parts.scheme in PORTS and parts.hostname and parts.port != 0
        except ValueError:
            known = False
        if not known or not url.isascii() or parts.query or parts.fragment or parts.username:
            raise KeyBoundError("this is not the address of an upstream server", hint=hint)
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        return cls(parts, secure)

    @property
    def host(self) -> str:
        """Return the host as a request names it."""
        return self.parts.netloc.rpartition("@")[2]

    def target(self, query: bytes) -> bytes:
        """Return the target of a request with a query."""
        path = (self.parts.path.rstrip("/") or "/v1") + ROUTE
        return path.encode() + (b"?" + query if query else b"")


@dataclass
class Reply:
    """A reply of which the head has come."""

    status: int
    headers: Headers
    _reader: asyncio.StreamReader
    _http: h11.Connection
    _pause_s: float

    def header(self, name: bytes) -> str:
        """Return a header; nothing where it is absent."""
        values = [value for key, value in self.headers if key == name]
        return values[0].decode("latin-1").strip() if values else ""

    @property
    def kind(self) -> str:
        """Return the content type without parameters."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; refuse one that breaks off, or comes no further."""
        while True:
            try:
                async with asyncio.timeout(self._pause_s):
                    event = await _event(self._http, self._reader)
            except TimeoutError:
                raise RefusedError(504, "the upstream server stopped speaking") from None
            except (OSError, h11.RemoteProtocolError) as error:
                raise RefusedError(502, "the upstream server broke off") from error
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise RefusedError(502, "the upstream server broke off")


@asynccontextmanager
async def asked(
    upstream: Upstream, headers: Headers, query: bytes, body: bytes, limits: Limits
) -> AsyncIterator[Reply]:
    """Yield the reply of an upstream to a request."""
    writer = None
    try:
        try:
            async with asyncio.timeout(limits.upstream_s):
                reader, writer = await _connected(upstream)
                http, begun = await _begun(upstream, reader, writer, headers, query, body)
        except TimeoutError:
            raise RefusedError(504, "the upstream server does not answer") from None
        except (OSError, h11.RemoteProtocolError, h11.LocalProtocolError) as error:
            raise RefusedError(502, "the upstream server cannot be reached") from error
        yield Reply(begun.status_code, list(begun.headers), reader, http, limits.grace_s)
    finally:
        if writer is not None:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


async def _connected(upstream: Upstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts, port = upstream.parts, upstream.parts.port or PORTS[upstream.parts.scheme]
    if upstream.secure is None:
        return await asyncio.open_connection(parts.hostname, port)
    return await asyncio.open_connection(parts.hostname, port, ssl=upstream.secure)


async def _begun(
    upstream: Upstream,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    headers: Headers,
    query: bytes,
    body: bytes,
) -> tuple[h11.Connection, h11.Response]:
    """Send a request and return its connection with the head of the reply."""
    http = h11.Connection(h11.CLIENT)
    own = [
        (b"host", upstream.host.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"accept-encoding", b"identity"),
        (b"connection", b"close"),
    ]
    passed = [(name, value) for name, value in headers if name.lower() not in OWN]
    request = h11.Request(method="POST", target=upstream.target(query), headers=[*own, *passed])
    for event in (request, h11.Data(data=body), h11.EndOfMessage()):
        writer.write(http.send(event) or b"")
    await writer.drain()
    while True:
        came = await _event(http, reader)
        if isinstance(came, h11.Response):
            return http, came
        if not isinstance(came, h11.InformationalResponse):
            raise h11.RemoteProtocolError("no reply")


async def _event(http: h11.Connection, reader: asyncio.StreamReader) -> object:
    """Return what comes next."""
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await reader.read(READ_BYTES))
    return event
