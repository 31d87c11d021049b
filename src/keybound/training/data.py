"""Speech and noise for training: folders of recordings in, random segments out.

A corpus is one long stream on the device, so drawing a batch is one gather. Every draw takes its
generator, which makes step k the same step after a resume.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import soundfile
import soxr
import torch
from torch import Tensor

from keybound.errors import RecipeError
from keybound.training.nets import HOP, RATE
from keybound.training.recipe import DataSpec


def read_folder(folder: Path, *, level: bool) -> list[np.ndarray]:
    """Read all recordings under a folder as 16 kHz mono, each brought to unit rms if asked."""
    paths = sorted(p for p in folder.rglob("*") if p.suffix in (".flac", ".wav", ".ogg"))
    if not paths:
        raise RecipeError(f"no recordings under {folder}", hint="FLAC, WAV or OGG files are read")

    def one(path: Path) -> np.ndarray:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        mono = soxr.resample(samples.mean(1), rate, RATE) if rate != RATE else samples[:, 0]
        return mono / (np.sqrt(np.mean(mono**2)) + 1e-6) if level else mono

    with ThreadPoolExecutor() as pool:
        return list(pool.map(one, paths))


def stretched(recordings: list[np.ndarray], speed: float) -> list[np.ndarray]:
    """Play recordings faster or slower: other pitches and formants from the same speakers."""
    if speed == 1.0:
        return recordings
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda r: soxr.resample(r, RATE * speed, RATE), recordings))


class Stream:
    """Recordings end to end on a device, cut at random places."""

    def __init__(self, recordings: list[np.ndarray], device: torch.device) -> None:
        self.samples = torch.from_numpy(np.concatenate(recordings)).to(device)

    def draw(self, count: int, length: int, generator: torch.Generator) -> Tensor:
        """Cut `count` segments at uniform offsets: (count, length)."""
        device = self.samples.device
        start = torch.rand(count, 1, generator=generator, device=device, dtype=torch.float64)
        start = (start * (len(self.samples) - length)).long()
        return self.samples[start + torch.arange(length, device=device)]


class Hosts:
    """Random hosts: speech at a random speed and level, sometimes tilted or a little noisy."""

    def __init__(self, speech: Path, noise: Stream, spec: DataSpec, device: torch.device) -> None:
        recordings = read_folder(speech, level=True)
        copies = [r for speed in spec.speeds for r in stretched(recordings, speed)]
        self.stream = Stream(copies, device)
        self.noise, self.spec = noise, spec

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Give hosts (count, samples)."""
        length, spec = self.spec.segment_frames * HOP, self.spec
        device = self.stream.samples.device

        def uniform(low: float, high: float) -> Tensor:
            u = torch.rand(count, 1, generator=generator, device=device)
            return low + (high - low) * u

        x = self.stream.draw(count, length, generator)
        if spec.tilt_db:
            octave = torch.linspace(-1, 1, length // 2 + 1, device=device)[None]
            tilt = 10 ** (uniform(-spec.tilt_db, spec.tilt_db) * octave / 20)
            x = torch.fft.irfft(torch.fft.rfft(x) * tilt, n=length)
        if spec.noisy:
            noise = self.noise.draw(count, length, generator)
            level = 10 ** (-uniform(15, 40) / 20) * (uniform(0, 1) < spec.noisy)
            x = x + noise * level / (noise.square().mean(-1, keepdim=True).sqrt() + 1e-4)
        return x * 10 ** (uniform(*spec.level_db) / 20)


def splice(
    marked: Tensor, host: Tensor, share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Leave only a stretch marked in a share of the clips, the rest their own or another host.

    Gives the audio, the presence target of each frame, and the frame weights, which are zero
    where a frame lies across the splice.
    """
    count, length = marked.shape
    device = marked.device
    u = torch.rand(count, 4, generator=generator, device=device)
    width = (0.3 + 0.5 * u[:, :1]) * length
    start = u[:, 1:2] * (length + width) - width  # may begin before or end after the clip
    time = torch.arange(length, device=device)
    inside = (time >= start) & (time < start + width)
    inside |= u[:, 2:3] >= share  # most clips are marked throughout
    foreign = torch.where(u[:, 3:4] < 0.5, host, host.roll(1, 0))
    audio = torch.where(inside, marked, foreign)
    frames = inside.float().reshape(count, -1, HOP).mean(-1)
    edge = torch.nn.functional.avg_pool1d(frames[:, None], 5, 1, 2, count_include_pad=False)[:, 0]
    weight = ((edge == 0) | (edge == 1)).float()
    return audio, (frames > 0.5).float(), weight
