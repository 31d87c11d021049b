"""Identifiers: a serial with a check, encrypted as one block, and read back from a detection.

Whoever has no key of the registry learns neither serial nor record; the encrypted block itself can
be read, linked between copies and copied by anyone. Knows detections and keys: no audio.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keybound.crypto.codes import Bits, check_integer
from keybound.errors import CodeError
from keybound.identity import frame
from keybound.identity.permutation import Permutation
from keybound.seal.rolling import Cells
from keybound.types import Detection

SERIAL_BITS = 40
CHECK_BITS = frame.BLOCK_BITS - SERIAL_BITS  # zeros beside the serial, before it is encrypted
LEADS = 3  # beginnings within a second that are decoded, those that are read most clearly
# What one key may be asked of one view of a recording: every answer is a chance to be wrong.
TRIES = LEADS * frame.CANDIDATES * frame.PERIOD


@dataclass(frozen=True)
class Reading:
    """A serial that a recording spells.

    `key` is the number of the key that opened it, `start_s` how far into the recording that was
    marked it begins, up to a multiple of 32 s, and `fit` how well the codes agree, up to 1.
    """

    serial: int
    key: int
    start_s: float
    fit: float
    channel: int | None


def draw() -> int:
    """Return a random serial."""
    return secrets.randbits(SERIAL_BITS)


def block_of(serial: int, keyed: Permutation) -> int:
    """Return the encrypted block of a serial."""
    hint = f"from 0 to {(1 << SERIAL_BITS) - 1}"
    serial = check_integer("serial", serial, hint)
    if not 0 <= serial < 1 << SERIAL_BITS:
        raise CodeError(f"serial {serial} does not exist", hint=hint)
    return keyed.encrypt(serial << CHECK_BITS)


def of_blocks(block: int, blocks: npt.NDArray[np.int64], block_s: float) -> Bits:
    """Return the code of each block of samples of a recording: (blocks, frame.BITS)."""
    seconds = np.maximum(0, np.floor((blocks + 0.5) * block_s)).astype(np.int64)
    first = int(seconds.min())
    own: Bits = frame.codes(block, first, int(seconds.max()) - first + 1)[seconds - first]
    return own


def read(found: Detection, keys: Sequence[Permutation]) -> list[Reading]:
    """Return the serials that a recording spells under some keys, the one that fits best first.

    Each view that is marked is decoded at the beginnings that are read most clearly; the key of
    every block and rotation is then told by the check. A wrong serial passes it with a chance of
    `TRIES` times keys and views in 2^24, and names one of a registry's records with as many times
    their number in 2^64: who asks must look it up there.
    """
    best: dict[int, Reading] = {}
    for view in found.views:
        cells = Cells(view)
        soft = {lead: cells.seconds(lead)[0] for lead in range(cells.second)}
        clearest = sorted(soft, key=lambda lead: -float(np.abs(soft[lead]).sum()))
        for lead in clearest[:LEADS]:
            for one in frame.spelled(soft[lead]):
                for reading in _opened(one, keys, lead * cells.cell_s, view.channel):
                    known = best.get(reading.serial)
                    if known is None or reading.fit > known.fit:
                        best[reading.serial] = reading
    return sorted(best.values(), key=lambda one: -one.fit)


def _opened(
    spelled: frame.Spelled, keys: Sequence[Permutation], lead_s: float, channel: int | None
) -> list[Reading]:
    """Return the serials of a block under any key and rotation whose check holds."""
    found = []
    for second in range(frame.PERIOD):
        block = frame.rotated(spelled.block, -second)
        for number, key in enumerate(keys):
            serial, check = divmod(key.decrypt(block), 1 << CHECK_BITS)
            if check == 0:
                found.append(Reading(serial, number, second + lead_s, spelled.fit, channel))
    return found
