"""Arrays of samples: what they may hold, and how floats become the levels of integer formats.

Knows arrays and formats by name; opens no files.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.audio.formats import PCM_BITS, PERCEPTUAL
from keybound.errors import AudioError

Samples = npt.NDArray[np.float32] | npt.NDArray[np.float64]

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 192_000
LOUDEST = 1e6  # times full scale, 120 dB above it: beyond this is a fault in the data, no sound


def check(samples: npt.ArrayLike, sample_rate: int) -> Samples:
    """Check an array from a caller and return it as floats (frames, channels).

    One dimension is mono; integers are scaled by the full scale of their type (uint8 is centred
    on 128, as in WAV files). An array that is neither float nor an integer of at most 32 bits,
    not finite, beyond LOUDEST, empty, or with the channels first is refused. Floats are not copied.
    """
    check_rate(sample_rate)
    array: npt.NDArray[Any] = np.asarray(samples)
    if array.ndim not in (1, 2):
        hint = "pass (frames,) or (frames, channels)"
        raise AudioError(f"samples have {array.ndim} dimensions, not one or two", hint=hint)
    array = array.reshape(len(array), -1) if array.size else array
    if array.ndim == 2 and array.shape[1] > max(8, array.shape[0]):
        what = f"samples of shape {array.shape} look as if the channels came first"
        raise AudioError(what, hint="pass (frames, channels): samples.T")
    if array.dtype.kind == "f":
        array = array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, copy=False)
    elif array.dtype == np.uint8:
        array = (array.astype(np.float32) - 128) / 128
    elif array.dtype in (np.int8, np.int16):
        array = array.astype(np.float32) / -np.float32(np.iinfo(array.dtype).min)
    elif array.dtype == np.int32:
        array = array / 2.0**31
    else:
        hint = "pass floats in [-1, 1], or uint8, int8, int16 or int32"
        raise AudioError(f"samples of type {array.dtype} have no known full scale", hint=hint)
    check_content(array, "the array")
    return array


def check_rate(sample_rate: float) -> int:
    """Return a sample rate as an integer; refuse what is none, or outside of what is supported."""
    hint = f"resample to a whole number of Hz between {MIN_RATE_HZ} and {MAX_RATE_HZ}"
    if not isinstance(sample_rate, int | float | np.integer | np.floating) or sample_rate is True:
        raise AudioError(f"sample_rate must be a number, not {sample_rate!r}", hint=hint)
    if not MIN_RATE_HZ <= sample_rate <= MAX_RATE_HZ or sample_rate != int(sample_rate):
        raise AudioError(f"a sample rate of {sample_rate} Hz is not supported", hint=hint)
    return int(sample_rate)


def check_content(samples: npt.NDArray[Any], name: str) -> None:
    if not samples.size:
        raise AudioError(f"{name} holds no samples", hint="at least one frame is needed")
    most = max(float(samples.min()), float(samples.max()), key=abs)  # NaN, if there is one
    if not np.isfinite(most):
        hint = "replace NaN and infinity first, for example with numpy.nan_to_num"
        raise AudioError(f"{name} holds samples that are not finite numbers", hint=hint)
    if abs(most) > LOUDEST:
        hint = f"samples belong in [-1, 1], and beyond {LOUDEST:g} nothing is sound"
        raise AudioError(f"{name} holds a sample of {most:.3g}, which is no sound", hint=hint)


def blocks(samples: Samples, size: int) -> Iterator[Samples]:
    """Yield samples in blocks of this many frames, the last of what is left."""
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


def encodable(block: npt.NDArray[Any], subtype: str) -> tuple[npt.NDArray[Any], int]:
    """Limit and round what goes into an integer format; count the samples beyond full scale.

    Left to itself libsndfile rounds down in a WAV and to nearest in a FLAC. Levels shifted to the
    top of 32 bits it only shifts back.
    """
    if subtype in ("FLOAT", "DOUBLE", *PERCEPTUAL):  # these hold peaks above 1.0
        return block, 0
    beyond = int(np.count_nonzero(np.abs(block) > 1.0))
    if subtype not in PCM_BITS:
        return np.clip(block, -1.0, 1.0), beyond
    bits = PCM_BITS[subtype]
    steps = np.float64(2 ** (bits - 1))
    levels = np.clip(np.rint(block * steps), -steps, steps - 1)
    return levels.astype(np.int32) << (32 - bits), beyond
