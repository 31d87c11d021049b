"""The networks: host analysis, two generators, the detector, the in-loop remover.

All of them see a finite stretch of audio around each sample and no statistic of the whole clip,
so a file processed in chunks equals the file processed whole. Nothing here knows keys.

Time is cut into blocks of HOP samples; an analysis window spans two blocks. Shapes: a waveform is
(batch, samples), its length a multiple of HOP; features are (batch, channels, frames).
"""

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keybound.errors import RecipeError
from keybound.training.recipe import ModelSpec

RATE = 16000
HOP = 320  # 20 ms
WINDOW = 2 * HOP
BINS = HOP + 1
MELS = 80
POWER_SCALE = 1e6  # brings powers to where the floor is no tiny constant: exporters drop those
POWER_FLOOR = 1e-3  # of a scaled mel band: about 30 dB under one step of 16-bit audio
PRESENCE_LIMIT = 5.0  # a bounded presence logit keeps the softmax pool from resting on one frame


def mel_bank(bands: int, bins: int, rate: int = RATE) -> Tensor:
    """Give triangular mel filters of unit sum per bin: (bands, bins).

    The outer filters are flat to the edges, so gains spread by the transpose reach every bin.
    """
    mel = torch.linspace(0, rate / 2, bins, dtype=torch.float64)
    mel = 2595 * torch.log10(1 + mel / 700)
    centre = torch.linspace(0, float(mel[-1]), bands + 2, dtype=torch.float64)[1:-1]
    place = (mel - centre[0]) / (centre[1] - centre[0])  # in units of bands
    place = place.clamp(0, bands - 1)
    bank = 1 - (place[None] - torch.arange(bands, dtype=torch.float64)[:, None]).abs()
    return bank.clamp(min=0).float()


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
        """Give real and imaginary parts (batch, BINS, frames) of blocks (batch, HOP, frames + 1).

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


class LogMel(nn.Module):
    """Phase-free log-mel features relative to the local level. Nothing in it is learned."""

    bank: Tensor
    level_kernel: Tensor

    def __init__(self, past: int, future: int) -> None:
        super().__init__()
        self.past, self.future = past, future
        self.register_buffer("bank", POWER_SCALE * mel_bank(MELS, BINS), persistent=False)
        span = past + 1 + future
        self.register_buffer("level_kernel", torch.full((1, 1, span), 1 / span), persistent=False)

    def forward(self, real: Tensor, imag: Tensor) -> Tensor:
        mel = self.bank @ (real * real + imag * imag) + POWER_FLOOR  # (batch, MELS, frames)
        power = mel.mean(1, keepdim=True)
        level = F.conv1d(
            F.pad(power, (self.past, self.future), mode="replicate"), self.level_kernel
        )
        return 0.5 * (mel.log() - level.log())  # nepers of amplitude


class Block(nn.Module):
    """A ConvNeXt block over frames, with as many frames of look-ahead as it is given."""

    def __init__(self, width: int, expansion: int, past: int, future: int) -> None:
        super().__init__()
        self.pad = (past, future)
        self.depthwise = nn.Conv1d(width, width, past + 1 + future, groups=width)
        self.expand = nn.Conv1d(width, expansion * width, 1)
        self.contract = nn.Conv1d(expansion * width, width, 1)
        self.scale = nn.Parameter(torch.full((width, 1), 0.3))

    def forward(self, x: Tensor) -> Tensor:  # (batch, width, frames)
        h = self.depthwise(F.pad(x, self.pad))
        h = h * torch.rsqrt((h * h).mean(1, keepdim=True) + 1e-5)  # its gain folds into expand
        h = self.contract(F.silu(self.expand(h)))
        return x + self.scale * h


class SpectralEmbedder(nn.Module):
    """Scale a few dozen mel bands of the host's own spectrum, as code and host decide.

    A frame spans two blocks and sees `lookahead` further frames: with the window,
    (2 + 6) * 20 ms = 160 ms from a sample to the last one that can change it.
    """

    bank: Tensor

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.limit = spec.max_gain_nepers
        self.anchor = spec.anchor
        self.spectrum = Spectrum()
        self.features = LogMel(past=24, future=0)
        blocks = spec.analysis_blocks + spec.synthesis_blocks
        self.lookahead = min(6, blocks)
        ahead = [1] * self.lookahead + [0] * (blocks - self.lookahead)
        made = [Block(spec.width, spec.expansion, 6 - f, f) for f in ahead]
        self.project = nn.Conv1d(MELS, spec.width, 1)
        self.analysis = nn.Sequential(*made[: spec.analysis_blocks])
        self.film = nn.Conv1d(spec.width, 2 * spec.width, 1)
        self.project_code = nn.Linear(spec.bits, spec.width)
        self.synthesis = nn.Sequential(*made[spec.analysis_blocks :])
        self.out = nn.Conv1d(spec.width, spec.bands, 1)
        nn.init.normal_(self.out.weight, std=0.02)
        nn.init.zeros_(cast(Tensor, self.out.bias))
        self.register_buffer("bank", mel_bank(spec.bands, BINS), persistent=False)

    def gains(self, features: Tensor, code: Tensor) -> Tensor:
        """Give the gain of each bin in nepers: (batch, BINS, frames)."""
        h = self.analysis(self.project(features))
        if not self.anchor:
            h = torch.zeros_like(h)
        scale, shift = self.film(h).chunk(2, dim=1)
        bits = self.project_code(2 * code - 1)[:, :, None]  # (batch, width, 1)
        h = self.synthesis(scale * bits + shift)
        bands = self.limit * torch.tanh(self.out(h).float())  # (batch, bands, frames)
        return self.bank.T @ bands

    def forward(self, x: Tensor, code: Tensor) -> Tensor:
        """Give the carrier of hosts (batch, samples) for codes (batch, bits) of 0 and 1."""
        with torch.autocast(x.device.type, enabled=False):
            real, imag = self.spectrum(to_blocks(x, HOP, HOP))
            features = self.features(real, imag)
        change = torch.expm1(self.gains(features, code))
        with torch.autocast(x.device.type, enabled=False):
            blocks = self.spectrum.inverse(real * change.float(), imag * change.float())
            return blocks.transpose(1, 2).reshape(x.shape[0], -1)


STRIDES = (8, 5, 4, 2)  # 320 samples a latent frame


class Residual(nn.Module):
    """SEANet's residual unit: two convolutions, the first dilated, around a skip."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(width, width // 2, 3, dilation=dilation, padding=dilation)
        self.second = nn.Conv1d(width // 2, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.elu(self.first(F.elu(x))))


def seanet_encoder(channels: int, latent: int) -> nn.Sequential:
    """Build SEANet's downsampling path: (batch, 1, samples) to (batch, latent, frames)."""
    layers: list[nn.Module] = [nn.Conv1d(1, channels, 7, padding=3)]
    for stride in reversed(STRIDES):
        layers += [Residual(channels, 1), nn.ELU()]
        pad = (stride + 1) // 2
        layers += [nn.Conv1d(channels, 2 * channels, 2 * stride, stride, padding=pad)]
        channels *= 2
    layers += [nn.ELU(), nn.Conv1d(channels, latent, 7, padding=3)]
    return nn.Sequential(*layers)


def seanet_decoder(channels: int, latent: int) -> nn.Sequential:
    """Build SEANet's upsampling path: (batch, latent, frames) to (batch, 1, samples)."""
    channels *= 2 ** len(STRIDES)
    layers: list[nn.Module] = [nn.Conv1d(latent, channels, 7, padding=3)]
    for stride in STRIDES:
        pad, odd = (stride + 1) // 2, stride % 2
        up = nn.ConvTranspose1d(
            channels, channels // 2, 2 * stride, stride, padding=pad, output_padding=odd
        )
        channels //= 2
        layers += [nn.ELU(), up, Residual(channels, 1)]
    layers += [nn.ELU(), nn.Conv1d(channels, 1, 7, padding=3)]
    return nn.Sequential(*layers)


class AdditiveEmbedder(nn.Module):
    """The paper's generator: FiLM of the projected code by C(x), SEANet synthesis of a waveform."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.scale = spec.carrier_scale
        self.anchor = spec.anchor
        self.spectrum = Spectrum()
        self.features = LogMel(past=24, future=0)
        self.project = nn.Sequential(
            nn.Conv1d(MELS, spec.latent, 3, padding=1),
            nn.ELU(),
            nn.Conv1d(spec.latent, spec.latent, 1),
        )
        self.film = nn.Conv1d(spec.latent, 2 * spec.latent, 1)
        self.project_code = nn.Linear(spec.bits, spec.latent)
        self.synthesis = seanet_decoder(16, spec.latent)

    def forward(self, x: Tensor, code: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            real, imag = self.spectrum(to_blocks(x, HOP // 2, HOP // 2))
            features = self.features(real, imag)
        h = self.project(features)
        if not self.anchor:
            h = torch.zeros_like(h)
        scale, shift = self.film(h).chunk(2, dim=1)
        bits = self.project_code(2 * code - 1)[:, :, None]
        return self.scale * self.synthesis(scale * bits + shift)[:, 0].float()


class Heads(nn.Module):
    """Per-frame payload logits, and presence that may look at how steadily the logits agree."""

    SPAN = 13  # frames over which logits are averaged before their size is judged

    def __init__(self, width: int, bits: int) -> None:
        super().__init__()
        self.logits = nn.Conv1d(width, bits, 1)
        self.mix = nn.Conv1d(width + bits, 64, 1)
        self.presence = nn.Conv1d(64, 1, 1)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Give presence logits (batch, frames) and payload logits (batch, bits, frames)."""
        logits = self.logits(h)
        steady = F.avg_pool1d(logits, self.SPAN, 1, self.SPAN // 2).abs()
        raw = self.presence(F.silu(self.mix(torch.cat([h, steady], 1))))[:, 0].float()
        return PRESENCE_LIMIT * torch.tanh(raw / PRESENCE_LIMIT), logits.float()


class Detector(nn.Module):
    """Read presence and logits in each block of 20 ms from log-mel features at twice that rate.

    Frame j describes samples HOP*j to HOP*(j+1). It depends on `CONTEXT` frames to either side
    and on the windows of the last of them: at most 490 ms from its middle.
    """

    CONTEXT = 23

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spectrum = Spectrum()
        self.features = LogMel(past=2, future=2)
        self.project = nn.Conv1d(2 * MELS, spec.width, 1)
        spare = self.CONTEXT - 2 - Heads.SPAN // 2 - spec.detector_blocks
        if spare < 0:
            raise RecipeError("too many detector blocks for its context", hint="at most 15")
        wide = min(spare, spec.detector_blocks)  # blocks that see 2 ahead, the others 1
        sides = [2] * wide + [1] * (spec.detector_blocks - wide)
        self.blocks = nn.Sequential(
            *[Block(spec.width, spec.detector_expansion, s, s) for s in sides]
        )
        self.heads = Heads(spec.width, spec.bits)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Give presence logits (batch, frames) and payload logits (batch, bits, frames)."""
        with torch.autocast(x.device.type, enabled=False):
            early = self.spectrum(to_blocks(x, HOP // 2, HOP // 2))
            late = self.spectrum(to_blocks(x, 0, HOP))
            features = torch.cat([self.features(*early), self.features(*late)], 1)
        return cast(tuple[Tensor, Tensor], self.heads(self.blocks(self.project(features))))


class SeanetDetector(nn.Module):
    """The paper's detector: a SEANet encoder on the waveform with two linear heads."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.encoder = seanet_encoder(32, spec.latent)
        self.logits = nn.Conv1d(spec.latent, spec.bits, 1)
        self.presence = nn.Conv1d(spec.latent, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.elu(self.encoder(x[:, None]))
        raw = self.presence(h)[:, 0].float()
        return PRESENCE_LIMIT * torch.tanh(raw / PRESENCE_LIMIT), self.logits(h).float()


class Remover(nn.Module):
    """The in-loop adversary: predict from marked audio the gains that would undo the mark."""

    bank: Tensor

    def __init__(self, width: int = 128, blocks: int = 4, bands: int = 80) -> None:
        super().__init__()
        self.spectrum = Spectrum()
        self.features = LogMel(past=2, future=2)
        self.project = nn.Conv1d(MELS, width, 1)
        self.blocks = nn.Sequential(*[Block(width, 2, 3, 3) for _ in range(blocks)])
        self.out = nn.Conv1d(width, bands, 1)
        nn.init.zeros_(self.out.weight)
        self.register_buffer("bank", mel_bank(bands, BINS), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Give the audio (batch, samples) without what the remover takes for the mark."""
        with torch.autocast(x.device.type, enabled=False):
            real, imag = self.spectrum(to_blocks(x, HOP, HOP))
            features = self.features(real, imag)
        h = self.out(self.blocks(self.project(features))).float()
        change = torch.expm1(self.bank.T @ torch.tanh(h))
        with torch.autocast(x.device.type, enabled=False):
            blocks = self.spectrum.inverse(real * change, imag * change)
            return x + blocks.transpose(1, 2).reshape(x.shape[0], -1)


def build(spec: ModelSpec) -> tuple[nn.Module, nn.Module]:
    """Make an untrained embedder and detector."""
    if spec.generator == "additive":
        return AdditiveEmbedder(spec), SeanetDetector(spec)
    return SpectralEmbedder(spec), Detector(spec)
