"""Sounds that are not speech, made by synthesis: silence of several kinds, tones, music.

Knows nothing of marks, keys or networks.
"""

import numpy as np
import scipy.signal

from keybound.attacks.music import compose
from keybound.attacks.rates import Samples

PIECE_S = 8.0  # of a made sound: long enough for a melody, short enough for many
Generator = np.random.Generator


def silence(rng: Generator, rate: int) -> Samples:
    """Make one kind of silence: nothing, an offset, dither of 16 bits, or a faint hiss."""
    size = round(PIECE_S * rate)
    step = 1 / 32768
    kind = rng.integers(4)
    if kind == 0:
        sound = np.zeros(size)
    elif kind == 1:
        sound = np.full(size, rng.uniform(-0.1, 0.1))
    elif kind == 2:
        sound = np.rint(rng.random(size) - rng.random(size)) * step
    else:
        sound = rng.standard_normal(size) * 10 ** (rng.uniform(-90, -60) / 20)
    return np.asarray(sound, np.float32)


def tones(rng: Generator, rate: int) -> Samples:
    """Make a tone: sine, square, sawtooth, sweep, dial tone, or one that beats or sings."""
    time = np.arange(round(PIECE_S * rate)) / rate
    pitch = 2 * np.pi * np.exp(rng.uniform(np.log(60), np.log(0.4 * rate)))  # radians a second
    kind = rng.integers(6)
    if kind == 0:
        sound = np.sin(pitch * time)
    elif kind == 1:
        wave = scipy.signal.square if rng.random() < 0.5 else scipy.signal.sawtooth
        sound = wave(min(pitch, 2 * np.pi * 2000) * time)
    elif kind == 2:
        sound = scipy.signal.chirp(time, 50, PIECE_S, 0.45 * rate, method="logarithmic")
    elif kind == 3:  # a dialled number: two tones a digit, five digits a second
        low = rng.choice([697, 770, 852, 941], size=round(5 * PIECE_S) + 1)
        high = rng.choice([1209, 1336, 1477, 1633], size=len(low))
        digit = (5 * time).astype(int)
        pair = np.sin(2 * np.pi * low[digit] * time) + np.sin(2 * np.pi * high[digit] * time)
        sound = pair * (5 * time % 1 < 0.6)
    elif kind == 4:
        sound = np.sin(pitch * time) * (1 + np.sin(2 * np.pi * rng.uniform(1, 60) * time))
    else:
        sound = np.sin(pitch / 2 * time + 20 * np.sin(2 * np.pi * rng.uniform(0.2, 6) * time))
    return _at_level(sound, rng)


def music(rng: Generator, rate: int) -> Samples:
    """Make something like music: chords, a plucked melody, a bass and a drum at one tempo."""
    return _at_level(compose(rng, rate, round(PIECE_S * rate)), rng)


def _at_level(sound: np.ndarray, rng: Generator) -> Samples:
    """Bring a sound to a random peak between -30 dB and full scale."""
    peak = 10 ** (rng.uniform(-30, 0) / 20)
    return np.asarray(peak * sound / (np.abs(sound).max() + 1e-12), np.float32)


MADE = {"silence": silence, "tones": tones, "music": music}
