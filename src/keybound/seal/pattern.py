"""The seal: a keyed pattern on the host's own spectrum, and the levels in which it is looked for.

Time and frequency are cut into tiles, and a keyed stream gives each tile a sign: its level goes up
or down by at most 1.4 dB. Without the key it looks like the natural variation of speech; with the
key the signs are multiplied with what `odds` says of each tile and summed. Knows arrays at 16 kHz:
no files, no networks. Exact derivations and the proof of the p-value are in docs/spec.md.
"""

import numpy as np
import numpy.typing as npt

from keybound.audio.streaming import Feeder
from keybound.crypto import keystream
from keybound.crypto.codes import Bits
from keybound.crypto.keys import Key
from keybound.types import Floats

Signs = npt.NDArray[np.int8]

RATE = 16000
HOP = 320  # 20 ms; a frame spans two of them
WINDOW = 2 * HOP
BINS = WINDOW // 2 + 1  # 25 Hz apart
STEP = HOP // 2  # the grid on which a recording is searched
STEP_S = STEP / RATE
COLUMN_FRAMES = 2  # a tile lasts 40 ms
COLUMN_STEPS = COLUMN_FRAMES * HOP // STEP
COLUMN_S = COLUMN_FRAMES * HOP / RATE
# Tiles are 75 Hz high up to 2 kHz, 100 Hz up to 4 kHz, 200 Hz up to 7.7 kHz: finer than the ear's
# bands where those are wide, so that a band's loudness hardly changes.
EDGES = np.concatenate([np.arange(4, 79, 3), np.arange(79, 163, 4), np.arange(163, 308, 8)])
BANDS = len(EDGES) - 1  # 64

LABEL = "keybound-1/seal"
VERSION = 3  # of the numbers here: a change of any makes another seal, and rows of figures name it
SEED_BYTES = 32
POWER_FLOOR = 1e-9  # of a bin: some 15 dB under the noise of 16-bit samples

# How far a tile moves at most, by the frequency under which it lies. PESQ, STOI and ViSQOL fall
# most in the lowest bands, where a band of hearing holds no more than a tile or two; Zimtohrli
# falls most in the highest.
STRENGTHS_DB = ((500, 0.05), (1000, 0.37), (2000, 0.73), (4200, 1.03), (5500, 0.81), (8000, 0.66))
LEAST = 0.2  # of the strength that every tile gets
MIDDLE, WIDTH = -0.5, 1.0  # contrast, in units of its scale and towards the sign, that gets most
TILT = 0.35  # loud tiles get so much more, silent ones so much less
PAST = 52  # frames over which the loudness around a tile is judged
AHEAD = 5  # blocks after a block that can change its carrier

STRENGTH = np.array(  # of each band in dB
    [
        next(db for limit, db in STRENGTHS_DB if hz < limit)
        for hz in 12.5 * (EDGES[1:] + EDGES[:-1])
    ],
    np.float32,
)
_WINDOW = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
# How a level differs from what its neighbours predict: the middle row of the inverse covariance
# of levels in read speech, 2 frames and 2 bands to either side. One quadrant, the centre first.
_QUADRANT = np.array(
    [[1.0, -0.18, -0.244], [-0.48, 0.079, 0.107], [0.04, -0.005, 0.001]], np.float32
)


def signs(key: Key, code: Bits, position: int, first: int, count: int) -> Signs:
    """Return the pattern's columns `first` to `first + count` at a position: (count, BANDS) of ±1.

    Key, position and code give a seed, the seed a row of the keystream for each column; a set bit
    is +1. No two positions share any part of the pattern, nor do two codes: a seal is
    bound to the payload and the nonce of its mark too.
    """
    bound = keystream.check_position(position).to_bytes(4, "big") + np.packbits(code).tobytes()
    seed = key.derive(LABEL, SEED_BYTES, bound)
    return keystream.rows(seed, first, count, BANDS // 8).astype(np.int8) * 2 - 1


def embedder(key: Key, code: Bits, position: int) -> Feeder:
    """Return a feeder from the samples of a 16 kHz mono host to the carrier of the seal."""
    keystream.check_position(position)
    done = 0  # blocks

    def run(piece: Floats, keep: slice) -> Floats:
        nonlocal done
        count = keep.stop - keep.start
        # Around the recording there is silence: what lies there is the same however it is cut.
        after = len(piece) // HOP - keep.stop
        padding = ((PAST - keep.start) * HOP, (AHEAD - after) * HOP)
        padded = np.pad(piece, padding)
        first = done - PAST + 1  # frame j spans blocks j - 1 and j
        spectrum = _spectra(padded, HOP)  # (frames, BINS)
        frames = np.arange(first, first + len(spectrum))
        columns = frames // COLUMN_FRAMES
        pattern = np.zeros((len(frames), BANDS), np.float32)
        inside = columns >= 0
        begin = int(columns[inside][0])
        rows = signs(key, code, position, begin, int(columns[-1]) - begin + 1)
        pattern[inside] = rows[columns[inside] - begin]
        gains = STRENGTH * pattern * _share(spectrum, pattern, frames)
        due = slice(PAST - 1, PAST + count)  # frames done to done + count
        change = np.zeros((count + 1, BINS), np.float32)
        ratio = np.expm1(gains[due] * np.float32(np.log(10) / 20))
        change[:, EDGES[0] : EDGES[-1]] = np.repeat(ratio, np.diff(EDGES), axis=1)
        made = np.fft.irfft(spectrum[due] * change, axis=1).astype(np.float32, copy=False) * _WINDOW
        done += count
        return (made[:-1, HOP:] + made[1:, :HOP]).reshape(-1)

    return Feeder(run, HOP, (PAST, AHEAD))


def _share(
    spectrum: npt.NDArray[np.complex64], pattern: Floats, frames: npt.NDArray[np.int64]
) -> Floats:
    """Return the share of the strength that each tile gets: most where it turns a contrast."""
    levels = _levels(spectrum)
    residual = _residual(levels)
    square = np.pad(residual * residual, ((6, 1), (2, 2)), mode="edge")
    scale = np.sqrt(_box(square, 8, 5)) + 0.5
    power: Floats = np.pad(10 ** (levels / 10), ((PAST - 9, 2), (0, 0)), mode="edge")
    around = 10 * np.log10(_box(power, PAST - 6, 1))
    loud = np.clip((levels - around + 25) / 30, 0, 1)
    both = np.stack([residual / scale, loud])  # the same for the two frames of a tile
    odd = (frames % COLUMN_FRAMES == 1)[:, None]
    both = (both + np.where(odd, np.roll(both, 1, axis=1), np.roll(both, -1, axis=1))) / 2
    turned = np.exp(-np.square((both[0] * pattern - MIDDLE) / WIDTH))
    share: Floats = (LEAST + (1 - LEAST) * turned) * (1 - TILT + 2 * TILT * both[1])
    return share


def level_feeder() -> Feeder:
    """Return a feeder from 16 kHz mono samples to levels in dB: (blocks, 2, BANDS).

    The two of a block stand for the moments in its beginning and in its middle.
    """

    def run(piece: Floats, keep: slice) -> Floats:
        padded = np.pad(piece, ((1 - keep.start) * HOP, HOP))[: (keep.stop - keep.start + 2) * HOP]
        return _levels(_spectra(padded, STEP)[:-1]).reshape(-1, 2, BANDS)

    return Feeder(run, HOP, (1, 1))


def _spectra(samples: Floats, step: int) -> npt.NDArray[np.complex64]:
    """Return the spectra of all whole windows, a step apart: (frames, BINS)."""
    windows = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::step]
    return np.fft.rfft(windows * _WINDOW, axis=1).astype(np.complex64, copy=False)


def _levels(spectrum: npt.NDArray[np.complex64]) -> Floats:
    """Return the mean power in the bands in dB: (frames, BINS) to (frames, BANDS)."""
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    bands = np.add.reduceat(power[:, : EDGES[-1]], EDGES[:-1], axis=1) / np.diff(EDGES)
    levels: Floats = (10 * np.log10(bands + POWER_FLOOR)).astype(np.float32)
    return levels


def _residual(levels: Floats) -> Floats:
    """Return each level minus what its neighbours predict, of frames 20 ms apart."""
    rows, bands = levels.shape
    padded = np.pad(levels, ((2, 2), (2, 2)), mode="edge")
    made = np.zeros_like(levels)
    for (row, band), tap in np.ndenumerate(_QUADRANT):
        for up in {row, -row}:
            for right in {band, -band}:
                made += tap * padded[2 + up : 2 + up + rows, 2 + right : 2 + right + bands]
    return made


def _box(values: Floats, rows: int, columns: int) -> Floats:
    """Average over all rectangles of so many rows and columns that lie within."""
    height, width = len(values) - rows + 1, values.shape[1] - columns + 1
    tall = np.zeros((height, values.shape[1]), np.float32)
    for row in range(rows):  # in this order always: sums of floats depend on it
        tall += values[row : row + height]
    total = np.zeros((height, width), np.float32)
    for column in range(columns):
        total += tall[:, column : column + width]
    mean: Floats = (total / (rows * columns)).astype(np.float32)
    return mean
