"""Methods: a watermark as the benchmark sees it, and KeyBound as one of them.

A method embeds a secret and reads audio; facts say at which rate and length it works. What a
reading means for a key is the method's own business: a method without a key ignores it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.crypto.keys import Key
from keybound.seal.pattern import VERSION
from keybound.watermark.watermarker import Watermarker

STUDIES = ("paper/", "ablation/", "bits/", "budget/")  # methods of the tables of studies alone

EXCERPT_S = 1.0  # the paper's unit: the mark at its full strength, however long the clip


@dataclass(frozen=True)
class Reading:
    """What a detector says of a clip: a presence score and the bits it reads without a key."""

    presence: float
    logits: npt.NDArray[np.float32]  # (bits,) positive for one
    detail: Any = None  # what the method itself wants to keep


@dataclass(frozen=True)
class Method:
    """A watermark: two functions and its facts."""

    name: str
    rate: int
    bits: int
    rho: int  # wrong bits that attribution tolerates
    seconds: float  # the shortest clip it can work on
    keyed: bool
    threshold: float | None  # the one it ships with; None: calibrate on clean clips
    embed: Callable[[Clip, Secret], Clip]
    read: Callable[[Clip], Reading]
    decode: Callable[[Reading, Key | None], int]  # the payload; None: without a key
    version: str = ""
    marker: Watermarker | None = None  # KeyBound itself, for what no other method has: seals
    rolling: bool = False  # the code follows the key's stream

    def errors(self, reading: Reading, secret: Secret) -> int:
        """Count the wrong bits of a reading under a secret."""
        return (self.decode(reading, secret.key) ^ secret.payload).bit_count()


def plain(reading: Reading, key: Key | None) -> int:  # noqa: ARG001
    """Read the bits as they stand: the decoding of a method without a key."""
    return int("".join("1" if logit > 0 else "0" for logit in reading.logits), 2)


def keybound(
    folder: Path | None = None, name: str = "keybound", *, seal: bool = True, rolling: bool = False
) -> Method:
    """Return KeyBound with the shipped weights, or those of a folder; `rolling` goes to `embed`."""
    marker = Watermarker(folder)
    card = marker.card

    def embed(clip: Clip, secret: Secret) -> Clip:
        how: Any = {"key": secret.key, "payload": secret.payload, "seal": seal}
        how |= {"position": secret.position} if seal else {}
        how |= {"rolling": True} if rolling else {}
        marked: Clip = marker.embed(clip, card.rate, **how, excerpt=EXCERPT_S, check=False)
        return marked

    def read(clip: Clip) -> Reading:
        found = marker.detect(clip, card.rate)
        return Reading(found.presence, found.code_logits, found)

    def decode(reading: Reading, key: Key | None) -> int:
        return plain(reading, None) if key is None else marker.decode(reading.detail, key=key)

    return Method(
        name=name,
        rate=card.rate,
        bits=card.bits,
        rho=card.rho,
        seconds=1.0,
        keyed=True,
        threshold=card.threshold,
        embed=embed,
        read=read,
        decode=decode,
        version=card.weights
        + (f"+seal-{VERSION}" if seal else "")
        + ("+rolling" if rolling else ""),
        marker=marker,
        rolling=rolling,
    )
