"""One step of training, top to bottom: hosts and random codes in, two networks a little better.

Step k draws everything from generators seeded by (seed, k), so a resumed run repeats the run that
was not interrupted. Nothing here waits for the device.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from keybound.errors import RecipeError
from keybound.training import channel, codecs, losses, neural, objective, twins
from keybound.training.checkpoint import State
from keybound.training.data import (
    Hosts,
    Stream,
    cropped,
    read_folder,
    sealed,
    splice,
    turned,
    turns,
)
from keybound.training.graphs import Half, graphed
from keybound.training.hearing import Heard, Hearing, measures
from keybound.training.recipe import Recipe, at, group_count, plan, rate
from keybound.training.spectra import HOP, RATE


@dataclass(frozen=True)
class Sources:
    """Where training finds what it needs on this machine."""

    speech: Path
    noise: Path
    lyra: Path | None = None


class Removal(nn.Module):
    """How far a remover is from giving the hosts of marked clips back."""

    def __init__(self, remover: nn.Module) -> None:
        super().__init__()
        self.remover = remover

    def forward(self, marked: Tensor, host: Tensor) -> Tensor:
        return losses.removal(self.remover(marked), host)


@dataclass
class Loop:
    """Everything a step needs that does not change from step to step."""

    recipe: Recipe
    state: State
    hosts: Hosts
    tools: twins.Tools
    hearing: Callable[[Tensor, Tensor], tuple[Tensor, ...]]
    embed: Callable[..., Tensor]
    detect: Callable[[Tensor], tuple[Tensor, Tensor]]
    remove: Callable[[Tensor, Tensor], Tensor]  # what the remover misses: of marked clips and hosts
    pool: Executor
    accuracy: dict[str, list[Tensor]]


def prepare(recipe: Recipe, state: State, sources: Sources, device: torch.device) -> Loop:
    """Load the data and record the networks for the shapes that every step uses."""
    noise = Stream(read_folder(sources.noise, level=False), device)
    hosts = Hosts(sources.speech, noise, recipe.data, device)
    learned = dict(neural.load_encodec(device))
    if sources.lyra is not None:
        learned |= neural.load_lyra(sources.lyra, device)
    if wanted := recipe.channel.neural_codecs:
        if missing := sorted(set(wanted) - set(learned)):
            raise RecipeError(f"no {missing[0]} here", hint="the recipe trains through it")
        # One that is named twice serves twice a step, as a copy: recording changes a module.
        again = (" again" * wanted[:k].count(name) for k, name in enumerate(wanted))
        learned = {n + more: copy(learned[n]) for n, more in zip(wanted, again, strict=True)}
    n, length = recipe.batch, recipe.data.segment_frames * HOP
    groups = group_count(recipe)

    def blank(clips: int, grad: bool = True) -> Tensor:
        return torch.randn(clips, length, device=device).mul_(0.1).requires_grad_(grad)

    pairs: neural.Codecs = {k: graphed(c, blank(2 * n)) for k, c in learned.items()}
    code = torch.zeros(n * groups, recipe.model.bits, device=device)
    strength = torch.ones(len(code), device=device)
    told = (strength,) if recipe.model.by_strength else ()
    embed = graphed(Half(state.embedder), blank(n * groups, False), code, *told)
    detect = graphed(Half(state.detector), blank(n * (2 * groups + 3)))
    half = (n * groups + 1) // 2
    hear = graphed(Hearing().to(device), blank(half, False), blank(half))
    remove = graphed(Removal(state.remover), blank(n, False), blank(n, False))
    tools = twins.Tools(
        torch.Generator(device),
        torch.Generator(),
        noise,
        pairs,
        remover=state.remover,
        strengths=twins.STRENGTHS[recipe.channel.strengths],
        shift=round(recipe.channel.shift_ms * RATE / 1000),
    )
    pool = codecs.workers(device)
    return Loop(recipe, state, hosts, tools, hear, embed, detect, remove, pool, defaultdict(list))


def seeded(loop: Loop, step: int, purpose: int) -> None:
    """Start the generators of a step, or of a request within it."""
    loop.tools.begin((loop.recipe.seed * 1_000_003 + step) * 16 + purpose)


class Drawn(NamedTuple):
    """What is marked, and how."""

    host: Tensor  # (clips, samples)
    code: Tensor  # (clips, bits)
    voiced: Tensor  # (clips, frames): 1 where the host can take a mark
    strength: Tensor  # (clips,) of the mark
    turn: Tensor  # (clips, frames): -1 where the mark spells the opposite code
    kept: Tensor  # (clips, frames): 1 where the clip is heard


def draw(loop: Loop, count: int) -> Drawn:
    """Draw hosts, random codes, and strengths."""
    tools, data = loop.tools, loop.recipe.data
    x, voiced = loop.hosts.draw(count, tools.generator)
    code = (tools.uniform((count, loop.recipe.model.bits)) < 0.5).float()
    strength = torch.ones(count, device=x.device)
    if data.full < 1:
        weak = tools.uniform((count,), *data.strengths)
        strength = torch.where(tools.uniform((count,)) < data.full, strength, weak)
    turn = kept = torch.ones_like(voiced, dtype=x.dtype)
    if data.cropped:  # weak marks are heard whole
        part = cropped(count, voiced.shape[1], data.cropped, tools.generator)
        kept = torch.where(strength[:, None] == 1, part, kept)
    if loop.recipe.loss.host:  # the second half of each group: the same hosts, the opposite codes
        n = loop.recipe.batch
        if data.turns:
            turn = turns(count, voiced.shape[1], data.turns, tools.generator)
        both = x, voiced, strength, turn, kept
        x, voiced, strength, turn, kept = (losses.twice(v, v, n) for v in both)
        code = losses.twice(code, 1 - code, n)
    return Drawn(x, code, voiced.float(), strength, turn, kept)


def carried(loop: Loop, drawn: Drawn, carrier: Tensor) -> Tensor:
    """Return hosts with their marks, some of which change to the code of their twin and back."""
    if loop.recipe.data.turns and loop.recipe.loss.host:
        carrier = turned(carrier, losses.other_half(carrier, loop.recipe.batch), drawn.turn)
    if loop.recipe.model.by_strength:
        return drawn.host + carrier
    return drawn.host + drawn.strength[:, None] * carrier


def told(loop: Loop, drawn: Drawn) -> tuple[Tensor, ...]:
    """Return what the embedder is given of a batch."""
    strength = (drawn.strength,) if loop.recipe.model.by_strength else ()
    return drawn.host, drawn.code, *strength


def request_codec(loop: Loop, step: int) -> codecs.Request:
    """Mark the hosts of a later step and send them, and their unmarked twins, to the codecs."""
    seeded(loop, step, 1)
    drawn = draw(loop, loop.recipe.batch)
    with torch.no_grad():
        marked = carried(loop, drawn, Half(loop.state.embedder)(*told(loop, drawn)))
    return codecs.Request(loop.pool, torch.cat([marked, drawn.host]), loop.recipe.seed, step)


def train_step(
    loop: Loop, step: int, position: float, residual: Tensor | None
) -> dict[str, Tensor]:
    """Do one step and give its losses."""
    recipe, tools, n = loop.recipe, loop.tools, loop.recipe.batch
    groups = plan(recipe, step, position, residual is not None)
    if residual is not None:
        seeded(loop, step, 1)
        coded = draw(loop, n)
    seeded(loop, step, 0)
    drawn = draw(loop, n * len(groups))
    if residual is not None:
        pairs = zip(coded, drawn, strict=True)
        drawn = Drawn(*(torch.cat([first, rest[n:]]) for first, rest in pairs))
    x, code, voiced, strength, turn, kept = drawn

    carrier = loop.embed(*told(loop, drawn))
    marked = carried(loop, drawn, carrier)  # (clips, samples)
    borne = marked
    if recipe.data.sealed:
        borne = sealed(marked, recipe.data.sealed, tools.generator)
    audio, target, weight = splice(borne, x, recipe.data.splice, tools.generator)
    if residual is not None:
        audio = torch.cat([marked[:n], audio[n:]])
        target, weight = target.clone(), weight.clone()
        target[:n] = weight[:n] = 1.0
    weight = weight * voiced

    chance = at(recipe.channel.probability, position)
    heard = channel.apply(groups, audio, x, chance, tools, residual)
    if recipe.data.cropped:
        part = kept.repeat_interleave(HOP, 1)
        heard, target, weight = (heard[0] * part, heard[1] * part), target * kept, weight * kept
    other = x.roll(1, 0)
    gains = recipe.loss.gain_transplants
    moved = losses.transplant_gains if gains else losses.transplant_residual
    forged = [
        losses.transplant_residual(x[:n], marked[:n], other[:n]),
        moved(x[-n:], marked[-n:], other[-n:]),
    ]
    odd = round(n * recipe.data.non_speech)
    clean = x[-n:][odd:]
    if odd:
        clean = torch.cat([clean, loop.hosts.non_speech(odd, tools.generator)])
    spare = channel.finish(torch.cat([clean, *forged]), tools)  # shifted as marked clips are
    presence, logits = loop.detect(torch.cat([*heard, spare]))
    logits = logits[: len(code)] * turn[:, None]  # of marks alone, as of the code they begin with

    paired = bool(recipe.loss.host)
    answers = presence, logits, target, weight, code, strength
    terms = objective.of_answers(*answers, n, paired=paired)
    # Half the clips say what the mark costs the ear, at full strength unless the embedder knows
    # another: it varies less than what attacks do.
    cost = Heard(*loop.hearing(x[::2], x[::2] + carrier[::2]))
    own = strength[::2] if recipe.model.by_strength else None
    terms |= objective.of_cost(recipe.loss, cost, position, own)
    norm = update(loop, objective.total(terms, objective.weights(recipe, position)), position)
    every = recipe.channel.remover_updates
    if every and step % every == 0 and position > recipe.channel.remover_from / 2:
        terms["remover"] = update_remover(loop, marked[:n].detach(), x[:n])

    with torch.no_grad():
        count_bits(loop, groups, losses.excerpts(target, weight, strength), presence, logits, code)
    heard_at = torch.ones_like(strength[::2]) if own is None else own
    extra = measures(cost, heard_at) | {"norm": norm}
    return {k: v.detach() for k, v in (terms | extra).items()}


def count_bits(
    loop: Loop,
    groups: list[str],
    read: losses.Excerpts,
    presence: Tensor,
    logits: Tensor,
    code: Tensor,
) -> None:
    """Count the right bits of each group, apart where marks are weak, for the log."""
    pooled = read.pooled(presence[: len(code)], logits)
    right = (pooled > 0) == (code.repeat(len(read.parts), 1) > 0.5)
    judged = (read.share == 1) & (read.counts > 0)  # less need not spell its code
    shape = (len(read.parts), len(groups), -1)
    hits, of = ((right & judged).unflatten(0, shape), judged.unflatten(0, shape))
    for name, hit, total in zip(groups, hits.unbind(1), of.unbind(1), strict=True):
        if len(read.parts) > 1:
            weak = torch.stack([hit[0].sum(), total[0].sum() * code.shape[1]])
            loop.accuracy[f"{name}, weak"].append(weak)
            hit, total = hit[1:], total[1:]
        loop.accuracy[name].append(torch.stack([hit.sum(), total.sum() * code.shape[1]]))


def update(loop: Loop, loss: Tensor, position: float) -> Tensor:
    """Take a step of both networks and follow with the averaged weights."""
    state = loop.state
    for group in state.optimiser.param_groups:
        group["lr"] = rate(loop.recipe, state.step, position)
    norm = descend(state.optimiser, state.trained, loss, loop.recipe.clip_norm)
    follow = min(loop.recipe.ema, (state.step + 1) / (state.step + 10))
    with torch.no_grad():
        torch._foreach_lerp_(state.average, [p.data for p in state.trained], 1 - follow)
    return norm


def update_remover(loop: Loop, marked: Tensor, host: Tensor) -> Tensor:
    """Teach the in-loop remover to give the host back."""
    loss = loop.remove(marked, host)
    parameters = list(loop.state.remover.parameters())
    descend(loop.state.remover_optimiser, parameters, loss, math.inf)
    return loss


def descend(
    optimiser: torch.optim.AdamW, parameters: list[nn.Parameter], loss: Tensor, limit: float
) -> Tensor:
    """Take one step, unless the gradient is not finite, and give the norm of the gradient."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(parameters, limit)
    # The fused optimiser skips the step on the device, so nobody waits to look at the norm.
    optimiser.found_inf = (~torch.isfinite(norm)).float()  # type: ignore[attr-defined]
    optimiser.grad_scale = None  # type: ignore[attr-defined]
    optimiser.step()
    return norm
