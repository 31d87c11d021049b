"""A service that runs in a thread, and plain HTTP to it."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from keybound.server import run
from keybound.server.app import make
from keybound.server.limits import Limits

# Small enough that tests reach them, large enough for a busy machine.
LIMITS = Limits(workers=2, queue=8, body_bytes=8 << 20, longest_s=600.0, work_s=20.0, grace_s=3.0)


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Service:
    """A service that runs: where it listens and what its requests share."""

    port: int
    state: Any

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: Any = None, kind: str = "application/octet-stream"
    ) -> Answer:
        """Send a request and return its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Content-Type": kind})
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())

    def detect(self, recording: Path) -> Answer:
        return self.ask("POST", "/detect", recording.read_bytes())

    def fetch(self, link: str) -> Answer:
        return self.ask("POST", "/detect", json.dumps({"url": link}), "application/json")

    def idle(self) -> bool:
        """Return whether nothing is under way and nothing is left of what was."""
        spool, pool = self.state.spool, self.state.pool
        nothing = not (spool.held or spool.count or pool.waiting or pool.busy)
        return nothing and not [one for one in spool.root.iterdir() if one.is_dir()]

    def settles(self, within_s: float = 10.0) -> bool:
        """Return whether the service is idle before long, with all its workers."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            if self.idle() and self.state.pool.alive == self.state.limits.workers:
                return True
            time.sleep(0.02)
        return False


def of_unknown_length(flac: bytes) -> bytes:
    """Return a FLAC whose header does not say its length, as one that was written to a pipe."""
    return flac[:21] + bytes([flac[21] & 0xF0, 0, 0, 0, 0]) + flac[26:]


@contextlib.contextmanager
def serving(state: Any, make: Callable[[Any], Any] = make) -> Iterator[Service]:
    """Run a service in a thread."""
    with run.listen("127.0.0.1", 0) as listening:
        server = run.server(make(state))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.02)
        try:
            assert server.started
            yield Service(listening.getsockname()[1], state)
        finally:
            server.should_exit = True
            thread.join()
