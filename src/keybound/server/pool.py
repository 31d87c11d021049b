"""The worker processes: each recording goes to one that is free, some wait, the rest is refused.

A worker that takes too long or dies is replaced. Knows nothing of audio and little of HTTP.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from typing import Any

from keybound.errors import DEBUG, KeyBoundError
from keybound.server.limits import Limits, RefusedError, busy
from keybound.server.spool import Upload
from keybound.server.tools import Setup

START_S = 60.0
LINE_BYTES = 4 << 20  # of an answer; thirty minutes of spans take a tenth of it
# One thread each: several workers that each use all cores wait for each other.
THREADS = dict.fromkeys(("KEYBOUND_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Pool:
    """Worker processes. `waiting` counts the recordings that wait for one, `busy` those at work."""

    def __init__(self, limits: Limits, setup: Setup) -> None:
        self.limits, self._setup = limits, setup
        self._free: asyncio.Queue[Process] = asyncio.Queue()
        self._all: set[Process] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._closed = False
        self.waiting = self.busy = self.replaced = 0
        self.weights = ""

    @property
    def alive(self) -> int:
        """Return how many workers run."""
        return sum(one.returncode is None for one in self._all)

    @property
    def full(self) -> bool:
        """Return whether no more recordings may wait."""
        return self.waiting >= self.limits.queue

    async def start(self) -> None:
        """Start all workers; raise an error where one cannot start."""
        await asyncio.gather(*(self._start() for _ in range(self.limits.workers)))

    async def close(self) -> None:
        """End all workers."""
        self._closed = True
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        for one in self._all:
            kill(one)
            await one.wait()

    async def ask(
        self, do: str, file: Upload, gone: asyncio.Future[None], **options: Any
    ) -> dict[str, Any]:
        """Return what a job on a file gives as plain values, when a worker was free for it.

        What still waits when `gone` is done is given up.
        """
        job = json.dumps({"do": do, "path": str(file.path), **options}).encode() + b"\n"
        async with self._worker(gone) as worker:
            said = await self._ask(worker, job)
        if "error" in said:
            raise RefusedError(422, said["error"], said["hint"])
        if "failed" in said:
            raise RefusedError(500, f"the service failed: {said['failed']}", "please report it")
        return said

    @contextlib.asynccontextmanager
    async def _worker(self, gone: asyncio.Future[Any]) -> AsyncIterator[Process]:
        """Yield a free worker, and take it back if it still runs."""
        if self.full:
            raise busy()
        self.waiting += 1
        free = asyncio.ensure_future(self._free.get())
        try:
            await asyncio.wait({free, gone}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            if free.done():
                self._free.put_nowait(free.result())
            free.cancel()
            raise
        finally:
            self.waiting -= 1
        if not free.done():
            free.cancel()
            raise RefusedError(499, "the client has gone")
        worker = free.result()
        self.busy += 1
        try:
            yield worker
        except BaseException:  # it may still be at work
            self._replace(worker)
            raise
        else:
            self._free.put_nowait(worker)
        finally:
            self.busy -= 1

    async def _ask(self, worker: Process, job: bytes) -> dict[str, Any]:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            async with asyncio.timeout(self.limits.work_s):
                worker.stdin.write(job)
                line = await worker.stdout.readline()
            said: dict[str, Any] = json.loads(line)
        except TimeoutError:
            what = f"the recording takes longer than {self.limits.work_s:g} s to read"
            raise RefusedError(422, what, "cut it into shorter recordings") from None
        except (OSError, ValueError) as error:  # it died over this recording
            raise RefusedError(422, "the recording cannot be read", "is it damaged?") from error
        return said

    def _replace(self, worker: Process) -> None:
        """End a worker with all it has started, and start another."""
        kill(worker)
        self._all.discard(worker)
        if not self._closed:
            self.replaced += 1
            task = asyncio.ensure_future(self._restart(worker))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _restart(self, old: Process) -> None:
        await old.wait()
        while True:
            with contextlib.suppress(KeyBoundError, OSError):
                return await self._start()
            await asyncio.sleep(1)

    async def _start(self) -> None:
        command = (sys.executable, "-m", "keybound.server.worker")
        noise = None if os.environ.get(DEBUG) else DEVNULL
        # A session of its own: what a worker starts ends with it, and Ctrl-C is the server's.
        worker = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=noise,
            limit=LINE_BYTES,
            start_new_session=True,
            env=os.environ | THREADS,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                worker.stdin.write(json.dumps(self._setup).encode() + b"\n")
                self.weights = json.loads(await worker.stdout.readline())["ready"]
        except BaseException as error:
            kill(worker)
            if isinstance(error, ValueError | TimeoutError):
                hint = f"{DEBUG}=1 shows why"
                raise KeyBoundError("a detection worker cannot start", hint=hint) from error
            raise
        self._all.add(worker)
        self._free.put_nowait(worker)


def kill(worker: Process) -> None:
    """End a process with all it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
