"""The pieces of the objective: pooled payload, presence, excerpts, copy attacks, removal.

Pooling here is the twin of what `watermark` does with the arrays of the exported networks.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from keybound.training.spectra import RATE, SECOND

FULL_SHARE = 0.5  # of a clip marked and sounding: from here on its payload counts in full
SLACK = 1.45  # a clip may cost this much more than the budget that holds for the mean
WEAK_SLACK = 1.2  # likewise where a mark is weak: what is quiet on the whole must be so everywhere


def pool(presence: Tensor, logits: Tensor) -> Tensor:
    """Average payload logits over frames, weighted by presence: (batch, bits)."""
    weight = presence.softmax(-1)[:, None]  # (batch, 1, frames)
    return (weight * logits).sum(-1)


def score(presence: Tensor) -> Tensor:
    """Return the presence score of each clip: the mean of the per-frame sigmoid."""
    return presence.sigmoid().mean(-1)


def frame_presence(presence: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Compare presence with per-frame targets; frames across a splice have weight zero."""
    loss = F.binary_cross_entropy_with_logits(presence, target, reduction="none")
    return (loss * weight).sum() / weight.sum().clamp(min=1)


def over(cost: Tensor, budget: float) -> Tensor:
    """Return what clips cost beyond their budget: on the mean, and each beyond some slack.

    Clips that are hard to mark may then cost more, and easy ones less.
    """
    return F.relu(cost.mean() - budget) + F.relu(cost - SLACK * budget).mean()


def over_by_strength(cost: Tensor, budget: float, strength: Tensor, power: float) -> Tensor:
    """Do the same where the budget falls with a power of the strength of each mark (clips,).

    Full and weak marks are judged apart. What a weak one costs too much counts by its own budget.
    """
    share = cost / strength**power
    lacks = torch.zeros((), device=cost.device)
    for kind, slack in ((strength == 1, SLACK), (strength < 1, WEAK_SLACK)):
        part = kind.float() / kind.sum().clamp(min=1)
        lacks = lacks + F.relu((part * share).sum() - budget * kind.any())
        lacks = lacks + (part * F.relu(share - slack * budget)).sum()
    return lacks


class Excerpts(NamedTuple):
    """What is read: each clip whole, then, of longer clips, the first second of each, the next."""

    parts: list[slice]  # of the frames of a clip
    counts: Tensor  # (parts * clips, 1): how much each counts, one for a clip in all
    share: Tensor  # (parts * clips, 1): how far it is marked and sounding

    def of(self, v: Tensor) -> Tensor:
        """Return the values of frames (clips, ..., frames) of each excerpt, as the mean of them."""
        return torch.cat([v[..., part].mean(-1) for part in self.parts])

    def pooled(self, presence: Tensor, logits: Tensor) -> Tensor:
        """Return the payload logits of each excerpt: (parts * clips, bits)."""
        return torch.cat([pool(presence[:, p], logits[..., p]) for p in self.parts])


def excerpts(target: Tensor, weight: Tensor, strength: Tensor) -> Excerpts:
    """Cut clips (clips, frames): at full strength they are read by the second, weaker ones whole.

    A mark of half the strength needs about four times as long: nobody asks more of it.
    """
    frames = target.shape[-1]
    seconds = frames // SECOND if frames % SECOND == 0 and frames > SECOND else 0
    parts = [slice(None), *(slice(k * SECOND, (k + 1) * SECOND) for k in range(seconds))]
    full = (strength == 1).float()[:, None] * (seconds > 0)
    counts = torch.cat([1 - full, *([full / seconds] * seconds if seconds else [])])
    # An excerpt that is marked, or sounds, for a moment only cannot spell its code.
    marked = torch.cat([(target * weight)[:, p].mean(-1) for p in parts])[:, None]
    return Excerpts(parts, counts, (marked / FULL_SHARE).clamp(max=1))


def pairs(v: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the first and the second half of each group of `n` clips."""
    first, second = v.unflatten(0, (-1, 2, n // 2)).unbind(1)
    return first.flatten(0, 1), second.flatten(0, 1)


def other_half(v: Tensor, n: int) -> Tensor:
    """Exchange the halves of each group of `n` clips."""
    return v.unflatten(0, (-1, 2, n // 2)).flip(1).flatten(0, 2)


def twice(v: Tensor, second: Tensor, n: int) -> Tensor:
    """Put after the first half of each group of `n` clips what `second` has in its place."""
    first, again = pairs(v, n)[0], pairs(second, n)[0]
    both = torch.stack([first.unflatten(0, (-1, n // 2)), again.unflatten(0, (-1, n // 2))], 1)
    return both.flatten(0, 2)


def hosts_part(pooled: Tensor, code: Tensor, share: Tensor, n: int) -> Tensor:
    """Compare what hosts add to pooled logits, whatever the code, with what the code does.

    In each group of `n` clips the second half are the hosts of the first with the complementary
    codes; `share` (clips, 1) says how far a clip counts.
    """
    (first, second), (ours, theirs) = pairs(pooled, n), pairs(share, n)
    sign, both = pairs(2 * code - 1, n)[0], ours * theirs
    count = both.sum() * code.shape[1] + 1e-6
    swing = ((first - second) / 2 * sign * both).sum() / count
    host = (((first + second) / 2).square() * both).sum() / count
    return host / (swing.detach().square() + 1e-2)


def removal(found: Tensor, host: Tensor) -> Tensor:
    """Return how far what the remover found is from the host it should have given back."""
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
