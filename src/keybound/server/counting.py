"""How many public answers that use a key or a record are given, and when each one comes.

Someone who may ask without an end, or sees how long an answer takes, learns from answers what they
do not say (docs/security.md, the oracle). The counts are of this service alone and never stored.
"""

import asyncio
import ipaddress
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from starlette.requests import Request

from keybound.server.limits import Limits, RefusedError

WINDOW_S = 3600.0
LONG_S = 60.0  # of audio: each minute that is begun takes the fixed time once more
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Answered = TypeVar("Answered")


class Count:
    """The public answers of an hour, by address and in total."""

    def __init__(self, limits: Limits) -> None:
        self._by_address, self._total = limits.public_by_address, limits.public_total
        self._given: Counter[str] = Counter()
        self._ends = 0.0

    def spend(self, address: str) -> None:
        """Count an answer; refuse it where those of this hour are spent."""
        now = time.monotonic()
        if now >= self._ends:
            self._given.clear()
            self._ends = now + WINDOW_S
        whose = _whose(address)
        if self._given[whose] >= self._by_address or self._given.total() >= self._total:
            raise spent(math.ceil(self._ends - now))
        self._given[whose] += 1


def spent(retry_s: int) -> RefusedError:
    """Return the refusal of an answer that is one too many."""
    what = "too many answers were given"
    return RefusedError(429, what, "Retry-After says when there are more", retry_s=retry_s)


def address_of(request: Request, proxies: Sequence[Network]) -> str:
    """Return the address that a request comes from.

    Of a request from a proxy that is trusted, it is the last one in X-Forwarded-For that is not a
    trusted proxy itself: what stands before it is the client's own word.
    """
    address = "" if request.client is None else request.client.host
    told = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    while _within(address, proxies) and told:
        further = told.pop().strip()
        if _parsed(further) is None:
            break
        address = further
    return address


async def in_fixed_time(
    step_s: float, work: Awaitable[Answered], length_s: Callable[[Answered], float] = lambda _: 0.0
) -> Answered:
    """Return what some work returns, or raise its refusal, at a time that tells nothing of it.

    That is the next multiple of the fixed time since it began: `step_s` for each minute of audio
    that is begun.
    """
    begun = asyncio.get_running_loop().time()
    try:
        made = await work
    except RefusedError:
        await _rest(begun, step_s)
        raise
    await _rest(begun, step_s * (1 + length_s(made) // LONG_S))
    return made


async def _rest(begun: float, step_s: float) -> None:
    """Wait for the next multiple of a time since some work began."""
    await asyncio.sleep(step_s - (asyncio.get_running_loop().time() - begun) % step_s)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


def _within(address: str, networks: Sequence[Network]) -> bool:
    own = _parsed(address)
    return own is not None and any(own in one for one in networks)


def _whose(address: str) -> str:
    """Return what is counted as one address: of IPv6 the network of 64 bits."""
    own = _parsed(address)
    if isinstance(own, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((own, 64), strict=False))
    return address
