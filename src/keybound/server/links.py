"""Fetch a recording from a link without reaching what only this machine or its network can.

Each host is resolved once, every address of it is checked, and the connection goes to the checked
address itself: a name that means something else a moment later changes nothing. Each redirect is
treated likewise. Knows nothing of audio.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import SplitResult, urljoin, urlsplit

import h11

from keybound.server.addresses import forbidden, resolve
from keybound.server.limits import Limits, RefusedError, too_large
from keybound.server.spool import Upload

PORTS = {"http": 80, "https": 443}
REDIRECTS = 5
REDIRECTING = (301, 302, 303, 307, 308)
READ_BYTES = 1 << 16
NONE: frozenset[tuple[str, int]] = frozenset()


async def fetch(
    link: str, upload: Upload, limits: Limits, allowed: frozenset[tuple[str, int]] = NONE
) -> None:
    """Write what a link leads to to an upload.

    `allowed` are pairs of address and port that may be reached although they are not public: for
    tests.
    """
    try:
        async with asyncio.timeout(limits.link_s):
            for _ in range(REDIRECTS + 1):
                further = await _follow(_checked(link, allowed), upload, limits, allowed)
                if further is None:
                    break
                link = urljoin(link, further)
            else:
                raise RefusedError(422, f"the link redirects more than {REDIRECTS} times")
    except TimeoutError:
        what = f"the link was not fetched within {limits.link_s:g} s"
        raise RefusedError(422, what, "upload the file") from None
    except (OSError, h11.RemoteProtocolError) as error:
        raise RefusedError(422, "the link cannot be fetched", "upload the file") from error
    if not upload.size:
        raise RefusedError(422, "there is nothing where the link leads")


def _checked(link: str, allowed: frozenset[tuple[str, int]]) -> SplitResult:
    """Return the parts of a link; refuse one that is not plain http or https."""
    hint = "a link begins with https:// or http://"
    try:
        parts = urlsplit(link)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise RefusedError(422, "the link cannot be read", hint) from error
    if parts.scheme not in PORTS or not host or not link.isprintable() or " " in link:
        raise RefusedError(422, "the link cannot be read", hint)
    if parts.username is not None or parts.password is not None:
        raise RefusedError(422, "the link holds a user name", "leave it out")
    if port not in (None, *PORTS.values()) and not any(port == one for _, one in allowed):
        raise forbidden()
    return parts


async def _follow(
    parts: SplitResult, upload: Upload, limits: Limits, allowed: frozenset[tuple[str, int]]
) -> str | None:
    """Write what a link leads to to an upload, or return where it redirects to."""
    async with _connected(parts, allowed) as (reader, writer):
        http = h11.Connection(h11.CLIENT)
        writer.write(http.send(_request(parts)) or b"")
        writer.write(http.send(h11.EndOfMessage()) or b"")
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(READ_BYTES))
            elif isinstance(event, h11.Response):
                if event.status_code in REDIRECTING:
                    return _header(event, b"location")
                _check(event, limits)
            elif isinstance(event, h11.Data):
                upload.write(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return None


@asynccontextmanager
async def _connected(
    parts: SplitResult, allowed: frozenset[tuple[str, int]]
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a connection to a checked address of a link's host."""
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    address = await resolve(host, port, allowed)
    secure = {"ssl": ssl.create_default_context(), "server_hostname": host}
    how = secure if parts.scheme == "https" else {}
    reader, writer = await asyncio.open_connection(address, port, **how)  # type: ignore[arg-type]
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


def _request(parts: SplitResult) -> h11.Request:
    host = (parts.hostname or "").encode("idna").decode()
    name = f"[{host}]" if ":" in host else host
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {
        "Host": name if parts.port is None else f"{name}:{parts.port}",
        "User-Agent": "keybound",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    return h11.Request(method="GET", target=_ascii(target), headers=list(headers.items()))


def _ascii(target: str) -> str:
    """Return the target of a request with every other character as a browser escapes it."""
    return "".join(c if c.isascii() else "".join(f"%{b:02X}" for b in c.encode()) for c in target)


def _check(response: h11.Response, limits: Limits) -> None:
    """Refuse a response that is not a whole recording as it is."""
    if response.status_code != 200:
        raise RefusedError(422, f"the link was answered with status {response.status_code}")
    if (_header(response, b"content-encoding") or "identity").lower() != "identity":
        raise RefusedError(422, "the link was answered with compressed content", "upload the file")
    size = _header(response, b"content-length")
    if size is not None and int(size) > limits.body_bytes:  # h11 takes digits alone
        raise too_large(limits)


def _header(response: h11.Response, name: bytes) -> str | None:
    values = [value for key, value in response.headers if key == name]
    return values[0].decode("latin-1") if values else None
