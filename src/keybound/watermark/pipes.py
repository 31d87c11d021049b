"""Pipes: mark a recording as it comes, and read the mark back from what has gone out.

However long the recording is, some seconds of it are in memory, what was read back in the last
minutes, and its fingerprint. What has gone out cannot be taken back: a mark that cannot be read is
an error at the end, not an output that does not appear.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from keybound.audio.arrays import Samples, blocks
from keybound.audio.pipes import Input, Output
from keybound.errors import AudioError
from keybound.provenance.fingerprint import Taker
from keybound.types import Analysis, Floats
from keybound.watermark import files
from keybound.watermark.channels import ChannelFeeder
from keybound.watermark.files import Written
from keybound.watermark.options import SHORTEST_S, EmbedOptions, too_short, why_unreadable
from keybound.watermark.stream import StreamDetector
from keybound.watermark.verdict import Verdict
from keybound.watermark.watermarker import BLOCK_S, Watermarker

# The mark is read back in stretches of this length: whole periods of identifiers.
STRETCH_S = 640.0
LEAST_S = 10.0  # of a last stretch, to be judged by itself
PIECE_S = 1.0  # that is sent at once
Unread = Callable[[float, float, str], None]  # from, to, why


class Passing:
    """A recording that is marked on its way from one pipe to another: `run`, then `finished`.

    With `check` the mark is read back. `unread` is told of each stretch of some minutes in which it
    cannot be read; it is an error, raised when all has gone out, if that is so of every stretch.
    `finished` describes what has gone out, also when `run` was stopped.
    """

    def __init__(
        self,
        marker: Watermarker,
        source: Input,
        sink: Output,
        options: EmbedOptions,
        *,
        rho: int | None = None,
        check: bool = True,
        unread: Unread = lambda *_: None,
    ) -> None:
        rate = source.sample_rate
        if source.frames:
            options = options.within(source.frames / rate)
        self._source, self._sink, self._channels = source, sink, source.channels
        self._embedder = marker.embedder(rate, options, channels=source.channels)
        own = replace(options, position=self._embedder.position)
        self._readback = _ReadBack(marker, source, own, rho, unread) if check else None
        self._levels = ChannelFeeder(rate, source.channels, levels=True, passing=True)
        self._fingerprint = Taker()
        self._waiting: list[Samples] = []  # what has gone out and was not looked at
        self._looking = self._ended = False
        self._energy, self._rate = 0.0, rate

    def run(self) -> None:
        """Mark what comes to its end; raise an error if the mark cannot be read back."""
        for block in self._source.blocks(round(BLOCK_S * self._rate)):
            self._energy += float(np.sum(np.square(block)))
            self._send(self._embedder.push(block))
        self._send(self._embedder.flush())
        self._sink.close()
        self._look(end=True)
        if self._readback is not None:
            self._readback.finish()
        self._source.check_end()
        if self._seconds < SHORTEST_S:
            raise too_short(self._seconds)
        best = None if self._readback is None else self._readback.best
        if best is not None and not best.rule_holds:
            why = why_unreadable(self._power, self._seconds)
            hint = "what was written has no mark that can be read"
            raise AudioError(f"standard input does not hold a mark: {why}", hint=hint)

    @property
    def whole(self) -> bool:
        """Return whether all has gone out."""
        return self._ended

    def finished(self) -> Written:
        """Return what has gone out; where that was stopped, about a second more may be counted.

        Then there is no hash, because nobody knows which bytes were the last.
        """
        whole = self.whole
        if not (self._ended or self._looking):  # in the middle of a look nothing can be added
            self._look(end=True)
        return Written(
            self._seconds,
            self._power,
            self._sink.clipped,
            self._embedder.position,
            self._sink.frames,
            self._rate,
            self._sink.sha256 if whole else "",
            self._fingerprint.finish(),
            verdict=None if self._readback is None else self._readback.best,
        )

    @property
    def _seconds(self) -> float:
        return self._sink.frames / self._rate

    @property
    def _power(self) -> float:
        return self._energy / max(1, self._sink.frames * self._channels)

    def _send(self, marked: Samples) -> None:
        shaped = marked.reshape(-1, self._channels)
        for piece in blocks(shaped, round(PIECE_S * self._rate)):
            self._waiting.append(self._sink.encode(piece))
            self._sink.send()
        if sum(map(len, self._waiting)) >= PIECE_S * self._rate:
            self._look(end=False)

    def _look(self, *, end: bool) -> None:
        """Take what has gone out into the fingerprint, and read the mark back from it."""
        self._looking = True
        silence = np.zeros((0, self._channels), np.float32)
        block = np.concatenate([silence, *self._waiting]).astype(np.float32, copy=False)
        self._waiting = []
        self._levels.push(block, end=end)
        self._fingerprint.push(self._levels.passed())
        if self._readback is not None:
            self._readback.push(block)
        self._looking, self._ended = False, end


class _ReadBack:
    """Reads a mark back in stretches, each by itself; `best` is the first verdict that holds."""

    def __init__(
        self,
        marker: Watermarker,
        source: Input,
        options: EmbedOptions,
        rho: int | None,
        unread: Unread,
    ) -> None:
        self._marker, self._options, self._rho, self._unread = marker, options, rho, unread
        self._rate, self._channels = source.sample_rate, source.channels
        self._most = round(STRETCH_S * self._rate)  # frames of a stretch
        self._begun, self._taken = 0, 0  # frames before the stretch, and in it
        self._energy = 0.0
        self._detector = self._new()
        self.best: Verdict | None = None

    def _new(self) -> StreamDetector:
        """Return a detector of the next stretch. The seal is searched where it begins."""
        levels = not self._begun
        return self._marker.detector(self._rate, channels=self._channels, levels=levels)

    def push(self, samples: Floats) -> None:
        """Read (frames, channels) that have gone out."""
        while len(samples):
            if self._taken == self._most:
                self._judge()
                self._begun, self._taken, self._energy = self._begun + self._most, 0, 0.0
                self._detector = self._new()
            part, samples = np.split(samples, [self._most - self._taken])
            self._detector.push(part)
            self._taken += len(part)
            self._energy += float(np.sum(np.square(part)))

    def finish(self) -> None:
        """Judge the last stretch, unless it is a short one behind others."""
        if self._taken >= (LEAST_S if self._begun else SHORTEST_S) * self._rate:
            self._judge(tell=bool(self._begun))  # of the only one, the error says it

    def _judge(self, *, tell: bool = True) -> None:
        self._detector.flush()
        position = self._options.position
        if self._begun or position is None:
            found = Analysis(self._detector.detection(), {})
            position = None
        else:
            found = self._detector.analysis()
        verdict = files.read_back(self._marker, found, self._options, position, self._rho)
        if self.best is None or (verdict.rule_holds and not self.best.rule_holds):
            self.best = verdict
        if tell and not verdict.rule_holds:
            power, seconds = self._energy / (self._taken * self._channels), self._taken / self._rate
            begun_s = self._begun / self._rate
            self._unread(begun_s, begun_s + seconds, why_unreadable(power, seconds))
