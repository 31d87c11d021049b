"""What all requests of a service share: its limits, workers, uploads, counts and registry."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.requests import Request

from keybound import stages
from keybound.server import links
from keybound.server.counting import Count, Network, address_of
from keybound.server.limits import Limits, RefusedError
from keybound.server.metrics import Metrics
from keybound.server.pool import Pool
from keybound.server.registered import Registered
from keybound.server.spool import Spool
from keybound.server.streams import Streams
from keybound.server.tools import Setup
from keybound.watermark.signing import Credentials


@dataclass
class State:
    """What all requests share. Without a registry the service is the public detector alone."""

    limits: Limits
    model: str | None = None
    fetches: bool = True  # links
    allowed: frozenset[tuple[str, int]] = links.NONE  # addresses for links in tests
    place: str | None = None  # of the registry
    signer: str | None = None  # file of the key that signs verdicts
    signs: Credentials | None = None  # what marked files are signed with, where it is asked for
    trusted: str | None = None  # certificates as PEM, under which signers of manifests are trusted
    proxies: tuple[Network, ...] = ()  # whose X-Forwarded-For is believed
    metrics: Metrics = field(default_factory=Metrics)
    count: Count = field(init=False)
    pool: Pool = field(init=False)
    spool: Spool = field(init=False)
    streams: Streams = field(init=False)
    _registry: Registered | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.count = Count(self.limits)
        if self.place is not None:
            self._registry = Registered(self.place)
            setup = Setup.within(self.limits, self.model, self.place)
            self.streams = Streams(self.limits, setup)

    @property
    def registry(self) -> Registered:
        """Return the registry; refuse where the service has none."""
        if self._registry is None:
            raise RefusedError(404, "this service has no registry")
        return self._registry

    def count_public(self, request: Request) -> None:
        """Count a public answer that uses a key or a record; refuse one too many."""
        self.count.spend(address_of(request, self.proxies))

    @contextlib.asynccontextmanager
    async def open(self, _: object = None) -> AsyncIterator[None]:
        """Hold the registry, the workers and the folder of uploads while the service runs."""
        setup = Setup.within(self.limits, self.model, self.place)
        setup = setup._replace(signer=self.signer, signs=self.signs, trusted=self.trusted)
        self.pool = Pool(self.limits, setup)
        with stages.scratch() as folder:
            self.spool = Spool(folder, self.limits)
            try:
                if self._registry is not None:
                    await self._registry.open()
                await self.pool.start()
                yield
            finally:
                await self.pool.close()
                if self._registry is not None:
                    await self.streams.close()
                    await self._registry.close()
