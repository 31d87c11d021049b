"""The networks: the spectral embedder, the detector, the in-loop remover.

All of them see a finite stretch of audio around each sample and no statistic of the whole clip,
so a file processed in chunks equals the file processed whole. Nothing here knows keys.

Shapes: a waveform is (batch, samples), its length a multiple of HOP; features are
(batch, channels, frames).
"""

from collections.abc import Callable
from functools import cache
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keybound.errors import RecipeError
from keybound.training.recipe import ModelSpec
from keybound.training.seanet import PRESENCE_LIMIT, AdditiveEmbedder, SeanetDetector, WaveRemover
from keybound.training.spectra import (
    BINS,
    HOP,
    MELS,
    RATE,
    LogMel,
    Spectrum,
    line,
    mel_bank,
    project_code,
    to_blocks,
)

USUAL_SPAN = 13  # frames over which presence judges how steady logits are


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

    def rows(self, x: Tensor, compute: Callable[..., Tensor]) -> Tensor:
        """Do the same on (batch, frames, width), where no convolution is left, by `block_rows`."""
        return compute(
            x, self.pad, self.depthwise.weight[:, 0].T, cast(Tensor, self.depthwise.bias),
            self.expand.weight[..., 0], cast(Tensor, self.expand.bias),
            self.contract.weight[..., 0], cast(Tensor, self.contract.bias), self.scale[:, 0],
        )  # fmt: skip


def block_rows(
    x: Tensor,
    pad: tuple[int, int],
    taps: Tensor,
    shift: Tensor,
    expand: Tensor,
    expand_bias: Tensor,
    contract: Tensor,
    contract_bias: Tensor,
    scale: Tensor,
) -> Tensor:
    """Compute a block with the channels last; a free function, so that it is compiled but once."""
    frames = x.shape[1]
    padded = F.pad(x, (0, 0, *pad))
    h = shift + sum(padded[:, k : k + frames] * taps[k] for k in range(len(taps)))
    h = h * torch.rsqrt((h * h).mean(2, keepdim=True) + 1e-5)
    h = F.linear(F.silu(F.linear(h, expand, expand_bias)), contract, contract_bias)
    return x + scale * h


@cache
def compiled_rows() -> Callable[..., Tensor]:
    """Return `block_rows` with its small operations fused, which are what a GPU spends time on."""
    torch._dynamo.config.recompile_limit = 64  # one for each shape and padding
    return torch.compile(block_rows, dynamic=False)


class Stack(nn.Sequential):
    """Blocks one after the other, on a GPU fused and with the channels last."""

    def forward(self, x: Tensor) -> Tensor:  # (batch, width, frames)
        if not x.is_cuda:
            return cast(Tensor, super().forward(x))
        rows = x.transpose(1, 2).float()
        for block in self:
            rows = cast(Block, block).rows(rows, compiled_rows())
        return rows.transpose(1, 2)


class SpectralEmbedder(nn.Module):
    """Scale a few dozen mel bands of the host's own spectrum, as code and host decide.

    A frame spans two blocks and sees six further frames at most: with the window,
    (2 + 6) * 20 ms = 160 ms from a sample to the last one that can change it.
    """

    bank: Tensor
    emphasis: Tensor

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.limit = spec.max_gain_nepers
        self.anchor = spec.anchor
        self.spectrum = Spectrum()
        self.features = LogMel(past=24, future=0)
        self.project = nn.Conv1d(MELS, spec.width, 1)
        self.analysis = _embedder_blocks(spec, spec.analysis_blocks, looking=2)
        self.film = nn.Conv1d(spec.width, 2 * spec.width, 1)
        self.project_code = nn.Linear(spec.bits, spec.width)
        self.synthesis = _embedder_blocks(spec, spec.synthesis_blocks, looking=4)
        self.out = nn.Conv1d(spec.width, spec.bands, 1)
        nn.init.normal_(self.out.weight, std=0.02)
        nn.init.zeros_(cast(Tensor, self.out.bias))
        self.register_buffer("bank", mel_bank(spec.bands, BINS), persistent=False)
        hz = self.bank @ torch.linspace(0, RATE / 2, BINS) / self.bank.sum(1)
        self.register_buffer("emphasis", line(spec.emphasis, hz)[:, None], False)  # (bands, 1)
        self.by_strength = spec.by_strength
        if spec.by_strength:
            self.tell = nn.Parameter(torch.zeros(spec.width, 1))
            self.slope = nn.Parameter(torch.zeros(spec.bands, 1))

    def gains(self, features: Tensor, code: Tensor, strength: Tensor | None = None) -> Tensor:
        """Return the gain of each bin in nepers: (batch, BINS, frames)."""
        h = self.analysis(self.project(features))
        if not self.anchor:
            h = torch.zeros_like(h)
        scale, shift = self.film(h).chunk(2, dim=1)
        told = scale * project_code(self.project_code, code, h.shape[-1]) + shift
        factor = self.limit * self.emphasis
        if strength is not None:
            weak = strength[:, None, None]  # gives way in some bands more than in others
            told = told + self.tell * (1 - weak)
            factor = factor * torch.exp((1 + self.slope) * torch.log(weak))
        bands = factor * torch.tanh(self.out(self.synthesis(told)).float())
        return self.bank.T @ bands

    def forward(self, x: Tensor, code: Tensor, strength: Tensor | None = None) -> Tensor:
        """Return the carrier of hosts (batch, samples) for codes, as `project_code` has them.

        `strength` (batch,) is that of each mark, full if none is given; with `by_strength` alone.
        """
        with torch.autocast(x.device.type, enabled=False):
            real, imag = self.spectrum(to_blocks(x, HOP, HOP))
            features = self.features(real, imag)
        change = torch.expm1(self.gains(features, code, strength))
        with torch.autocast(x.device.type, enabled=False):
            blocks = self.spectrum.inverse(real * change.float(), imag * change.float())
            return blocks.transpose(1, 2).reshape(x.shape[0], -1)


def _embedder_blocks(spec: ModelSpec, count: int, looking: int) -> Stack:
    """Make blocks of seven frames, of which the first `looking` ones see a frame ahead."""
    ahead = [1] * min(looking, count) + [0] * max(0, count - looking)
    return Stack(*[Block(spec.width, spec.expansion, 6 - f, f) for f in ahead])


def steadiness(logits: Tensor, span: int) -> Tensor:
    """Return the size of the mean of logits over `span` frames around each.

    At the ends of a recording it is the mean of what there is; over the usual span frames beyond
    the ends count as nothing, as all weights have learned it.
    """
    return F.avg_pool1d(logits, span, 1, span // 2, count_include_pad=span == USUAL_SPAN).abs()


class Presence(nn.Module):
    """A value for each frame, from its features and how steady the logits around it are.

    Logits are averaged over each of `spans` frames before their size is judged.
    """

    def __init__(self, width: int, bits: int, spans: tuple[int, ...]) -> None:
        super().__init__()
        self.spans = spans
        self.mix = nn.Conv1d(width + len(spans) * bits, 64, 1)
        self.presence = nn.Conv1d(64, 1, 1)

    def judge(self, h: Tensor, logits: Tensor) -> Tensor:
        """Return values within the limit (batch, frames) of features and logits."""
        steady = [steadiness(logits, span) for span in self.spans]
        raw = self.presence(F.silu(self.mix(torch.cat([h, *steady], 1))))[:, 0].float()
        return PRESENCE_LIMIT * torch.tanh(raw / PRESENCE_LIMIT)


class Heads(Presence):
    """Per-frame payload logits and presence.

    With longer spans than the usual one, presence no longer says how much the bits of a frame are
    worth. A weight of their own does: where it is lower, logits are scaled down, so that pooling by
    presence pools by it.
    """

    def __init__(self, width: int, bits: int, longer: tuple[int, ...] = ()) -> None:
        super().__init__(width, bits, (USUAL_SPAN, *longer))
        self.logits = nn.Conv1d(width, bits, 1)
        self.weight = Presence(width, bits, (USUAL_SPAN,)) if longer else None

    def forward(self, h: Tensor, seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return presence logits (batch, frames) and payload logits (batch, bits, frames).

        `seen` are the features that presence sees, where it should not see all.
        """
        logits = self.logits(h)
        presence = self.judge(h if seen is None else seen, logits)
        if self.weight is None:
            return presence, logits.float()
        worth = torch.exp(-F.relu(presence - self.weight.judge(h, logits)))[:, None]
        return presence, logits.float() * worth


class Detector(nn.Module):
    """Read presence and logits in each block of 20 ms from log-mel features at twice that rate.

    Frame j describes samples HOP*j to HOP*(j+1). It depends on `context` frames to either side
    and on the windows of the last of them: at most 490 ms from its middle, or as much more as half
    of the longest span that presence is judged over.
    """

    BLOCKS_SEE = 15  # frames to either side, all of them together

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spectrum = Spectrum()
        self.features = LogMel(past=2, future=2)
        self.project = nn.Conv1d(2 * MELS, spec.width, 1)
        spare = self.BLOCKS_SEE - spec.detector_blocks
        if spare < 0:
            raise RecipeError("too many detector blocks for its context", hint="at most 15")
        if any(span < 1 or span % 2 == 0 for span in spec.presence_spans):
            raise RecipeError("presence_spans must be odd numbers of frames", hint="such as [49]")
        wide = min(spare, spec.detector_blocks)  # blocks that see 2 ahead, the others 1
        sides = [2] * wide + [1] * (spec.detector_blocks - wide)
        self.blocks = Stack(*[Block(spec.width, spec.detector_expansion, s, s) for s in sides])
        self.heads = Heads(spec.width, spec.bits, spec.presence_spans)
        self.context = 2 + self.BLOCKS_SEE + max(self.heads.spans) // 2

    def trunk(self, x: Tensor) -> Tensor:
        """Return what the heads judge by: (batch, width, frames)."""
        with torch.autocast(x.device.type, enabled=False):
            early = self.spectrum(to_blocks(x, HOP // 2, HOP // 2))
            late = self.spectrum(to_blocks(x, 0, HOP))
            features = torch.cat([self.features(*early), self.features(*late)], 1)
        return cast(Tensor, self.blocks(self.project(features)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return presence logits (batch, frames) and payload logits (batch, bits, frames)."""
        return cast(tuple[Tensor, Tensor], self.heads(self.trunk(x)))


class Remover(nn.Module):
    """The in-loop adversary: predict from marked audio the gains that would undo the mark."""

    bank: Tensor

    def __init__(self, width: int = 128, blocks: int = 4, bands: int = 80) -> None:
        super().__init__()
        self.spectrum = Spectrum()
        self.features = LogMel(past=2, future=2)
        self.project = nn.Conv1d(MELS, width, 1)
        self.blocks = Stack(*[Block(width, 2, 3, 3) for _ in range(blocks)])
        self.out = nn.Conv1d(width, bands, 1)
        nn.init.zeros_(self.out.weight)
        self.register_buffer("bank", mel_bank(bands, BINS), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the audio (batch, samples) without what the remover takes for the mark."""
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


def build_remover(on_waveform: bool) -> nn.Module:
    """Make the in-loop remover, untrained, which leaves audio as it is."""
    return WaveRemover() if on_waveform else Remover()
