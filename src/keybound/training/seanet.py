"""The paper's own networks on the waveform, SEANet's, to show what the spectral mark changes."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keybound.training.recipe import ModelSpec
from keybound.training.spectra import HOP, MELS, LogMel, Spectrum, project_code, to_blocks

PRESENCE_LIMIT = 5.0  # a bounded presence logit keeps the softmax pool from resting on one frame

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
    """Give every layer weights that keep the level of what goes through it.

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
        bits = project_code(self.project_code, code, h.shape[-1])
        return self.scale * self.synthesis(scale * bits + shift)[:, 0].float()


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
