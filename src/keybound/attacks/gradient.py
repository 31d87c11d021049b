"""Gradient steps: a clip changed until a detector that the attacker has reads what he wants.

The detector is any function of torch. Knows no keys and no weights.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.attacks.copying import Signs

Clip = npt.NDArray[np.float32]

STEPS = 30
WEIGHT = 15.0  # of a code beside presence, whose error is squared
USUAL = 5.0  # the presence logit of a frame that is surely marked; of an unmarked one less that


def descend(
    detector: Callable[[Any], tuple[Any, Any]],
    start: Clip,
    code: Signs | None,
    budget_db: float,
    steps: int = STEPS,
) -> Clip:
    """Return a clip that the detector reads as a code, or as unmarked where there is none.

    Adam on the waveform, towards the presence that is usual; after each step what was added is
    brought back to `budget_db` under the energy of the clip. The detector returns
    presence (batch, frames) and logits (batch, bits, frames), which are pooled by presence, as the
    reader does.
    """
    import torch
    from torch.nn import functional as F

    clip = torch.from_numpy(start)[None]
    radius = float(clip.norm()) * 10 ** (-budget_db / 20)
    step = radius / start.size**0.5 / 4
    added = torch.zeros_like(clip, requires_grad=True)
    optimiser = torch.optim.Adam([added], lr=step)
    wanted = None if code is None else torch.from_numpy(code).float()
    for _ in range(steps):
        presence, logits = detector(clip + added)
        pooled = (presence.softmax(1)[:, None] * logits).sum(2)[0]  # (bits,)
        loss = (presence - (-USUAL if wanted is None else USUAL)).square().mean()
        bits = pooled.abs() if wanted is None else WEIGHT * F.softplus(-wanted * pooled)
        loss += bits.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            added *= min(1.0, radius / (float(added.norm()) + 1e-12))
    heard: Clip = (clip + added.detach())[0].clamp(-1, 1).numpy()
    return heard
