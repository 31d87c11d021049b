"""Teach the presence head of a run again, on features that are computed once.

    python scripts/presence_head.py RUN OUT --speech FOLDER --voices FOLDER --sounds FOLDER

RUN is a folder that `keybound train` wrote, of a model with `presence_spans`; OUT gets the same
with another presence head, which judges the mean of the logits over `--span` frames. Clips of three
seconds, marked, marked in part, copied from another host or unmarked, go through the real attacks
and the detector's trunk; then the head alone learns from what the trunk gave, all in a quarter of
an hour on two cores. Each folder of voices counts as much as any other: synthetic voices, of which
most clips stay unmarked. Sounds are what is not speech and never marked; of half of the clips a
short piece is repeated, since steady beats look like a steady code. Set KEYBOUND_LYRA for Lyra.
"""

import argparse
import json
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import soundfile
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from keybound.attacks import attack, available
from keybound.training import losses, nets
from keybound.training.data import turned, turns
from keybound.training.losses import pool
from keybound.training.recipe import from_tree
from keybound.training.spectra import HOP, RATE, SECOND

SECONDS = 3
LENGTH = SECONDS * RATE
ODDS = {  # of attacks on what is marked, and on what is not
    "clean": (1, 1), "noise-10": (2, 7), "noise-20": (1.5, 2.5), "lyra-6": (3, 3),
    "lyra-3.2": (3.5, 1.5), "lyra-9.2": (0.7, 0.5), "mp3": (0.7, 0.7), "opus-12": (1.5, 0.7),
    "opus-16": (0.2, 0.2), "opus@9": (3.5, 1.5), "lyra-6+noise-20": (1.5, 1),
    "lyra-6+denoiser": (0.7, 0.5), "echo": (1, 2.5), "quantize": (1.5, 1.5),
    "denoiser": (0.7, 0.7), "griffin-lim": (0.7, 0.7), "mel": (0.7, 0.5), "resample": (0.3, 0.3),
    "lowpass": (0.4, 0.4), "highpass": (0.4, 0.4), "smoothing": (0.2, 0.2), "gain": (0.1, 0.1),
}  # fmt: skip
UNMARKED, MARKED, COPIED = range(3)
SHARES = {  # unmarked, marked, copied
    "speech": (0.34, 0.5, 0.16), "voices": (0.7, 0.3, 0.0), "sounds": (1.0, 0.0, 0.0),
}  # fmt: skip
SOUNDS = 0.25  # as many clips of sounds as of speech, times this
BEATS, BEAT_S = 0.5, (0.04, 0.4)  # of sounds, that repeat a piece as long as this
PARTIAL, LEAST_PART = 0.3, 30  # of marks, that begin and end in the clip; their fewest frames
TURNED = 0.2  # of the others, whose code changes every second: nobody asks for their bits
FULL = 0.3  # of marks, at full strength
WEAK = (0.5, 0.8)  # strengths of the others
SPAN = 149  # frames: three seconds
BATCH, STEPS, RATE_OF_LEARNING, DROPPED = 96, 3000, 1e-3, 0.1
MESSAGE, FRAMES, CLIPS, FULL_WEIGHT, HARD = 10.0, 2.0, 2.5, 3.0, 4.0
PATIENCE = 0.25  # presence of an unmarked clip beyond which it costs more

Clip = npt.NDArray[np.float32]


class Example(NamedTuple):
    """What the trunk gives of a clip, and what the clip is."""

    features: npt.NDArray[np.float16]  # (width, frames)
    kind: int
    strength: float
    spells: bool  # its code, throughout
    code: npt.NDArray[np.float32]
    where: npt.NDArray[np.float32]  # (frames,) 1 where it is marked


@cache
def networks(run: Path) -> tuple[Any, Any]:
    """Return the embedder and the detector of a run."""
    torch.set_num_threads(1)
    spec = from_tree(json.loads((run / "state.json").read_text())["recipe"]).model
    made = nets.build(spec)
    weights = load_file(run / "weights.safetensors")
    for network, name in zip(made, ("embedder.", "detector."), strict=True):
        own = {k.removeprefix(name): v for k, v in weights.items() if k.startswith(name)}
        network.load_state_dict(own)
        network.eval()
    return made


def draw_clip(files: list[Path], rng: np.random.Generator) -> Clip:
    """Cut three seconds from a random place of a random file, at a random level."""
    path = files[int(rng.integers(len(files)))]
    start = int(rng.integers(max(1, soundfile.info(path).frames - LENGTH)))
    samples, _ = soundfile.read(path, LENGTH, start, dtype="float32")
    samples = np.pad(samples, (0, LENGTH - len(samples)))
    level = 10 ** (rng.uniform(-25, 0) / 20) * 0.3
    clip: Clip = (samples * level / (np.abs(samples).max() + 1e-4)).astype(np.float32)
    return clip


def beaten(clip: Clip, rng: np.random.Generator) -> Clip:
    """Repeat a short piece of a sound."""
    piece = clip[: int(rng.uniform(*BEAT_S) * RATE)]
    return np.resize(piece, LENGTH)


def carrier_of(embedder: Any, host: Tensor, code: Tensor, strength: float) -> Tensor:
    """Return the carrier of a code at a strength, which the embedder may know."""
    if embedder.by_strength:
        return cast(Tensor, embedder(host, code, torch.tensor([strength])))
    return strength * cast(Tensor, embedder(host, code))


@torch.no_grad()
def example(number: int, *, run: Path, files: list[list[Path]], share: str, seed: int) -> Example:
    """Draw a clip, mark it, copy its mark or leave it, attack it, and hear it."""
    embedder, detector = networks(run)
    rng = np.random.default_rng([seed, number])
    chosen = files[int(rng.integers(len(files)))]
    clip = draw_clip(chosen, rng)
    if share == "sounds" and rng.random() < BEATS:
        clip = beaten(clip, rng)
    host = torch.from_numpy(clip)[None]
    kind = int(rng.choice(3, p=SHARES[share]))
    code = torch.from_numpy(
        rng.integers(0, 2, (2, detector.heads.logits.out_channels)).astype(np.float32)
    )
    strength = 1.0 if rng.random() < FULL else float(rng.uniform(*WEAK))
    sound, spells = host, True
    where = np.full(LENGTH // HOP, float(kind == MARKED), np.float32)
    if kind != UNMARKED:
        carrier = carrier_of(embedder, host, code[:1], strength)
        if kind == MARKED and rng.random() < PARTIAL:
            where = part_of(len(where), rng)
            carrier = carrier * torch.from_numpy(where.repeat(HOP))
        elif kind == MARKED and rng.random() < TURNED:
            spells = False
            chance = torch.Generator().manual_seed(number)
            frames = turns(1, LENGTH // HOP, 1.0, chance)
            carrier = turned(carrier, carrier_of(embedder, host, code[1:], strength), frames)
        sound = host + carrier
        if kind == COPIED:
            other = torch.from_numpy(draw_clip(chosen, rng))[None]
            copy = losses.transplant_gains if rng.random() < 0.6 else losses.transplant_residual
            sound = copy(host, sound, other)
    names = [name for name in ODDS if available(name) is None]
    odds = np.array([ODDS[name][kind != MARKED] for name in names])
    name = str(rng.choice(names, p=odds / odds.sum()))
    hit = attack("clean" if kind == COPIED and rng.random() < 0.6 else name)
    made = hit.apply(sound[0].numpy().astype(np.float32), RATE, hit.draw(rng, None))[:LENGTH]
    heard = torch.from_numpy(np.pad(made, (0, LENGTH - len(made))).astype(np.float32))
    features = detector.trunk(heard[None])[0].numpy().astype(np.float16)
    return Example(features, kind, strength, spells, code[0].numpy(), where)


def part_of(frames: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return 1 for the frames of a stretch of a clip, 0 for the others."""
    where = np.zeros(frames, np.float32)
    first = int(rng.integers(0, frames - LEAST_PART - 20))
    where[first : int(rng.integers(first + LEAST_PART, frames + 1))] = 1
    return where


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


def teach(heads: nn.Module, kept: Kept, steps: int) -> None:
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
        optimiser.zero_grad()
        cost.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(learning, 2.0)
        optimiser.step()
        curve.step()


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
    frames = F.binary_cross_entropy_with_logits(presence, batch.where, reduction="none").mean(1)
    spelt = batch.spells * entire * (full if single else 1)
    read = torch.stack([pool(presence[:, part], logits[..., part]) for part in parts]).mean(0)
    read = torch.where(full[:, None], read, pool(presence, logits))
    bits = F.binary_cross_entropy_with_logits(read, batch.code, reduction="none").mean(1)
    message = (bits * spelt).sum() / spelt.sum().clamp(min=1)
    return MESSAGE * message + FRAMES * (frames * weight).mean() + CLIPS * clips


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


def main() -> None:
    """Compute features, teach the head, write the run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--speech", type=Path, action="append", required=True)
    parser.add_argument("--voices", type=Path, action="append", default=[])
    parser.add_argument("--sounds", type=Path, action="append", default=[])
    parser.add_argument(
        "--clips", type=int, default=6800, help="number of clips of speech, and of voices"
    )
    parser.add_argument("--span", type=int, default=SPAN, help="frames presence is judged over")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    for folder in (*asked.speech, *asked.voices, *asked.sounds):
        if not any(folder.rglob("*.flac")):
            parser.error(f"no FLAC files under {folder}")
    if not (asked.run / "weights.safetensors").exists():
        parser.error(f"{asked.run} is not a run: no weights.safetensors in it")
    if networks(asked.run)[1].heads.weight is None:
        parser.error("the model of this run has no presence_spans")
    examples: list[Example] = []
    with get_context("spawn").Pool(asked.workers) as pool_of:
        sorts = (("speech", asked.speech), ("voices", asked.voices), ("sounds", asked.sounds))
        for seed, (share, folders) in enumerate(sorts):
            files = [sorted(folder.rglob("*.flac")) for folder in folders]
            if files:
                make = partial(example, run=asked.run, files=files, share=share, seed=seed)
                clips = round(asked.clips * (SOUNDS if share == "sounds" else 1))
                examples += pool_of.map(make, range(clips), chunksize=8)
    torch.manual_seed(0)
    heads = networks(asked.run)[1].heads
    if heads.spans[1:] != (asked.span,):
        heads = with_span(heads, asked.span)
    teach(heads, keep(examples), asked.steps)
    asked.out.mkdir(parents=True, exist_ok=True)
    state = json.loads((asked.run / "state.json").read_text())
    state["recipe"]["model"]["presence_spans"] = [asked.span]
    (asked.out / "state.json").write_text(json.dumps(state))
    weights = load_file(asked.run / "weights.safetensors")
    own = {f"detector.heads.{k}": v for k, v in heads.state_dict().items()}
    weights |= {name: value.contiguous() for name, value in own.items()}
    save_file(weights, asked.out / "weights.safetensors")


if __name__ == "__main__":
    main()
