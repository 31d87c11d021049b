"""What every network hears: blocks of time, short-time spectra, log-mel features. Nothing learned.

Time is cut into blocks of HOP samples; an analysis window spans two blocks. Shapes: a waveform is
(batch, samples), its length a multiple of HOP; features are (batch, channels, frames).
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RATE = 16000
HOP = 320  # 20 ms
SECOND = RATE // HOP  # frames
WINDOW = 2 * HOP
BINS = HOP + 1
MELS = 80
POWER_SCALE = 1e6  # brings powers to where the floor is no tiny constant: exporters drop those
POWER_FLOOR = 1e-3  # of a scaled mel band: about 30 dB under one step of 16-bit audio


def mel_bank(bands: int, bins: int, rate: int = RATE) -> Tensor:
    """Return triangular mel filters of unit sum per bin: (bands, bins).

    The outer filters are flat to the edges, so gains spread by the transpose reach every bin.
    """
    mel = torch.linspace(0, rate / 2, bins, dtype=torch.float64)
    mel = 2595 * torch.log10(1 + mel / 700)
    centre = torch.linspace(0, float(mel[-1]), bands + 2, dtype=torch.float64)[1:-1]
    place = (mel - centre[0]) / (centre[1] - centre[0])  # in units of bands
    place = place.clamp(0, bands - 1)
    bank = 1 - (place[None] - torch.arange(bands, dtype=torch.float64)[:, None]).abs()
    return bank.clamp(min=0).float()


def line(points: tuple[tuple[float, float], ...], hz: Tensor) -> Tensor:
    """Return a line through (Hz, factor) at some frequencies, level beyond its ends."""
    factor = torch.full_like(hz, points[0][1])
    for (low, below), (high, above) in pairwise(points):
        factor += (above - below) * ((hz - low) / (high - low)).clamp(0, 1)
    return factor


class Spectrum(nn.Module):
    """Short-time spectrum with a square-root Hann window over two blocks, and its inverse.

    Phases refer to the middle of the window, so the real part needs only the part of the frame
    that is even about its middle, the imaginary part the odd one: half the multiplications of a
    plain transform, which matters because this product is a fair share of the whole cost.
    """

    cosine: Tensor
    sine: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        n = torch.arange(HOP, dtype=torch.float64)  # samples after the middle of the window
        window = torch.cos(math.pi * n / WINDOW)  # sqrt of a periodic Hann window
        phase = 2 * math.pi * torch.arange(BINS, dtype=torch.float64)[:, None] * n / WINDOW
        self.register_buffer("cosine", (window * phase.cos()).float(), persistent=False)
        self.register_buffer("sine", (-window * phase.sin()).float(), persistent=False)
        weight = torch.full((BINS, 1), 2 / WINDOW)  # bins other than the outer two stand for two
        weight[0] = weight[-1] = 1 / WINDOW
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Return real and imaginary parts (batch, BINS, frames) of blocks (batch, HOP, frames + 1).

        Sample HOP - n before the middle pairs with sample HOP + n after it; the window is zero
        on the first sample of a frame, which has no partner.
        """
        before = F.pad(blocks[:, 1:, :-1].flip(1), (0, 0, 1, 0))  # (batch, HOP, frames)
        after = blocks[:, :, 1:]
        return self.cosine @ (after + before), self.sine @ (after - before)

    def inverse(self, real: Tensor, imag: Tensor) -> Tensor:
        """Overlap-add frames back to blocks: (batch, BINS, frames) to (batch, HOP, frames - 1)."""
        even = self.cosine.T @ (real * self.weight)  # (batch, HOP, frames)
        odd = self.sine.T @ (imag * self.weight)
        before = F.pad((even - odd)[:, 1:].flip(1), (0, 0, 1, 0))
        return (even + odd)[:, :, :-1] + before[:, :, 1:]


def to_blocks(x: Tensor, left: int, right: int) -> Tensor:
    """Pad a waveform with zeros and cut it into blocks: (batch, HOP, blocks)."""
    padded = F.pad(x, (left, right))
    return padded.reshape(x.shape[0], -1, HOP).transpose(1, 2)


def code_signs(code: Tensor, frames: int) -> Tensor:
    """Return a code of 0 and 1 as signs: (batch, bits, frames or 1).

    It is (batch, bits) for a whole clip, or (batch, bits, blocks) with a code for each block; a
    frame has the code of the block in which its window's second half lies, or of the last one.
    """
    signs = 2 * code - 1
    signs = signs[:, :, None] if code.dim() == 2 else F.pad(signs, (0, 1), mode="replicate")
    return signs[:, :, :frames]


def project_code(linear: nn.Linear, code: Tensor, frames: int) -> Tensor:
    """Project a code, as `code_signs` takes it, to what frames are told: (batch, width, ...)."""
    projected = linear.weight @ code_signs(code, frames)
    return (projected.transpose(1, 2) + linear.bias).transpose(1, 2)  # exported under its name


class LogMel(nn.Module):
    """Phase-free log-mel features relative to a level. Nothing in it is learned."""

    bank: Tensor
    level_kernel: Tensor

    def __init__(self, past: int, future: int) -> None:
        super().__init__()
        self.past, self.future = past, future
        self.register_buffer("bank", POWER_SCALE * mel_bank(MELS, BINS), persistent=False)
        span = past + 1 + future
        self.register_buffer("level_kernel", torch.full((1, 1, span), 1 / span), persistent=False)

    def forward(self, real: Tensor, imag: Tensor) -> Tensor:
        """Return features relative to the local level, in nepers of amplitude."""
        return relative(*self.levels(real, imag))

    def levels(self, real: Tensor, imag: Tensor) -> tuple[Tensor, Tensor]:
        """Return the power of bands (batch, MELS, frames) and the local level (batch, 1, frames).

        The level is the mean over bands and over the frames that the features look at.
        """
        mel = self.bank @ (real * real + imag * imag) + POWER_FLOOR
        power = mel.mean(1, keepdim=True)
        level = F.conv1d(
            F.pad(power, (self.past, self.future), mode="replicate"), self.level_kernel
        )
        return mel, level


def relative(mel: Tensor, level: Tensor) -> Tensor:
    """Return powers relative to a level in nepers of amplitude."""
    return 0.5 * (mel.log() - level.log())
