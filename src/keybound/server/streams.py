"""Streams that are marked as they come: the process that marks them, and each one's two ways.

The process is started with the first stream. A stream takes no more data than it has marked, but
for some, so that a fast client does not fill the memory. Knows nothing of audio.
"""

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from keybound.errors import DEBUG
from keybound.server.limits import Limits, RefusedError, busy
from keybound.server.marking import DATA, DROP, END, FAILED, HEAD, OPEN, TAKEN
from keybound.server.pool import START_S, THREADS, kill
from keybound.server.tools import Setup

AHEAD = 32  # frames of a stream that may wait to be marked
FRAME_BYTES = 1 << 16


class Event(NamedTuple):
    """What happened to a stream: it has begun, marked data, it is recorded, or why it is not."""

    kind: bytes
    data: bytes = b""

    @property
    def said(self) -> dict[str, Any]:
        """Return what is said beside the kind."""
        made: dict[str, Any] = json.loads(self.data)
        return made

    def check(self) -> "Event":
        """Return the event; raise the refusal if it is one."""
        if self.kind != FAILED:
            return self
        said = self.said
        if "failed" in said:
            raise RefusedError(500, f"the service failed: {said['failed']}", "please report it")
        raise RefusedError(said.get("status", 422), said["error"], said["hint"])


class Stream:
    """One stream: what is pushed is marked and comes back as events."""

    def __init__(self, process: Process, number: int, limits: Limits) -> None:
        self._process, self._number, self._limits = process, number, limits
        self.room = asyncio.Semaphore(AHEAD)
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self._given_up = False

    async def push(self, data: bytes) -> None:
        """Push data, when there is room for them."""
        for start in range(0, len(data), FRAME_BYTES):
            try:
                async with asyncio.timeout(self._limits.work_s):
                    await self.room.acquire()
            except TimeoutError:
                raise RefusedError(422, "the stream takes too long to mark") from None
            if self._given_up:
                return
            self.send(DATA, data[start : start + FRAME_BYTES])

    def send(self, kind: bytes, data: bytes = b"") -> None:
        """Send a frame of this stream."""
        assert self._process.stdin is not None
        self._process.stdin.write(HEAD.pack(kind, self._number, len(data)) + data)

    def give_up(self) -> None:
        """Let what is pushed from now on go nowhere."""
        self._given_up = True
        self.room.release()

    def end(self) -> None:
        """End the stream: what is marked of it gets its record."""
        self.send(END)

    def fail(self, why: RefusedError) -> None:
        """Drop the stream, which then has no record."""
        self.send(DROP)
        said = {"error": why.message, "hint": why.hint, "status": why.status}
        self.events.put_nowait(Event(FAILED, json.dumps(said).encode()))


class Streams:
    """All streams of a service, and the process that marks them."""

    def __init__(self, limits: Limits, setup: Setup) -> None:
        self._limits, self._setup = limits, setup
        self._open: dict[int, Stream] = {}
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._last = 0

    @property
    def count(self) -> int:
        """Return how many streams are under way."""
        return len(self._open)

    @contextlib.asynccontextmanager
    async def stream(self, asked: dict[str, Any]) -> AsyncIterator[Stream]:
        """Yield a stream; one that has not ended by itself is dropped."""
        if self.count >= self._limits.streams:
            raise busy()
        process = await self._started()
        self._last += 1
        number = self._last
        made = self._open[number] = Stream(process, number, self._limits)
        made.send(OPEN, json.dumps(asked).encode())
        try:
            yield made
        finally:
            del self._open[number]
            if process.returncode is None:
                made.send(DROP)

    async def close(self) -> None:
        """End the process, and with it every stream."""
        if self._process is not None:
            kill(self._process)
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def _started(self) -> Process:
        """Return the process, started where it does not run."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await self._start()
                self._reading = asyncio.ensure_future(self._read(self._process))
            return self._process

    async def _start(self) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "keybound.server.marking"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=None if os.environ.get(DEBUG) else DEVNULL,
            start_new_session=True,
            env=os.environ | THREADS,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                process.stdin.write(json.dumps(self._setup).encode() + b"\n")
                await process.stdout.readexactly(HEAD.size)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            kill(process)
            raise busy() from error
        return process

    async def _read(self, process: Process) -> None:
        """Give each stream what happens to it, until the process ends."""
        assert process.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                kind, number, size = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
                data = await process.stdout.readexactly(size)
                stream = self._open.get(number)
                if stream is not None and kind == TAKEN:
                    stream.room.release()
                elif stream is not None:
                    stream.events.put_nowait(Event(kind, data))
        await process.wait()
        for stream in self._open.values():
            stream.events.put_nowait(Event(FAILED, b'{"failed": "the process that marks ended"}'))
