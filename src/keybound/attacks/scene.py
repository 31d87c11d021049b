"""Scenes: the room around the speaker, and other sounds in it.

Knows nothing of marks, keys or networks.
"""

import os
from pathlib import Path

import numpy as np
import soundfile as sf
from scipy.signal import fftconvolve

from keybound.attacks.rates import Samples, resample
from keybound.attacks.signal import add_at
from keybound.audio.formats import SNDFILE_SUFFIXES
from keybound.errors import AttackError


def reverb(
    samples: Samples, sample_rate: int, *, rt60_s: float, direct_db: float, seed: int
) -> Samples:
    """Return the clip as it sounds in a simulated room.

    Its response is the direct sound and then Gaussian noise that falls by 60 dB in `rt60_s`;
    `direct_db` is the ratio of their energies (0 dB: about 0.7 m from the speaker in a living room
    of 50 cubic metres). The response has unit energy; the tail beyond the clip is cut.
    """
    tail = np.random.default_rng(seed).standard_normal(max(round(rt60_s * sample_rate), 1))
    tail *= 10 ** (-3 * np.arange(tail.size) / tail.size)
    tail *= 10 ** (-direct_db / 20) / np.linalg.norm(tail)
    response = np.concatenate([[1.0], tail])
    sounding: Samples = fftconvolve(samples, response / np.linalg.norm(response))
    return sounding[: samples.size]


def noise_recordings() -> list[Path]:
    """Return the recordings in the folder of noise, which `KEYBOUND_NOISE` names."""
    named = os.environ.get("KEYBOUND_NOISE")
    found = sorted(Path(named).iterdir()) if named and Path(named).is_dir() else []
    recordings = [file for file in found if file.suffix.lower() in SNDFILE_SUFFIXES]
    if not recordings:
        raise AttackError(
            "background: recordings absent",
            hint="set KEYBOUND_NOISE to a folder of noise recordings",
        )
    return recordings


def background(samples: Samples, sample_rate: int, *, snr_db: float, seed: int) -> Samples:
    """Add a piece of a recording of noise at `snr_db` below the energy of the clip.

    The seed chooses the recording, by its index in the order of names, and where the piece begins;
    a recording too short for the clip is repeated, one that is silent there passed over.
    """
    rng = np.random.default_rng(seed)
    recordings = noise_recordings()
    for index in rng.permutation(len(recordings)):
        stored, stored_hz = sf.read(recordings[index], dtype="float32", always_2d=True)
        recording = resample(stored.mean(axis=1), stored_hz, sample_rate)
        if recording.size == 0:
            continue
        begin = int(rng.integers(recording.size))
        piece = np.resize(np.roll(recording, -begin), samples.size)
        if np.any(piece):
            return add_at(samples, piece, snr_db)
    raise AttackError("background: recordings are silent", hint="set KEYBOUND_NOISE to another")
