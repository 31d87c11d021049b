"""The public functions: a `Watermarker` with the shipped weights, in one call."""

from typing import Any

import numpy.typing as npt

from keybound.crypto.keys import Key
from keybound.model.detection import FALSE_ALARMS
from keybound.seal.search import SealSearch
from keybound.types import Detection
from keybound.watermark.identification import Identified
from keybound.watermark.options import EXCERPT_S, EmbedOptions, Marked
from keybound.watermark.registered import Registry
from keybound.watermark.verdict import Verdict
from keybound.watermark.watermarker import Watermarker


def embed(
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
    """Return the samples with a mark, by the shipped weights: see `Watermarker.embed`."""
    options = EmbedOptions(key, payload, nonce, position, seal, excerpt=excerpt)
    return Watermarker()._embed(samples, sample_rate, options, check=check).samples


def embed_with_position(
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
    return Watermarker()._embed(samples, sample_rate, options, check=check)


def detect(
    samples: npt.ArrayLike,
    sample_rate: int,
    *,
    false_alarms: float = FALSE_ALARMS,
    speed: float = 0.0,
) -> Detection:
    """Return whether there is a mark, and where: see `Watermarker.detect`."""
    return Watermarker().detect(samples, sample_rate, false_alarms=false_alarms, speed=speed)


def identify(
    samples: npt.ArrayLike,
    sample_rate: int,
    *,
    registry: Registry,
    false_alarms: float = FALSE_ALARMS,
    speed: float = 0.0,
) -> list[Identified]:
    """Return which recording it is and whose, for each mark: see `Registry.identify`."""
    return registry.identify(samples, sample_rate, false_alarms=false_alarms, speed=speed)


def verify(
    samples: npt.ArrayLike,
    sample_rate: int,
    *,
    key: Key,
    payload: int,
    nonce: bytes = b"",
    search: SealSearch | None = None,
    false_alarms: float = FALSE_ALARMS,
    speed: float = 0.0,
) -> Verdict:
    """Return whether it is this party's mark: see `Watermarker.verify`."""
    return Watermarker().verify(
        samples,
        sample_rate,
        key=key,
        payload=payload,
        nonce=nonce,
        search=search,
        false_alarms=false_alarms,
        speed=speed,
    )
