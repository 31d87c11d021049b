"""Feed a network block by block as sound comes in. Knows arrays only: no files, keys or weights.

A network sees a finite stretch around each block of samples. Fed with whole blocks and that much
context on either side it gives what it gives for the whole recording, however the sound was cut.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from keybound.types import Floats

Run = Callable[[Floats, slice], Floats]

CHUNK_BLOCKS = 750  # of 20 ms: a quarter of a minute keeps memory small and the cores busy
STEP = 2.0**-15  # of 16 bits


class Feeder:
    """Push mono samples, get what a network makes of the blocks whose context is complete.

    `run` takes a stretch of whole blocks and says what it gives for some of them, first axis in
    time. `context` counts the blocks before and after a block that can change what comes of it.
    """

    def __init__(self, run: Run, hop: int, context: tuple[int, int]) -> None:
        self._run, self._hop = run, hop
        self._left, self._right = context
        self._held: Floats = np.zeros(0, np.float32)
        self._first = 0  # the block with which `_held` begins
        self._next = 0  # the block that is due

    def push(self, samples: Floats) -> list[Floats]:
        """Push samples and return the outputs that they complete."""
        self._held = np.concatenate([self._held, samples], dtype=np.float32)
        there = self._first + len(self._held) // self._hop
        return self._advance(there, there - self._right)

    def flush(self, last: Floats | None = None) -> list[Floats]:
        """Return the remaining outputs: the stream ends with these samples, if any.

        A network that gets the last samples here runs once over them, and not again for the end.
        """
        if last is not None:
            self._held = np.concatenate([self._held, last], dtype=np.float32)
        there = self._first + -(-len(self._held) // self._hop)
        return self._advance(there, there)

    def copy(self) -> Self:
        """Return a feeder that goes on from here by itself: for a `run` that remembers nothing."""
        return copy.copy(self)  # `_held` is replaced and never written to

    def _advance(self, there: int, ready: int) -> list[Floats]:
        """Run the blocks that are due and `ready`, with the context that is `there`."""
        made = []
        while self._next < ready:
            stop = min(ready, self._next + CHUNK_BLOCKS)
            first, last = max(0, self._next - self._left), min(there, stop + self._right)
            begin, size = (first - self._first) * self._hop, (last - first) * self._hop
            piece = self._held[begin : begin + size]
            piece = np.pad(piece, (0, size - len(piece)))
            made.append(self._run(piece, slice(self._next - first, stop - first)))
            self._next = stop
        keep = max(0, self._next - self._left)
        self._held = self._held[(keep - self._first) * self._hop :]
        self._first = keep
        return made


class Rows:
    """Rows of numbers that grow without ever being there twice."""

    def __init__(self, width: int, dtype: type[np.floating[Any]]) -> None:
        self.width, self._dtype = width, np.dtype(dtype)
        self._data = bytearray()

    def add(self, rows: npt.NDArray[Any]) -> None:
        """Put rows (rows, width) behind those that are there."""
        self._data += rows.astype(self._dtype, copy=False).tobytes()

    def __len__(self) -> int:
        return len(self._data) // (self.width * self._dtype.itemsize)

    def equals(self, other: "Rows") -> bool:
        """Return whether both hold the same numbers, bit by bit."""
        return self._data == other._data

    def copy(self, dtype: type[np.floating[Any]]) -> "Rows":
        """Return rows of their own with what is there so far, as numbers of some type."""
        made = Rows(self.width, dtype)
        made.add(self.all(last=False))
        return made

    def all(self, *, last: bool) -> npt.NDArray[Any]:
        """Return all rows; after `last` none can be added."""
        if not self._data:
            return np.zeros((0, self.width), self._dtype)
        data = self._data if last else bytes(self._data)
        return np.frombuffer(data, self._dtype).reshape(-1, self.width)


class Sum:
    """Push mono samples to several feeders that each give samples, and get what they give in all.

    They may look ahead to different ends: what one gives early waits for the others.
    """

    def __init__(self, feeders: Sequence[Feeder]) -> None:
        self._feeders = feeders
        self._early: list[Floats] = [np.zeros(0, np.float32) for _ in feeders]

    def push(self, samples: Floats) -> Floats:
        """Push samples and return the sum of what all feeders have completed."""
        return self._add([one.push(samples) for one in self._feeders])

    def flush(self, last: Floats | None = None) -> Floats:
        """Return the remaining outputs: the stream ends with these samples, if any."""
        return self._add([one.flush(last) for one in self._feeders])

    def _add(self, made: list[list[Floats]]) -> Floats:
        there = [np.concatenate([e, *m]) for e, m in zip(self._early, made, strict=True)]
        count = min(map(len, there))
        self._early = [one[count:] for one in there]
        total: Floats = there[0][:count]  # a copy of what came
        for one in there[1:]:
            total += one[:count]
        return total


def still(samples: Floats, hop: int, past: int, future: int) -> npt.NDArray[np.bool_]:
    """Return which blocks of `hop` are silent, and those before and after them too.

    A block without sound spans a step of 16 bits at most. What lies outside has none either.
    """
    sound = np.ptp(samples.reshape(-1, hop), axis=1) > STEP
    before = np.concatenate([[0], np.cumsum(sound)])
    at = np.arange(len(sound))
    first, last = np.maximum(at - past, 0), np.minimum(at + future + 1, len(sound))
    quiet: npt.NDArray[np.bool_] = before[last] == before[first]
    return quiet
