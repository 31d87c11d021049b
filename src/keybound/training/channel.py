"""The attack channel of training: differentiable twins of the attacks, on batches.

Each attack takes audio (clips, samples) and tools, and gives audio of the same shape. Where an
attack estimates something (a phase, a gate), the estimate is made without a gradient and the
gradient passes through what the estimate is applied to. Attacks know nothing of marks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from keybound.training.data import Stream
from keybound.training.nets import RATE, mel_bank


@dataclass
class Tools:
    """What attacks may use: randomness, noise recordings, networks that re-synthesise."""

    generator: torch.Generator
    cpu: torch.Generator
    noise: Stream
    neural: dict[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    remover: Callable[[Tensor], Tensor] | None = None
    unused: list[str] = field(default_factory=list)  # neural codecs not yet met in this step

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


def spectrum(y: Tensor, size: int) -> Tensor:
    window = torch.hann_window(size, device=y.device)
    return torch.stft(y, size, size // 4, window=window, return_complex=True)


def waveform(Y: Tensor, size: int, length: int) -> Tensor:
    window = torch.hann_window(size, device=Y.device)
    return torch.istft(Y, size, size // 4, window=window, length=length)


def filtered(y: Tensor, response: Callable[[Tensor], Tensor]) -> Tensor:
    """Filter by a magnitude response of frequency in Hz: (clips, bins)."""
    length = y.shape[-1]
    hz = torch.linspace(0, RATE / 2, length // 2 + 1, device=y.device)[None]
    return torch.fft.irfft(torch.fft.rfft(y) * response(hz), n=length)


def smooth_field(
    tools: Tools, clips: int, rows: int, columns: int, grain: tuple[int, int]
) -> Tensor:
    """Draw a normal field of unit size that varies over `grain` rows and columns."""
    coarse = tools.normal((clips, 1, rows // grain[0] + 2, columns // grain[1] + 2))
    return 1.4 * F.interpolate(coarse, (rows, columns), mode="bilinear", align_corners=True)[:, 0]


def identity(y: Tensor, tools: Tools) -> Tensor:  # noqa: ARG001
    return y


def noise(y: Tensor, tools: Tools) -> Tensor:
    """Add white to pinkish noise at 3 to 30 dB."""
    n = tools.normal(y.shape)
    slope = tools.uniform((len(y), 1), -0.2, 1.0).clamp(min=0) * 0.5
    coloured = filtered(n, lambda hz: (hz + 50) ** -slope)
    snr = tools.uniform((len(y), 1), 3, 30)
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
    """Cut highs, lows or both with slopes of 6 to 48 dB an octave."""
    clips = (len(y), 1)
    use_low, use_high = tools.uniform(clips) < 0.7, tools.uniform(clips) < 0.5
    low = 10 ** tools.uniform(clips, math.log10(2500), math.log10(7000))
    high = 10 ** tools.uniform(clips, math.log10(80), math.log10(900))
    order = 2 * 2 ** tools.uniform(clips, 0, 3)

    def response(hz: Tensor) -> Tensor:
        keep_low = torch.rsqrt(1 + (hz / low) ** order)
        keep_high = torch.rsqrt(1 + (high / (hz + 1)) ** order)
        return torch.where(use_low, keep_low, 1.0) * torch.where(use_high, keep_high, 1.0)

    return filtered(y, response)


def resample(y: Tensor, tools: Tools) -> Tensor:
    """Lose everything above 3 to 7.8 kHz, as a lower rate and back does."""
    edge = tools.uniform((len(y), 1), 3000, 7800)
    return filtered(y, lambda hz: torch.sigmoid((edge - hz) / 30))


def equalise(y: Tensor, tools: Tools) -> Tensor:
    """Apply a random smooth equaliser of up to about 6 dB."""
    bands = tools.normal((len(y), 1, 24)) * 3
    bins = y.shape[-1] // 2 + 1
    curve = F.interpolate(bands, bins, mode="linear", align_corners=True)[:, 0]
    return filtered(y, lambda hz: 10 ** (curve / 20))  # noqa: ARG005


def speed(y: Tensor, tools: Tools) -> Tensor:
    """Play up to 8 % faster or slower around the middle, by linear interpolation."""
    length = y.shape[-1]
    factor = tools.uniform((len(y), 1), 0.92, 1.08)
    time = torch.arange(length, device=y.device) - length / 2
    place = (time * factor + length / 2).clamp(0, length - 1)
    low = place.long().clamp(max=length - 2)
    share = place - low
    return torch.gather(y, 1, low) * (1 - share) + torch.gather(y, 1, low + 1) * share


def quantise(y: Tensor, tools: Tools) -> Tensor:
    """Round to 6 to 12 bits."""
    step = 2 ** (1 - tools.uniform((len(y), 1), 6.5, 12))
    return y + (torch.round(y / step) * step - y).detach()


def smoothing(y: Tensor, tools: Tools) -> Tensor:
    """Average over 3 to 15 neighbouring samples."""
    size = 2 * tools.whole(1, 7) + 1
    return F.avg_pool1d(y[:, None], size, 1, size // 2)[:, 0]


def echo(y: Tensor, tools: Tools) -> Tensor:
    """Add one echo after 30 to 300 ms."""
    delay = tools.whole(480, 4800)
    decay = tools.uniform((len(y), 1), 0.2, 0.6)
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


def griffin_lim_phase(
    magnitude: Tensor, size: int, length: int, tools: Tools, turns: int
) -> Tensor:
    """Find a phase for a magnitude from a random start; gives unit complex numbers."""
    with torch.no_grad():
        angle = tools.uniform(tuple(magnitude.shape), -math.pi, math.pi)
        phase, last = torch.polar(torch.ones_like(angle), angle), torch.zeros_like(angle) + 0j
        for _ in range(turns):
            found = spectrum(waveform(magnitude * phase, size, length), size)
            phase = found - 0.99 / 1.99 * last
            phase = phase / (phase.abs() + 1e-9)
            last = found
    return phase


def griffin_lim(y: Tensor, tools: Tools) -> Tensor:
    """Throw the phase away and find another from the magnitude."""
    magnitude = spectrum(y, 1024).abs()
    phase = griffin_lim_phase(magnitude.detach(), 1024, y.shape[-1], tools, tools.whole(2, 12))
    return waveform(magnitude * phase, 1024, y.shape[-1])


@cache
def bank_on(device: torch.device, bands: int, bins: int) -> Tensor:
    return mel_bank(bands, bins).to(device)


def mel_resynthesis(y: Tensor, tools: Tools) -> Tensor:
    """Keep only 50 to 100 mel bands; spread them back; take a found or the old phase."""
    size = 1024
    Y = spectrum(y, size)
    bank = bank_on(y.device, tools.whole(50, 100), size // 2 + 1)
    power = Y.abs().square()
    back = bank / (bank.sum(-1, keepdim=True) + 1e-9)
    magnitude = torch.sqrt(bank.T @ (back @ power) + 1e-10)
    if tools.whole(0, 2):
        phase = griffin_lim_phase(magnitude.detach(), size, y.shape[-1], tools, tools.whole(2, 8))
    else:
        phase = (Y / (Y.abs() + 1e-9)).detach()
    return waveform(magnitude * phase, size, y.shape[-1])


def envelope(y: Tensor, tools: Tools) -> Tensor:
    """Replace fine magnitudes by a smooth envelope times an excitation of random phase."""
    size = 512
    Y = spectrum(y, size)
    tall, wide = 2 * tools.whole(1, 4) + 1, 2 * tools.whole(0, 2) + 1
    power = F.avg_pool2d(Y.abs().square()[:, None], (tall, wide), 1, (tall // 2, wide // 2))[:, 0]
    blend = tools.uniform((len(y), 1, 1))
    magnitude = torch.sqrt(blend * power + (1 - blend) * Y.abs().square() + 1e-10)
    turn = tools.normal(tuple(Y.shape)) * tools.uniform((len(y), 1, 1), 0, 1.5)
    phase = (Y / (Y.abs() + 1e-9)).detach() * torch.polar(torch.ones_like(turn), turn)
    return waveform(magnitude * phase, size, y.shape[-1])


def jitter(y: Tensor, tools: Tools) -> Tensor:
    """Disturb gains smoothly by up to a few dB and phases by up to a turn: a generic codec."""
    size = 512
    Y = spectrum(y, size)
    rows, columns = Y.shape[1:]
    grain = (tools.whole(3, 12), tools.whole(1, 5))
    gain = smooth_field(tools, len(y), rows, columns, grain)
    gain = gain * tools.uniform((len(y), 1, 1), 0.05, 0.45)
    turn = smooth_field(tools, len(y), rows, columns, (2, 1))
    turn = turn * tools.uniform((len(y), 1, 1), 0, 2)
    return waveform(Y * torch.polar(gain.exp(), turn), size, y.shape[-1])


def denoise(y: Tensor, tools: Tools) -> Tensor:
    """Gate the spectrum under a multiple of an estimated noise floor."""
    size = (512, 1024)[tools.whole(0, 1)]
    Y = spectrum(y, size)
    with torch.no_grad():
        magnitude = Y.abs()
        share = tools.whole(5, 30) / 100
        floor = magnitude.kthvalue(max(1, int(share * Y.shape[-1])), dim=-1, keepdim=True).values
        over = magnitude / (floor * 10 ** tools.uniform((len(y), 1, 1), 0, 1.2) + 1e-7)
        sharp = tools.uniform((len(y), 1, 1), 2, 8)
        gate = torch.sigmoid(sharp * (over - 1.2).clamp(-20, 20))
        gate = F.avg_pool2d(gate[:, None], (5, 3), 1, (2, 1))[:, 0]
        least = 10 ** (tools.uniform((len(y), 1, 1), -40, -6) / 20)
        gate = least + (1 - least) * gate
    return waveform(Y * gate, size, y.shape[-1])


def noise_denoise(y: Tensor, tools: Tools) -> Tensor:
    """Add noise, then gate it: what a recording goes through on its way to a listener."""
    return denoise(noise(y, tools), tools)


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


def neural(y: Tensor, tools: Tools) -> Tensor:
    """Send through one of the neural codecs at hand, at one of its rates.

    Each serves once a step: recorded as a CUDA graph, it keeps one set of activations.
    """
    if not tools.unused:
        return envelope(y, tools)
    codec = tools.neural[tools.unused.pop(tools.whole(0, len(tools.unused) - 1))]
    peak = y.detach().abs().amax(-1, keepdim=True)
    scale = (0.9 / (peak + 1e-6)).clamp(max=1.0)  # codecs take audio within full scale
    return codec(y * scale) / scale


def neural_noise(y: Tensor, tools: Tools) -> Tensor:
    return noise(neural(y, tools), tools)


def remover(y: Tensor, tools: Tools) -> Tensor:
    """Send through the in-loop remover as it stands."""
    return y if tools.remover is None else tools.remover(y)


ATTACKS: dict[str, Attack] = {
    f.__name__: f
    for f in (
        identity, noise, hard_noise, background, band_filter, resample, equalise, speed, quantise,
        smoothing, echo, reverb, griffin_lim, mel_resynthesis, envelope, jitter, denoise,
        noise_denoise, compress, drop, neural, neural_noise, remover,
    )
}  # fmt: skip


def suffer(
    kinds: list[str],
    marked: Tensor,
    unmarked: Tensor,
    probability: float,
    tools: Tools,
    residual: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attack marked clips and, in the same way, their unmarked twins: a group for each kind.

    A clip is attacked with a probability. `residual` is what a real codec did to the clips of the
    group called "codec".
    """
    n, heard = len(marked) // len(kinds), []
    for name, *pair in zip(kinds, marked.split(n), unmarked.split(n), strict=True):
        y = torch.cat(pair)
        if name == "codec":
            assert residual is not None
            hurt = y + residual
        else:
            hurt = ATTACKS[name](y, tools)
        spared = tools.uniform((2 * n, 1)) >= probability
        heard.append(finish(torch.where(spared, y, hurt), tools).split(n))
    return torch.cat([y for y, _ in heard]), torch.cat([y for _, y in heard])


def finish(y: Tensor, tools: Tools) -> Tensor:
    """Shift by up to a block and scale, as any copy of a recording may be."""
    shift = (tools.uniform((len(y), 1), -160, 160)).long()
    place = torch.arange(y.shape[-1], device=y.device) + shift
    moved = torch.gather(y, 1, place.clamp(0, y.shape[-1] - 1))
    return moved * 10 ** (tools.uniform((len(y), 1), -12, 6) / 20)
