"""Teach the network that finds the seal: from levels of sealed speech to the signs of its tiles.

    python scripts/seal_odds.py NEW.onnx --start OLD.onnx --speech FOLDER --minutes 50

Speech is marked and sealed under random keys, goes through a random attack and is cut anywhere;
the network then learns which tiles went up, by cross-entropy, so that what it says of a tile is a
log-likelihood ratio and sums of it find the seal best. No attack that figures are held out for is
among those it learns from. Set KEYBOUND_LYRA and KEYBOUND_NOISE for Lyra and recorded noise. Half
an hour on two cores.
"""

import argparse
import time
import warnings
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import soundfile
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import Tensor, nn

from keybound.attacks import attack, available
from keybound.crypto.codes import encode
from keybound.crypto.keys import Key
from keybound.seal import odds, pattern
from keybound.seal.pattern import BANDS, RATE, STEP
from keybound.seal.tiles import Spot
from keybound.watermark.watermarker import Watermarker

SECONDS, SPARE_S = 5.0, 0.3  # of a clip, and what may be cut off its start
ODDS = {  # of attacks, in a chain of names joined by +
    "clean": 2, "noise": 5, "background": 1.5, "pink": 0.7, "mp3": 2.5, "mp3@24": 0.5,
    "opus-24": 2, "opus-16": 1.5, "opus-12": 0.5, "vorbis": 0.7, "lyra-6": 1, "lyra-9.2": 1.5,
    "griffin-lim": 1, "mel": 3.5, "mel@60": 1, "denoiser": 1.2, "noise@20+denoiser": 0.5,
    "nsnet2": 0.5, "resample": 1.2, "lowpass": 0.5, "highpass": 0.5, "quantize": 0.7,
    "quantize@7": 0.3, "smoothing": 0.4, "echo": 0.5, "reverb": 0.6, "telephone": 0.8,
    "eq-24": 0.5, "compress": 0.3, "g722": 0.3, "mp3+griffin-lim": 0.5, "opus-24+noise@20": 0.5,
    "mel+noise@25": 0.5,
}  # fmt: skip
SNR_DB = {"noise": (3, 32), "background": (5, 25)}  # drawn anew for each clip
SCALES = (1.2, 1.0, 0.8, 0.6)  # of the seal's strength: weaker seals should be found well too
EXCERPTS_S = (1.0, 3.0, 10.0)
LEVELS_DB = (-38, -14)
WIDTH, PLACES, PAIRS = 32, 4, 2  # channels; numbers that tell bands apart; pairs of layers
FRAMES_AND_CLIPS = ((60, 40), (150, 16), (240, 10))  # of a step, in turns
RATE_OF_LEARNING, WARM_STEPS, HELD = 4e-3, 100, 0.2  # held for a share of the time, then a cosine


class Example(NamedTuple):
    """A sealed clip as it is heard: its frames, and the signs of the tiles they make."""

    levels: npt.NDArray[np.float16]  # (frames, BANDS), two for each tile
    signs: npt.NDArray[np.int8]  # (tiles, BANDS)


@cache
def marker() -> Watermarker:
    """Return the shipped watermarker."""
    return Watermarker()


def attacked(heard: npt.NDArray[np.float32], rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Put a clip through a random chain of attacks."""
    chains = [c for c in ODDS if all(available(n.split("@")[0]) is None for n in c.split("+"))]
    weights = np.array([ODDS[chain] for chain in chains])
    for part in str(rng.choice(chains, p=weights / weights.sum())).split("+"):
        name, _, given = part.partition("@")
        strength = float(given) if given else None
        if strength is None and name in SNR_DB:
            strength = round(rng.uniform(*SNR_DB[name]), 1)
        hit = attack(name)
        heard = hit.apply(heard, RATE, hit.draw(rng, strength)).astype(np.float32)
    return heard


def example(number: int, *, files: list[Path], seed: int) -> Example:
    """Draw, mark, attack and cut a clip; return its levels beside the signs they carry."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, number])
    length = int((SECONDS + SPARE_S) * RATE)
    path = files[int(rng.integers(len(files)))]
    start = int(rng.integers(max(1, soundfile.info(path).frames - length)))
    host = np.resize(soundfile.read(path, length, start, dtype="float32")[0], length)
    level = 10 ** (rng.uniform(*LEVELS_DB) / 20) / (np.sqrt(np.mean(np.square(host))) + 1e-5)
    host = np.clip(host * level, -1, 1).astype(np.float32)
    key, payload = Key(rng.bytes(32)), int(rng.integers(1 << 16))
    how = {"position": int(rng.integers(256)), "excerpt": float(rng.choice(EXCERPTS_S))}
    bare = marker().embed(host, RATE, key=key, payload=payload, excerpt=how["excerpt"], seal=False,
                          check=False)  # fmt: skip
    sealed = marker().embed(host, RATE, key=key, payload=payload, **how, check=False)
    marked = bare + rng.choice(SCALES) * (sealed - bare)
    cut = int(rng.integers(2 * pattern.COLUMN_STEPS * STEP))
    heard = attacked(marked.astype(np.float32), rng)[cut : cut + int(SECONDS * RATE)]
    feeder = pattern.level_feeder()
    levels = np.concatenate([*feeder.push(heard), *feeder.flush()]).reshape(-1, BANDS)
    spot = Spot(key, encode(payload, key, 16), int(how["position"]))
    return in_tiles(levels, spot, round(cut / STEP))


def in_tiles(levels: npt.NDArray[np.float32], spot: Spot, start: int) -> Example:
    """Return the frames of whole tiles, of levels that begin at a step of the pattern."""
    first = -start % pattern.COLUMN_STEPS  # of the levels, with which a tile begins
    frames = levels[first :: odds.HALVES]
    count = int(SECONDS / pattern.COLUMN_S) - 2
    column = (start + first) // pattern.COLUMN_STEPS
    kept = frames[: count * pattern.COLUMN_FRAMES].astype(np.float16)
    return Example(kept, spot.signs(column, count))


def _pair() -> nn.ModuleList:
    return nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(2))


class Network(nn.Module):
    """From features (clips, 4, frames, BANDS) to the log odds of the tile that begins at each."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(0.3 * torch.randn(PLACES, BANDS))
        self.first = nn.Conv2d(4 + PLACES, WIDTH, 5, padding=2)
        self.pairs = nn.ModuleList(_pair() for _ in range(PAIRS))
        self.last = nn.Conv2d(WIDTH, 1, (2, 1))

    def forward(self, x: Tensor) -> Tensor:
        places = self.places[None, :, None] + 0 * x[:, :PLACES]
        x = torch.cat([x, places], 1).contiguous(memory_format=torch.channels_last)
        x = F.silu(self.first(x))
        for one, two in self.pairs:  # type: ignore[misc]
            x = F.silu(x + two(F.silu(one(x))))
        made: Tensor = self.last(x)[:, 0]
        return made


def begin_with(network: Network, path: Path) -> None:
    """Take the weights of an exported network."""
    known = {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    found = {name: torch.tensor(known[name]) for name in network.state_dict() if name in known}
    (places,) = (one for one in known.values() if one.shape == (1, PLACES, 1, BANDS))  # unnamed
    found["places"] = torch.tensor(places[0, :, 0])
    network.load_state_dict(found)


def teach(network: Network, examples: list[Example], minutes: float) -> None:
    """Learn the signs for so long; clips of several lengths take turns."""
    rng = np.random.default_rng(0)
    learning = torch.optim.AdamW(network.parameters(), lr=RATE_OF_LEARNING, weight_decay=1e-2)
    begun, step, done = time.monotonic(), 0, 0.0
    while done < 1:
        done = min(1.0, (time.monotonic() - begun) / 60 / minutes)
        curve = 0.5 + 0.5 * np.cos(np.pi * max(0.0, done - HELD) / (1 - HELD))
        for group in learning.param_groups:
            group["lr"] = RATE_OF_LEARNING * min(1.0, (step + 1) / WARM_STEPS) * curve
        frames, clips = FRAMES_AND_CLIPS[step % len(FRAMES_AND_CLIPS)]
        tiles = frames // pattern.COLUMN_FRAMES
        heard, signs = [], []
        for number in rng.integers(len(examples), size=clips):
            one = examples[number]
            at = int(rng.integers(len(one.signs) - tiles + 1))
            part = one.levels[pattern.COLUMN_FRAMES * at :][:frames].astype(np.float32)
            heard.append(odds.features(part))
            signs.append(one.signs[at : at + tiles] > 0)
        said = network(torch.from_numpy(np.stack(heard)))[:, :: pattern.COLUMN_FRAMES]
        due = torch.from_numpy(np.stack(signs)).float()
        loss = F.binary_cross_entropy_with_logits(said, due)
        learning.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        learning.step()
        step += 1
        if step % 100 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)


def export(network: Network, path: Path) -> None:
    """Write the network for ONNX Runtime."""
    heard = torch.randn(1, 4, 200, BANDS)
    axes = {"x": {0: "clips", 2: "frames"}, "odds": {0: "clips", 1: "tiles"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network.eval(), (heard,), path, input_names=["x"], output_names=["odds"],
                          dynamic_axes=axes, dynamo=False, opset_version=17)  # fmt: skip
    onnx.checker.check_model(onnx.load(path), full_check=True)


def main() -> None:
    """Make clips, teach a network, export it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--speech", type=Path, action="append", required=True)
    parser.add_argument("--start", type=Path, help="odds.onnx to begin with")
    parser.add_argument("--clips", type=int, default=6000)
    parser.add_argument("--minutes", type=float, default=28.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    files = [path for folder in asked.speech for path in sorted(folder.rglob("*.flac"))]
    if not files:
        parser.error("no FLAC files in the folders of speech")
    make = partial(example, files=files, seed=asked.seed)
    with get_context("spawn").Pool(asked.workers) as pool:
        examples = pool.map(make, range(asked.clips), 4)
    torch.manual_seed(asked.seed)
    network = Network().to(memory_format=torch.channels_last)
    if asked.start:
        begin_with(network, asked.start)
    teach(network, examples, asked.minutes)
    export(network, asked.out)


if __name__ == "__main__":
    main()
