"""The training loop: steps, a log, and checkpoints to go on from.

Nothing waits for the device but the log and the checkpoints.
"""

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from keybound.errors import RecipeError
from keybound.training import codecs
from keybound.training.checkpoint import State, fresh, restore, save
from keybound.training.recipe import Recipe, load
from keybound.training.step import Loop, Sources, prepare, request_codec, train_step

CODEC_EVERY = 6  # steps from a request to its use


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
    """Return the means since the last report, and start new ones."""
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
    """Return a report as one short line."""
    shown = ("message", "presence", "clip_presence", "forgery", "snr_db", "stoi")
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
