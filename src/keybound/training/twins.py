"""Attacks on the waveform as training meets them: differentiable, on batches; and their tools."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from keybound.training.data import Stream
from keybound.training.spectra import RATE

Range = tuple[float, float]


@dataclass(frozen=True)
class Strengths:
    """How strong the attacks that the paper tests are in training, from and to."""

    noise_db: Range = (3, 30)
    pink: bool = True  # noise may be coloured
    biquads: bool = False  # filters are the tested ones, phase and all: one edge, 12 dB an octave
    lowpass_hz: Range = (2500, 7000)
    highpass_hz: Range = (80, 900)
    resample_hz: Range = (3000, 7800)
    bits: Range = (6.5, 12)
    smoothing: int = 15  # samples at most
    echo_ms: tuple[int, int] = (30, 300)
    echo_decay: Range = (0.2, 0.6)


STRENGTHS = {
    "wide": Strengths(),
    "paper": Strengths(
        noise_db=(6, 25),
        pink=False,
        biquads=True,
        lowpass_hz=(3500, 7000),
        highpass_hz=(200, 700),
        resample_hz=(5600, 7800),
        bits=(7.5, 12),
        smoothing=9,
        echo_ms=(50, 200),
        echo_decay=(0.2, 0.5),
    ),
}


@dataclass
class Tools:
    """What attacks may use: randomness, noise recordings, networks that re-synthesise."""

    generator: torch.Generator
    cpu: torch.Generator
    noise: Stream
    neural: dict[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    remover: Callable[[Tensor], Tensor] | None = None
    unused: list[str] = field(default_factory=list)  # neural codecs not yet met in this step
    strengths: Strengths = STRENGTHS["wide"]
    shift: int = 160  # samples that any clip is moved by, at most

    def begin(self, seed: int) -> None:
        """Start a step: everything drawn from here on follows from the seed."""
        self.generator.manual_seed(seed)
        self.cpu.manual_seed(seed)
        self.unused = sorted(self.neural)

    def uniform(self, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0) -> Tensor:
        u = torch.rand(shape, generator=self.generator, device=self.generator.device)
        return low + (high - low) * u

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.generator.device)

    def whole(self, low: int, high: int) -> int:
        """Draw one whole number for the batch on the CPU, so the device is not waited for."""
        share = torch.rand((), generator=self.cpu).item()
        return low + min(high - low, int(share * (high - low + 1)))


Attack = Callable[[Tensor, Tools], Tensor]


def rms(y: Tensor) -> Tensor:
    return torch.sqrt(y.square().mean(-1, keepdim=True) + 1e-10)


def filtered(y: Tensor, response: Callable[[Tensor], Tensor]) -> Tensor:
    """Filter by a response, real or complex, of frequency in Hz: (clips, bins)."""
    length = y.shape[-1]
    hz = torch.linspace(0, RATE / 2, length // 2 + 1, device=y.device)[None]
    return torch.fft.irfft(torch.fft.rfft(y) * response(hz), n=length)


def identity(y: Tensor, tools: Tools) -> Tensor:  # noqa: ARG001
    return y


def noise(y: Tensor, tools: Tools) -> Tensor:
    """Add white noise, or white to pinkish, at 3 to 30 dB or what the strengths say."""
    coloured = tools.normal(y.shape)
    if tools.strengths.pink:
        slope = tools.uniform((len(y), 1), -0.2, 1.0).clamp(min=0) * 0.5
        coloured = filtered(coloured, lambda hz: (hz + 50) ** -slope)
    snr = tools.uniform((len(y), 1), *tools.strengths.noise_db)
    return y + coloured * (rms(y) / rms(coloured) * 10 ** (-snr / 20)).detach()


def hard_noise(y: Tensor, tools: Tools) -> Tensor:
    """Add white noise at 5 to 15 dB."""
    snr = tools.uniform((len(y), 1), 5, 15)
    return y + tools.normal(y.shape) * (rms(y) * 10 ** (-snr / 20)).detach()


def background(y: Tensor, tools: Tools) -> Tensor:
    """Add recorded noise at 3 to 25 dB."""
    n = tools.noise.draw(len(y), y.shape[-1], tools.generator)
    snr = tools.uniform((len(y), 1), 3, 25)
    return y + n * (rms(y) / rms(n) * 10 ** (-snr / 20)).detach()


def band_filter(y: Tensor, tools: Tools) -> Tensor:
    """Cut highs, lows or both with slopes of 6 to 48 dB an octave, or either with a biquad."""
    clips = (len(y), 1)
    use_low, use_high = tools.uniform(clips) < 0.7, tools.uniform(clips) < 0.5
    low = 10 ** tools.uniform(clips, *(math.log10(hz) for hz in tools.strengths.lowpass_hz))
    high = 10 ** tools.uniform(clips, *(math.log10(hz) for hz in tools.strengths.highpass_hz))
    if tools.strengths.biquads:
        edge = torch.where(use_high, high, low)
        return filtered(y, lambda hz: biquad(hz, edge, use_high))
    order = 2 * 2 ** tools.uniform(clips, 0, 3)

    def response(hz: Tensor) -> Tensor:
        keep_low = torch.rsqrt(1 + (hz / low) ** order)
        keep_high = torch.rsqrt(1 + (high / (hz + 1)) ** order)
        return torch.where(use_low, keep_low, 1.0) * torch.where(use_high, keep_high, 1.0)

    return filtered(y, response)


def biquad(hz: Tensor, edge_hz: Tensor, high: Tensor) -> Tensor:
    """Return the response of the cookbook's second-order low-pass, or high-pass, at Q 0.7071."""
    turn = 2 * math.pi / RATE
    back = torch.polar(torch.ones_like(hz), -turn * hz)  # one sample later
    cosine = torch.cos(turn * edge_hz)
    alpha = torch.sin(turn * edge_hz) * math.sqrt(0.5)
    sign = torch.where(high, -1.0, 1.0)
    zeros = (1 - sign * cosine) / 2 * (1 + sign * back) ** 2
    return zeros / (1 + alpha - 2 * cosine * back + (1 - alpha) * back**2)


def resample(y: Tensor, tools: Tools) -> Tensor:
    """Lose everything above 3 to 7.8 kHz, as a lower rate and back does."""
    edge = tools.uniform((len(y), 1), *tools.strengths.resample_hz)
    return filtered(y, lambda hz: torch.sigmoid((edge - hz) / 30))


def equalise(y: Tensor, tools: Tools) -> Tensor:
    """Apply a random smooth equaliser of up to about 6 dB."""
    bands = tools.normal((len(y), 1, 24)) * 3
    bins = y.shape[-1] // 2 + 1
    curve = F.interpolate(bands, bins, mode="linear", align_corners=True)[:, 0]
    return filtered(y, lambda hz: 10 ** (curve / 20))  # noqa: ARG005


def speed(y: Tensor, tools: Tools) -> Tensor:
    """Play up to 10 % faster or slower around the middle; what is slower has no highest band."""
    length = y.shape[-1]
    factor = tools.uniform((len(y), 1), 0.9, 1.1)
    time = torch.arange(length, device=y.device) - length / 2
    place = (time * factor + length / 2).clamp(0, length - 1)
    low = place.long().clamp(max=length - 2)
    share = place - low
    played = torch.gather(y, 1, low) * (1 - share) + torch.gather(y, 1, low + 1) * share
    edge = RATE / 2 * factor
    return filtered(played, lambda hz: torch.sigmoid((edge - hz) / 30).where(factor < 1, 1.0))


def quantise(y: Tensor, tools: Tools) -> Tensor:
    """Round to 6 to 12 bits, or to fewer steps that still leave something of a quiet clip."""
    step = 2 ** (1 - tools.uniform((len(y), 1), *tools.strengths.bits))
    step = torch.minimum(step, 2 * rms(y)).detach()
    return y + (torch.round(y / step) * step - y).detach()


def smoothing(y: Tensor, tools: Tools) -> Tensor:
    """Average over 3 to 15 neighbouring samples."""
    size = 2 * tools.whole(1, tools.strengths.smoothing // 2) + 1
    return F.avg_pool1d(y[:, None], size, 1, size // 2)[:, 0]


def echo(y: Tensor, tools: Tools) -> Tensor:
    """Add one echo after 30 to 300 ms."""
    first, last = tools.strengths.echo_ms
    delay = tools.whole(first * RATE // 1000, last * RATE // 1000)
    decay = tools.uniform((len(y), 1), *tools.strengths.echo_decay)
    return y + decay * F.pad(y, (delay, 0))[:, :-delay]


def reverb(y: Tensor, tools: Tools) -> Tensor:
    """Convolve with decaying noise behind a direct path, RT60 of 0.1 to 0.7 s."""
    taps = RATE // 2
    rt60 = tools.uniform((len(y), 1), 0.1, 0.7)
    time = torch.arange(taps, device=y.device) / RATE
    tail = tools.normal((len(y), taps)) * 10 ** (-3 * time / rt60)
    direct_db = tools.uniform((len(y), 1), -3, 12)
    tail = tail / tail.square().sum(-1, keepdim=True).sqrt() * 10 ** (-direct_db / 20)
    tail[:, 0] = 1.0
    size = y.shape[-1] + taps
    wet = torch.fft.irfft(torch.fft.rfft(y, n=size) * torch.fft.rfft(tail, n=size), n=size)
    return wet[:, : y.shape[-1]]


def compress(y: Tensor, tools: Tools) -> Tensor:
    """Compress the dynamics with a follower of 10 ms, or clip the peaks."""
    with torch.no_grad():
        level = F.avg_pool1d(y.square()[:, None], 321, 1, 160)[:, 0].sqrt() / rms(y) + 1e-3
        gain = level ** (-tools.uniform((len(y), 1), 0, 0.6))
    loud = y * gain
    limit = rms(loud) * tools.uniform((len(y), 1), 1.5, 6)
    return torch.maximum(torch.minimum(loud, limit), -limit)


def drop(y: Tensor, tools: Tools) -> Tensor:
    """Lose packets of 20 ms."""
    keep = tools.uniform((len(y), y.shape[-1] // 320)) > tools.uniform((len(y), 1), 0, 0.2)
    return y * keep.float().repeat_interleave(320, 1)
