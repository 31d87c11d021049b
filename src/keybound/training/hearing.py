"""What a mark costs the ear, for training to spare it: spectra, masking, what meters say."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keybound.training.meters import Pesq, Zimtohrli
from keybound.training.spectra import RATE, line, mel_bank

BEST = 4.64  # PESQ of a copy
# How much more ViSQOL loses than `Hearing.visqol` says where a mark lies in one band alone (run 9,
# 32 clips): (Hz, factor).
VISQOL_BANDS = (
    (200.0, 1.35), (600.0, 2.7), (1150.0, 1.38), (2000.0, 0.74),
    (3250.0, 0.37), (4750.0, 0.68), (6750.0, 1.1),
)  # fmt: skip


def snr_db(host: Tensor, carrier: Tensor) -> Tensor:
    """Return the signal-to-carrier ratio of each clip."""
    return 10 * torch.log10((host.square().mean(-1) + 1e-10) / (carrier.square().mean(-1) + 1e-10))


class Heard(NamedTuple):
    """What the mark costs the ear: distances over all clips, then measures of each clip."""

    stft: Tensor  # multi-resolution STFT distance
    wave: Tensor  # L1 of the waveforms
    mel: Tensor  # distance of mel spectra
    masking: Tensor  # carrier above the masking threshold
    stoi: Tensor  # (clips,) what is left of each measure, as it is predicted here
    visqol: Tensor
    pesq: Tensor
    zimtohrli: Tensor
    snr_db: Tensor
    gain_db: Tensor  # rms over audible bins


class Hearing(nn.Module):
    """Measure what the mark costs the ear, in one pass over a few spectra of host and marked audio.

    Levels are relative to the clip: quiet hosts count as much as loud ones.
    """

    RESOLUTIONS = (256, 512, 1024, 2048)
    AUDIBLE_DB = 45.0  # a bin this far under the clip's peak is not heard beside it
    MASKING_OFFSET_DB = 10.0  # threshold under the spread host: between tone and noise maskers
    SEGMENT = 48  # frames of 8 ms: STOI's 384 ms
    mel: Tensor
    spread: Tensor
    thirds: Tensor
    coarse: Tensor
    coarse_weight: Tensor
    blur: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("thirds", third_octaves(257), persistent=False)
        coarse, centre = gammatones(21, 513)
        self.register_buffer("coarse", coarse, persistent=False)
        weight = line(VISQOL_BANDS, centre)[:, None]
        self.register_buffer("coarse_weight", weight, persistent=False)
        self.pesq = Pesq(257)
        self.zimtohrli = Zimtohrli()
        side = torch.tensor([0.1061, 0.7878, 0.1061])  # a Gaussian of half a bin
        self.register_buffer("blur", torch.outer(side, side)[None, None], persistent=False)
        for size in self.RESOLUTIONS:
            self.register_buffer(f"window_{size}", torch.hann_window(size), persistent=False)
        self.register_buffer("mel", mel_bank(80, 513), persistent=False)
        # Excitation spreads towards higher bands: 25 dB a Bark below the masker, 10 above.
        bark = torch.arange(80) * 2840 / 81 / 100  # about 100 mel to the Bark
        distance = bark[:, None] - bark[None]
        slope = torch.where(distance > 0, -10 * distance, 25 * distance)
        self.register_buffer("spread", 10 ** (slope / 10), persistent=False)

    def magnitude(self, x: Tensor, size: int) -> Tensor:
        window = self.get_buffer(f"window_{size}")
        X = torch.stft(x, size, size // 4, window=window, return_complex=True)
        return torch.sqrt(X.real.square() + X.imag.square() + 1e-8)

    def forward(self, host: Tensor, marked: Tensor) -> Heard:
        level = torch.sqrt(host.square().mean(-1, keepdim=True) + 1e-8)
        x, y = host / level, marked / level
        terms = []
        for size in self.RESOLUTIONS:
            X, Y = self.magnitude(x, size), self.magnitude(y, size)
            floor = X.amax((1, 2), keepdim=True) * 10 ** (-60 / 20)
            ratio = torch.log((Y + floor) / (X + floor))
            change = (Y - X).square().sum((1, 2)) + 1e-8  # within the root: silence stays as it is
            converge = (change / X.square().sum((1, 2))).sqrt()
            terms.append(converge.mean() + ratio.abs().mean())
            if size == 512:
                audible = (X.amax((1, 2), keepdim=True) * 10 ** (-self.AUDIBLE_DB / 20) < X).float()
                decibel = (20 / math.log(10)) * torch.log(Y / X)
                square = (decibel.square() * audible).sum((1, 2)) / audible.sum((1, 2))
                gain_db = torch.sqrt(square + 1e-6)
                stoi = self.stoi(X, Y)
                pesq = self.pesq(X[..., ::2], Y[..., ::2])
            if size == 1024:
                mel, masking = self.masked(X, Y, self.magnitude(y - x, size))
                visqol = self.visqol(X, Y)
        stft, wave = torch.stack(terms).mean(), (y - x).abs().mean()
        meters = stoi, visqol, pesq, self.zimtohrli(x, y)
        return Heard(stft, wave, mel, masking, *meters, snr_db(x, y - x), gain_db)

    def masked(self, X: Tensor, Y: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mel distance and the mean excess of the carrier over the masked threshold."""
        host = self.mel @ X.square()  # (batch, bands, frames)
        floor = host.amax((1, 2), keepdim=True) * 1e-6
        mel = (torch.log((self.mel @ Y.square() + floor) / (host + floor))).abs().mean()
        threshold = self.spread @ host * 10 ** (-self.MASKING_OFFSET_DB / 10) + floor
        excess = torch.log((self.mel @ C.square() + floor) / threshold)
        return 0.5 * mel, F.relu(excess).mean()

    def stoi(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return STOI's measure of each clip: how envelopes of third octaves keep their shape."""
        x, y = (
            torch.sqrt(self.thirds @ v.square() + 1e-6).unfold(-1, self.SEGMENT, 4) for v in (X, Y)
        )  # (batch, bands, segments, SEGMENT)
        level = torch.sqrt(x.square().sum(-1, True) / y.square().sum(-1, True))
        y = torch.minimum(y * level, x * (1 + 10 ** (15 / 20)))
        x, y = x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
        size = torch.sqrt((x.square().sum(-1) + 1e-5) * (y.square().sum(-1) + 1e-5))
        alike = ((x * y).sum(-1) + 1e-5) / size
        return alike.mean((1, 2))

    def visqol(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return ViSQOL's measure of each clip: how patches of the spectrogram keep their shape."""
        levels = []
        for v in (X, Y):
            levels.append(5 * torch.log10(self.coarse @ v.square() + 10**-6.5))
        low = torch.minimum(*levels).amin((1, 2), True)
        x, y = (v - low for v in levels)  # (batch, 21, frames)
        maps = torch.stack([x, y, x * x, y * y, x * y], 1).flatten(0, 1)[:, None]
        padded = F.pad(maps, (1, 1, 1, 1), mode="replicate")
        mx, my, xx, yy, xy = F.conv2d(padded, self.blur).unflatten(0, (-1, 5)).unbind(1)
        loud = (2 * mx * my + 1e-4) / (mx * mx + my * my + 1e-4)
        spread = (xx - mx * mx).clamp(min=0) * (yy - my * my).clamp(min=0)
        shape = (xy - mx * my + 4.5e-4) / (torch.sqrt(spread + 1e-10) + 4.5e-4)
        lost = (1 - loud * shape)[:, 0] * self.coarse_weight
        return 1 - lost.mean((1, 2))


def third_octaves(bins: int) -> Tensor:
    """Return STOI's fifteen bands from 150 Hz as sums of bins: (bands, bins)."""
    hz = torch.linspace(0, RATE / 2, bins)
    centre = 150 * 2 ** (torch.arange(15) / 3)
    low, high = centre * 2 ** (-1 / 6), centre * 2 ** (1 / 6)
    return ((hz[None] >= low[:, None]) & (hz[None] < high[:, None])).float()


def gammatones(bands: int, bins: int) -> tuple[Tensor, Tensor]:
    """Return ViSQOL's bands from 50 Hz: weights of bins of 1024 samples, (bands, bins), centres."""
    hz = torch.linspace(0, RATE / 2, bins)
    ear = 9.26449 * 24.7
    steps = torch.linspace(0, 1, bands + 1)[:-1]
    centre = (50 + ear) ** (1 - steps) * (RATE / 2 + ear) ** steps - ear
    width = 1.019 * (24.7 + centre / 9.26449)
    gain = (1 + ((hz[None] - centre[:, None]) / width[:, None]).square()) ** -4
    return gain * 2 / (1024 * 384), centre  # a band's power, of a signal's one


def measures(cost: Heard, strength: Tensor) -> dict[str, Tensor]:
    """Return the means of what was heard of full marks and, by another name, of weak ones."""
    made = {"snr_spread_db": cost.snr_db.std(correction=0)}
    for name in ("snr_db", "gain_db", "stoi", "visqol", "pesq", "zimtohrli"):
        value = getattr(cost, name)
        for kind, which in (("", strength == 1), ("weak_", strength < 1)):
            made[kind + name] = (value * which).sum() / which.sum()  # not finite where none is
    return made
