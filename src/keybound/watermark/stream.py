"""Streams: embed and detect in blocks, which files, arrays and live speech have in common.

Samples go in in blocks of any size and come out `latency_s` later, the same whatever the blocks
were. Nothing depends on the recording as a whole, so nothing waits for its end.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.audio import arrays
from keybound.audio.resample import Resampler
from keybound.audio.streaming import Sum
from keybound.crypto import codes, keystream
from keybound.crypto.keys import Key
from keybound.errors import AudioError, CodeError, KeyBoundError
from keybound.identity import frame
from keybound.identity.identifier import Identifier
from keybound.model.detection import (
    FALSE_ALARMS,
    check_false_alarms,
    likelihood,
    sounding,
    weigh_views,
)
from keybound.model.networks import Codes, Networks, shipped
from keybound.seal import pattern as seals
from keybound.types import Analysis, Detection, Floats
from keybound.watermark.channels import ChannelFeeder
from keybound.watermark.options import (
    EXCERPT_S,
    SHORTEST_S,
    DetectOptions,
    check_excerpt,
    check_speed,
    too_short,
)


class StreamEmbedder:
    """Embed a mark in a stream: `push` returns marked samples, `flush` the last of them.

    `latency_s` is at most 0.2: when n samples have gone in, all but the last `latency` have come
    out. Shape and type are those of what is pushed, (frames,) or (frames, channels).

    `nonce` selects the mask, the fixed one if it is empty. `position` is the keystream position of
    the seal; each recording needs its own. Without one, a random one of the 256 that `verify`
    searches is chosen. `seal=False` leaves the seal out. With an `identifier`, which a registry
    gives (`Registry.embedder`), the codes of successive seconds spell it. `excerpt` is the shortest
    excerpt, in seconds, that must be attributable: the mark of a longer one is quieter. `networks`
    are those of a `Watermarker` with other weights.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        key: Key,
        payload: int,
        nonce: bytes = b"",
        position: int | None = None,
        seal: bool = True,
        identifier: Identifier | None = None,
        excerpt: float = EXCERPT_S,
        channels: int = 1,
        networks: Networks | None = None,
    ) -> None:
        networks = networks or shipped()
        card = networks.card
        self.strength = card.strength_of(check_excerpt(excerpt))
        sample_rate, channels = arrays.check_rate(sample_rate), _counted(channels)
        code = codes.encode(payload, key, card.bits, nonce)
        self._down = Resampler(sample_rate, card.rate, channels)
        if not seal and position is not None:
            hint = "leave one of the two out"
            raise CodeError("a position is of no use without a seal", hint=hint)
        if identifier is not None and card.bits != frame.BITS:
            what = f"weights of {card.bits} bits carry no identifier"
            raise CodeError(what, hint=f"weights of {frame.BITS} bits do")
        self.position = keystream.choose_position(position) if seal else None
        self._feeders = []
        own: codes.Bits | Codes = code
        if identifier is not None:
            own = partial(identifier.of_blocks, block_s=card.hop / card.rate)
        for _ in range(channels):
            layers = [networks.embedder(own, self.strength)]
            if self.position is not None:
                layers.append(seals.embedder(key, code, self.position))
            self._feeders.append(Sum(layers))
        self._up = Resampler(card.rate, sample_rate, channels)
        looks = [(card.embed_context[1] + 1) * card.hop, (seals.AHEAD + 1) * seals.HOP]
        self._look_s = max(looks) / card.rate  # ahead of a block, sealed or not
        self.sample_rate = sample_rate
        self.channels = channels
        self._host: npt.NDArray[Any] = np.zeros((0, channels), np.float32)
        self._carrier: Floats = np.zeros((0, channels), np.float32)
        self._kind: tuple[np.dtype[Any], int] = np.dtype(np.float32), 1 if channels == 1 else 2
        self._taken = self._given = 0
        self._narrow = 0  # samples of the carrier that are still to come, at the networks' rate

    @property
    def latency(self) -> int:
        """Return the number of samples between what goes in and what comes out."""
        delay_s = self._down.delay_s + self._look_s + self._up.delay_s
        return math.ceil(delay_s * self.sample_rate)

    @property
    def latency_s(self) -> float:
        """Return the time between what goes in and what comes out."""
        return self.latency / self.sample_rate

    def push(self, samples: npt.ArrayLike) -> npt.NDArray[Any]:
        """Push samples and return those that are marked by now."""
        self._embed(self._down.push(self._take(samples)))
        return as_given(self._give(self._taken - self.latency), *self._kind)

    def flush(self, last: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """Return the remaining marked samples: the stream ends with these samples, if any."""
        parts = [] if last is None else [self._down.push(self._take(last))]
        narrow = np.concatenate([*parts, self._down.flush()])
        self._narrow += len(narrow)
        rest = [one.flush(channel) for one, channel in zip(self._feeders, narrow.T, strict=True)]
        self._widen(np.stack(rest, axis=1)[: self._narrow])
        wide = np.concatenate([self._carrier, self._up.flush()])
        lost = max(0, len(self._host) - len(wide))  # rounding may cost the last sample
        self._carrier = np.pad(wide, ((0, lost), (0, 0)))
        return as_given(self._give(self._taken), *self._kind)

    def _take(self, samples: npt.ArrayLike) -> Floats:
        given = np.asarray(samples)
        host = _block(given, self.sample_rate, self.channels)
        self._kind = given.dtype, given.ndim
        self._taken += len(host)
        self._host = np.concatenate([self._host, host])
        return host.astype(np.float32, copy=False)

    def _embed(self, narrow: Floats) -> None:
        self._narrow += len(narrow)
        made = [one.push(channel) for one, channel in zip(self._feeders, narrow.T, strict=True)]
        self._narrow -= len(made[0])
        self._widen(np.stack(made, axis=1))

    def _widen(self, carrier: Floats) -> None:
        self._carrier = np.concatenate([self._carrier, self._up.push(carrier)])

    def _give(self, until: int) -> npt.NDArray[Any]:
        count = max(0, until - self._given)
        marked = self._host[:count] + self._carrier[:count]
        self._host, self._carrier = self._host[count:], self._carrier[count:]
        self._given += count
        return marked


class StreamDetector:
    """Detect a mark in a stream of any length. No key is needed.

    `push` returns the presence of the frames that are complete, in [0, 1], at most `latency_s`
    after their samples; `flush` returns the last of them. `detection` judges all so far; `analysis`
    adds the levels in which seals are searched, if `levels` is set. Channels that differ are
    analysed one by one and as their mix (`channels`): a frame's presence is then the highest of
    these views. The values of every frame are kept, 12 megabytes an hour and 6 for each of several
    views, and with `levels` 46 more. Each of several speeds (`DetectOptions`) needs as much, and
    `push` returns the presence at the recording's own.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        channels: int = 1,
        levels: bool = False,
        false_alarms: float = FALSE_ALARMS,
        speed: float = 0.0,
        networks: Networks | None = None,
    ) -> None:
        networks = networks or shipped()
        self.card = networks.card
        self.false_alarms = check_false_alarms(false_alarms)
        speeds = DetectOptions(speed=check_speed(speed)).speeds
        self.sample_rate = arrays.check_rate(sample_rate)
        self.channels = _counted(channels)
        self._fed, *self._others = (
            ChannelFeeder(
                self.sample_rate,
                self.channels,
                rate=round(self.card.rate * one),  # which the network takes for its own
                network=networks.detector(),
                width=1 + self.card.bits,
                levels=levels and one == 1.0,
            )
            for one in speeds
        )
        self._keeps_levels = levels
        self._taken, self._ended = 0, False

    @property
    def latency_s(self) -> float:
        """Return the longest time from a frame's beginning to its score."""
        look = (self.card.detect_context[1] + 1) * self.card.hop / self.card.rate
        return self._fed.delay_s + look

    def push(self, samples: npt.ArrayLike) -> Floats:
        """Push samples and return the presence of the frames that they complete."""
        return self._push(samples, end=False)

    def flush(self, last: npt.ArrayLike | None = None) -> Floats:
        """Return the presence of the last frames: the stream ends with these samples, if any."""
        return self._push(np.zeros(0, np.float32) if last is None else last, end=True)

    def _push(self, samples: npt.ArrayLike, *, end: bool) -> Floats:
        block = _block(np.asarray(samples), self.sample_rate, self.channels)
        self._taken += len(block)
        self._ended = end
        floats = block.astype(np.float32, copy=False)
        made = self._fed.push(floats, end=end)
        for other in self._others:
            other.push(floats, end=end)
        return likelihood(np.max([rows[:, 0] for rows in made], axis=0))

    def detection(self) -> Detection:
        """Return the detection in what was pushed so far."""
        pushed_s = self._taken / self.sample_rate
        heard = [
            (one.rate, sounding(one.frames(last=self._ended))) for one in (self._fed, *self._others)
        ]
        if pushed_s < SHORTEST_S or not all(len(v) for _, views in heard for v in views.values()):
            raise too_short(pushed_s)
        tries = sum(len(views) for _, views in heard)
        found = []
        for rate, views in heard:
            frame_s = self.card.hop / rate
            end_s = min(pushed_s, len(next(iter(views.values()))) * frame_s)
            own = weigh_views(
                views,
                frame_s,
                end_s,
                threshold=self.card.threshold_of(tries),
                tail=self.card.tail,
                false_alarms=self.false_alarms,
                tries=tries,
            )
            found.append(replace(own, speed=rate / self.card.rate, speeds_tried=len(heard)))
        return max(found, key=lambda one: (one.present, one.evidence_s, one.presence))

    def analysis(self) -> Analysis:
        """Return the detection so far with its levels, which are kept if `levels` is set."""
        if not self._keeps_levels:
            raise KeyBoundError("this stream keeps no levels", hint="begin it with levels=True")
        return Analysis(self.detection(), self._fed.levels(last=self._ended))


def as_given(marked: npt.NDArray[Any], dtype: np.dtype[Any], dimensions: int) -> npt.NDArray[Any]:
    """Return marked floats (frames, channels) in the type and dimensions of the host."""
    shaped = marked[:, 0] if dimensions == 1 else marked
    if dtype.kind == "f":
        if dtype == np.float16:  # a mark may lift a sample beyond its range
            shaped = np.clip(shaped, np.finfo(dtype).min, np.finfo(dtype).max)
        return shaped.astype(dtype, copy=False)
    info = np.iinfo(dtype)
    scale = 2.0 ** (info.bits - 1)
    levels = np.rint(shaped * scale) + (scale if info.min == 0 else 0)
    return np.clip(levels, info.min, info.max).astype(dtype)


def _block(given: npt.NDArray[Any], sample_rate: int, channels: int) -> arrays.Samples:
    if not len(given):
        return np.zeros((0, channels), np.float32)
    block = arrays.check(given, sample_rate)
    if block.shape[1] != channels:
        what = f"the stream has {channels} channels, and the block {block.shape[1]}"
        raise AudioError(what, hint="pass channels= when the stream begins")
    return block


def _counted(channels: int) -> int:
    """Return a number of channels; raise an error for what is none."""
    if not isinstance(channels, int | np.integer) or isinstance(channels, bool) or channels < 1:
        hint = "as many as the samples have"
        raise AudioError(f"channels must be an integer above 0, not {channels!r}", hint=hint)
    return int(channels)
