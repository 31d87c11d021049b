"""Send a file that goes with its request: a client that does not take it holds nothing for long."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keybound.server.limits import Limits

CHUNK_BYTES = 1 << 16


class Sent(Response):
    """A file as a response; `held` is closed when it was sent, or when that took too long."""

    def __init__(
        self,
        path: Path,
        kind: str,
        headers: Mapping[str, str],
        limits: Limits,
        held: contextlib.AsyncExitStack,
    ) -> None:
        self._path, self._held, self._size = path, held, path.stat().st_size
        self._most_s = limits.grace_s + self._size / limits.least_rate
        own = {**headers, "content-length": str(self._size)}
        super().__init__(None, headers=own, media_type=kind)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        del scope, receive
        async with self._held:
            await self._send(send)

    async def _send(self, send: Send) -> None:
        with contextlib.suppress(TimeoutError), self._path.open("rb") as file:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            async with asyncio.timeout(self._most_s):
                while chunk := file.read(CHUNK_BYTES):
                    more = file.tell() < self._size
                    await send({"type": "http.response.body", "body": chunk, "more_body": more})
