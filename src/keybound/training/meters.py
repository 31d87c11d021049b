"""PESQ and Zimtohrli foretold from magnitudes, so that training can follow their gradients."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keybound.training.spectra import RATE, line

# What Zimtohrli makes of tones, measured with the package: frequency in Hz, by how much a level in
# nepers of power counts, and the power of a tone of amplitude one, as a logarithm.
ZIMTOHRLI_TONES = (
    (24.0, 0.69, 29.0), (62.0, 0.69, 30.3), (104.0, 0.69, 31.1), (153.0, 0.68, 31.6),
    (210.0, 0.70, 31.9), (274.0, 0.86, 32.1), (349.0, 0.82, 32.3), (434.0, 0.52, 32.4),
    (531.0, 0.53, 32.4), (643.0, 0.97, 32.4), (772.0, 0.94, 32.2), (919.0, 1.06, 31.6),
    (1088.0, 1.31, 26.5), (1282.0, 1.09, 31.8), (1505.0, 0.88, 30.9), (1761.0, 0.81, 30.3),
    (2054.0, 0.88, 31.0), (2390.0, 0.99, 31.2), (2776.0, 1.04, 27.4), (3219.0, 1.05, 32.7),
    (3727.0, 1.03, 34.5), (4309.0, 1.21, 35.3), (4978.0, 1.61, 35.4), (5745.0, 1.77, 35.5),
    (6625.0, 1.57, 35.2), (7635.0, 1.24, 34.8), (8794.0, 1.33, 33.1),
)  # fmt: skip


class Pesq(nn.Module):
    """Foretell PESQ of clips in time with each other: loudness that came and loudness that went.

    Wideband PESQ without its search for delays, its bands and thresholds from formulas instead of
    tables: on marks of several sizes and bands it follows the real one with a correlation of .94.
    A change of a band's loudness by less than a quarter, some 4 dB, costs nothing.
    """

    BANDS = 49
    LEVEL = 1e7  # mean square between 325 and 3250 Hz that both sounds are brought to
    POWER = 2e-3  # of a bin of that sound, in thresholds of hearing at 2 kHz
    BARK = 23.6
    WINDOW = 20  # frames of 16 ms that are judged by their worst
    within: Tensor
    heard: Tensor
    speech: Tensor
    threshold: Tensor
    power: Tensor

    def __init__(self, bins: int) -> None:
        super().__init__()
        hz = torch.linspace(0, RATE / 2, bins)
        top = math.asinh(RATE / 2 / 600)
        edges = 600 * torch.sinh(torch.linspace(0, top, self.BANDS + 1))  # asinh: six to the Bark
        step = RATE / 2 / (bins - 1)
        upper = torch.minimum(edges[1:, None], hz + step / 2)
        lower = torch.maximum(edges[:-1, None], hz - step / 2)
        centre = torch.asinh(edges / 600).unfold(0, 2, 1).mean(-1)
        bark, kilo = 6 * centre, (600 * torch.sinh(centre)).clamp(min=60) / 1000
        quiet = 3.64 * kilo**-0.8 - 6.5 * torch.exp(-0.6 * (kilo - 3.3) ** 2) + 1e-3 * kilo**4
        exponent = 0.23 * (6 / (bark + 2)).clamp(1, 2) ** 0.15
        for name, values in {
            "within": (upper - lower).clamp(min=0) / step,  # (bands, bins)
            "heard": 1 / (1 + (140 / hz.clamp(min=1)) ** 4)[:, None],
            "speech": ((hz > 325) & (hz < 3250)).float()[:, None],
            "threshold": 10 ** (quiet / 10)[:, None],
            "power": exponent[:, None],
        }.items():
            self.register_buffer(name, values, persistent=False)

    def forward(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return PESQ of magnitudes (batch, bins, frames): windows of 32 ms at every 16 ms."""
        P, Q = (self.bands(v) for v in (X, Y))
        total = (P * (100 * self.threshold < P)).sum(1, keepdim=True)
        P = P * self.equaliser(P, Q, (total >= self.LEVEL).float())
        Q = Q * self.follower(P, Q)
        before, after = self.loudness(P), self.loudness(Q)
        spare = 0.25 * torch.minimum(before, after)
        change = F.relu(after - before - spare) + F.relu(before - after - spare)
        share = self.BARK / self.BANDS
        both = share * torch.sqrt(change.square().sum(1) * self.BARK + 1e-8)
        came = ((Q + 50) / (P + 50)) ** 1.2  # what was added is heard apart from the speech
        added = share * (change * came.clamp(max=12) * (came > 3)).sum(1)
        loud = ((total[:, 0] + 1e5) / 1e7) ** 0.04
        both, added = ((v / loud).clamp(max=45) for v in (both, added))
        raw = 4.5 - 0.1 * self.worst(both) - 0.0309 * self.worst(added)
        return 0.999 + 4 / (1 + torch.exp(3.8224 - 1.3669 * raw))

    def bands(self, magnitude: Tensor) -> Tensor:
        """Return the power of each band in thresholds of hearing, at the level of a telephone."""
        square = magnitude.square() * self.heard
        level = (square * self.speech).sum(1, keepdim=True).mean(2, keepdim=True) / (256 * 192)
        return self.POWER * self.within @ (square * (self.LEVEL / (level + 1e-12)))

    def equaliser(self, P: Tensor, Q: Tensor, live: Tensor) -> Tensor:
        """Return what a band gained or lost over the whole clip, which is hardly heard."""
        p, q = (
            (v * (v > 100 * self.threshold) * live).mean(-1, keepdim=True)
            / (live.mean(-1, keepdim=True) + 1e-6)
            for v in (P, Q)
        )
        return ((q + 1000) / (p + 1000)).clamp(0.01, 100)

    def follower(self, P: Tensor, Q: Tensor) -> Tensor:
        """Return the gain that brings each frame to the loudness of the host's, slowly."""
        p, q = ((v * (v > self.threshold)).sum(1, keepdim=True) + 5e3 for v in (P, Q))
        gain = p / q
        slow = 0.8 * gain[..., 1:] + 0.2 * gain[..., :-1]
        return torch.cat([gain[..., :1], slow], -1).clamp(3e-4, 5)

    def loudness(self, P: Tensor) -> Tensor:
        """Return Zwicker's loudness of powers."""
        above = (0.5 + 0.5 * P / self.threshold).clamp(min=1) ** self.power - 1
        return 0.1866 * (2 * self.threshold) ** self.power * above

    def worst(self, cost: Tensor) -> Tensor:
        """Sum up frames (batch, frames): sixth powers within a third of a second, then squares."""
        parts = cost.unfold(-1, min(self.WINDOW, cost.shape[-1]), self.WINDOW // 2)
        peak = (parts.pow(6).mean(-1) + 1e-12) ** (1 / 6)
        return torch.sqrt(peak.square().mean(-1) + 1e-8)


class Zimtohrli(nn.Module):
    """Predict Zimtohrli's opinion of clips: how small patches of levels keep their shape.

    Like the real one it compares patches of five channels by 94 ms of a spectrogram, after both
    clips were brought to each other by their loudest spots. The real one also aligns frames, which
    goes astray where those spots differ: that is charged by how far they do. Of marks of 3 s it
    follows the real opinion, clip by clip, with a correlation of .82 to .85 (run 12, 45 clips).
    """

    CHANNELS, WITHIN = 128, 104  # in all, and those below 8 kHz
    PATCH = (5, 12)  # channels, frames of 8 ms
    FLOOR = 13.53  # logarithm of the power that silence has in every channel
    LEVEL = 10**-2.5  # power of a clip
    ASTRAY, ASTRAY_FROM = 3.0, 0.006  # distance for what loudest spots differ by beyond so much
    bank: Tensor
    weight: Tensor

    def __init__(self, bins: int) -> None:
        super().__init__()
        low, high = (21.4 * math.log10(1 + 0.00437 * hz) for hz in (24.3, 20353))
        cams = torch.linspace(low, high, self.CHANNELS + 1)[: self.WITHIN]
        centre = (10 ** (cams / 21.4) - 1) / 0.00437
        width = 2.19 * torch.gradient(centre)[0]  # three poles each
        hz = torch.linspace(0, RATE / 2, bins)
        apart = (hz - centre[:, None]) / width[:, None]
        weight, power = (tuple((t[0], t[k]) for t in ZIMTOHRLI_TONES) for k in (1, 2))
        ear = torch.exp(line(power, hz) - self.FLOOR) / self.rise(hz.clamp(min=20))
        size = 2 * (bins - 1)
        tone = 4 * self.LEVEL / (size * torch.hann_window(size).square().sum())
        bank = (1 + apart.square()) ** -3 * self.rise(centre)[:, None] * ear * tone
        self.register_buffer("bank", bank, persistent=False)  # (channels, bins)
        self.register_buffer("weight", line(weight, centre)[:, None], persistent=False)

    @staticmethod
    def rise(hz: Tensor) -> Tensor:
        """Return the factor of a channel's power that comes of its width beside its frequency."""
        return (hz / (hz + 228.8)).square()

    def forward(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return the opinion, 5 for a copy, of magnitudes (batch, bins, frames) at every 8 ms."""
        x, y = (self.levels(v) for v in (X, Y))
        apart = torch.log(x.amax((1, 2), True) / y.amax((1, 2), True))
        x, y = x * torch.exp(-0.6 * apart), y * torch.exp(0.6 * apart)
        mx, my = self.smooth(x), self.smooth(y)
        loud = (2 * torch.sqrt(mx * my) + 26.4) / (mx + my + 26.4)
        x, y = x - mx, y - my
        spread = torch.sqrt(self.smooth(x * x) * self.smooth(y * y) + 1e-10)
        shape = ((self.smooth(x * y) + 1.95) / (spread + 1.95)).clamp(min=0.63) ** 0.258
        distance = (1 - loud * shape).mean((1, 2)) * (self.WITHIN / self.CHANNELS)
        astray = self.ASTRAY * F.relu(apart[:, 0, 0].abs() - self.ASTRAY_FROM).square()
        return 1 + 4 * torch.exp(-53.6 * (distance + astray))

    def levels(self, magnitude: Tensor) -> Tensor:
        """Return the weighted levels of all channels, of clips brought to one power."""
        square = magnitude.square()
        power = 2 * square.sum(1, keepdim=True).mean(2, keepdim=True)
        size = 2 * (square.shape[1] - 1)
        power = power / (size * size * 0.375)  # of a Hann window
        return self.weight * (torch.log(self.bank @ (square / (power + 1e-12)) + 1) + self.FLOOR)

    def smooth(self, v: Tensor) -> Tensor:
        """Return the means over patches that end at each channel and frame, nothing before."""
        tall, wide = self.PATCH
        padded = F.pad(v[:, None], (wide - 1, 0, tall - 1, 0))
        return F.avg_pool2d(padded, self.PATCH, 1)[:, 0]
