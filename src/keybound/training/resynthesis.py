"""Attacks that make audio anew from a spectrum or a network, as training meets them.

Where an attack estimates something (a phase, a gate), the estimate is made without a gradient and
the gradient passes through what the estimate is applied to.
"""

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from keybound.training.spectra import RATE, mel_bank
from keybound.training.twins import Tools, noise

CELP_BINS, CELP_FRAMES = (4, 8), (1, 3)  # to either side, that the coarse envelope is a mean of
CELP_NOISE_DB, CELP_OFF_NEPERS = (3.0, 12.0), (0.1, 0.3)
CELP_HZ, CELP_NARROW = (3300.0, 4000.0), 0.7  # above which nothing is kept, in how many clips


def spectrum(y: Tensor, size: int) -> Tensor:
    window = torch.hann_window(size, device=y.device)
    return torch.stft(y, size, size // 4, window=window, return_complex=True)


def waveform(Y: Tensor, size: int, length: int) -> Tensor:
    window = torch.hann_window(size, device=Y.device)
    return torch.istft(Y, size, size // 4, window=window, length=length)


def smooth_field(
    tools: Tools, clips: int, rows: int, columns: int, grain: tuple[int, int]
) -> Tensor:
    """Draw a normal field of unit size that varies over `grain` rows and columns."""
    coarse = tools.normal((clips, 1, rows // grain[0] + 2, columns // grain[1] + 2))
    return 1.4 * F.interpolate(coarse, (rows, columns), mode="bilinear", align_corners=True)[:, 0]


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


def celp(y: Tensor, tools: Tools) -> Tensor:
    """Code speech as telephones do: a coarse envelope, and an excitation that sounds alike.

    What the envelope has within some hundred hertz and some 50 ms is lost, the rest is off by
    decibels; noise of the shape of the speech is added; most clips lose the treble.
    """
    size, clips = 512, (len(y), 1, 1)
    Y = spectrum(y, size)
    power = Y.abs().square()[:, None] + 1e-9
    tall, wide = 2 * tools.whole(*CELP_BINS) + 1, 2 * tools.whole(*CELP_FRAMES) + 1
    fine = F.avg_pool2d(power, (5, 1), 1, (2, 0))[:, 0]
    coarse = F.avg_pool2d(power, (tall, wide), 1, (tall // 2, wide // 2))[:, 0]
    with torch.no_grad():
        off = smooth_field(tools, len(y), Y.shape[1], Y.shape[2], (tools.whole(6, 14), 4))
        gain = torch.exp(off * tools.uniform(clips, *CELP_OFF_NEPERS))
        hiss = torch.complex(*(tools.normal(tuple(Y.shape)) for _ in range(2)))
        hiss = hiss * torch.sqrt(coarse / 2) * 10 ** (-tools.uniform(clips, *CELP_NOISE_DB) / 20)
        hz = torch.linspace(0, RATE / 2, Y.shape[1], device=y.device)[None, :, None]
        edge = torch.sigmoid((tools.uniform(clips, *CELP_HZ) - hz) / 60)
        keep = edge.where(tools.uniform(clips) < CELP_NARROW, 1.0)
    coded = Y * torch.sqrt(coarse / fine) * gain
    return waveform((coded + hiss) * keep, size, y.shape[-1])


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


def neural_denoise(y: Tensor, tools: Tools) -> Tensor:
    return denoise(neural(y, tools), tools)


def remover(y: Tensor, tools: Tools) -> Tensor:
    """Send through the in-loop remover as it stands."""
    return y if tools.remover is None else tools.remover(y)
