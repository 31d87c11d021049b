"""Uploads on the disk, under a quota: each in a folder of its own that goes with its request.

A body is never in memory as a whole. Knows nothing of audio.
"""

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from keybound.server.limits import Limits, RefusedError, busy, too_large


class Upload:
    """A recording that comes in: written to `path`, and counted."""

    def __init__(self, spool: "Spool", folder: Path, file: BinaryIO) -> None:
        self._spool, self._file = spool, file
        self.folder, self.path = folder, folder / "recording"
        self.size = self.held = 0

    def write(self, chunk: bytes) -> None:
        """Add bytes; refuse those beyond the limit of a body or of the spool."""
        limits = self._spool.limits
        if self.size + len(chunk) > limits.body_bytes:
            raise too_large(limits)
        if self._spool.held + len(chunk) > limits.spool_bytes:
            raise busy()
        self.hold(len(chunk))
        self.size += len(chunk)
        try:
            self._file.write(chunk)
        except OSError as error:  # the disk is full
            raise busy() from error

    def hold(self, count: int) -> None:
        """Count bytes that are on the disk for this request, until it ends."""
        self.held += count
        self._spool.held += count


class Spool:
    """The folder of all uploads. `held` counts their bytes, `count` the uploads."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self.root, self.limits = root, limits
        self.held = self.count = 0

    @contextlib.contextmanager
    def upload(self) -> Iterator[Upload]:
        """Yield a place for one upload, which is removed at the end."""
        if self.count >= self.limits.uploads:
            raise busy()
        folder = self.root / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        self.count += 1
        # Without a buffer: what is written is on the disk when a worker opens the file.
        with (folder / "recording").open("wb", buffering=0) as file:
            upload = Upload(self, folder, file)
            try:
                yield upload
            finally:
                self.held -= upload.held
                self.count -= 1
                shutil.rmtree(folder, ignore_errors=True)


async def receive(body: AsyncIterator[bytes], upload: Upload, limits: Limits) -> None:
    """Write a body to an upload; refuse one that comes slower than the least rate."""
    begun = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(begun + limits.grace_s) as watch:
            async for chunk in body:
                upload.write(chunk)
                watch.reschedule(begun + limits.grace_s + upload.size / limits.least_rate)
    except TimeoutError:
        raise RefusedError(408, "the recording came in too slowly", "send it again") from None
    if not upload.size:
        raise RefusedError(422, "there is no recording in the request", "send a file as its body")
