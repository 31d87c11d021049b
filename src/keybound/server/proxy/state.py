"""What all requests of a proxy share, and the proof at its start that marks are read back."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from keybound import stages
from keybound.errors import KeyBoundError
from keybound.model.detection import FALSE_ALARMS
from keybound.server.limits import Limits, RefusedError
from keybound.server.makers import Maker
from keybound.server.marking import MARKED
from keybound.server.metrics import Metrics
from keybound.server.pool import Pool
from keybound.server.proxy.upstream import Upstream
from keybound.server.spool import Spool, Upload
from keybound.server.streams import Streams
from keybound.server.tools import Setup

LEAST_S = 1.0  # of speech that is marked: below it a mark is easily lost
PCM_HZ = 24_000  # of raw samples, which do not say it


@dataclass
class State:
    """What all requests share. `speech` is a recording in FLAC that is marked at the start."""

    limits: Limits
    upstream: Upstream
    maker: Maker
    speech: Path
    unmarked_ok: bool = False
    pcm_hz: int = PCM_HZ
    model: str | None = None
    place: str | None = None  # of the registry
    metrics: Metrics = field(default_factory=Metrics)
    pool: Pool = field(init=False)
    spool: Spool = field(init=False)
    streams: Streams = field(init=False)

    @contextlib.asynccontextmanager
    async def open(self, _: object = None) -> AsyncIterator[None]:
        """Hold the processes that mark while the proxy runs; each has proved that it can."""
        setup = Setup.within(self.limits, self.model, self.place)
        self.pool, self.streams = Pool(self.limits, setup), Streams(self.limits, setup)
        with stages.scratch() as folder:
            self.spool = Spool(folder, self.limits)
            try:
                await self.pool.start()
                await self._prove()
                yield
            finally:
                await self.pool.close()
                await self.streams.close()

    async def _prove(self) -> None:
        """Mark speech as a file and as a stream, and detect both marks; keep no record."""
        own, speech = self.maker.without_records().plain(), self.speech.read_bytes()
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            with self.spool.upload() as file, self.spool.upload() as made:
                file.write(speech)
                said = await self.pool.ask("embed", file, gone, maker=own, least_s=LEAST_S)
                async with self.streams.stream({"maker": own, "least_s": LEAST_S}) as stream:
                    await stream.push(speech)
                    stream.end()
                    (await stream.events.get()).check()
                    while (event := await stream.events.get()).kind == MARKED:
                        made.write(event.data)
                    event.check()
                shutil.copyfile(said["output"], file.path)
                for one in (file, made):
                    await self._detect(one, gone)
        except RefusedError as error:
            what = f"speech that was marked at the start is not read back: {error.message}"
            raise KeyBoundError(what, hint=error.hint) from error
        finally:
            gone.cancel()

    async def _detect(self, file: Upload, gone: asyncio.Future[None]) -> None:
        said = await self.pool.ask("detect", file, gone, false_alarms=FALSE_ALARMS)
        if not any(one["present"] for one in said["tracks"]):
            raise RefusedError(422, "no mark is found")
