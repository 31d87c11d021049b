"""The objective: named terms, and one dict of weights over them, as the paper writes it.

Terms carry no weights, so that the log of a run compares with that of another recipe.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from keybound.training.hearing import BEST, Heard
from keybound.training.losses import (
    excerpts,
    frame_presence,
    hosts_part,
    over,
    over_by_strength,
    score,
)
from keybound.training.recipe import LossSpec, Recipe, at

Terms = dict[str, Tensor]


def weights(recipe: Recipe, position: float) -> dict[str, float]:
    """Return the weight of each term at a step of the schedule."""
    spec = recipe.loss
    forgery = spec.forgery * at(spec.forgery_ramp, position)
    ear = spec.perceptual * at(spec.perceptual_ramp, position)
    return {
        "message": spec.message,
        "presence": spec.presence,
        "clip_presence": spec.clip_presence,
        "forgery": forgery * spec.forgery_frames,
        "clip_forgery": forgery * spec.forgery_clips,
        "host": spec.host,
        "stft": ear,
        "wave": ear,
        "mel": 2 * ear,
        "masking": ear * spec.masking,
        "below_stoi": ear * spec.stoi,
        "below_visqol": ear * spec.visqol,
        "below_pesq": ear * spec.pesq,
        "below_zimtohrli": ear * spec.zimtohrli,
        "snr": spec.budget,
        "clip_snr": spec.clip_budget,
        "gain": spec.gain_budget if recipe.model.generator == "spectral" else 0.0,
    }


def total(terms: Terms, weight: dict[str, float]) -> Tensor:
    """Return the weighted sum of terms; one without weight need not be finite."""
    parts = [weight[name] * value for name, value in terms.items() if weight[name]]
    return torch.stack(parts).sum()


def of_answers(
    presence: Tensor,
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    code: Tensor,
    strength: Tensor,
    n: int,
    *,
    paired: bool = False,
) -> Terms:
    """Return the terms of what the detector says of groups of `n` clips.

    The rows of presence and logits are marked clips, as many unmarked twins, a group of clean
    hosts, then as many again of either kind of copy attack. `strength` (clips,) is that of each
    mark; a weak one counts less among those that presence should see. Where clips are `paired`,
    the second half of a group are the hosts of the first with the complementary codes.
    """
    clips = len(code)
    real = 2 * clips + (len(presence) - 2 * clips) // 3
    read = excerpts(target, weight, strength)
    pooled = read.pooled(presence[:clips], logits[:clips])
    code = code.repeat(len(read.parts), 1)
    counts = read.counts * read.share
    bits = F.binary_cross_entropy_with_logits(pooled, code, reduction="none")
    message = (bits * counts).sum() / (counts.sum() * code.shape[1] + 1e-6)
    zeros = torch.zeros_like(presence[clips:real])
    seen = torch.cat([weight * strength[:, None], zeros + 1])
    # Excerpts are judged by their score, so that frames with nothing in them cost little.
    chance = presence.sigmoid()
    found = read.of(chance[:clips]).clamp(1e-4, 1 - 1e-4)
    whole = ((read.of(target) == 1) & (read.of(weight) > 0.6)).float()
    whole = whole * read.counts[:, 0] * strength.repeat(len(read.parts))
    missed = -(whole * found.log()).sum() / whole.sum().clamp(min=1)
    alarm = -(1 - read.of(chance[clips:real]).clamp(max=1 - 1e-4)).log().mean()
    forged = presence[real:]
    terms = {
        "message": message,
        "presence": frame_presence(presence[:real], torch.cat([target, zeros]), seen),
        "clip_presence": missed + alarm,
        "forgery": F.binary_cross_entropy_with_logits(forged, torch.zeros_like(forged)),
        "clip_forgery": -(1 - score(forged).clamp(max=1 - 1e-4)).log().mean(),
    }
    if paired:
        both = read.counts.sqrt() * read.share  # of two clips of a pair
        terms["host"] = hosts_part(pooled, code, both, n)
    return terms


def of_cost(spec: LossSpec, cost: Heard, position: float, strength: Tensor | None = None) -> Terms:
    """Return the terms of what a mark costs the ear: the paper's, what meters lack, budgets.

    With `strength` (clips,), what is heard is a mark of that strength, and budgets fall with it.
    """
    if strength is not None:
        return _of_cost_by_strength(spec, cost, position, strength)
    target_db = at(spec.snr_db, position)
    return {
        "stft": cost.stft,
        "wave": cost.wave,
        "mel": cost.mel,
        "masking": cost.masking,
        "below_stoi": over(1 - cost.stoi, 1 - spec.stoi_goal),
        "below_visqol": over(1 - cost.visqol, 1 - spec.visqol_goal),
        "below_pesq": over(BEST - cost.pesq, BEST - spec.pesq_goal),
        "below_zimtohrli": over(5 - cost.zimtohrli, 5 - spec.zimtohrli_goal),
        "snr": F.relu(target_db - cost.snr_db.mean()),
        "clip_snr": F.relu(target_db - spec.clip_slack_db - cost.snr_db).mean(),
        "gain": over(cost.gain_db, at(spec.gain_db, position)),
    }


def _of_cost_by_strength(spec: LossSpec, cost: Heard, position: float, strength: Tensor) -> Terms:
    full = cost._replace(
        snr_db=cost.snr_db + 20 * torch.log10(strength), gain_db=cost.gain_db / strength
    )
    lacks = (
        ("below_stoi", 1 - cost.stoi, 1 - spec.stoi_goal),
        ("below_visqol", 1 - cost.visqol, 1 - spec.visqol_goal),
        ("below_pesq", BEST - cost.pesq, BEST - spec.pesq_goal),
        ("below_zimtohrli", 5 - cost.zimtohrli, 5 - spec.zimtohrli_goal),
    )
    return of_cost(spec, full, position) | {
        name: over_by_strength(lack, budget, strength, power)
        for (name, lack, budget), power in zip(lacks, spec.weak_powers, strict=True)
    }
