"""PESQ and Zimtohrli predicted, so that training can follow their gradients."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keybound.training.spectra import RATE, line

# What Zimtohrli makes of tones, measured with the package: by how much a level in nepers of power
# counts, and how loud a tone is to the channel that it is in the middle of, as the logarithm of
# the power of a tone of amplitude one, less that of the channel's own gain.
ZIMTOHRLI_WEIGHTS = (
    (24.0, 0.69), (62.0, 0.69), (104.0, 0.69), (153.0, 0.68), (210.0, 0.70), (274.0, 0.86),
    (349.0, 0.82), (434.0, 0.52), (531.0, 0.53), (643.0, 0.97), (772.0, 0.94), (919.0, 1.06),
    (1088.0, 1.31), (1282.0, 1.09), (1505.0, 0.88), (1761.0, 0.81), (2054.0, 0.88), (2390.0, 0.99),
    (2776.0, 1.04), (3219.0, 1.05), (3727.0, 1.03), (4309.0, 1.21), (4978.0, 1.61), (5745.0, 1.77),
    (6625.0, 1.57), (7635.0, 1.24), (8794.0, 1.33),
)  # fmt: skip
ZIMTOHRLI_EAR = (
    (25.0, 26.99), (28.0, 26.96), (29.0, 26.68), (379.0, 26.55), (685.0, 26.18), (815.0, 25.84),
    (928.0, 25.28), (998.0, 24.49), (1040.0, 23.41), (1060.0, 22.31), (1070.0, 21.32),
    (1080.0, 19.64), (1085.0, 19.51), (1095.0, 21.30), (1104.0, 22.34), (1120.0, 23.44),
    (1135.0, 24.10), (1153.0, 24.63), (1175.0, 25.03), (1239.0, 25.42), (1332.0, 25.24),
    (1608.0, 23.98), (1703.0, 23.76), (1805.0, 23.85), (2026.0, 24.45), (2178.0, 24.68),
    (2341.0, 24.67), (2480.0, 24.36), (2590.0, 23.81), (2680.0, 22.95), (2730.0, 22.11),
    (2800.0, 20.27), (2820.0, 20.54), (2870.0, 22.15), (2930.0, 23.41), (3037.0, 24.74),
    (3126.0, 25.48), (3265.0, 26.32), (3459.0, 27.14), (3718.0, 27.87), (3939.0, 28.27),
    (4487.0, 28.73), (5821.0, 28.81), (8000.0, 27.88),
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

    Like the real one it hears through a bank of filters of three poles, compares patches of five
    channels by 94 ms of their levels, and brings clips to each other by their loudest spots
    first. The real one also aligns frames, which goes astray where those spots differ: that is
    charged by how far they do. Of marks of 3 s it follows the real opinion, clip by clip, with a
    correlation of .97 at the strength for 3 s and .94 at full strength (run 14, 45 clips).
    """

    CHANNELS, WITHIN = 128, 104  # in all, and those below 8 kHz
    FLOOR = 13.53  # logarithm of the power that silence has in every channel
    LEVEL = 10 ** (-25 / 20)  # rms of a clip
    FRAME = 188  # samples: 12 ms
    PATCH = (5, 8)  # channels, frames
    SLOWER = 4  # channels are 4 kHz wide: as many times fewer samples
    TOGETHER = 8  # channels that are cut out of a spectrum together
    SPARE = 1152  # samples behind a clip for its filters to fall silent
    CLOSER = (0.583, 0.631)  # powers that bring the higher peak down, and the lower one up
    ASTRAY, ASTRAY_FROM = 5.0, 0.01  # distance for what loudest spots differ by beyond so much
    centre: Tensor
    width: Tensor
    weight: Tensor
    ear: Tensor
    gain: Tensor

    def __init__(self) -> None:
        super().__init__()
        low, high = (21.4 * math.log10(1 + 0.00437 * hz) for hz in (24.3, 20353))
        cams = torch.linspace(low, high, self.CHANNELS + 1)[: self.WITHIN]
        centre = (10 ** (cams / 21.4) - 1) / 0.00437
        apart = torch.gradient(centre)[0]
        for name, values in {
            "centre": centre,
            "width": 2.197 * apart,  # of each pole
            "weight": line(ZIMTOHRLI_WEIGHTS, centre)[:, None],
            "ear": line(ZIMTOHRLI_EAR, torch.arange(0, RATE / 2 + 5, 5)),  # every 5 Hz
            "gain": 2 * torch.log(centre / apart),
        }.items():
            self.register_buffer(name, values, persistent=False)

    def forward(self, host: Tensor, marked: Tensor) -> Tensor:
        """Return the opinion, 5 for a copy, of clips (batch, samples)."""
        x, y = self.levels(host), self.levels(marked)
        apart = torch.log(x.amax((1, 2), True) / y.amax((1, 2), True))
        down, up = (torch.where(apart > 0, *v) for v in (self.CLOSER, self.CLOSER[::-1]))
        x, y = x * torch.exp(-down * apart), y * torch.exp(up * apart)
        mx, my = self.smooth(x), self.smooth(y)
        loud = ((2 * torch.sqrt(mx * my) + 26.4) / (mx + my + 26.4)) ** 1.05
        x, y = x - mx, y - my
        spread = torch.sqrt(self.smooth(x * x) * self.smooth(y * y) + 1e-10)
        shape = ((self.smooth(x * y) + 1.95) / (spread + 1.95)).clamp(min=0.633) ** 0.258
        distance = (1 - loud * shape).mean((1, 2)) * (self.WITHIN / self.CHANNELS)
        astray = self.ASTRAY * F.relu(apart[:, 0, 0].abs() - self.ASTRAY_FROM).square()
        return 1 + 4 * torch.exp(-51.6 * (distance + astray))

    def levels(self, clip: Tensor) -> Tensor:
        """Return the weighted levels of all channels, of clips brought to one power."""
        block = 1024 * self.SLOWER
        size = (clip.shape[-1] + self.SPARE + block - 1) // block * block
        clip = clip / torch.sqrt(clip.square().mean(-1, keepdim=True) + 1e-12) * self.LEVEL
        spectrum = torch.fft.fftshift(torch.fft.fft(clip, size), -1) / size
        wide = size // self.SLOWER
        centre = self.centre.unflatten(0, (-1, self.TOGETHER)).mean(1).tolist()
        begins = [round((hz / RATE + 0.5) * size) - wide // 2 for hz in centre]
        begins = [min(begin, size - wide) for begin in begins]
        parts = torch.stack([spectrum[:, n : n + wide] for n in begins], 1)[:, :, None]
        waves = torch.fft.ifft(parts * self.filters(begins, size).unflatten(0, (-1, self.TOGETHER)))
        energy = (waves.real.square() + waves.imag.square()).flatten(1, 2) * wide**2
        power = energy @ self.frames(clip.shape[-1], wide)
        return self.weight * (torch.log(power * math.exp(-self.FLOOR) + 1) + self.FLOOR)

    def filters(self, begins: list[int], size: int) -> Tensor:
        """Return what each channel makes of the frequencies that are cut out for it."""
        first = torch.tensor(begins, device=self.centre.device).repeat_interleave(self.TOGETHER)
        bins = first[:, None] + torch.arange(size // self.SLOWER, device=first.device)
        hz = (bins - size // 2) * (RATE / size)  # (channels, bins)
        pole = 1 + 1j * (hz - self.centre[:, None]) / self.width[:, None]
        ear = self.ear[(hz.abs() / 5).round().long()] + self.gain[:, None]
        return 2 * torch.exp(ear / 2) / pole**3

    def frames(self, samples: int, slow: int) -> Tensor:
        """Return the share that each slow sample has in each frame, (slow, frames).

        A frame fades in through the block before its own and out through that.
        """
        count = -(-samples // self.FRAME)
        block = (3 * samples // count) / (3 * self.SLOWER)  # of whole samples at 48 kHz
        place = (torch.arange(slow, device=self.centre.device) + 0.5) / block
        own = place.long()
        fading = torch.sigmoid(-8.02 * (2 * (place - own) - 1))[:, None] / block
        here, later = (F.one_hot((own + k).clamp(max=count), count + 1) for k in (0, 1))
        return (here * fading + later * (1 / block - fading))[:, :count]

    def smooth(self, v: Tensor) -> Tensor:
        """Return the means over patches that end at each channel and frame, nothing before."""
        tall, wide = self.PATCH
        padded = F.pad(v[:, None], (wide - 1, 0, tall - 1, 0))
        return F.avg_pool2d(padded, self.PATCH, 1)[:, 0]
