"""The registry that a service is started with: opened once, and used from one thread of its own.

What is asked here needs no key: tokens, counts, records. Keys are read in the worker processes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from keybound.errors import KeyBoundError
from keybound.provenance.registry import Registry
from keybound.server.limits import RefusedError

Answered = TypeVar("Answered")


class Registered:
    """An open registry, for a service that does not wait for a database."""

    def __init__(self, place: str) -> None:
        self.place = place
        # The connection of SQLite belongs to the thread that opened it.
        self._thread = ThreadPoolExecutor(1, "registry")
        self._open: Registry | None = None

    async def ask(self, question: Callable[[Registry], Answered]) -> Answered:
        """Return what a function of the registry returns; refuse where it cannot be used."""
        try:
            return await self._call(question)
        except KeyBoundError as error:  # its message may name the registry's place
            what = "the registry cannot be used now"
            raise RefusedError(503, what, "try again in some seconds", retry_s=5) from error

    async def open(self) -> None:
        """Open the registry; raise an error where it cannot be opened."""
        await self._call(lambda _: None)

    async def close(self) -> None:
        """Close the registry."""
        if self._open is not None:
            await asyncio.wrap_future(self._thread.submit(self._open.close))
        self._thread.shutdown()

    async def _call(self, question: Callable[[Registry], Answered]) -> Answered:
        return await asyncio.wrap_future(self._thread.submit(self._answer, question))

    def _answer(self, question: Callable[[Registry], Answered]) -> Answered:
        if self._open is None:
            self._open = Registry(self.place)
        return question(self._open)
