"""Recordings of several formats, rates, lengths and channels: marked, unmarked, attacked.

Some of those that are long enough spell a public identifier.
"""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile as sf

from keybound.attacks import attack
from keybound.audio.recordings import resample
from keybound.crypto.keys import Key
from keybound.identity.identifier import public
from keybound.watermark.options import EmbedOptions

RATE = 16_000
FORMATS = ("wav", "mp3", "flac", "ogg", "m4a", "opus")
RATES = (16_000, 44_100, 48_000, 24_000, 8_000, 22_050)
LENGTHS_S = (4.0, 1.5, 9.0, 0.7, 33.0)
ATTACKS = (None, None, "mp3", "noise", "lowpass", "echo", "gain")


def recordings(folder: Path, clips: dict[str, Any], marker: Any, count: int) -> Iterator[Path]:
    """Write so many recordings, the same for the same number, and yield their paths."""
    voices = list(clips.values())
    for number in range(count):
        rng = np.random.default_rng(number)
        length = round(LENGTHS_S[number % len(LENGTHS_S)] * RATE)
        voice = voices[number % len(voices)]
        clip = np.resize(np.roll(voice, -number * 997), length).astype(np.float32)
        sound = clip
        if number % 3:  # two of three carry a mark, one of them in part
            how = EmbedOptions(Key(bytes([number]) * 32), number, position=0)
            if length >= 5 * RATE and number % 2 == 0:
                how = replace(how, identifier=public(number, issuer=7))
            stream = marker.embedder(RATE, how.within(length / RATE))
            sound = np.concatenate([stream.push(clip), stream.flush()])
            if number % 7 == 4:
                sound = np.where(np.arange(length) < length // 2, sound, clip)
        hit = ATTACKS[number % len(ATTACKS)]
        if hit is not None:
            own = attack(hit)
            sound = own.apply(sound, RATE, own.draw(rng, None)).astype(np.float32)
        yield _written(folder, number, np.clip(sound, -1, 1), clip[: len(sound)])


def _written(folder: Path, number: int, sound: Any, other: Any) -> Path:
    kind, rate = FORMATS[number % len(FORMATS)], RATES[number // 2 % len(RATES)]
    rate = 48_000 if kind == "opus" else rate
    samples = resample(sound, RATE, rate)
    if number % 5 == 2:  # a channel that is not marked beside it
        samples = np.stack([resample(other, RATE, rate)[: len(samples)], samples], axis=1)
    path = folder / f"{number:03}.{kind}"
    ffmpeg = shutil.which("ffmpeg")
    if kind in ("m4a", "opus") and ffmpeg:
        wav = path.with_suffix(".wav")
        sf.write(wav, samples, rate)
        subprocess.run([ffmpeg, "-v", "error", "-y", "-i", wav, path], check=True)
        wav.unlink()
    else:
        path = path.with_suffix(".flac") if kind in ("m4a", "opus") else path
        sf.write(path, samples, rate)
    return path
