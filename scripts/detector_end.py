"""Teach a detector again, or the end of it, on features that are computed once: without a GPU.

    python scripts/detector_end.py RUN OUT --speech FOLDER --voices FOLDER --sounds FOLDER

RUN is a folder that `keybound train` wrote, of a model with `presence_spans`; OUT gets the same
with another detector. Clips, marked, marked in part, copied from another host or unmarked, go
through the real attacks and the beginning of the trunk (`heard_clips.py`). From what it gave, the
last `--blocks` of the trunk, all of them by default, and the heads learn to read and to find; a
share of that is mixed with what they were. With `--steps` the presence head alone then learns on; a
new head that judges the mean of the logits over `--span` frames needs some 3000. Forty minutes on
two cores that do nothing else: with something beside them, many times as long. Each folder of
voices counts as much as any other: synthetic voices, of which most clips stay unmarked. Sounds are
what is not speech and never marked; of half of the clips a short piece is repeated, since steady
beats look like a steady code.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from heard_clips import LENGTHS, MARKED, SECONDS, Example, example, networks
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from keybound.training import nets
from keybound.training.losses import pool
from keybound.training.spectra import SECOND

# Clips of sounds, and seconds of speech and of voices, for each long clip of speech.
SOUNDS, SHORT_SPEECH, SHORT_VOICES = 0.25, 2.4, 0.4
SPAN = 149  # frames: three seconds
LONG_CLIPS, SHORT_FRAMES, BLOCK_STEPS, BLOCK_RATE = 32, 2400, 2500, 2e-4  # of a step of the blocks
KEPT, EMA = 0.5, 0.995  # share of what the blocks have learned; of the average over steps
BATCH, RATE_OF_LEARNING, DROPPED = 96, 1e-3, 0.1
MESSAGE, FRAMES, CLIPS, FULL_WEIGHT, HARD = 10.0, 2.0, 2.5, 3.0, 4.0
EDGE_FRAMES, EDGE_WEIGHT = 12, 2.0  # to either side of an edge, which counts so much more
PATIENCE = 0.25  # presence of an unmarked clip beyond which it costs more


class Kept(NamedTuple):
    """Examples as tensors."""

    features: Tensor
    marked: Tensor
    strength: Tensor
    spells: Tensor
    code: Tensor
    where: Tensor


def keep(examples: list[Example]) -> Kept:
    """Stack examples."""
    return Kept(
        torch.from_numpy(np.stack([one.features for one in examples])),
        torch.tensor([float(one.kind == MARKED) for one in examples]),
        torch.tensor([one.strength for one in examples]),
        torch.tensor([float(one.kind == MARKED and one.spells) for one in examples]),
        torch.from_numpy(np.stack([one.code for one in examples])),
        torch.from_numpy(np.stack([one.where for one in examples])),
    )


def ended(detector: Any, features: Tensor, blocks: int) -> Tensor:
    """Put features through the last blocks, in halves: what processors multiply fastest."""
    rows = features.transpose(1, 2).contiguous()
    with torch.autocast("cpu", torch.bfloat16, enabled=torch.is_grad_enabled()):
        for block in detector.blocks[len(detector.blocks) - blocks :]:
            rows = block.rows(rows, nets.block_rows)
    return rows.float().transpose(1, 2)


def teach_blocks(
    detector: Any, long: Kept, short: dict[int, Kept], steps: int, blocks: int
) -> None:
    """Let the last blocks and all heads learn; leave them as the average over the last steps."""
    learning = [
        *detector.blocks[len(detector.blocks) - blocks :].parameters(),
        *detector.heads.parameters(),
    ]
    optimiser = torch.optim.AdamW(learning, lr=BLOCK_RATE, weight_decay=1e-2)
    curve = torch.optim.lr_scheduler.OneCycleLR(optimiser, BLOCK_RATE, steps, pct_start=0.15)
    mean = [value.detach().clone() for value in learning]
    odds = torch.tensor([float(len(one.marked)) for one in short.values()])
    for step in range(steps):
        frames = list(short)[int(torch.multinomial(odds, 1))]
        cost = torch.zeros(())
        for kept, count in ((long, LONG_CLIPS), (short[frames], SHORT_FRAMES // frames)):
            chosen = torch.randint(len(kept.marked), (count,))
            batch = Kept(*(value[chosen] for value in kept))
            heard = ended(detector, batch.features.float(), blocks)
            cost = cost + price(detector.heads, batch, heard, single=kept is not long)
        learn(optimiser, curve, learning, cost)
        share = min(EMA, (step + 1) / (step + 20))
        with torch.no_grad():
            for one, value in zip(mean, learning, strict=True):
                one.lerp_(value, 1 - share)
    with torch.no_grad():
        for one, value in zip(mean, learning, strict=True):
            value.copy_(one)


def learn(optimiser: Any, curve: Any, learning: list[nn.Parameter], cost: Tensor) -> None:
    """Take a step."""
    optimiser.zero_grad()
    cost.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(learning, 2.0)
    optimiser.step()
    curve.step()


def teach_head(heads: nn.Module, kept: Kept, steps: int) -> None:
    """Let presence alone learn; every other step hears single seconds, whose ends are a clip's."""
    for name, value in heads.named_parameters():
        value.requires_grad_(name.startswith(("mix.", "presence.")))
    learning = [value for value in heads.parameters() if value.requires_grad]
    optimiser = torch.optim.AdamW(learning, lr=RATE_OF_LEARNING, weight_decay=1e-2)
    curve = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE_OF_LEARNING, steps, pct_start=0.1)
    for step in range(steps):
        chosen = torch.randint(len(kept.marked), (BATCH,))
        batch = Kept(*(value[chosen] for value in kept))
        start = int(torch.randint((SECONDS - 1) * SECOND + 1, (1,)))
        part = slice(start, start + SECOND) if step % 2 else slice(None)
        batch = batch._replace(where=batch.where[:, part])
        cost = price(heads, batch, batch.features[..., part].float(), single=bool(step % 2))
        learn(optimiser, curve, learning, cost)


def price(heads: nn.Module, batch: Kept, features: Tensor, *, single: bool) -> Tensor:
    """Return what the answers cost: bits, frames, clips."""
    presence, logits = heads(features, F.dropout1d(features, DROPPED))
    full = batch.strength == 1
    due = batch.strength * torch.where(full, FULL_WEIGHT, 1.0)
    weight = torch.where(batch.marked > 0, due, 1.0)
    if single:  # a weak mark need not be found in a second
        weight = torch.where((batch.marked > 0) & ~full, 0.3 * weight, weight)
    starts = range(0, SECONDS * SECOND, SECOND)
    parts = [slice(None)] if single else [slice(n, n + SECOND) for n in starts]
    chance = presence.sigmoid()
    seconds = torch.stack([chance[:, part].mean(1) for part in parts], 1).clamp(1e-4, 1 - 1e-4)
    whole = chance.mean(1).clamp(1e-4, 1 - 1e-4)
    missed = torch.where(full, -seconds.log().mean(1), -whole.log())
    alarm = -(1 - seconds).log().mean(1) + (0 if single else HARD) * F.relu(whole - PATIENCE)
    entire = (batch.where.mean(1) == 1).float()  # of marks in part, frames alone are judged
    clips = torch.where(batch.marked > 0, entire * weight * missed, alarm).mean()
    frames = F.binary_cross_entropy_with_logits(presence, batch.where, reduction="none")
    frames = (frames * (1 + EDGE_WEIGHT * near_edges(batch.where))).mean(1)
    spelt = batch.spells * entire * (full if single else 1)
    read = torch.stack([pool(presence[:, part], logits[..., part]) for part in parts]).mean(0)
    read = torch.where(full[:, None], read, pool(presence, logits))
    bits = F.binary_cross_entropy_with_logits(read, batch.code, reduction="none").mean(1)
    message = (bits * spelt).sum() / spelt.sum().clamp(min=1)
    return MESSAGE * message + FRAMES * (frames * weight).mean() + CLIPS * clips


def near_edges(where: Tensor) -> Tensor:
    """Return 1 for the frames around those where a mark begins or ends, 0 for the others."""
    edges = F.pad((where[:, 1:] != where[:, :-1]).float(), (1, 0))
    return F.max_pool1d(edges[:, None], 2 * EDGE_FRAMES + 1, 1, EDGE_FRAMES)[:, 0]


def with_span(heads: nets.Heads, span: int) -> nets.Heads:
    """Return heads that judge a span of their own, of which they know nothing yet."""
    width, bits, usual = heads.logits.in_channels, heads.logits.out_channels, heads.spans[0]
    made = nets.Heads(width, bits, (span,))
    old = heads.state_dict()
    known = width + bits  # columns: features, and the usual span, which comes first
    mix = torch.zeros_like(made.mix.weight)
    mix[:, :known] = old["mix.weight"][:, :known]
    made.load_state_dict(old | {"mix.weight": mix})
    assert made.spans[0] == usual
    return made


def clips_of(asked: argparse.Namespace) -> dict[str, list[Example]]:
    """Make the examples of each share."""
    kinds = [
        ("speech", asked.speech, 1),
        ("voices", asked.voices, 1),
        ("sounds", asked.sounds, SOUNDS),
        ("short", asked.speech, SHORT_SPEECH),
        ("short", asked.voices, SHORT_VOICES),
    ]
    made: dict[str, list[Example]] = {share: [] for share, _, _ in kinds}
    with get_context("spawn").Pool(asked.workers) as workers:
        for seed, (share, folders, times) in enumerate(kinds):
            files = [sorted(folder.rglob("*.flac")) for folder in folders]
            make = partial(
                example, run=asked.run, files=files, share=share, seed=seed, blocks=asked.blocks
            )
            count = round(asked.clips * times) if files else 0
            made[share] += workers.map(make, range(count), chunksize=8)
    return made


def mixed(new: dict[str, Tensor], old: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return a share of the new weights with the rest of the old ones."""
    return {name: share * value + (1 - share) * old[name] for name, value in new.items()}


def teach(
    run: Path, made: dict[str, list[Example]], tell: Callable[[str], None], asked: Any
) -> Any:
    """Return the detector of a run with another end."""
    detector = networks(run)[1]
    torch.set_num_threads(asked.workers)
    torch.manual_seed(0)
    if detector.heads.spans[1:] != (asked.span,):
        detector.heads = with_span(detector.heads, asked.span)
    long = keep(made["speech"] + made["voices"] + made["sounds"])
    by_length = {n: [one for one in made["short"] if len(one.where) == n] for n in LENGTHS}
    old = {name: value.clone() for name, value in detector.state_dict().items()}
    if asked.block_steps:
        short = {n: keep(some) for n, some in by_length.items() if some}
        teach_blocks(detector, long, short, asked.block_steps, asked.blocks)
        detector.load_state_dict(mixed(detector.state_dict(), old, asked.share))
        tell("blocks have learned")
    if asked.steps:
        with torch.no_grad():
            heard = [
                ended(detector, part.float(), asked.blocks).half()
                for part in long.features.split(BATCH)
            ]
        teach_head(detector.heads, long._replace(features=torch.cat(heard)), asked.steps)
    return detector


def main() -> None:
    """Make clips, teach the end of the detector, write the run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--speech", type=Path, action="append", required=True)
    parser.add_argument("--voices", type=Path, action="append", default=[])
    parser.add_argument("--sounds", type=Path, action="append", default=[])
    parser.add_argument("--clips", type=int, default=5000, help="number of long clips of speech")
    parser.add_argument("--span", type=int, default=SPAN, help="frames presence is judged over")
    parser.add_argument("--blocks", type=int, default=10, help="last ones of the trunk, that learn")
    parser.add_argument("--block-steps", type=int, default=BLOCK_STEPS, help="0: the head alone")
    parser.add_argument("--share", type=float, default=KEPT, help="of what the blocks learn")
    parser.add_argument("--steps", type=int, default=0, help="of the presence head alone")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    for folder in (*asked.speech, *asked.voices, *asked.sounds):
        if not any(folder.rglob("*.flac")):
            parser.error(f"no FLAC files under {folder}")
    if not (asked.run / "weights.safetensors").exists():
        parser.error(f"{asked.run} is not a run: no weights.safetensors in it")
    if networks(asked.run)[1].heads.weight is None:
        parser.error("the model of this run has no presence_spans")
    detector = teach(asked.run, clips_of(asked), print, asked)
    asked.out.mkdir(parents=True, exist_ok=True)
    state = json.loads((asked.run / "state.json").read_text())
    state["recipe"]["model"]["presence_spans"] = [asked.span]
    (asked.out / "state.json").write_text(json.dumps(state))
    weights = load_file(asked.run / "weights.safetensors")
    own = {f"detector.{k}": v.contiguous() for k, v in detector.state_dict().items()}
    save_file(
        weights | {k: v for k, v in own.items() if k in weights}, asked.out / "weights.safetensors"
    )


if __name__ == "__main__":
    main()
