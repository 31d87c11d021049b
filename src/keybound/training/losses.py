"""The objective: pooled payload, presence, forgery, hearing, budget. Free functions on tensors.

Pooling here is the twin of what `watermark` does with the arrays of the exported networks.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keybound.training.recipe import LossSpec
from keybound.training.spectra import RATE, mel_bank

FULL_SHARE = 0.5  # of a clip marked and sounding: from here on its payload counts in full
SLACK = 1.6  # a clip may cost this much more than the budget that holds for the mean


def pool(presence: Tensor, logits: Tensor) -> Tensor:
    """Average payload logits over frames, weighted by presence: (batch, bits)."""
    weight = presence.softmax(-1)[:, None]  # (batch, 1, frames)
    return (weight * logits).sum(-1)


def score(presence: Tensor) -> Tensor:
    """Give the presence score of each clip: the mean of the per-frame sigmoid."""
    return presence.sigmoid().mean(-1)


def frame_presence(presence: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Compare presence with per-frame targets; frames across a splice have weight zero."""
    loss = F.binary_cross_entropy_with_logits(presence, target, reduction="none")
    return (loss * weight).sum() / weight.sum().clamp(min=1)


def snr_db(host: Tensor, carrier: Tensor) -> Tensor:
    """Give the signal-to-carrier ratio of each clip."""
    return 10 * torch.log10((host.square().mean(-1) + 1e-10) / (carrier.square().mean(-1) + 1e-10))


def over(cost: Tensor, budget: float) -> Tensor:
    """Give what clips cost beyond their budget: on the mean, and each beyond some slack.

    Clips that are hard to mark may then cost more, and easy ones less.
    """
    return F.relu(cost.mean() - budget) + F.relu(cost - SLACK * budget).mean()


class Hearing(nn.Module):
    """What the mark costs the ear: one pass over a few spectra of host and marked audio.

    Gives, as scalars: the multi-resolution STFT distance, the waveform L1, the mel distance, the
    carrier above the masking threshold; then per clip the intelligibility left, the SNR in dB and
    the rms gain in dB over audible bins. Levels are relative to the clip, so quiet hosts count as
    much as loud ones.
    """

    RESOLUTIONS = (256, 512, 1024, 2048)
    AUDIBLE_DB = 45.0  # a bin this far under the clip's peak is not heard beside it
    MASKING_OFFSET_DB = 10.0  # threshold under the spread host: between tone and noise maskers
    SEGMENT = 48  # frames of 8 ms: STOI's 384 ms
    mel: Tensor
    spread: Tensor
    thirds: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("thirds", third_octaves(257), persistent=False)
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

    def forward(self, host: Tensor, marked: Tensor) -> tuple[Tensor, ...]:
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
                clear = self.intelligibility(X, Y)
            if size == 1024:
                mel_loss, masking = self.masked(X, Y, self.magnitude(y - x, size))
        stft = torch.stack(terms).mean()
        return stft, (y - x).abs().mean(), mel_loss, masking, clear, snr_db(x, y - x), gain_db

    def masked(self, X: Tensor, Y: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
        """Give the mel distance and the mean excess of the carrier over the masked threshold."""
        host = self.mel @ X.square()  # (batch, bands, frames)
        floor = host.amax((1, 2), keepdim=True) * 1e-6
        mel = (torch.log((self.mel @ Y.square() + floor) / (host + floor))).abs().mean()
        threshold = self.spread @ host * 10 ** (-self.MASKING_OFFSET_DB / 10) + floor
        excess = torch.log((self.mel @ C.square() + floor) / threshold)
        return 0.5 * mel, F.relu(excess).mean()

    def intelligibility(self, X: Tensor, Y: Tensor) -> Tensor:
        """Give STOI's measure of each clip: how envelopes of third octaves keep their shape."""
        x, y = (
            torch.sqrt(self.thirds @ v.square() + 1e-6).unfold(-1, self.SEGMENT, 4) for v in (X, Y)
        )  # (batch, bands, segments, SEGMENT)
        level = torch.sqrt(x.square().sum(-1, True) / y.square().sum(-1, True))
        y = torch.minimum(y * level, x * (1 + 10 ** (15 / 20)))
        x, y = x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
        size = torch.sqrt((x.square().sum(-1) + 1e-5) * (y.square().sum(-1) + 1e-5))
        alike = ((x * y).sum(-1) + 1e-5) / size
        return alike.mean((1, 2))


def third_octaves(bins: int) -> Tensor:
    """Give STOI's fifteen bands from 150 Hz as sums of bins: (bands, bins)."""
    hz = torch.linspace(0, RATE / 2, bins)
    centre = 150 * 2 ** (torch.arange(15) / 3)
    low, high = centre * 2 ** (-1 / 6), centre * 2 ** (1 / 6)
    return ((hz[None] >= low[:, None]) & (hz[None] < high[:, None])).float()


def objective(
    spec: LossSpec, presence: Tensor, logits: Tensor, target: Tensor, weight: Tensor, code: Tensor
) -> dict[str, Tensor]:
    """Give the payload, presence and forgery terms.

    The rows of presence and logits are marked clips, as many unmarked twins, a group of clean
    hosts, then as many again of either kind of transplant.
    """
    clips = len(code)
    real = 2 * clips + (len(presence) - 2 * clips) // 3
    pooled = pool(presence[:clips], logits[:clips])
    # A clip that is marked, or sounds, for a moment only cannot spell its code.
    share = ((target * weight).mean(-1, keepdim=True) / FULL_SHARE).clamp(max=1)
    bits = F.binary_cross_entropy_with_logits(pooled, code, reduction="none")
    message = (bits * share).sum() / (share.sum() * code.shape[1] + 1e-6)
    zeros = torch.zeros_like(presence[clips:real])
    frame = frame_presence(
        presence[:real], torch.cat([target, zeros]), torch.cat([weight, zeros + 1])
    )
    # Whole clips are judged by their score, so that frames with nothing in them cost little.
    s = score(presence).clamp(1e-4, 1 - 1e-4)
    whole = ((target.mean(-1) == 1) & (weight.mean(-1) > 0.6)).float()
    missed = -(whole * s[:clips].log()).sum() / whole.sum().clamp(min=1)
    alarm = -(1 - s[clips:real]).log().mean()
    forged = presence[real:]
    forgery = F.binary_cross_entropy_with_logits(forged, torch.zeros_like(forged))
    return {
        "message": spec.message * message,
        "presence": spec.presence * frame,
        "clip": spec.clip_presence * (missed + alarm),
        "forgery": spec.forgery * (forgery - (1 - s[real:]).log().mean()),
    }


LEAN_SPAN = 13  # frames: what comes and goes faster cancels in the pool
LEAN_SHARE = 0.2  # of the gradient of `unforeseen` that the detector follows


def unforeseen(lean: Tensor, logits: Tensor) -> Tensor:
    """Give the share of what unmarked hosts tell the detector that the embedder did not foresee.

    The detector learns a little from it too: to hear less in hosts, and what can be foreseen.
    `lean` has a frame more than the logits: frame j + 1 spans the blocks j and j + 1.
    """
    told = logits.detach() + LEAN_SHARE * (logits - logits.detach())
    missed = lean[..., 1:] - told

    def power(v: Tensor) -> Tensor:
        slow = F.avg_pool1d(v, LEAN_SPAN, 1)
        return slow.square().mean() + 4 * v.mean(-1).square().mean()

    return power(missed) / (power(logits.detach()) + 1e-3)


def removal(found: Tensor, host: Tensor) -> Tensor:
    """Judge how far what the remover found is from the host it should have given back."""
    level = torch.sqrt(host.square().mean(-1, keepdim=True) + 1e-10)
    window = torch.hann_window(512, device=host.device)
    X, Y = (
        torch.stft(v / level, 512, 128, window=window, return_complex=True).abs()
        for v in (host, found)
    )
    distance = torch.log((Y + 1e-2) / (X + 1e-2)).abs().mean()
    return distance + ((found - host) / level).abs().mean()


def transplant_residual(host: Tensor, marked: Tensor, other: Tensor) -> Tensor:
    """Add the carrier of one host, unscaled, to another: the paper's oracle attack."""
    return other + (marked - host)


def transplant_gains(host: Tensor, marked: Tensor, other: Tensor) -> Tensor:
    """Scale another host's spectrum as the mark scaled its own: the attack in our own domain."""
    size, hop = 512, 128
    window = torch.hann_window(size, device=host.device)

    def spectrum(x: Tensor) -> Tensor:
        return torch.stft(x, size, hop, window=window, return_complex=True)

    before = spectrum(host).abs()
    gain = (spectrum(marked).abs() + 1e-5) / (before + 1e-5)
    moved = spectrum(other) * gain.clamp(0.25, 4.0)
    return torch.istft(moved, size, hop, window=window, length=other.shape[-1])


assert RATE == 16000  # the masking slopes above are laid out for bands up to 8 kHz
