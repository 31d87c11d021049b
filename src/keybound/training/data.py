"""Speech and noise for training: folders of recordings in, random segments out.

A corpus is one long stream on the device, so drawing a batch is one gather. Every draw takes its
generator, which makes step k the same step after a resume.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
import soxr
import torch
import torch.nn.functional as F
from torch import Tensor

from keybound.audio.formats import SNDFILE_SUFFIXES
from keybound.errors import RecipeError
from keybound.training.recipe import DataSpec
from keybound.training.spectra import HOP, RATE, SECOND, Spectrum, to_blocks

PAUSE_DB = -30.0  # a fifth of a second this far under its recording is a pause


def read_folder(folder: Path, *, level: bool) -> list[np.ndarray]:
    """Read all recordings under a folder as 16 kHz mono, each brought to unit rms if asked."""
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SNDFILE_SUFFIXES)
    if not paths:
        raise RecipeError(
            f"no recordings under {folder}", hint=f"files ending in {', '.join(SNDFILE_SUFFIXES)}"
        )

    def one(path: Path) -> np.ndarray:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        mono = samples.mean(1)
        if rate != RATE:
            mono = soxr.resample(mono, rate, RATE)
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
        starts = np.cumsum([0, *(len(r) for r in recordings[:-1])])
        self.starts = torch.from_numpy(starts).to(device)

    def draw(
        self, count: int, length: int, generator: torch.Generator, openings: float = 0.0
    ) -> Tensor:
        """Cut `count` segments at uniform offsets, a share where a recording begins."""
        device = self.samples.device
        last = len(self.samples) - length
        if last < 0:
            raise RecipeError("too little audio to cut a segment from")
        place = torch.rand(count, 1, generator=generator, device=device, dtype=torch.float64)
        start = (place * last).long()
        if openings:
            begin = self.starts[(place * len(self.starts)).long()].clamp(max=last)
            chosen = torch.rand(count, 1, generator=generator, device=device) < openings
            start = torch.where(chosen, begin, start)
        return self.samples[start + torch.arange(length, device=device)]  # (count, length)


class Hosts:
    """Random hosts: speech at a random speed and level, sometimes tilted or a little noisy."""

    def __init__(self, speech: Path, noise: Stream, spec: DataSpec, device: torch.device) -> None:
        recordings = read_folder(speech, level=True)
        copies = [r for speed in spec.speeds for r in stretched(recordings, speed)]
        self.stream = Stream(copies, device)
        self.noise, self.spec = noise, spec

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return hosts (count, samples), and which of their frames hold or adjoin sound.

        A pause takes no mark, so nobody should learn to see one there.
        """
        length, spec = self.spec.segment_frames * HOP, self.spec
        device = self.stream.samples.device

        def uniform(low: float, high: float) -> Tensor:
            u = torch.rand(count, 1, generator=generator, device=device)
            return low + (high - low) * u

        x = self.stream.draw(count, length, generator, spec.openings)
        power = x.reshape(count, -1, HOP).square().mean(-1)
        near = F.avg_pool1d(power[:, None], 21, 1, 10, count_include_pad=False)[:, 0]
        voiced = near > 10 ** (PAUSE_DB / 10)  # (count, frames)
        if spec.tilt_db:
            octave = torch.linspace(-1, 1, length // 2 + 1, device=device)[None]
            tilt = 10 ** (uniform(-spec.tilt_db, spec.tilt_db) * octave / 20)
            x = torch.fft.irfft(torch.fft.rfft(x) * tilt, n=length)
        if spec.noisy:
            noise = self.noise.draw(count, length, generator)
            level = 10 ** (-uniform(15, 40) / 20) * (uniform(0, 1) < spec.noisy)
            x = x + noise * level / (noise.square().mean(-1, keepdim=True).sqrt() + 1e-4)
        return x * 10 ** (uniform(*spec.level_db) / 20), voiced

    def non_speech(self, count: int, generator: torch.Generator) -> Tensor:
        """Return sounds that are not speech, of which nobody should think that they are marked.

        Half are recorded noise, the others silence, noise of any colour, tones with harmonics
        that glide, hum, and clicks. A third have a constant offset.
        """
        length, device = self.spec.segment_frames * HOP, self.stream.samples.device

        def uniform(low: float, high: float) -> Tensor:
            u = torch.rand(count, 1, generator=generator, device=device)
            return low + (high - low) * u

        recorded = self.noise.draw(count, length, generator)
        white = torch.randn(count, length, generator=generator, device=device)
        hz = torch.linspace(0, RATE / 2, length // 2 + 1, device=device)
        coloured = torch.fft.irfft(torch.fft.rfft(white) * (hz + 30) ** -uniform(0, 1.5), n=length)
        time = torch.arange(length, device=device) / RATE
        hum = uniform(0, 1) < 0.3
        pitch = torch.where(
            hum, torch.where(uniform(0, 1) < 0.5, 50.0, 60.0), 10 ** uniform(1.7, 3.5)
        )
        glide = torch.where(hum, 0.0, uniform(-1, 1))
        phase = 2 * torch.pi * (pitch * time + glide * pitch * time**2 / 2)
        tone = sum((torch.sin(k * phase) / k**2 for k in range(2, 6)), torch.sin(phase))
        clicks = white * (white.abs() > 3.3)
        kind = uniform(0, 1)
        sound = torch.where(kind < 0.5, recorded, coloured)
        sound = torch.where(kind < 0.75, sound, tone)
        sound = torch.where(kind < 0.85, sound, clicks)
        sound = sound / (sound.square().mean(-1, keepdim=True).sqrt() + 1e-6)
        sound = sound * 10 ** (uniform(-60, -10) / 20)
        sound = torch.where(kind < 0.95, sound, 0.0)  # digital silence
        offset = uniform(-1, 1).sign() * 10 ** uniform(-4, -0.7)
        return sound + torch.where(uniform(0, 1) < 0.33, offset, 0.0)


@cache
def spectrum_on(device: torch.device) -> Spectrum:
    return Spectrum().to(device)


def sealed(marked: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Move small tiles of a share of the clips by up to .6 dB, as a seal does."""
    spectrum = spectrum_on(marked.device)
    real, imag = spectrum(to_blocks(marked, HOP, HOP))
    count, bins, frames = real.shape
    shape = (count, -(-bins // 4), -(-frames // 2))
    u = torch.rand(2, *shape, generator=generator, device=marked.device)
    chosen = torch.rand(count, 1, 1, generator=generator, device=marked.device) < share
    gain = (u[0] - 0.5).sign() * (0.1 + 0.5 * u[1]) * chosen  # dB
    tiles = gain.repeat_interleave(4, 1).repeat_interleave(2, 2)[:, :bins, :frames]
    change = torch.expm1(tiles * (math.log(10) / 20))
    added = spectrum.inverse(real * change, imag * change)
    return marked + added.transpose(1, 2).reshape(marked.shape)


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
    edge = F.avg_pool1d(frames[:, None], 5, 1, 2, count_include_pad=False)[:, 0]
    weight = ((edge == 0) | (edge == 1)).float()
    return audio, (frames > 0.5).float(), weight


def cropped(count: int, frames: int, share: float, generator: torch.Generator) -> Tensor:
    """Draw 1 for each frame that is heard: in a share of clips only half a second to two."""
    u = torch.rand(3, count, 1, generator=generator, device=generator.device)
    width = (0.5 + 1.5 * u[0]).clamp(max=frames / SECOND) * SECOND
    start = u[1] * (frames - width)
    time = torch.arange(frames, device=generator.device) + 0.5
    inside = (time >= start) & (time < start + width)
    return (inside | (u[2] >= share)).float()


def turns(count: int, frames: int, share: float, generator: torch.Generator) -> Tensor:
    """Draw 1 for each frame, but in a share of clips -1 in every other second, from anywhere on."""
    u = torch.rand(2, count, 1, generator=generator, device=generator.device)
    time = torch.arange(frames, device=generator.device) + (u[0] * 2 * SECOND).floor()
    odd = (time // SECOND % 2 == 1) & (u[1] < share)
    return 1 - 2 * odd.float()


def turned(carrier: Tensor, other: Tensor, turn: Tensor) -> Tensor:
    """Take the other carrier where `turn` (clips, frames) is -1, faded over about a frame."""
    smooth = F.interpolate(turn[:, None], scale_factor=HOP, mode="linear")[:, 0]
    return ((1 + smooth) * carrier + (1 - smooth) * other) / 2
