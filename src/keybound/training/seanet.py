"""The paper's own networks on the waveform, SEANet's, to show what the spectral mark changes."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keybound.training.recipe import ModelSpec
from keybound.training.spectra import (
    HOP,
    MELS,
    LogMel,
    Spectrum,
    project_code,
    relative,
    to_blocks,
)

PRESENCE_LIMIT = 5.0  # a bounded presence logit keeps the softmax pool from resting on one frame
SPEECH_LEVEL = 2e6  # of the mean band as `LogMel` has it, in speech at -23 dBFS

STRIDES = (8, 5, 4, 2)  # 320 samples a latent frame
FIRST_CARRIER = 0.04  # of what the layers would give: near the SNR that the curriculum begins with


class Residual(nn.Module):
    """SEANet's residual unit: two convolutions, the first dilated, around a skip."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(width, width // 2, 3, dilation=dilation, padding=dilation)
        self.second = nn.Conv1d(width // 2, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.elu(self.first(F.elu(x))))


def begun(network: nn.Sequential) -> nn.Sequential:
    """Set the weights of every layer so that they keep the level of what goes through it.

    Those of torch shrink it by half and more in each layer, and after twelve of them nothing of a
    code is left to begin learning from.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
            fan = layer.kernel_size[0] * layer.in_channels
            if isinstance(layer, nn.ConvTranspose1d):
                fan //= layer.stride[0]
            nn.init.normal_(layer.weight, std=(1.5 / fan) ** 0.5)
            nn.init.zeros_(cast(Tensor, layer.bias))
    return network


def seanet_encoder(channels: int, latent: int) -> nn.Sequential:
    """Build SEANet's downsampling path: (batch, 1, samples) to (batch, latent, frames)."""
    layers: list[nn.Module] = [nn.Conv1d(1, channels, 7, padding=3)]
    for stride in reversed(STRIDES):
        layers += [Residual(channels, 1), nn.ELU()]
        pad = (stride + 1) // 2
        layers += [nn.Conv1d(channels, 2 * channels, 2 * stride, stride, padding=pad)]
        channels *= 2
    layers += [nn.ELU(), nn.Conv1d(channels, latent, 7, padding=3)]
    return begun(nn.Sequential(*layers))


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
    last = nn.Conv1d(channels, 1, 7, padding=3)
    network = begun(nn.Sequential(*layers, nn.ELU(), last))
    with torch.no_grad():
        last.weight *= FIRST_CARRIER
    return network


class AdditiveEmbedder(nn.Module):
    """The paper's generator: FiLM of the projected code by C(x), SEANet synthesis of a waveform."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.scale = spec.carrier_scale
        self.anchor = spec.anchor
        self.absolute = spec.absolute
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
            mel, level = self.features.levels(real, imag)
            features = relative(
                mel, torch.full_like(level, SPEECH_LEVEL) if self.absolute else level
            )
        h = self.project(features)
        if not self.anchor:
            h = torch.zeros_like(h)
        scale, shift = self.film(h).chunk(2, dim=1)
        bits = project_code(self.project_code, code, h.shape[-1])
        return self.scale * self.synthesis(scale * bits + shift)[:, 0].float()


class SeanetDetector(nn.Module):
    """The paper's detector: a SEANet encoder on the waveform with two linear heads."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.limit = spec.presence_limit
        self.encoder = seanet_encoder(32, spec.latent)
        self.logits = nn.Conv1d(spec.latent, spec.bits, 1)
        self.presence = nn.Conv1d(spec.latent, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.elu(self.encoder(x[:, None]))
        presence = self.presence(h)[:, 0].float()
        if self.limit:
            presence = self.limit * torch.tanh(presence / self.limit)
        return presence, self.logits(h).float()


class WaveRemover(nn.Module):
    """The in-loop adversary on the waveform: a SEANet U-net that predicts what was added."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        widths = [channels * 2**i for i in range(len(STRIDES) + 1)]
        self.first = nn.Conv1d(1, channels, 7, padding=3)
        self.units = nn.ModuleList(Residual(width, 1) for width in widths)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for narrow, wide, stride in zip(widths, widths[1:], reversed(STRIDES), strict=False):
            size, pad, odd = 2 * stride, (stride + 1) // 2, stride % 2
            self.down.append(nn.Conv1d(narrow, wide, size, stride, pad))
            self.up.append(nn.ConvTranspose1d(wide, narrow, size, stride, pad, odd))
        self.last = nn.Conv1d(channels, 1, 7, padding=3)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(cast(Tensor, self.last.bias))

    def forward(self, x: Tensor) -> Tensor:
        """Return the audio (batch, samples) without what the remover takes for the mark."""
        level = torch.sqrt(x.detach().square().mean(-1, keepdim=True) + 1e-8)
        h, skips = self.first((x / level)[:, None]), []
        for unit, shrink in zip(self.units, self.down, strict=False):
            h = unit(h)
            skips.append(h)
            h = shrink(F.elu(h))
        h = self.units[-1](h)
        for grow in reversed(self.up):
            h = grow(F.elu(h)) + skips.pop()
        return x - level * self.last(F.elu(h))[:, 0]
