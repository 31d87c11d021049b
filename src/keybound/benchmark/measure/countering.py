"""An attack on the seal without its key: each tile is moved against what the public finder says.

`seal.odds` tells how rather a tile went up than down, and it is public, so whoever has a sealed
recording can move every tile the other way. Knows tiles and levels: no keys, no rows.
"""

import numpy as np

from keybound.seal import odds, pattern
from keybound.seal.pattern import COLUMN_FRAMES, COLUMN_STEPS, EDGES, HOP, WINDOW
from keybound.types import Floats

FACTOR_DB = 24.0  # for log odds of one: most tiles move as far as they may
LATER = 0.7  # of the gains, in each round after the first


def countered(marked: Floats, factor_db: float, most_db: float, rounds: int = 1) -> Floats:
    """Return the 16 kHz recording with each tile moved by its log odds times a factor in dB.

    No tile moves by more than `most_db` in a round. The attacker knows where tiles begin, as of
    every recording that was not cut.
    """
    for number in range(rounds):
        said = odds.odds_of(levels_of(marked))[::COLUMN_STEPS]
        gains = -np.clip(factor_db * said, -most_db, most_db)
        marked = moved(marked, gains * LATER ** (number > 0))
    return marked


def levels_of(samples: Floats) -> Floats:
    """Return the levels in which a seal is looked for: (steps, BANDS)."""
    feeder = pattern.level_feeder()
    padded = np.pad(samples, (0, -len(samples) % HOP))
    return np.concatenate([*feeder.push(padded), *feeder.flush()]).reshape(-1, pattern.BANDS)


def moved(samples: Floats, gains: Floats) -> Floats:
    """Return the recording with its tiles scaled by gains in dB: (columns, BANDS)."""
    window = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW))
    padded = np.pad(samples, (HOP, HOP + -len(samples) % HOP))  # frame j spans blocks j - 1 and j
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    columns = np.minimum(np.arange(len(frames)) // COLUMN_FRAMES, len(gains) - 1)
    change = np.zeros((len(frames), pattern.BINS))
    ratio = np.expm1(gains[columns] * np.log(10) / 20)
    change[:, EDGES[0] : EDGES[-1]] = np.repeat(ratio, np.diff(EDGES), axis=1)
    made = np.fft.irfft(np.fft.rfft(frames * window, axis=1) * change, axis=1) * window
    added = (made[:-1, HOP:] + made[1:, :HOP]).reshape(-1)[: len(samples)]
    return (samples + added).astype(np.float32)
