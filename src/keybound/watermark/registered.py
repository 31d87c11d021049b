"""A registry that marks and identifies: parties, records, audio and networks together.

What is marked here has a record, is found again by it, and needs no command line.
"""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.audio import arrays
from keybound.model.detection import FALSE_ALARMS
from keybound.provenance import fingerprint, registry
from keybound.provenance.declared import NOTHING, Declared
from keybound.types import Analysis
from keybound.watermark import identification
from keybound.watermark.candidates import Known
from keybound.watermark.channels import ChannelFeeder
from keybound.watermark.claims import Options, party_claim
from keybound.watermark.files import Written
from keybound.watermark.identification import Identified
from keybound.watermark.options import (
    EXCERPT_S,
    SHORTEST_S,
    Marked,
    check_excerpt,
    too_short,
    why_unreadable,
)
from keybound.watermark.reservation import FOUND_S, LEAST_S, Reservation, reserve
from keybound.watermark.stream import as_given
from keybound.watermark.watermarker import BLOCK_S, MarkWarning, Watermarker


class RecordedStream:
    """A stream that is marked for a party: `push`, then `flush`, which adds its record.

    `record` is the number of the record, None before the stream has ended; `identifier` is the
    serial that it spells, as ten hex digits, None where it was declared short. A stream that is not
    flushed, or has no samples, has no record, and its position is void.
    """

    def __init__(
        self,
        known: registry.Registry,
        marker: Watermarker,
        sample_rate: int,
        reserved: Reservation,
        channels: int,
    ) -> None:
        self._known, self._card, self._reserved = known, marker.card, reserved
        self._embedder = marker.embedder(sample_rate, reserved.options, channels=channels)
        self._levels = ChannelFeeder(sample_rate, channels, levels=True, passing=True)
        self._fingerprint = fingerprint.Taker()
        self._given = 0
        self.record: int | None = None
        self.position = reserved.options.position
        self.identifier = None if reserved.issued is None else reserved.issued.name

    @property
    def latency_s(self) -> float:
        """Return the time between what goes in and what comes out."""
        return self._embedder.latency_s

    def push(self, samples: npt.ArrayLike) -> npt.NDArray[Any]:
        """Push samples and return those that are marked by now."""
        return self._kept(self._embedder.push(samples), end=False)

    def flush(self, last: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """Return the remaining marked samples and add the record of all, if there are any."""
        rest = self._kept(self._embedder.flush(last), end=True)
        if not self._given:
            return rest
        seconds = self._given / self._embedder.sample_rate
        written = Written(
            seconds,
            0.0,
            0,
            self.position,
            self._given,
            self._embedder.sample_rate,
            fingerprint=self._fingerprint.finish(),
        )
        self.record = self._known.append(self._reserved.stamped(self._card, written))
        return rest

    def _kept(self, marked: npt.NDArray[Any], *, end: bool) -> npt.NDArray[Any]:
        """Take marked samples into the fingerprint."""
        channels = self._embedder.channels
        block = np.zeros((0, channels), np.float32)
        if len(marked):
            checked = arrays.check(marked, self._embedder.sample_rate)
            block = checked.astype(np.float32, copy=False)
        self._given += len(block)
        self._levels.push(block, end=end)
        self._fingerprint.push(self._levels.passed())
        return marked


class Registry(registry.Registry):
    """An open registry; a context manager that closes it.

    `marker` is the `Watermarker` that marks and reads, by default with the shipped weights.
    """

    marker: Watermarker | None = None

    def embedder(
        self,
        sample_rate: int,
        *,
        party: str,
        channels: int = 1,
        short: bool = False,
        public: bool = False,
        excerpt: float = EXCERPT_S,
        declared: Declared = NOTHING,
    ) -> RecordedStream:
        """Return an embedder of a stream for a party, which adds a record when it ends.

        The stream carries an identifier from its first second, unless it is declared `short`: under
        5 s, too short to spell one. Samples are those of `embed` under the same declaration. Anyone
        can read a `public` identifier, and write one.
        """
        marker = self._marker
        whose = party_claim(self.get(party), marker.card.bits)
        reserved = reserve(
            self, whose, short=short, public=public, excerpt=excerpt, declared=declared
        )
        return RecordedStream(self, marker, sample_rate, reserved, channels)

    def embed(
        self,
        samples: npt.ArrayLike,
        sample_rate: int,
        *,
        party: str,
        public: bool = False,
        excerpt: float = EXCERPT_S,
        declared: Declared = NOTHING,
        check: bool = True,
    ) -> Marked:
        """Return the samples with a mark of a party, and add their record.

        From 5 s on they carry an identifier. With `check` a mark that cannot be read back raises a
        `MarkWarning`.
        """
        host = arrays.check(samples, sample_rate)  # (frames, channels)
        seconds = len(host) / sample_rate
        if seconds < SHORTEST_S:
            raise too_short(seconds)
        marker = self._marker
        reserved = reserve(
            self,
            party_claim(self.get(party), marker.card.bits),
            short=seconds < LEAST_S,
            found=seconds >= FOUND_S,
            public=public,
            excerpt=min(check_excerpt(excerpt), seconds),
            declared=declared,
        )
        stream = RecordedStream(self, marker, sample_rate, reserved, host.shape[1])
        *blocks, last = arrays.blocks(host, round(BLOCK_S * sample_rate))
        parts = [*map(stream.push, blocks), stream.flush(last)]
        given = np.asarray(samples)
        marked = as_given(np.concatenate(parts), given.dtype, given.ndim)
        if check and not self._marker._reads(marked, sample_rate, stream._reserved.options):
            why = why_unreadable(float(np.mean(np.square(host))), seconds)
            warnings.warn(f"the mark cannot be read back: {why}", MarkWarning, stacklevel=2)
        return Marked(marked, stream.position, stream.identifier, stream.record)

    def identify(
        self,
        samples: npt.ArrayLike,
        sample_rate: int,
        *,
        false_alarms: float = FALSE_ALARMS,
        speed: float = 0.0,
    ) -> list[Identified]:
        """Return which recording it is and whose, for each mark, the best evidence first.

        `false_alarms` and `speed` are those of `detect`.
        """
        marker = self._marker
        found = marker.analyse(samples, sample_rate, false_alarms=false_alarms, speed=speed)
        return self.identify_analysis(found, speed=speed)

    def identify_analysis(self, found: Analysis, *, speed: float = 0.0) -> list[Identified]:
        """Return what `identify` does of an analysis, such as that of a `StreamDetector`."""
        options = Options(speed=speed)
        return identification.identify(self._marker.card, found, Known(self), options)

    @property
    def _marker(self) -> Watermarker:
        if self.marker is None:
            self.marker = Watermarker()
        return self.marker
