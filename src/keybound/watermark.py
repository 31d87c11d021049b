"""Mark, detect, verify: the only place where keys, codes, audio and networks meet.

The networks give values for each frame of 20 ms; pooling them over a recording happens here, so
any length and any stretch can be judged.
"""

import math
import os
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound import audio, codes
from keybound.engine import Engine, Floats
from keybound.errors import AudioError
from keybound.keys import Key

WINDOW_S = 1.0  # the stretch for which the presence threshold was calibrated
SHORTEST_S = 0.1  # under this there is nothing to judge
SILENCE_DBFS = -70.0


class MarkWarning(UserWarning):
    """A mark that was asked for cannot be read back from the marked audio."""


@dataclass(frozen=True)
class Span:
    """A stretch that is marked: from, to, and its presence score."""

    start_s: float
    end_s: float
    score: float


@dataclass(frozen=True, eq=False)
class Detection:
    """Whether there is a mark, and the values of each frame that say so. No key was needed."""

    present: bool
    presence: float  # mean over frames of the sigmoid of the presence logit
    threshold: float
    spans: tuple[Span, ...]
    frame_s: float
    frame_presence: Floats  # (frames,) in [0, 1]
    frame_logits: Floats  # (frames, bits), of the code, not of the payload
    code_logits: Floats  # (bits,) pooled over frames, weighted by presence


@dataclass(frozen=True)
class Verdict:
    """Whether a recording carries this party's mark, and the evidence.

    `verified` is the rule V_A: presence at or above its threshold and the decoded payload within
    `rho` bits of the registered one. `bound` is the probability that a wrong key passes, corrected
    for `tries` parties tried.
    """

    verified: bool
    present: bool
    presence: float
    threshold: float
    distance: int
    bits: int
    rho: int
    bound: float
    tries: int
    spans: tuple[Span, ...]

    @property
    def words(self) -> str:
        """Say the verdict in a sentence."""
        agree = f"payload agrees in {self.bits - self.distance} of {self.bits} bits"
        if self.verified:
            who = "a wrong key" if self.tries == 1 else f"one of {self.tries} wrong keys"
            return f"marked, {agree}; {who} passes with probability {self.bound:.2g}"
        if not self.present:
            what = "marked only in parts" if self.spans else "no mark found"
            return f"{what} (presence {self.presence:.3f} under {self.threshold:.3f})"
        return f"marked, but not by this key and payload: {agree}, {self.bits - self.rho} needed"


class Watermarker:
    """The two networks with all that is done with them. `model` names a folder of weights."""

    def __init__(self, model: str | os.PathLike[str] | None = None) -> None:
        self.engine = Engine(model)
        self.card = self.engine.card

    def embed(
        self,
        samples: npt.ArrayLike,
        sample_rate: int,
        *,
        key: Key,
        payload: int,
        nonce: bytes = b"",
        check: bool = True,
    ) -> npt.NDArray[Any]:
        """Give the samples with a mark: same shape, rate and type, the host untouched beneath it.

        The mark is made at 16 kHz and only it is resampled, so the host keeps its bandwidth. Each
        channel is marked by itself, with one code. With `check` a mark that cannot be read back
        raises a `MarkWarning`: silence, or a sound too short or too unlike speech.
        """
        host = _long_enough(samples, sample_rate)  # (frames, channels)
        code = codes.encode(payload, key, self.card.bits, nonce)
        marked = host.copy()
        for channel in range(host.shape[1]):
            marked[:, channel] += self._carrier(host[:, channel], sample_rate, code)
        result = _as_given(marked, np.asarray(samples))
        if check:
            verdict = self.verify(result, sample_rate, key=key, payload=payload, nonce=nonce)
            if not verdict.verified:
                why = self.why_unreadable(host, sample_rate)
                warnings.warn(f"the mark cannot be read back: {why}", MarkWarning, stacklevel=2)
        return result

    def _carrier(
        self, host: npt.NDArray[Any], sample_rate: int, code: npt.NDArray[np.uint8]
    ) -> npt.NDArray[Any]:
        narrow = audio.resample(host, sample_rate, self.card.rate)
        carrier = self.engine.carrier(narrow.astype(np.float32), code)
        wide = audio.resample(carrier, self.card.rate, sample_rate)[: len(host)]
        return np.pad(wide, (0, len(host) - len(wide)))  # rounding may cost the last sample

    def detect(self, samples: npt.ArrayLike, sample_rate: int) -> Detection:
        """Say whether there is a mark, and where. Anyone can: no key is needed."""
        heard = _long_enough(samples, sample_rate)
        mono = audio.to_mono(audio.resample(heard, sample_rate, self.card.rate))
        presence, logits = self.engine.frames(mono.astype(np.float32))
        frame_s, end_s = self.card.hop / self.card.rate, len(heard) / sample_rate
        chance: Floats = (1 / (1 + np.exp(-presence))).astype(np.float32)
        score = float(chance.mean())
        return Detection(
            present=score >= self.card.threshold,
            presence=score,
            threshold=self.card.threshold,
            spans=find_spans(chance, frame_s, self.card.threshold, end_s),
            frame_s=frame_s,
            frame_presence=chance,
            frame_logits=logits,
            code_logits=pool(presence, logits),
        )

    def verify(
        self,
        samples: npt.ArrayLike,
        sample_rate: int,
        *,
        key: Key,
        payload: int,
        nonce: bytes = b"",
        rho: int | None = None,
    ) -> Verdict:
        """Say whether the recording carries this key's mark with this payload."""
        found = self.detect(samples, sample_rate)
        return self.judge(found, key=key, payload=payload, nonce=nonce, rho=rho)

    def decode(self, found: Detection, *, key: Key, nonce: bytes = b"") -> int:
        """Read the payload of a detection with a key. A wrong key reads a random number."""
        return codes.from_bits(codes.decode(found.code_logits, key, nonce))

    def judge(
        self,
        found: Detection,
        *,
        key: Key,
        payload: int,
        nonce: bytes = b"",
        rho: int | None = None,
        tries: int = 1,
    ) -> Verdict:
        """Apply the rule V_A to a detection; `tries` is the number of parties it is put to."""
        bits, rho = self.card.bits, self.card.rho if rho is None else rho
        bound = codes.corrected(codes.bound(bits, rho), tries)
        decoded = codes.decode(found.code_logits, key, nonce)
        distance = codes.distance(decoded, codes.to_bits(payload, bits))
        return Verdict(
            verified=found.present and distance <= rho,
            present=found.present,
            presence=found.presence,
            threshold=found.threshold,
            distance=distance,
            bits=bits,
            rho=rho,
            bound=bound,
            tries=tries,
            spans=found.spans,
        )

    def why_unreadable(self, host: npt.NDArray[Any], sample_rate: int) -> str:
        """Guess why a host does not hold a mark."""
        if 10 * np.log10(float(np.mean(np.square(host))) + 1e-20) < SILENCE_DBFS:
            return "the recording is silent"
        if len(host) < WINDOW_S * sample_rate:
            return f"the recording is only {len(host) / sample_rate:.2f} s long"
        return "the recording is mostly silence, or not speech"


def pool(presence: Floats, logits: Floats) -> Floats:
    """Average payload logits over frames by the softmax of the presence logits: (bits,)."""
    weight = np.exp(presence - presence.max())
    pooled: Floats = (weight / weight.sum()) @ logits
    return pooled


def find_spans(
    chance: Floats, frame_s: float, threshold: float, end_s: float = math.inf
) -> tuple[Span, ...]:
    """Find the stretches whose presence over a second reaches the threshold.

    Windows of a second that reach it are joined, and a stretch is trimmed to the frames that are
    themselves more likely marked than not. The recording ends at `end_s`, within the last frame.
    """
    width = min(len(chance), round(WINDOW_S / frame_s))
    total = np.concatenate([[0.0], np.cumsum(chance, dtype=np.float64)])
    means = (total[width:] - total[:-width]) / width  # one for each window
    inside = np.zeros(len(chance) + 1, dtype=int)
    starts = np.flatnonzero(means >= threshold)
    np.add.at(inside, starts, 1)
    np.add.at(inside, starts + width, -1)
    covered = (np.cumsum(inside)[:-1] > 0) & (chance >= 0.5)
    # A frame or two that waver do not end a span: gaps under half a second are closed.
    edges = np.flatnonzero(np.diff(np.concatenate([[0], covered.astype(int), [0]])))
    spans: list[tuple[int, int]] = []
    for start, stop in edges.reshape(-1, 2):
        if spans and start - spans[-1][1] < 0.5 / frame_s:
            spans[-1] = (spans[-1][0], stop)
        else:
            spans.append((start, stop))
    return tuple(
        Span(float(a * frame_s), min(float(b * frame_s), end_s), float(chance[a:b].mean()))
        for a, b in spans
    )


def _long_enough(samples: npt.ArrayLike, sample_rate: int) -> audio.Samples:
    checked = audio.check(samples, sample_rate)
    if len(checked) < SHORTEST_S * sample_rate:
        raise AudioError(
            f"{1000 * len(checked) / sample_rate:.3g} ms is too short for a mark",
            hint=f"at least {SHORTEST_S:g} s, better a second or more",
        )
    return checked


def _as_given(marked: npt.NDArray[Any], given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Bring marked floats back to the shape and type in which the host came."""
    if given.dtype.kind == "f":
        return marked.reshape(given.shape).astype(given.dtype, copy=False)
    info = np.iinfo(given.dtype)
    scale = 2.0 ** (info.bits - 1)
    levels = np.rint(marked * scale) + (scale if info.min == 0 else 0)
    return np.clip(levels, info.min, info.max).astype(given.dtype).reshape(given.shape)


@cache
def _shipped() -> Watermarker:
    return Watermarker()


def embed(
    samples: npt.ArrayLike, sample_rate: int, *, key: Key, payload: int, nonce: bytes = b""
) -> npt.NDArray[Any]:
    """Mark samples with the shipped model: see `Watermarker.embed`."""
    return _shipped().embed(samples, sample_rate, key=key, payload=payload, nonce=nonce)


def detect(samples: npt.ArrayLike, sample_rate: int) -> Detection:
    """Look for a mark with the shipped model: see `Watermarker.detect`."""
    return _shipped().detect(samples, sample_rate)


def verify(
    samples: npt.ArrayLike, sample_rate: int, *, key: Key, payload: int, nonce: bytes = b""
) -> Verdict:
    """Verify a party's mark with the shipped model: see `Watermarker.verify`."""
    return _shipped().verify(samples, sample_rate, key=key, payload=payload, nonce=nonce)
