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
from keybound.identity.identifier import keyed
from keybound.model.detection import FALSE_ALARMS
from keybound.seal.pattern import VERSION
from keybound.watermark.options import EmbedOptions
from keybound.watermark.watermarker import Watermarker

STUDIES = ("paper/", "ablation/", "bits/", "budget/", "excerpt/")  # in tables of their own alone

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
    issued: bool = False  # the codes of its seconds spell an identifier

    def errors(self, reading: Reading, secret: Secret) -> int:
        """Count the wrong bits of a reading under a secret."""
        return (self.decode(reading, secret.key) ^ secret.payload).bit_count()


def plain(reading: Reading, key: Key | None) -> int:  # noqa: ARG001
    """Read the bits as they stand: the decoding of a method without a key."""
    return int("".join("1" if logit > 0 else "0" for logit in reading.logits), 2)


def keybound(
    folder: Path | None = None,
    name: str = "keybound",
    *,
    seal: bool = True,
    issued: bool = False,
    excerpt: float = EXCERPT_S,
) -> Method:
    """Return KeyBound; for longer excerpts than the paper's it detects by evidence, as users do."""
    marker = Watermarker(folder)
    card = marker.card
    longer = excerpt > EXCERPT_S

    def embed(clip: Clip, secret: Secret) -> Clip:
        carried = keyed(secret.position, secret.key) if issued else None
        position = secret.position if seal else None
        asked = EmbedOptions(secret.key, secret.payload, b"", position, seal, carried, excerpt)
        marked: Clip = marker._embed(clip, card.rate, asked, check=False).samples
        return marked

    def read(clip: Clip) -> Reading:
        found = marker.detect(clip, card.rate)
        return Reading(found.evidence_s if longer else found.presence, found.code_logits, found)

    def decode(reading: Reading, key: Key | None) -> int:
        return plain(reading, None) if key is None else marker.decode(reading.detail, key=key)

    return Method(
        name=name,
        rate=card.rate,
        bits=card.bits,
        rho=card.rho,
        seconds=1.0,
        keyed=True,
        threshold=card.tail.threshold(excerpt, FALSE_ALARMS) if longer else card.threshold,
        embed=embed,
        read=read,
        decode=decode,
        version=card.weights + f"+seal-{VERSION}" * seal + "+identifier" * issued,
        marker=marker,
        issued=issued,
    )
