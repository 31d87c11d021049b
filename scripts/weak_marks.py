"""Teach an embedder to hide weak marks better, with the detector as it is: no GPU is needed.

    python scripts/weak_marks.py WEIGHTS OUT --speech FOLDER --noise FOLDER --lyra FOLDER

WEIGHTS is a folder of exported networks whose embedder knows the strength of a mark, OUT gets a run
for `keybound export`. Three seconds of speech are marked weakly, sent through Lyra, noise, codecs
and one more attack of training, and read; what Zimtohrli and STOI would say of them is weighed
against the bits that are lost. Full marks are held to what they were. A step takes 1.3 seconds on
two cores that do nothing else.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from keybound.attacks import attack
from keybound.errors import KeyBoundError
from keybound.model.networks import read_card
from keybound.training import losses, nets, neural, twins
from keybound.training.channel import ATTACKS
from keybound.training.data import Stream, read_folder
from keybound.training.export import read_weights
from keybound.training.hearing import Hearing
from keybound.training.recipe import from_tree

RATE, LENGTH = 16000, 48000
LEVEL_DB = (-40.0, -18.0)  # of a clip
FULL, FULL_STRENGTHS, FULLEST = 4, (0.8, 1.04), 0.5  # clips; strengths; share of the highest
WEAK, WEAK_STRENGTHS = 13, (0.58, 0.78)
USUAL, POWER = 0.68, 4  # what is heard of a mark grows so with its strength
CODECS = ("opus@9", "opus-12", "mp3@16")  # real ones, whose gradient is that of a copy
TWINS = (
    "band_filter", "equalise", "speed", "quantise", "echo", "reverb", "mel_resynthesis",
    "mel_resynthesis", "envelope", "envelope", "celp", "celp", "jitter", "denoise", "griffin_lim",
    "identity", "background", "hard_noise",
)  # fmt: skip
STOI_LOST = 0.0048  # that a mark of the usual strength may cost
BITS, FOUND, STOI, HELD, WORST = 10.0, 1.0, 200.0, 40.0, 0.5  # weights of what is lost
LOUDEST_NORM, FOLLOW = 2.0, 0.995
WARM_UP, DECAY_FROM = 30, 0.25  # steps; share of them


class Pair(NamedTuple):
    """An embedder that learns, the one it began as, and the detector of both."""

    embedder: Any
    before: Any
    detector: Any


class World(NamedTuple):
    """What weak marks are taught with."""

    speech: list[Any]
    lyra: dict[str, nn.Module]
    tools: twins.Tools
    rng: np.random.Generator


def networks(weights: Path) -> Pair:
    """Read the networks of a folder."""
    recipe, named = from_tree(read_card(weights).facts["recipe"]), read_weights(weights)
    embedder, detector = nets.build(recipe.model)
    before, _ = nets.build(recipe.model)
    for net, part in ((embedder, "embedder."), (before, "embedder."), (detector, "detector.")):
        own = {k.removeprefix(part): v for k, v in named.items() if k.startswith(part)}
        net.load_state_dict(own)
    return Pair(embedder, before.requires_grad_(False), detector.requires_grad_(False))


def world(asked: argparse.Namespace) -> World:
    """Read what is needed from the folders that were named."""
    cpu, draws = torch.device("cpu"), [torch.Generator().manual_seed(asked.seed) for _ in range(2)]
    noise = Stream(read_folder(asked.noise, level=False), cpu)
    read = [x for folder in asked.speech for x in read_folder(folder, level=False)]
    speech = [x for x in read if len(x) > LENGTH]
    lyra = neural.load_lyra(asked.lyra, cpu)
    return World(speech, lyra, twins.Tools(*draws, noise), np.random.default_rng(asked.seed))


def hosts(world: World, count: int) -> Tensor:
    """Draw clips (count, samples) at many levels."""
    drawn = []
    while len(drawn) < count:
        whole = world.speech[world.rng.integers(len(world.speech))]
        start = int(world.rng.integers(len(whole) - LENGTH))
        clip = np.asarray(whole[start : start + LENGTH], np.float32)
        rms = np.sqrt(np.mean(clip**2))
        if rms > 1e-3:
            drawn.append(clip * np.float32(10 ** (world.rng.uniform(*LEVEL_DB) / 20) / rms))
    return torch.from_numpy(np.stack(drawn))


def hissing(y: Tensor, low_db: float, high_db: float) -> Tensor:
    """Return clips in white noise, at an SNR drawn for each."""
    snr_db = torch.empty(len(y), 1).uniform_(low_db, high_db)
    rms = y.detach().square().mean(-1, keepdim=True).sqrt()
    return y + torch.randn_like(y) * rms * 10 ** (-snr_db / 20)


def coded(y: Tensor, world: World) -> Tensor:
    """Return clips after a real codec, with the gradient of a copy."""
    hit = attack(CODECS[world.rng.integers(len(CODECS))])
    heard = [hit.apply(v.numpy(), RATE, hit.draw(world.rng)) for v in y.detach()]
    after = torch.from_numpy(np.stack(heard).astype(np.float32)[:, :LENGTH])
    return y + (after - y).detach()


def attacked(y: Tensor, world: World, step: int) -> Tensor:
    """Return thirteen clips after Lyra at two rates, Lyra and noise, noise, a codec, a twin."""
    world.tools.begin(step)
    twin = ATTACKS[TWINS[world.rng.integers(len(TWINS))]]
    low, high = (world.lyra[name] for name in ("lyra-3.2", "lyra-6"))
    sixth = high(y[4:7])
    heard = [low(y[:4]), sixth[:2], hissing(sixth[2:], 18, 25), hissing(y[7:8], 6, 14)]
    heard += [coded(y[8:10], world), twin(y[10:], world.tools)]
    return torch.cat(heard) * 10 ** (torch.empty(len(y), 1).uniform_(-6, 3) / 20)


def lost(pair: Pair, ear: Hearing, world: World, step: int, heard: float) -> dict[str, Tensor]:
    """Return what marks lose: bits, presence, what is heard of them, likeness of full ones."""
    host = hosts(world, FULL + WEAK)
    code = (torch.rand(len(host), pair.embedder.project_code.in_features) < 0.5).float()
    full = torch.empty(FULL).uniform_(*FULL_STRENGTHS)
    full = torch.where(torch.rand(FULL) < FULLEST, FULL_STRENGTHS[1], full)
    strength = torch.cat([full, torch.empty(WEAK).uniform_(*WEAK_STRENGTHS)])
    carrier = pair.embedder(host, code, strength)
    as_before = pair.before(host[:FULL], code[:FULL], full)
    moved = (carrier[:FULL] - as_before).square().sum(1) / (as_before.square().sum(1) + 1e-8)
    host, code, strength = host[FULL:], code[FULL:], strength[FULL:]
    marked = host + carrier[FULL:]
    presence, logits = pair.detector(attacked(marked, world, step))
    bits = F.binary_cross_entropy_with_logits(losses.pool(presence, logits), code)
    found = presence.sigmoid().mean(1).clamp(1e-4, 1)
    half = slice(1 - step % 2, None, 2)  # the other half in the next step
    level = torch.sqrt(host[half].square().mean(-1, keepdim=True) + 1e-8)
    before, after = host[half] / level, marked[half] / level
    share = strength[half] / USUAL
    cost = (5 - ear.zimtohrli(before, after)) / share**POWER
    worst = F.relu(cost - cost.mean().detach()).mean()
    spectra = (ear.magnitude(v, 512) for v in (before, after))
    unclear = F.relu((1 - ear.stoi(*spectra)) / share - STOI_LOST).mean()
    return {
        "bits": BITS * bits,
        "found": -FOUND * found.log().mean(),
        "heard": heard * (cost.mean() + WORST * worst),
        "stoi": STOI * unclear,
        "full": HELD * moved.mean(),
    }


def teach(pair: Pair, world: World, asked: argparse.Namespace) -> None:
    """Let the embedder learn; leave it as the average over the last steps."""
    ear, learning = Hearing(), list(pair.embedder.parameters())
    optimiser = torch.optim.AdamW(learning, lr=asked.rate, weight_decay=0, betas=(0.9, 0.99))
    mean = [value.detach().clone() for value in learning]
    for step in range(asked.steps):
        fall = max(0.0, step / asked.steps - DECAY_FROM) / (1 - DECAY_FROM)
        rate = min(1, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * fall)) / 2
        optimiser.param_groups[0]["lr"] = asked.rate * rate
        terms = lost(pair, ear, world, step, asked.heard)
        optimiser.zero_grad()
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        if torch.isfinite(nn.utils.clip_grad_norm_(learning, LOUDEST_NORM)):
            optimiser.step()
        share = min(FOLLOW, (step + 2) / (step + 11))
        with torch.no_grad():
            torch._foreach_lerp_(mean, [value.data for value in learning], 1 - share)
        if step % 50 == 49:
            print(step + 1, {name: round(float(value), 3) for name, value in terms.items()})
    with torch.no_grad():
        for value, averaged in zip(learning, mean, strict=True):
            value.copy_(averaged)


def main() -> None:
    """Read networks, teach the embedder, write a run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--speech", type=Path, action="append", required=True)
    parser.add_argument("--noise", type=Path, required=True)
    parser.add_argument("--lyra", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1150)
    parser.add_argument("--rate", type=float, default=1e-4, help="of learning")
    parser.add_argument("--heard", type=float, default=11.0, help="weight of what is heard")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    try:
        run(asked, parser)
    except KeyBoundError as error:
        parser.error(str(error))


def run(asked: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Do what was asked."""
    recipe = read_card(asked.weights).facts["recipe"]
    if not recipe["model"]["by_strength"]:
        parser.error("the embedder of these weights does not know the strength of a mark")
    torch.manual_seed(asked.seed)
    pair, around = networks(asked.weights), world(asked)
    if not around.speech:
        parser.error(f"no recording of over {LENGTH // RATE} s in the folders of speech")
    began = time.monotonic()
    teach(pair, around, asked)
    spent = time.monotonic() - began
    parts = {"embedder": pair.embedder, "detector": pair.detector}
    weights = {f"{p}.{k}": v.detach() for p, n in parts.items() for k, v in n.named_parameters()}
    asked.out.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in weights.items()}, asked.out / "weights.safetensors")
    state = {"recipe": recipe, "step": asked.steps, "seconds": spent}
    (asked.out / "state.json").write_text(json.dumps(state))


if __name__ == "__main__":
    main()
