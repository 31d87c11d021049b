"""Embed, detect and verify in arrays of samples: keys, codes, audio and networks together.

Arrays go through the streams of `stream` in blocks, as files do, so all three agree.
"""

import os
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.audio import arrays
from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.identity.identifier import Identifier
from keybound.identity.reading import differing
from keybound.model.detection import FALSE_ALARMS
from keybound.model.networks import Networks, shipped
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
from keybound.watermark.verdict import LAYERS, Evidence, Verdict, conclude, weigh

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
        excerpt: float = EXCERPT_S,
        check: bool = True,
    ) -> npt.NDArray[Any]:
        """Return the samples with a mark: same shape, rate and type.

        The mark is made at 16 kHz and only it is resampled, so that the host keeps its bandwidth.
        Each channel is marked by itself, with one code. `nonce` selects the mask, the fixed one if
        it is empty. `position` is the keystream position of the seal; each recording needs its own,
        so that no two share a pattern. Without one, a random one of the 256 that `verify` searches
        is chosen, and `embed_with_position` returns it. `seal=False` leaves the seal out.
        `excerpt` is the shortest excerpt, in seconds, that must be attributable: the longer it is,
        the quieter is the mark; samples that are shorter are marked for their own length. With
        `check` a mark that cannot be read back raises a `MarkWarning`: the host is silent, too
        short or too unlike speech.
        """
        options = EmbedOptions(key, payload, nonce, position, seal, excerpt=excerpt)
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
        excerpt: float = EXCERPT_S,
        check: bool = True,
    ) -> Marked:
        """Return what `embed` returns together with the keystream position of the seal."""
        options = EmbedOptions(key, payload, nonce, position, seal, excerpt=excerpt)
        return self._embed(samples, sample_rate, options, check=check)

    def _embed(
        self, samples: npt.ArrayLike, sample_rate: int, options: EmbedOptions, *, check: bool
    ) -> Marked:
        host = arrays.check(samples, sample_rate)  # (frames, channels)
        seconds = len(host) / sample_rate
        if seconds < SHORTEST_S:
            raise too_short(seconds)
        stream = self.embedder(sample_rate, options.within(seconds), channels=host.shape[1])
        *blocks, last = arrays.blocks(host, round(BLOCK_S * sample_rate))
        parts = [*map(stream.push, blocks), stream.flush(last)]
        given = np.asarray(samples)
        marked = as_given(np.concatenate(parts), given.dtype, given.ndim)
        if check and not self._reads(marked, sample_rate, options):
            why = why_unreadable(float(np.mean(np.square(host))), seconds)
            # Names the line that called `embed`.
            warnings.warn(f"the mark cannot be read back: {why}", MarkWarning, stacklevel=3)
        return Marked(marked, stream.position)

    def _reads(self, marked: npt.NDArray[Any], sample_rate: int, options: EmbedOptions) -> bool:
        """Return whether the rule V_A holds for what was embedded."""
        own: Any = {name: getattr(options, name) for name in ("key", "payload", "nonce")}
        found = self.detect(marked, sample_rate)
        return self.attribute(found, **own, identifier=options.identifier).rule_holds

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
        *blocks, last = arrays.blocks(checked, round(BLOCK_S * sample_rate))
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

    def decode(self, found: Detection, *, key: Key, nonce: bytes = b"") -> int:
        """Return the payload of a detection. A wrong key gives a random number.

        Of several marks the strongest is read.
        """
        codes.check_secret(key, nonce)
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
        identifier: Identifier | None = None,
    ) -> Verdict:
        """Return the verdict of the rule V_A alone; `tries` is the number of parties tried.

        Every mark that was found is tried, and the nearest counts, which multiplies the chance of a
        wrong key at most by their number. With an `identifier`, the codes are those of its seconds,
        from the start of the recording, in place of the payload's. No seal is searched for: `judge`
        does that.
        """
        codes.check_secret(key, nonce)
        own = self._weigh(found, key, payload, nonce, rho, identifier)
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
        identifier: Identifier | None = None,
    ) -> Verdict:
        """Return the verdict of the rule V_A and the seal.

        `search` limits the search for the seal; by default the usual positions are tested.
        `identifier` is that of `attribute`.
        """
        codes.check_secret(key, nonce)
        code = codes.encode(payload, key, self.card.bits, nonce)
        seal = find(found.levels, key, code, search or SealSearch(), LAYERS * tries)
        own = self._weigh(found.detection, key, payload, nonce, rho, identifier)
        return conclude(found.detection, replace(own, seal=seal), self.card.bits, tries=tries)

    def _weigh(
        self,
        found: Detection,
        key: Key,
        payload: int,
        nonce: bytes,
        rho: int | None,
        identifier: Identifier | None,
    ) -> Evidence:
        """Return the evidence of the nearest of the payloads that are read."""
        bits, rho = self.card.bits, self.card.rho if rho is None else rho
        if identifier is not None:
            wrong = [int(differing(view, identifier, 0.0).sum()) for view in found.views]
            return weigh(min(wrong), len(wrong), bits, rho)
        read = [mark.code_logits for mark in found.marks] or [found.code_logits]
        registered = codes.to_bits(payload, bits)
        wrong = [codes.distance(codes.decode(one, key, nonce), registered) for one in read]
        return weigh(min(wrong), len(wrong), bits, rho)
