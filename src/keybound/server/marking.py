"""A process that marks streams as they come, many at once, each in a thread of its own.

Frames go both ways, each with the number of its stream (`streams`). A stream whose input does not
end, because its client or the server has gone, has no record; its position and serial stay void.
Knows no HTTP.
"""

import contextlib
import io
import json
import math
import os
import queue
import resource
import struct
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from keybound.audio.arrays import Samples
from keybound.audio.pipes import Input, opened
from keybound.audio.pipes.wav import WavInput
from keybound.errors import AudioError, KeyBoundError, explain
from keybound.provenance.registry import Registry
from keybound.server.jobs import INTERNAL, check_length
from keybound.server.makers import Given, Maker
from keybound.server.tools import Setup
from keybound.server.worker import limit
from keybound.watermark.pipes import Passing
from keybound.watermark.watermarker import Watermarker

AT_ONCE_BYTES = 1 << 20  # that are marked together, where as many have come
HEAD = struct.Struct(">cII")  # the kind of a frame, the number of its stream, the bytes that follow
# To the process: a stream with what was asked of it, its data, its end, or that it is dropped.
OPEN, DATA, END, DROP = b"O", b"D", b"E", b"X"
# And back: data were taken; it has begun; marked data; it is recorded; or why it is not.
TAKEN, BEGUN, MARKED, RECORDED, FAILED = b"T", b"B", b"M", b"R", b"F"


class DroppedError(Exception):
    """The client has gone, or came too slowly."""


class Said:
    """What goes back to the server: one frame at a time, from all threads."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def __call__(self, kind: bytes, number: int, data: bytes = b"") -> None:
        """Send a frame."""
        with self._lock:
            self._stream.write(HEAD.pack(kind, number, len(data)) + data)
            self._stream.flush()


class Incoming(io.RawIOBase):
    """The input of a stream, as a file to read."""

    def __init__(self, said: Said, number: int) -> None:
        self._said, self._number = said, number
        self._came: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._rest, self._ended, self._dropped = b"", False, False

    def put(self, data: bytes) -> None:
        """Add data; without a byte they end."""
        self._came.put(data)

    def drop(self) -> None:
        """Let whoever reads stop."""
        self._dropped = True
        self._came.put(None)

    def readable(self) -> bool:
        """Return that this is read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read all that has come, and wait for it: large blocks take less time in all."""
        while not self._ended and len(self._rest) < len(buffer):
            if self._rest and self._came.empty():
                break
            came = self._came.get()
            if came is None or self._dropped:
                raise DroppedError
            self._rest, self._ended = self._rest + came, not came
            self._said(TAKEN, self._number)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


class Outgoing(io.RawIOBase):
    """The output of a stream, as a file to write."""

    def __init__(self, said: Said, number: int) -> None:
        self._said, self._number = said, number

    def writable(self) -> bool:
        """Return that this is written."""
        return True

    def write(self, data: Any) -> int:
        """Send marked data."""
        self._said(MARKED, self._number, bytes(data))
        return len(data)


class Within:
    """A recording that is refused when it becomes longer than it may be, or ends before it may.

    The least of it has come when it is made.
    """

    def __init__(self, source: Input, longest_s: float, least_s: float) -> None:
        self._source, self._longest_s = source, longest_s
        self.sample_rate, self.channels, self.frames = (
            source.sample_rate,
            source.channels,
            source.frames,
        )
        self._check(self.frames)
        self.check_end, self.output = source.check_end, source.output
        self._first: list[Samples] = []
        self._more: Iterator[Samples] | None = None
        if least_s:
            self._wait(least_s)

    def _wait(self, least_s: float) -> None:
        """Take what comes until there is enough."""
        seconds = 0.0
        self._more = self._source.blocks(round(self.sample_rate * least_s))
        for block in self._more:
            self._first.append(block)
            seconds += len(block) / self.sample_rate
            if seconds >= least_s:
                return
        check_length(seconds, least_s)

    def blocks(self, most: int) -> Iterator[Samples]:
        """Yield (frames, channels) as they come, at most so many at a time."""
        done = 0
        for block in self._all(most):
            done += len(block)
            self._check(done)
            yield block

    def _all(self, most: int) -> Iterator[Samples]:
        yield from self._first
        self._first = []
        yield from self._source.blocks(most) if self._more is None else self._more

    def _check(self, frames: int) -> None:
        if frames > self._longest_s * self.sample_rate:
            what = f"the stream is longer than {self._longest_s:g} s"
            raise AudioError(what, hint="begin another one")


class Marking:
    """The streams that are marked here."""

    def __init__(self, setup: Setup, said: Said) -> None:
        self._setup, self._said = setup, said
        self._marker = Watermarker(setup.model)
        silence = np.zeros(16_000, np.float32)
        self._marker.detect(silence, 16_000)  # loads the networks, before the first one waits
        self._open: dict[int, Incoming] = {}

    def take(self, kind: bytes, number: int, data: bytes) -> None:
        """Take a frame."""
        if kind == OPEN:
            self._open[number] = Incoming(self._said, number)
            asked = json.loads(data)
            threading.Thread(target=self._run, args=(number, asked), daemon=True).start()
        elif number in self._open:  # else it has failed meanwhile
            if kind == DROP:
                self._open.pop(number).drop()
            else:
                self._open[number].put(data)

    def _run(self, number: int, asked: dict[str, Any]) -> None:
        """Mark a stream to its end and say how it ended."""
        incoming = self._open[number]
        try:
            said = self._mark(number, incoming, **asked)
            self._said(RECORDED, number, json.dumps(said).encode())
        except DroppedError:
            self._said(FAILED, number, json.dumps({"error": "dropped", "hint": None}).encode())
        except Exception as error:
            self._said(FAILED, number, json.dumps(_why(error)).encode())
        finally:
            self._open.pop(number, None)

    def _mark(
        self,
        number: int,
        incoming: Incoming,
        maker: dict[str, Any],
        short: bool = False,
        least_s: float = 0.0,
        unread_ok: bool = False,
    ) -> dict[str, Any]:
        marker, setup = self._marker, self._setup
        source = opened(io.BufferedReader(incoming, AT_ONCE_BYTES))
        within = Within(source, setup.longest_s, least_s)
        length_s = source.frames / source.sample_rate if source.frames else math.inf
        with contextlib.ExitStack() as opening:
            known = None
            if setup.place is not None:  # a connection belongs to its thread
                known = opening.enter_context(Registry(setup.place))
            given = Maker(**maker).give(known, marker.card.bits, length_s, short=short)
            self._said(BEGUN, number, json.dumps(_begun(given, source)).encode())
            sink = source.output(io.BufferedWriter(Outgoing(self._said, number)))
            passing = Passing(marker, within, sink, given.reserved.options, rho=given.whose.rho)
            try:
                passing.run()
            except AudioError:
                if not (unread_ok and passing.whole):
                    raise
                return {"record": None, "read": False}
            record = None
            if given.known is not None:
                made = given.reserved.stamped(marker.card, passing.finished())
                record = given.known.append(made)
            return {"record": record, "read": True}


def _begun(given: Given, source: Input) -> dict[str, str | None]:
    kind = "audio/wav" if isinstance(source, WavInput) else "audio/flac"
    return {"kind": kind, "identifier": given.identifier}


def _why(error: Exception) -> dict[str, str | None]:
    """Return why a stream is not marked, as far as that is its client's business."""
    if isinstance(error, INTERNAL) or not isinstance(error, KeyBoundError):
        return {"failed": type(error).__name__}
    message, hint = explain(error)
    return {"error": message.replace("standard input", "the stream"), "hint": hint}


def main() -> None:
    """Mark streams until standard input ends."""
    frames = sys.stdin.buffer
    setup = Setup.parse(frames.readline())
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    warnings.simplefilter("ignore")  # which may name key files
    marking = Marking(setup, said := Said(answers))
    limit(resource.RLIMIT_DATA, setup.worker_bytes)
    limit(resource.RLIMIT_CORE, 0)
    said(BEGUN, 0)
    while len(head := frames.read(HEAD.size)) == HEAD.size:
        kind, number, size = HEAD.unpack(head)
        marking.take(kind, number, frames.read(size))
    os._exit(0)  # threads that wait for data do not hold it up


if __name__ == "__main__":
    main()
