"""The attack channel of training: differentiable twins of the attacks, on batches.

Each attack takes audio (clips, samples) and tools, and gives audio of the same shape. Attacks know
nothing of marks.
"""

import torch
from torch import Tensor

from keybound.training.resynthesis import (
    celp,
    denoise,
    envelope,
    griffin_lim,
    jitter,
    mel_resynthesis,
    neural,
    neural_denoise,
    neural_noise,
    noise_denoise,
    remover,
)  # fmt: skip
from keybound.training.twins import (
    Attack,
    Tools,
    background,
    band_filter,
    compress,
    drop,
    echo,
    equalise,
    hard_noise,
    identity,
    noise,
    quantise,
    resample,
    reverb,
    smoothing,
    speed,
)  # fmt: skip

ATTACKS: dict[str, Attack] = {
    f.__name__: f
    for f in (
        identity, noise, hard_noise, background, band_filter, resample, equalise, speed, quantise,
        smoothing, echo, reverb, griffin_lim, mel_resynthesis, envelope, jitter, celp, denoise,
        noise_denoise, compress, drop, neural, neural_noise, neural_denoise, remover,
    )
}  # fmt: skip


def apply(
    kinds: list[str],
    marked: Tensor,
    unmarked: Tensor,
    probability: float,
    tools: Tools,
    residual: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attack marked clips and, in the same way, their unmarked twins: a group for each kind.

    A clip is attacked with a probability. `residual` is what a real codec did to the clips of the
    group called "codec".
    """
    n, heard = len(marked) // len(kinds), []
    for name, *pair in zip(kinds, marked.split(n), unmarked.split(n), strict=True):
        y = torch.cat(pair)
        if name == "codec":
            assert residual is not None
            hurt = y + residual
        else:
            hurt = ATTACKS[name](y, tools)
        spared = tools.uniform((2 * n, 1)) >= probability
        heard.append(finish(torch.where(spared, y, hurt), tools).split(n))
    return torch.cat([y for y, _ in heard]), torch.cat([y for _, y in heard])


def finish(y: Tensor, tools: Tools) -> Tensor:
    """Shift, where the recipe does, and scale, as any copy of a recording may be."""
    if tools.shift:
        shift = (tools.uniform((len(y), 1), -tools.shift, tools.shift)).long()
        place = torch.arange(y.shape[-1], device=y.device) + shift
        y = torch.gather(y, 1, place.clamp(0, y.shape[-1] - 1))
    return y * 10 ** (tools.uniform((len(y), 1), -12, 6) / 20)
