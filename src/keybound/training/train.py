"""The training loop: hosts and random codes in, two networks out. One step reads top to bottom.

Step k draws everything from generators seeded by (seed, k), so a resumed run repeats the run that
was not interrupted. Nothing waits for the device but the log and the checkpoints.
"""

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor, nn

from keybound.errors import RecipeError
from keybound.training import channel, codecs, losses, neural, twins
from keybound.training.checkpoint import State, fresh, restore, save
from keybound.training.data import Hosts, Stream, read_folder, sealed, splice
from keybound.training.graphs import Half, graphed
from keybound.training.recipe import Recipe, at, group_count, load, plan, rate
from keybound.training.spectra import HOP


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
    tools: twins.Tools
    hearing: Callable[[Tensor, Tensor], tuple[Tensor, ...]]
    embed: Callable[[Tensor, Tensor], Any]  # a carrier, and how the host leans if that is learned
    detect: Callable[[Tensor], tuple[Tensor, Tensor]]
    pool: Executor
    accuracy: dict[str, list[Tensor]]


def prepare(recipe: Recipe, state: State, sources: Sources, device: torch.device) -> Loop:
    """Load the data and record the networks for the shapes that every step uses."""
    noise = Stream(read_folder(sources.noise, level=False), device)
    hosts = Hosts(sources.speech, noise, recipe.data, device)
    learned = dict(neural.load_encodec(device))
    if sources.lyra is not None:
        learned |= neural.load_lyra(sources.lyra, device)
    n, length = recipe.batch, recipe.data.segment_frames * HOP
    groups = group_count(recipe)

    def blank(clips: int, grad: bool = True) -> Tensor:
        return torch.randn(clips, length, device=device).mul_(0.1).requires_grad_(grad)

    pairs: neural.Codecs = {k: graphed(c, blank(2 * n)) for k, c in learned.items()}
    code = torch.zeros(n * groups, recipe.model.bits, device=device)
    method = "foresee" if recipe.model.lean else "forward"
    embed = graphed(Half(state.embedder, method), blank(n * groups, False), code)
    detect = graphed(Half(state.detector), blank(n * (2 * groups + 3)))
    half = (n * groups + 1) // 2
    hearing = graphed(losses.Hearing().to(device), blank(half, False), blank(half))
    tools = twins.Tools(
        torch.Generator(device), torch.Generator(), noise, pairs, remover=state.remover
    )
    pool = codecs.workers(device)
    return Loop(recipe, state, hosts, tools, hearing, embed, detect, pool, defaultdict(list))


CODEC_EVERY = 6  # steps from a request to its use


def seeded(loop: Loop, step: int, purpose: int) -> None:
    """Start the generators of a step, or of a request within it."""
    loop.tools.begin((loop.recipe.seed * 1_000_003 + step) * 16 + purpose)


def draw(loop: Loop, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw hosts, random codes, and which frames of the hosts can take a mark."""
    x, voiced = loop.hosts.draw(count, loop.tools.generator)
    bits = loop.recipe.model.bits
    return x, (loop.tools.uniform((count, bits)) < 0.5).float(), voiced.float()


def request_codec(loop: Loop, step: int) -> codecs.Request:
    """Mark the hosts of a later step and send them, and their unmarked twins, to the codecs."""
    seeded(loop, step, 1)
    x, code, _ = draw(loop, loop.recipe.batch)
    with torch.no_grad():
        marked = x + Half(loop.state.embedder)(x, code)
    return codecs.Request(loop.pool, torch.cat([marked, x]), loop.recipe.seed, step)


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
    x, code, voiced = draw(loop, n * len(groups))
    if residual is not None:
        pairs = zip(coded, (x, code, voiced), strict=True)
        x, code, voiced = (torch.cat([first, rest[n:]]) for first, rest in pairs)

    made = loop.embed(x, code)
    carrier, lean = made if recipe.model.lean else (made, None)
    marked = x + carrier  # (clips, samples)
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
    heard = channel.suffer(groups, audio, x, chance, tools, residual)
    other = x.roll(1, 0)
    forged = [
        losses.transplant_residual(x[:n], marked[:n], other[:n]),
        losses.transplant_gains(x[-n:], marked[-n:], other[-n:]),
    ]
    odd = round(n * recipe.data.strangers)
    clean = x[-n:][odd:]
    if odd:
        clean = torch.cat([clean, loop.hosts.strangers(odd, tools.generator)])
    spare = channel.finish(torch.cat([clean, *forged]), tools)  # shifted as marked clips are
    presence, logits = loop.detect(torch.cat([*heard, spare]))

    spec = recipe.loss
    terms = losses.objective(spec, presence, logits, target, weight, code)
    if lean is not None:
        terms["lean"] = spec.lean * losses.unforeseen(lean, logits[len(x) : 2 * len(x)])
    terms["forgery"] = terms["forgery"] * at(spec.forgery_ramp, position)
    # Half the clips say what the mark costs the ear: it varies less than what attacks do.
    stft, wave, mel, masking, clear, snr, gain = loop.hearing(x[::2], marked[::2])
    heard_mark = stft + wave + 2 * mel + spec.masking * masking
    heard_mark = heard_mark + spec.clarity * losses.over(1 - clear, 1 - spec.clarity_goal)
    terms["hearing"] = spec.perceptual * at(spec.perceptual_ramp, position) * heard_mark
    terms["budget"] = spec.budget * F.relu(at(spec.snr_db, position) - snr.mean())
    if recipe.model.generator == "spectral":
        terms["gain"] = spec.gain_budget * losses.over(gain, at(spec.gain_db, position))
    norm = update(loop, sum(terms.values(), torch.zeros((), device=x.device)), position)
    every = recipe.channel.remover_updates
    if every and step % every == 0 and position > recipe.channel.remover_from / 2:
        terms["remover"] = update_remover(loop, marked[:n].detach(), x[:n])

    with torch.no_grad():
        pooled = losses.pool(presence[: len(x)], logits[: len(x)])
        whole = (target * weight).mean(-1, keepdim=True) > 0.6  # less need not spell its code
        hits = ((pooled > 0) == (code > 0.5)) & whole
        for name, hit, of in zip(groups, hits.split(n), whole.split(n), strict=True):
            loop.accuracy[name].append(torch.stack([hit.sum(), of.sum() * code.shape[1]]))
    extra = {"snr_db": snr.mean(), "gain_db": gain.mean(), "clarity": clear.mean(), "norm": norm}
    return {k: v.detach() for k, v in (terms | extra).items()}


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
    remover = loop.state.remover
    loss = losses.removal(remover(marked), host)
    descend(loop.state.remover_optimiser, list(remover.parameters()), loss, math.inf)
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
    save_every: int = 1000,
) -> State:
    """Train until the recipe's steps are done, or for `minutes` of wall time in all.

    With `minutes` the schedule follows the clock instead of the step count, so that the whole
    curriculum fits a lease. `pause_s` ends this call early with a checkpoint to go on from; one is
    also written every so many steps.
    """
    out.mkdir(parents=True, exist_ok=True)
    begun, spent = time.monotonic(), state.seconds
    loop = prepare(recipe, state, sources, device)
    request: codecs.Request | None = None
    sums: dict[str, list[Tensor]] = defaultdict(list)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True))
    with (out / "log.jsonl").open("a", encoding="utf-8") as log, bar:
        task = bar.add_task("training", total=1.0)
        while True:
            state.seconds = spent + time.monotonic() - begun
            share = state.seconds / (60 * minutes) if minutes else state.step / recipe.steps
            if share >= 1 or (pause_s and time.monotonic() - begun > pause_s):
                break
            use = None
            if recipe.channel.codec_group and state.step % CODEC_EVERY == 0:
                keep(state, request)
                if state.residual is not None:
                    use = state.residual.to(device, non_blocking=True)
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
            if state.step % save_every == 0:
                keep(state, request)
                save(state, recipe, out)
    keep(state, request)
    save(state, recipe, out)
    loop.pool.shutdown()
    return state


def keep(state: State, request: codecs.Request | None) -> None:
    """Wait for the codecs under way and hold what they changed, for its step or a checkpoint."""
    if request is not None:
        state.residual = request.residual()


def report(loop: Loop, sums: dict[str, list[Tensor]], state: State) -> dict[str, Any]:
    """Give the means since the last report, and start new ones."""
    line: dict[str, Any] = {"step": state.step, "seconds": round(state.seconds, 1)}
    for name, values in sums.items():
        stacked = torch.stack(values)
        finite = stacked[stacked.isfinite()]
        line[name] = round(finite.mean().item(), 4) if len(finite) else None
    line["skipped"] = int((~torch.stack(sums["norm"]).isfinite()).sum())
    hits = {k: torch.stack(v).sum(0).tolist() for k, v in sorted(loop.accuracy.items())}
    line["accuracy"] = {k: round(right / of, 4) for k, (right, of) in hits.items() if of}
    sums.clear()
    loop.accuracy.clear()
    return line


def describe(line: dict[str, Any]) -> str:
    """Say a report in one short line."""
    shown = ("message", "presence", "clip", "forgery", "hearing", "snr_db", "clarity")
    parts = [f"{k} {line[k]:.3f}" for k in shown if line[k] is not None]
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
    made = load(recipe)
    try:
        place = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch raises either for what is not here
        raise RecipeError(f"no device {device!r} here", hint="cpu or cuda") from error
    if resume:
        state, kept = restore(Path(out), place)
        if kept != made:
            raise RecipeError(f"the checkpoint in {out} was made by another recipe")
    elif (Path(out) / "state.json").exists():
        raise RecipeError(f"{out} already holds a checkpoint", hint="--resume goes on from it")
    else:
        from keybound.training.export import read_weights

        state = fresh(made, place, read_weights(Path(start)) if start else None)
    sources = Sources(Path(speech), Path(noise), Path(lyra) if lyra else None)
    train(made, state, sources, Path(out), device=place, minutes=minutes)
