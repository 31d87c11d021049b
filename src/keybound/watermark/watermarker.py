"""Embed, detect and verify in arrays of samples: keys, codes, audio and networks together.

Arrays go through the streams of `stream` in blocks, as files do, so all three agree.
"""

import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.audio import arrays
from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.model.detection import FALSE_ALARMS
from keybound.model.networks import Networks, shipped
from keybound.seal.rolling import Roll, find_roll, read_along
from keybound.seal.search import SealSearch, find
from keybound.types import Analysis, Detection
from keybound.watermark.options import (
    EXCERPT_S,
    SHORTEST_S,
    USUAL,
    DetectOptions,
    EmbedOptions,
    Marked,
    too_short,
    why_unreadable,
)
from keybound.watermark.stream import StreamDetector, StreamEmbedder, as_given
from keybound.watermark.verdict import Evidence, Verdict, conclude, weigh

BLOCK_S = 15.0  # that goes through the networks at once: twice as much takes 150 MB more


class MarkWarning(UserWarning):
    """A mark that was asked for cannot be read back from the marked audio."""


class Watermarker:
    """Embeds, detects and verifies with one pair of networks. `model` is a folder of weights."""

    def __init__(self, model: str | os.PathLike[str] | None = None) -> None:
        self.networks = Networks(model) if model is not None else shipped()
        self.card = self.networks.card

    def embed(
        self,
        samples: npt.ArrayLike,
        sample_rate: int,
        *,
        key: Key,
        payload: int,
        nonce: bytes = b"",
        position: int | None = None,
        seal: bool = True,
        rolling: bool = False,
        excerpt: float = EXCERPT_S,
        check: bool = True,
    ) -> npt.NDArray[Any]:
        """Return the samples with a mark: same shape, rate and type.

        The mark is made at 16 kHz and only it is resampled, so that the host keeps its bandwidth.
        Each channel is marked by itself, with one code. `nonce` selects the mask, the fixed one if
        it is empty. `position` is the keystream position of the seal; each recording needs its own,
        so that no two share a pattern. Without one, a random one of the 256 that `verify` searches
        is chosen, and `embed_with_position` returns it. `seal=False` leaves the seal out. With
        `rolling` the code changes every second: with a record of the audio, the learned mark is
        sealed evidence too, and a piece cut from it needs about three seconds to be read.
        `excerpt` is the shortest excerpt, in seconds, that must be attributable: the longer it is,
        the quieter is the mark; samples that are shorter are marked for their own length. With
        `check` a mark that cannot be read back raises a `MarkWarning`: the host is silent, too
        short or too unlike speech.
        """
        options = EmbedOptions(key, payload, nonce, position, seal, rolling, excerpt)
        return self._embed(samples, sample_rate, options, check=check).samples

    def embed_with_position(
        self,
        samples: npt.ArrayLike,
        sample_rate: int,
        *,
        key: Key,
        payload: int,
        nonce: bytes = b"",
        position: int | None = None,
        seal: bool = True,
        rolling: bool = False,
        excerpt: float = EXCERPT_S,
        check: bool = True,
    ) -> Marked:
        """Return what `embed` returns together with the keystream position of the seal."""
        options = EmbedOptions(key, payload, nonce, position, seal, rolling, excerpt)
        return self._embed(samples, sample_rate, options, check=check)

    def _embed(
        self, samples: npt.ArrayLike, sample_rate: int, options: EmbedOptions, *, check: bool
    ) -> Marked:
        host = arrays.check(samples, sample_rate)  # (frames, channels)
        seconds = len(host) / sample_rate
        if seconds < SHORTEST_S:
            raise too_short(seconds)
        stream = self.embedder(sample_rate, options.within(seconds), channels=host.shape[1])
        *blocks, last = _blocks(host, sample_rate)
        parts = [*map(stream.push, blocks), stream.flush(last)]
        given = np.asarray(samples)
        marked = as_given(np.concatenate(parts), given.dtype, given.ndim)
        if check and not self._reads(marked, sample_rate, options, stream.position):
            why = why_unreadable(float(np.mean(np.square(host))), seconds)
            # Names the line that called `embed`.
            warnings.warn(f"the mark cannot be read back: {why}", MarkWarning, stacklevel=3)
        return Marked(marked, stream.position)

    def _reads(
        self,
        marked: npt.NDArray[Any],
        sample_rate: int,
        options: EmbedOptions,
        position: int | None,
    ) -> bool:
        """Return whether the rule V_A holds for what was embedded."""
        key, payload, nonce = options.key, options.payload, options.nonce
        if not options.rolling or position is None:
            found = self.detect(marked, sample_rate)
            return self.attribute(found, key=key, payload=payload, nonce=nonce).rule_holds
        where = SealSearch((position,), reach_s=0.0)
        analysis = self.analyse(marked, sample_rate)
        verdict = self.judge(analysis, key=key, payload=payload, nonce=nonce, search=where)
        return verdict.rule_holds

    def embedder(
        self, sample_rate: int, options: EmbedOptions, *, channels: int = 1
    ) -> StreamEmbedder:
        """Return an embedder of a stream with these weights."""
        return StreamEmbedder(
            sample_rate, **vars(options), channels=channels, networks=self.networks
        )

    def detector(
        self,
        sample_rate: int,
        options: DetectOptions = USUAL,
        *,
        channels: int = 1,
        levels: bool = False,
    ) -> StreamDetector:
        """Return a detector of a stream with these weights; with `levels` it also finds seals."""
        return StreamDetector(
            sample_rate, **vars(options), channels=channels, levels=levels, networks=self.networks
        )

    def detect(
        self,
        samples: npt.ArrayLike,
        sample_rate: int,
        *,
        false_alarms: float = FALSE_ALARMS,
        speed: float = 0.0,
    ) -> Detection:
        """Return whether there is a mark, and where. No key is needed.

        Channels that differ are analysed one by one and as their mix; the strongest counts.
        `false_alarms` is the share of unmarked recordings that may be found marked; under 3 s it
        is one in a hundred whatever was asked, and `Detection.false_alarms` says so. With `speed`
        other playing speeds are tried, up to 0.1 for 10 % slower or faster.
        """
        options = DetectOptions(false_alarms, speed)
        return self._pushed(samples, sample_rate, options, levels=False).detection()

    def analyse(
        self,
        samples: npt.ArrayLike,
        sample_rate: int,
        *,
        false_alarms: float = FALSE_ALARMS,
        speed: float = 0.0,
    ) -> Analysis:
        """Return a detection with the levels that `judge` searches, which takes longer."""
        options = DetectOptions(false_alarms, speed)
        return self._pushed(samples, sample_rate, options, levels=True).analysis()

    def _pushed(
        self, samples: npt.ArrayLike, sample_rate: int, options: DetectOptions, *, levels: bool
    ) -> StreamDetector:
        checked = arrays.check(samples, sample_rate)
        stream = self.detector(sample_rate, options, channels=checked.shape[1], levels=levels)
        *blocks, last = _blocks(checked, sample_rate)
        for block in blocks:
            stream.push(block)
        stream.flush(last)
        return stream

    def verify(
        self,
        samples: npt.ArrayLike,
        sample_rate: int,
        *,
        key: Key,
        payload: int,
        nonce: bytes = b"",
        rho: int | None = None,
        search: SealSearch | None = None,
        false_alarms: float = FALSE_ALARMS,
        speed: float = 0.0,
    ) -> Verdict:
        """Return whether the recording carries this key's mark with this payload, and its seal.

        `search` limits the search for the seal: `SealSearch((7,))` tests position 7 alone.
        `false_alarms` and `speed` are those of `detect`.
        """
        found = self.analyse(samples, sample_rate, false_alarms=false_alarms, speed=speed)
        return self.judge(found, key=key, payload=payload, nonce=nonce, rho=rho, search=search)

    def decode(
        self, found: Detection, *, key: Key, nonce: bytes = b"", position: int | None = None
    ) -> int:
        """Return the payload of a detection. A wrong key gives a random number.

        Of several marks the strongest is read. A rolling code needs its `position`, and a recording
        that was not cut at its start.
        """
        codes.check_secret(key, nonce)
        if position is not None:
            return codes.from_bits(read_along(found, key, nonce, position, 0.0))
        return codes.from_bits(codes.decode(found.code_logits, key, nonce))

    def attribute(
        self,
        found: Detection,
        *,
        key: Key,
        payload: int,
        nonce: bytes = b"",
        rho: int | None = None,
        tries: int = 1,
    ) -> Verdict:
        """Return the verdict of the rule V_A alone; `tries` is the number of parties tried.

        Every mark that was found is tried, and the nearest counts, which multiplies the chance of a
        wrong key at most by their number. No seal is searched for, and a rolling code is not read:
        `judge` does both.
        """
        codes.check_secret(key, nonce)
        payloads = self._payloads(found, key, nonce)
        own = self._weigh(payloads, len(payloads), payload, rho)
        return conclude(found, own, self.card.bits, tries=tries)

    def judge(
        self,
        found: Analysis,
        *,
        key: Key,
        payload: int,
        nonce: bytes = b"",
        rho: int | None = None,
        tries: int = 1,
        search: SealSearch | None = None,
    ) -> Verdict:
        """Return the verdict of the rule V_A, the seal and a rolling code.

        `search` limits the search for the seal; by default the usual positions are tested. A
        rolling code is read where the seal holds, and from the start of a single position, in each
        view that is marked.
        """
        codes.check_secret(key, nonce)
        search, bits, marked = search or SealSearch(), self.card.bits, found.detection
        code = codes.encode(payload, key, bits, nonce)
        seal = find(found.levels, key, code, search, 2 * tries)
        roll = find_roll(marked, Roll(key, payload, bits, nonce), search, 2 * tries)
        payloads = self._payloads(marked, key, nonce)
        known = len(search.positions) == 1
        readings = len(payloads) + known * len(marked.views)
        begins = [(one.position, one.start_s) for one in (seal, roll) if one.holds]
        begins += [(search.positions[0], 0.0)] if known else []
        payloads += [
            read_along(view, key, nonce, *begin) for view in marked.views for begin in begins
        ]
        own = self._weigh(payloads, readings, payload, rho)
        return conclude(marked, replace(own, seal=seal, roll=roll), bits, tries=tries)

    def _payloads(self, found: Detection, key: Key, nonce: bytes) -> list[codes.Bits]:
        """Return the payload of each mark, or of all frames where no mark was found."""
        read = [mark.code_logits for mark in found.marks] or [found.code_logits]
        return [codes.decode(one, key, nonce) for one in read]

    def _weigh(
        self, payloads: list[codes.Bits], readings: int, payload: int, rho: int | None
    ) -> Evidence:
        """Return the evidence of the nearest of the payloads that were read."""
        bits, rho = self.card.bits, self.card.rho if rho is None else rho
        registered = codes.to_bits(payload, bits)
        distance = min(codes.distance(one, registered) for one in payloads)
        return weigh(distance, readings, bits, rho)


def _blocks(samples: arrays.Samples, sample_rate: int) -> Iterator[arrays.Samples]:
    size = round(BLOCK_S * sample_rate)
    for start in range(0, len(samples), size):
        yield samples[start : start + size]
