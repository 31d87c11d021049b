"""Clips as the detector hears them: marked or not, attacked, and some way through its trunk.

`detector_end.py` learns from them. A long clip lasts three seconds and may be marked in part; a
short one is a second at full strength whose ends are those of the recording, as long as attacks
leave it. Set KEYBOUND_LYRA for Lyra and KEYBOUND_NOISE for recorded noise.
"""

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import soundfile
import torch
from safetensors.torch import load_file
from torch import Tensor

from keybound.attacks import attack, available
from keybound.training import losses, nets
from keybound.training.data import turned, turns
from keybound.training.recipe import from_tree
from keybound.training.spectra import HOP, RATE

SECONDS = 3
LENGTH = SECONDS * RATE
LONG = {  # odds of attacks on what is marked, and on what is not, as in SHORT
    "clean": (1, 1), "noise-10": (2, 7), "noise-20": (1.5, 2.5), "noise@5": (1, 1),
    "lyra-6": (3, 3), "lyra-3.2": (3.5, 1.5), "lyra-9.2": (0.7, 0.5), "mp3": (0.7, 0.7),
    "mp3@8": (0.7, 0.5), "opus-12": (1.5, 0.7), "opus-16": (0.2, 0.2), "opus@9": (3.5, 1.5),
    "g723": (2.5, 1), "ra-144": (3, 1), "telephone": (1, 0.7), "lyra-6+noise-20": (1.5, 1),
    "lyra-6+denoiser": (0.7, 0.5), "echo": (1, 2.5), "quantize": (1.5, 1.5),
    "denoiser": (0.7, 0.7), "griffin-lim": (0.7, 0.7), "mel": (0.7, 0.5), "resample": (0.3, 0.3),
    "lowpass": (0.4, 0.4), "highpass": (0.4, 0.4), "smoothing": (0.2, 0.2), "gain": (0.1, 0.1),
    "room@2": (1, 1), "music@0": (1, 1), "background@5": (1, 1), "stretch@0.9": (0.7, 0.5),
    "speed@1.1": (0.7, 0.5),
}  # fmt: skip
TIMING = ("stretch", "speed")  # move what is marked: not for clips that are marked in part
SHORT = {
    "clean": (1, 1), "stretch@0.9": (3, 1), "stretch@1.1": (2, 0.5), "stretch@0.75": (1, 0.3),
    "stretch@1.25": (1, 0.3), "speed@0.9": (2, 0.5), "speed@0.95": (0.5, 0), "speed@1.1": (2, 0.5),
    "crop": (3, 2), "trim": (2, 1), "pitch@1": (1, 0.3), "pitch@-1": (1.5, 0.3),
    "pitch@2": (0.5, 0.2), "pitch@-2": (0.5, 0.2), "jitter": (0.3, 0.3),
    "highpass@6400": (0.7, 0.5), "lowpass": (0.5, 0.3), "room@0.5": (0.7, 0.5), "room@1": (1.5, 1),
    "room@2": (1.5, 1.5), "room@4": (0.5, 2), "reverb": (0.5, 0.5), "echo": (0.7, 1),
    "music@0": (1.5, 2), "music@5": (0.7, 1), "background@5": (1, 1), "noise@5": (1.5, 3),
    "noise-10": (2, 3), "noise-20": (1, 1), "lyra-9.2": (0.5, 1), "lyra-6": (2, 2),
    "lyra-3.2": (3, 3), "lyra-6+noise-20": (2, 2), "lyra-6+denoiser": (1.5, 1), "g723": (2, 3),
    "ra-144": (2.5, 3), "telephone": (1, 2), "opus@9": (1.5, 1.5), "opus-12": (0.7, 0.7),
    "mp3@8": (1, 4), "mp3@16": (0.5, 2), "mp3": (0.5, 0.5), "quantize@2": (0.2, 2),
    "quantize@4": (1, 3), "denoiser": (0.5, 0.3), "griffin-lim": (0.5, 0.3), "mel": (0.5, 0.3),
    "resample": (0.3, 0.3), "packet-loss@10": (0.3, 0.3), "compress": (0.3, 0.3),
    "smoothing": (0.2, 0.2),
}  # fmt: skip
LENGTHS = (25, 38, 45, 50, 55, 62)  # frames of a short clip after attacks
UNMARKED, MARKED, COPIED = range(3)
SHARES = {  # unmarked, marked, copied
    "speech": (0.34, 0.5, 0.16), "voices": (0.7, 0.3, 0.0), "sounds": (1.0, 0.0, 0.0),
    "short": (0.4, 0.55, 0.05),
}  # fmt: skip
BEATS, BEAT_S = 0.5, (0.04, 0.4)  # of sounds, that repeat a piece as long as this
PARTIAL, LEAST_PART = 0.3, 30  # of long marks, that begin and end in the clip; their fewest frames
TURNED = 0.2  # of the others, whose code changes every second: nobody asks for their bits
FULL = 0.3  # of long marks, at full strength
WEAK = (0.5, 0.8)  # strengths of the others

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


@cache
def begun(run: Path, blocks: int) -> Any:
    """Return the detector of a run without so many of its last blocks, those that may learn."""
    detector = deepcopy(networks(run)[1])
    detector.blocks = detector.blocks[: len(detector.blocks) - blocks]
    return detector


def draw_clip(files: list[Path], rng: np.random.Generator, length: int = LENGTH) -> Clip:
    """Cut a clip from a random place of a random file, at a random level."""
    path = files[int(rng.integers(len(files)))]
    start = int(rng.integers(max(1, soundfile.info(path).frames - length)))
    samples, _ = soundfile.read(path, length, start, dtype="float32")
    samples = np.pad(samples, (0, length - len(samples)))
    level = 10 ** (rng.uniform(-25, 0) / 20) * 0.3
    clip: Clip = (samples * level / (np.abs(samples).max() + 1e-4)).astype(np.float32)
    return clip


def beaten(clip: Clip, rng: np.random.Generator) -> Clip:
    """Repeat a short piece of a sound."""
    piece = clip[: int(rng.uniform(*BEAT_S) * RATE)]
    return np.resize(piece, len(clip))


def carrier_of(embedder: Any, host: Tensor, code: Tensor, strength: float) -> Tensor:
    """Return the carrier of a code at a strength, which the embedder may know."""
    if embedder.by_strength:
        return cast(Tensor, embedder(host, code, torch.tensor([strength])))
    return strength * cast(Tensor, embedder(host, code))


def part_of(frames: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return 1 for the frames of a stretch of a clip, 0 for the others."""
    where = np.zeros(frames, np.float32)
    first = int(rng.integers(0, frames - LEAST_PART - 20))
    where[first : int(rng.integers(first + LEAST_PART, frames + 1))] = 1
    return where


class Marked(NamedTuple):
    """A clip that carries what it should, and where."""

    sound: Tensor
    strength: float = 1.0
    spells: bool = True


def mark(
    clip: Clip, other: Clip, code: Tensor, kind: int, run: Path, rng: np.random.Generator
) -> tuple[Marked, npt.NDArray[np.float32]]:
    """Return a clip that is marked, bears the mark of another or none; and which frames are."""
    embedder, _ = networks(run)
    host = torch.from_numpy(clip)[None]
    long = len(clip) == LENGTH
    where = np.full(len(clip) // HOP, float(kind == MARKED), np.float32)
    strength = float(rng.uniform(*WEAK)) if long and rng.random() > FULL else 1.0
    if kind == UNMARKED:
        return Marked(host, strength), where
    carrier, spells = carrier_of(embedder, host, code[:1], strength), True
    if kind == COPIED:
        copy = losses.transplant_gains if rng.random() < 0.6 else losses.transplant_residual
        sound = copy(host, host + carrier, torch.from_numpy(other)[None])
        return Marked(sound, strength), where
    if long and rng.random() < PARTIAL:
        where = part_of(len(where), rng)
        carrier = carrier * torch.from_numpy(where.repeat(HOP))
    elif long and rng.random() < TURNED:
        spells = False
        chance = torch.Generator().manual_seed(int(rng.integers(1 << 30)))
        frames = turns(1, len(where), 1.0, chance)
        carrier = turned(carrier, carrier_of(embedder, host, code[1:], strength), frames)
    return Marked(host + carrier, strength, spells), where


def draw_attack(kind: int, *, short: bool, still: bool, rng: np.random.Generator) -> str:
    """Draw an attack; half of the copies are left as they are."""
    if kind == COPIED and rng.random() < 0.6:
        return "clean"
    odds = {name: one[kind != MARKED] for name, one in (SHORT if short else LONG).items()}
    names = [
        name
        for name in odds
        if available(name.partition("@")[0]) is None and not (still and name.startswith(TIMING))
    ]
    weights = np.array([odds[name] for name in names], float)
    return str(rng.choice(names, p=weights / weights.sum()))


@torch.no_grad()
def example(
    number: int, *, run: Path, files: list[list[Path]], share: str, seed: int, blocks: int
) -> Example:
    """Draw a clip, mark it, copy its mark or leave it, attack it, and hear it.

    Its features are what goes into so many of the last blocks of the trunk.
    """
    rng = np.random.default_rng([seed, number])
    short = share == "short"
    length = RATE if short else LENGTH
    chosen = files[int(rng.integers(len(files)))]
    clip, other = (draw_clip(chosen, rng, length) for _ in range(2))
    if share == "sounds" and rng.random() < BEATS:
        clip = beaten(clip, rng)
    kind = int(rng.choice(3, p=SHARES[share]))
    bits = networks(run)[1].heads.logits.out_channels
    code = torch.from_numpy(rng.integers(0, 2, (2, bits)).astype(np.float32))
    made, where = mark(clip, other, code, kind, run, rng)
    still = not made.spells or 0 < where.mean() < 1
    hit = attack(draw_attack(kind, short=short, still=still, rng=rng))
    heard = hit.apply(made.sound[0].numpy().astype(np.float32), RATE, hit.draw(rng, None))
    frames = min(LENGTHS, key=lambda n: abs(n * HOP - len(heard))) if short else len(where)
    heard = np.pad(heard, (0, max(0, frames * HOP - len(heard))))[: frames * HOP]
    features = begun(run, blocks).trunk(torch.from_numpy(heard.astype(np.float32))[None])
    where = np.full(frames, where[0], np.float32) if short else where
    kept = features[0].numpy().astype(np.float16)
    return Example(kept, kind, made.strength, made.spells, code[0].numpy(), where)
