"""Samples as integers: how deep the formats are, and how floats become levels."""

from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.audio.formats import PCM_BITS, PERCEPTUAL


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
