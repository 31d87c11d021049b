"""A recording played by a loudspeaker in a room and recorded again: simulated, all of it.

The room is a shoebox by the image-source method (Allen and Berkley, 1979). Knows nothing of marks,
keys or networks.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from keybound.attacks.rates import Samples
from keybound.attacks.signal import highpass, lowpass, pink

SOUND_M_S = 343.0
ROOM_M = np.array([6.0, 5.0, 2.7])  # about 20 % more or less in each direction, drawn
MARGIN_M = 0.5  # that loudspeaker and microphone keep from the walls
SPEAKER_HZ = (180.0, 7000.0)  # the band of a small loudspeaker


def replay(
    samples: Samples,
    sample_rate: int,
    *,
    distance_m: float,
    rt60_s: float,
    drive: float,
    noise_db: float,
    seed: int,
) -> Samples:
    """Play the clip by a small loudspeaker and record it at a distance, at the level it had.

    The loudspeaker has a band and clips softly: `drive` is the peak at the input of its tanh. Pink
    noise lies `noise_db` under the direct sound at one metre, so further away it is nearer to the
    speech. The recording begins with the direct sound.
    """
    peak = float(np.abs(samples).max())
    if peak == 0.0:
        return samples
    played: Samples = np.tanh(samples * np.float32(drive / peak)) / np.float32(drive)
    for limit, cutoff_hz in zip((highpass, lowpass), SPEAKER_HZ, strict=True):
        played = limit(played, sample_rate, cutoff_hz=cutoff_hz)
    response = room_response(sample_rate, distance_m, rt60_s, seed)
    heard: Samples = fftconvolve(played, response)[: samples.size]
    hiss = pink(played, sample_rate, snr_db=0.0, seed=seed) - played  # as loud as what is played
    heard = heard + hiss * (distance_m * 10 ** (-noise_db / 20))
    level = np.linalg.norm(samples.astype(np.float64)) / (np.linalg.norm(heard) + 1e-30)
    louder: Samples = heard * level
    return louder


@lru_cache(maxsize=8)
def room_response(
    sample_rate: int, distance_m: float, rt60_s: float, seed: int
) -> NDArray[np.float64]:
    """Return what a microphone at a distance hears of a click: the direct sound first, at 1.

    The seed draws the room's size and where loudspeaker and microphone stand. The walls absorb as
    much at every frequency as Eyring's formula asks for the reverberation time.
    """
    rng = np.random.default_rng(seed)
    room = ROOM_M * rng.uniform(0.8, 1.2, 3)
    source, microphone = _places(rng, room, distance_m)
    surface = 2 * (room[0] * room[1] + room[1] * room[2] + room[2] * room[0])
    bounce = math.exp(-0.5 * 0.161 * math.prod(room) / (surface * rt60_s))  # of pressure
    furthest_m = distance_m + SOUND_M_S * rt60_s
    reach = np.ceil(furthest_m / (2 * room)).astype(int) + 1
    squares, bounces = np.zeros((1, 1, 1)), np.zeros((1, 1, 1))
    for axis in range(3):
        order = np.arange(-reach[axis], reach[axis] + 1)
        # Images stand at 2nL + s, after 2|n| bounces, and at 2nL - s, after |2n - 1|.
        at = np.concatenate([2 * order * room[axis] + sign * source[axis] for sign in (1, -1)])
        count = np.concatenate([np.abs(2 * order), np.abs(2 * order - 1)])
        shape = [1, 1, 1]
        shape[axis] = -1
        squares = squares + ((at - microphone[axis]) ** 2).reshape(shape)
        bounces = bounces + count.reshape(shape)
    away_m = np.sqrt(squares).ravel()
    near = away_m <= furthest_m
    away_m, gains = away_m[near], distance_m / away_m[near] * bounce ** bounces.ravel()[near]
    late = np.maximum(away_m - distance_m, 0) / SOUND_M_S * sample_rate  # samples
    first, part = late.astype(int), late % 1
    response = np.zeros(int(first.max()) + 2)
    np.add.at(response, first, gains * (1 - part))
    np.add.at(response, first + 1, gains * part)
    return response


def _places(
    rng: np.random.Generator, room: NDArray[np.float64], distance_m: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw where loudspeaker and microphone stand: on one height, off the walls."""
    while True:
        source = rng.uniform(MARGIN_M, room - MARGIN_M)
        angle = rng.uniform(0, 2 * np.pi)
        microphone = source + distance_m * np.array([np.cos(angle), np.sin(angle), 0.0])
        if np.all(microphone >= MARGIN_M) and np.all(microphone <= room - MARGIN_M):
            return source, microphone
