"""The training loop: hosts and random codes in, two networks out. One step reads top to bottom.

Step k draws everything from generators seeded by (seed, k), so a resumed run repeats the run that
was not interrupted. Nothing waits for the device but the log.
"""

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor, nn

from keybound.errors import RecipeError
from keybound.training import channel, losses, nets, neural
from keybound.training.checkpoint import State, fresh, restore, save
from keybound.training.codecs import Request
from keybound.training.data import Hosts, Stream, read_folder, splice
from keybound.training.recipe import Recipe, at, load


@dataclass(frozen=True)
class Sources:
    """Where training finds what it needs on this machine."""

    speech: Path
    noise: Path
    lyra: Path | None = None


@dataclass
class Loop:
    """Everything a step needs that does not change from step to step."""

    recipe: Recipe
    state: State
    hosts: Hosts
    tools: channel.Tools
    hearing: Callable[[Tensor, Tensor], tuple[Tensor, ...]]
    embed: Callable[[Tensor, Tensor], Tensor]
    detect: Callable[[Tensor], tuple[Tensor, Tensor]]
    pool: ThreadPoolExecutor
    accuracy: dict[str, list[Tensor]]


class Half(nn.Module):
    """A network that computes its blocks in bfloat16 on a GPU, in float32 elsewhere."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Tensor) -> Any:
        on = inputs[0].is_cuda
        with torch.autocast(
            inputs[0].device.type, dtype=torch.bfloat16, enabled=on, cache_enabled=False
        ):
            return self.inner(*inputs)


def graphed(module: nn.Module, *samples: Tensor) -> Callable[..., Any]:
    """Record a network as a CUDA graph, since launching kernels costs more than running them."""
    if not samples[0].is_cuda:
        return module
    made: Callable[..., Any] = torch.cuda.make_graphed_callables(module, samples)
    return made


def prepare(recipe: Recipe, state: State, sources: Sources, device: torch.device) -> Loop:
    """Load the data and record the networks for the shapes that every step uses."""
    noise = Stream(read_folder(sources.noise, level=False), device)
    hosts = Hosts(sources.speech, noise, recipe.data, device)
    codecs = dict(neural.load_encodec(device))
    if sources.lyra is not None:
        codecs |= neural.load_lyra(sources.lyra, device)
    n, length = recipe.batch, recipe.data.segment_frames * nets.HOP
    groups = group_count(recipe)

    def blank(clips: int, grad: bool = True) -> Tensor:
        return torch.randn(clips, length, device=device).mul_(0.1).requires_grad_(grad)

    pairs: neural.Codecs = {k: graphed(c, blank(2 * n)) for k, c in codecs.items()}
    code = torch.zeros(n * groups, recipe.model.bits, device=device)
    embed = graphed(Half(state.embedder), blank(n * groups, False), code)
    detect = graphed(Half(state.detector), blank(n * (2 * groups + 3)))
    hearing = graphed(losses.Hearing().to(device), blank(n * groups, False), blank(n * groups))
    tools = channel.Tools(
        torch.Generator(device), torch.Generator(), noise, pairs, remover=state.remover
    )
    pool = ThreadPoolExecutor(max_workers=24)
    return Loop(recipe, state, hosts, tools, hearing, embed, detect, pool, defaultdict(list))


def group_count(recipe: Recipe) -> int:
    """Count the groups of a batch, each of which meets one kind of attack."""
    return recipe.channel.groups + recipe.channel.codec_group + recipe.channel.neural_group


def plan(recipe: Recipe, step: int, position: float, coded: bool) -> list[str]:
    """Choose the attack of each group of a batch; the codec group comes first."""
    spec, rng = recipe.channel, Random(f"{recipe.seed}:{step}")
    late = position > 2 / 3 * recipe.steps
    odds = dict(spec.late_odds) if late and spec.late_odds else dict(spec.odds)
    if position < spec.remover_from:
        odds.pop("remover", None)
    chosen = rng.choices(list(odds), list(odds.values()), k=spec.groups)
    if spec.neural_group:
        chosen.append("neural")
    if spec.codec_group:
        chosen.insert(0, "codec" if coded else rng.choices(list(odds), list(odds.values()))[0])
    return chosen


CODEC_EVERY = 6  # steps from a request to its use


def seeded(loop: Loop, step: int, purpose: int) -> None:
    """Start the generators of a step, or of a request within it."""
    loop.tools.begin((loop.recipe.seed * 1_000_003 + step) * 16 + purpose)


def draw(loop: Loop, count: int) -> tuple[Tensor, Tensor]:
    """Draw hosts and random codes."""
    x = loop.hosts.draw(count, loop.tools.generator)
    bits = loop.recipe.model.bits
    return x, (loop.tools.uniform((count, bits)) < 0.5).float()


def request_codec(loop: Loop, step: int) -> Request:
    """Mark the hosts of a later step and send them, and their unmarked twins, to the codecs."""
    seeded(loop, step, 1)
    x, code = draw(loop, loop.recipe.batch)
    with torch.no_grad():
        marked = x + Half(loop.state.embedder)(x, code)
    return Request(loop.pool, torch.cat([marked, x]), seed=1000 * step)


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
    x, code = draw(loop, n * len(groups))
    if residual is not None:
        x, code = torch.cat([coded[0], x[n:]]), torch.cat([coded[1], code[n:]])

    marked = x + loop.embed(x, code)  # (clips, samples)
    audio, target, weight = splice(marked, x, recipe.data.splice, tools.generator)
    if residual is not None:
        audio = torch.cat([marked[:n], audio[n:]])
        target, weight = target.clone(), weight.clone()
        target[:n] = weight[:n] = 1.0

    heard = suffer(loop, groups, audio, x, at(recipe.channel.probability, position), residual)
    other = x.roll(n // 2 + 1, 0)[:n]
    forged = [
        losses.transplant_residual(x[:n], marked[:n], other),
        losses.transplant_gains(x[n : 2 * n], marked[n : 2 * n], other),
    ]
    presence, logits = loop.detect(torch.cat([*heard, x[-n:], *forged]))

    clips = n * len(groups)
    terms = objective(loop, presence, logits, target, weight, code)
    stft, wave, mel, masking, snr, gain = loop.hearing(x, marked)
    ramp, spec = at(recipe.loss.perceptual_ramp, position), recipe.loss
    terms["forgery"] *= spec.forgery * at(spec.forgery_ramp, position)
    terms["hearing"] = ramp * spec.perceptual * (stft + wave + 2 * mel + spec.masking * masking)
    terms["budget"] = spec.budget * F.relu(at(spec.snr_db, position) - snr).mean()
    if recipe.model.generator == "spectral":
        terms["gain"] = spec.gain_budget * F.relu(gain - at(spec.gain_db, position)).mean()
    norm = update(loop, sum(terms.values(), torch.zeros((), device=x.device)), position)
    every = recipe.channel.remover_updates
    if every and step % every == 0 and position > recipe.channel.remover_from / 2:
        terms["remover"] = update_remover(loop, marked[:n].detach(), x[:n])

    with torch.no_grad():
        right = (losses.pool(presence[:clips], logits[:clips]) > 0) == (code > 0.5)
        for i, name in enumerate(groups):
            whole = target[i * n : (i + 1) * n].mean(-1, keepdim=True) == 1
            share = (right[i * n : (i + 1) * n] * whole).sum() / (whole.sum() * code.shape[1] + 1)
            loop.accuracy[name].append(share)
    extra = {"snr_db": snr.mean(), "gain_db": gain.mean(), "norm": norm}
    return {k: v.detach() for k, v in (terms | extra).items()}


def suffer(
    loop: Loop,
    groups: list[str],
    audio: Tensor,
    host: Tensor,
    probability: float,
    residual: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Attack marked clips and, in the same way, their unmarked twins."""
    n, marked, unmarked = loop.recipe.batch, [], []
    for i, name in enumerate(groups):
        pair = torch.cat([audio[i * n : (i + 1) * n], host[i * n : (i + 1) * n]])
        if name == "codec":
            assert residual is not None
            hurt = pair + residual
        else:
            hurt = channel.ATTACKS[name](pair, loop.tools)
        spared = loop.tools.uniform((2 * n, 1)) >= probability
        pair = channel.finish(torch.where(spared, pair, hurt), loop.tools)
        marked.append(pair[:n])
        unmarked.append(pair[n:])
    return torch.cat(marked), torch.cat(unmarked)


def objective(
    loop: Loop, presence: Tensor, logits: Tensor, target: Tensor, weight: Tensor, code: Tensor
) -> dict[str, Tensor]:
    """Give the payload, presence and forgery terms.

    The rows are marked clips, their unmarked twins, clean hosts, then two kinds of transplants.
    """
    spec, clips, n = loop.recipe.loss, len(code), loop.recipe.batch
    real = 2 * clips + n
    pooled = losses.pool(presence[:clips], logits[:clips])
    share = target.mean(-1, keepdim=True)  # a clip marked for a moment cannot spell its code
    bits = F.binary_cross_entropy_with_logits(pooled, code, reduction="none")
    message = (bits * share).sum() / (share.sum() * code.shape[1] + 1e-6)
    zeros = torch.zeros_like(presence[clips:real])
    frame = losses.frame_presence(
        presence[:real], torch.cat([target, zeros]), torch.cat([weight, zeros + 1])
    )
    s = losses.score(presence).clamp(1e-4, 1 - 1e-4)
    whole = (target.mean(-1) == 1).float()
    missed = -(whole * s[:clips].log()).sum() / whole.sum().clamp(min=1)
    alarm = -(1 - s[clips:real]).log().mean()
    forged = presence[real:]
    forgery = F.binary_cross_entropy_with_logits(forged, torch.zeros_like(forged))
    return {
        "message": spec.message * message,
        "presence": spec.presence * frame,
        "clip": spec.clip_presence * (missed + alarm),
        "forgery": forgery - (1 - s[real:]).log().mean(),
    }


def rate(recipe: Recipe, step: int, position: float) -> float:
    """Give the learning rate: warm-up by steps, then constant, then a cosine to a fiftieth."""
    warm = min(1.0, (step + 1) / max(1, recipe.warmup))
    share = position / recipe.steps
    if share <= recipe.decay_from:
        return recipe.learning_rate * warm
    fall = min(1.0, (share - recipe.decay_from) / (1 - recipe.decay_from))
    return recipe.learning_rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * fall)))


def update(loop: Loop, loss: Tensor, position: float) -> Tensor:
    """Take the step, unless the gradient is not finite; follow with the averaged weights."""
    state, optimiser = loop.state, loop.state.optimiser
    for group in optimiser.param_groups:
        group["lr"] = rate(loop.recipe, state.step, position)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(state.trained, loop.recipe.clip_norm)
    # The fused optimiser skips the step on the device, so nobody waits to look at the norm.
    optimiser.found_inf = (~torch.isfinite(norm)).float()  # type: ignore[attr-defined]
    optimiser.grad_scale = None  # type: ignore[attr-defined]
    optimiser.step()
    follow = min(loop.recipe.ema, (state.step + 1) / (state.step + 10))
    with torch.no_grad():
        torch._foreach_lerp_(state.average, [p.data for p in state.trained], 1 - follow)
    return norm


def update_remover(loop: Loop, marked: Tensor, host: Tensor) -> Tensor:
    """Teach the in-loop remover to give the host back."""
    found = loop.state.remover(marked)
    level = channel.rms(host)
    X, Y = (channel.spectrum(v / level, 512).abs() for v in (host, found))
    loss = (torch.log((Y + 1e-2) / (X + 1e-2))).abs().mean() + (found - host).div(
        level
    ).abs().mean()
    loop.state.remover_optimiser.zero_grad(set_to_none=True)
    loss.backward()
    loop.state.remover_optimiser.step()
    return loss


def train(
    recipe: Recipe,
    state: State,
    sources: Sources,
    out: Path,
    *,
    device: torch.device,
    minutes: float | None = None,
    pause_s: float | None = None,
    log_every: int = 50,
) -> State:
    """Train until the recipe's steps are done, or for `minutes` of wall time in all.

    With `minutes` the schedule follows the clock instead of the step count, so that the whole
    curriculum fits a lease. `pause_s` ends this call early with a checkpoint to go on from.
    """
    out.mkdir(parents=True, exist_ok=True)
    begun, spent = time.monotonic(), state.seconds
    loop = prepare(recipe, state, sources, device)
    request: Request | None = None
    residual = state.residual.to(device) if state.residual is not None else None
    sums: dict[str, list[Tensor]] = defaultdict(list)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (out / "log.jsonl").open("a", encoding="utf-8") as log, Progress(*columns) as bar:
        task = bar.add_task("training", total=1.0)
        while True:
            state.seconds = spent + time.monotonic() - begun
            share = state.seconds / (60 * minutes) if minutes else state.step / recipe.steps
            if share >= 1 or (pause_s and time.monotonic() - begun > pause_s):
                break
            use = None
            if recipe.channel.codec_group and state.step % CODEC_EVERY == 0:
                use = request.residual() if request else residual
                request = request_codec(loop, state.step + CODEC_EVERY)
            terms = train_step(loop, state.step, share * recipe.steps, use)
            state.step += 1
            for name, value in terms.items():
                sums[name].append(value)
            if state.step % log_every == 0:
                line = report(loop, sums, state)
                log.write(json.dumps(line) + "\n")
                log.flush()
                bar.update(task, completed=share, description=describe(line))
    if request is not None:
        state.residual = request.residual().cpu()
    save(state, recipe, out)
    loop.pool.shutdown()
    return state


def report(loop: Loop, sums: dict[str, list[Tensor]], state: State) -> dict[str, Any]:
    """Give the means since the last report, and start new ones."""
    line: dict[str, Any] = {"step": state.step, "seconds": round(state.seconds, 1)}
    line |= {k: round(torch.stack(v).mean().item(), 4) for k, v in sums.items()}
    hits = {k: round(torch.stack(v).mean().item(), 4) for k, v in loop.accuracy.items()}
    line["accuracy"] = dict(sorted(hits.items()))
    sums.clear()
    loop.accuracy.clear()
    return line


def describe(line: dict[str, Any]) -> str:
    """Say a report in one short line."""
    parts = [f"{k} {line[k]:.3f}" for k in ("message", "presence", "clip", "snr_db") if k in line]
    return f"step {line['step']} " + " ".join(parts)


def command(
    recipe: str,
    *,
    speech: str,
    noise: str,
    lyra: str | None,
    out: str,
    resume: bool,
    start: str | None,
    minutes: float | None,
    device: str,
) -> None:
    """Run `keybound train`: begin anew, from exported weights, or where a checkpoint stands."""
    place, made = torch.device(device), load(recipe)
    if resume:
        state, kept = restore(Path(out), place)
        if kept != made:
            raise RecipeError(f"the checkpoint in {out} was made by another recipe")
    else:
        from keybound.training.export import read_weights

        state = fresh(made, place, read_weights(Path(start)) if start else None)
    sources = Sources(Path(speech), Path(noise), Path(lyra) if lyra else None)
    train(made, state, sources, Path(out), device=place, minutes=minutes)
