"""Removers: networks an attacker trains from marked to clean audio, without detector or key.

Two of them. `unet` is the paper's: a SEANet U-net with 24 channels on the waveform, which predicts
what was added. `gains` predicts a gain for each bin of the spectrum, the domain of a spectral mark.

Training takes files of pairs and nothing else of KeyBound: it needs numpy, torch and safetensors
and runs where only those are. The other modules of the room stay out of its path there:

    python -c '
    import runpy; train_all = runpy.run_path("src/keybound/attacks/removers.py")["train_all"]
    train_all(["pairs.safetensors"], "out", device="cuda", minutes=9)'
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor, nn

Clip = npt.NDArray[np.float32]

BUDGETS = (1_000, 4_000, 10_000, 20_000)  # steps, the paper's
CROP = 16_000  # samples: the paper trains on seconds at 16 kHz
FULL_SCALE = 32_768.0  # pairs are kept as 16-bit samples, what an attacker would find in files

CHANNELS = 24
STRIDES = (2, 4, 5, 8)  # SEANet's, from the waveform inwards: 320 samples a latent frame

WINDOW, HOP, BINS = 512, 128, 257
WIDTH, EXPANSION = 256, 3
DILATIONS = (1, 2, 3, 1, 2, 3, 1, 2)  # kernel 7: a frame sees 45 frames, 360 ms, to either side
LIMIT = 8.0 * np.log(10) / 20  # 8 dB in nepers
FLOOR = 1e-2  # of a magnitude of audio at unit level: about 60 dB under its peaks


@dataclass(frozen=True)
class Kind:
    """A remover: how it is built, run and judged, and how it learns."""

    build: Callable[[], nn.ModuleDict]
    run: Callable[[nn.ModuleDict, Tensor], Tensor]  # (batch, samples) at unit level to the same
    loss: Callable[[Tensor, Tensor], Tensor]
    rate: float = 2e-4  # the paper's, as is the batch
    batch: int = 12


@dataclass(frozen=True)
class Network:
    """A trained remover and its budget."""

    name: str
    steps: int
    parts: nn.ModuleDict


def _unet() -> nn.ModuleDict:
    from torch import nn

    def unit(width: int) -> nn.Sequential:  # SEANet's residual unit, without its skip
        half = width // 2
        inner = nn.Conv1d(width, half, 3, padding=1)
        return nn.Sequential(nn.ELU(), inner, nn.ELU(), nn.Conv1d(half, width, 1))

    down, up = nn.ModuleList(), nn.ModuleList()
    widths = [CHANNELS * 2**i for i in range(len(STRIDES) + 1)]
    for (narrow, wide), stride in zip(pairwise(widths), STRIDES, strict=True):
        size, pad, odd = 2 * stride, (stride + 1) // 2, stride % 2
        shrink = nn.Conv1d(narrow, wide, size, stride, pad)
        grow = nn.ConvTranspose1d(wide, narrow, size, stride, pad, odd)
        down.append(nn.ModuleDict({"unit": unit(narrow), "shrink": shrink}))
        up.insert(0, nn.ModuleDict({"unit": unit(narrow), "grow": grow}))
    first, last = (nn.Conv1d(*io, 7, padding=3) for io in ((1, CHANNELS), (CHANNELS, 1)))
    middle = nn.Conv1d(widths[-1], widths[-1], 7, padding=3)
    parts = {"first": first, "down": down, "middle": middle, "up": up, "last": last}
    return nn.ModuleDict(parts)


def _run_unet(net: Any, x: Tensor) -> Tensor:
    import torch.nn.functional as F

    odd = -x.shape[1] % int(np.prod(STRIDES))
    h = net["first"](F.pad(x, (0, odd))[:, None])  # (batch, CHANNELS, samples)
    skips = []
    for stage in net["down"]:
        h = h + stage["unit"](h)
        skips.append(h)
        h = stage["shrink"](F.elu(h))
    h = h + net["middle"](F.elu(h))  # (batch, 16 CHANNELS, frames)
    for stage in net["up"]:
        h = stage["grow"](F.elu(h)) + skips.pop()
        h = h + stage["unit"](h)
    residual: Tensor = net["last"](F.elu(h))[:, 0, : x.shape[1]]
    return x - residual


def _gains() -> nn.ModuleDict:
    from torch import nn

    blocks = nn.ModuleList()
    for dilation in DILATIONS:
        depthwise = nn.Conv1d(WIDTH, WIDTH, 7, 1, 3 * dilation, dilation, groups=WIDTH)
        expand = nn.Conv1d(WIDTH, EXPANSION * WIDTH, 1)
        contract = nn.Conv1d(EXPANSION * WIDTH, WIDTH, 1)
        norm = nn.GroupNorm(1, WIDTH)
        blocks.append(nn.Sequential(depthwise, norm, expand, nn.GELU(), contract))
    first, last = nn.Conv1d(BINS, WIDTH, 1), nn.Conv1d(WIDTH, BINS, 1)
    return nn.ModuleDict({"first": first, "blocks": blocks, "last": last})


def _run_gains(net: Any, x: Tensor) -> Tensor:
    import torch

    spectrum = _stft(x, WINDOW)  # (batch, BINS, frames)
    h = net["first"](torch.log(spectrum.abs() + FLOOR))
    for block in net["blocks"]:
        h = h + block(h)
    gain = torch.exp(LIMIT * torch.tanh(net["last"](h)))
    return _istft(spectrum * gain, x.shape[1])


def _stft(x: Tensor, window: int) -> Tensor:
    import torch

    shape = torch.hann_window(window, device=x.device)
    return torch.stft(x, window, window // 4, window=shape, return_complex=True)


def _istft(spectrum: Tensor, length: int) -> Tensor:
    """Invert `_stft`, as `torch.istft` does, which makes the device wait to check its window."""
    import torch
    import torch.nn.functional as F

    window = torch.hann_window(WINDOW, device=spectrum.device)[:, None]
    frames = torch.fft.irfft(spectrum, dim=1) * window  # (batch, WINDOW, frames)

    def overlap(v: Tensor) -> Tensor:
        size = (v.shape[2] - 1) * HOP + WINDOW
        whole = F.fold(v, (1, size), (1, WINDOW), stride=(1, HOP))
        return whole[:, 0, 0, WINDOW // 2 :][:, :length]

    return overlap(frames) / overlap(window.square().expand(1, WINDOW, frames.shape[2]))


def _distance(found: Tensor, clean: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Return the spectral convergence and the distance of the log magnitudes."""
    Y, X = _stft(found, window).abs(), _stft(clean, window).abs()
    # The small constant keeps the slope of the root finite where nothing is left to remove.
    converge = ((Y - X).square().sum((1, 2)) + 1e-6).sqrt() / (X.square().sum((1, 2)) + 1e-6).sqrt()
    return converge.mean(), ((Y + FLOOR) / (X + FLOOR)).log().abs().mean()


def _loss_unet(found: Tensor, clean: Tensor) -> Tensor:
    """Add L1 on the waveform and a multi-resolution STFT distance."""
    terms = [sum(_distance(found, clean, window)) for window in (512, 1024, 2048)]
    return (found - clean).abs().mean() + sum(terms) / 3


def _loss_gains(found: Tensor, clean: Tensor) -> Tensor:
    """Add L1 on the waveform and on the log magnitudes in the network's own spectrum."""
    return (found - clean).abs().mean() + _distance(found, clean, WINDOW)[1]


KINDS = {
    "unet": Kind(_unet, _run_unet, _loss_unet),
    # Its steps are cheap and its task is smoother, so it takes larger ones on more clips.
    "gains": Kind(_gains, _run_gains, _loss_gains, rate=5e-4, batch=32),
}


def build(name: str, seed: int = 0) -> Network:
    """Make an untrained remover, which leaves audio as it is."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts: Any = KINDS[name].build()
    torch.nn.init.zeros_(parts["last"].weight)
    torch.nn.init.zeros_(parts["last"].bias)
    return Network(name, 0, parts)


def apply(network: Network, clip: Clip) -> Clip:
    """Take the mark off one clip of any length, which the network sees at unit level."""
    import torch

    with torch.inference_mode():
        heard = torch.from_numpy(clip)[None].to(next(network.parts.parameters()).device)
        level = (heard.square().mean() + 1e-10).sqrt()
        found = KINDS[network.name].run(network.parts, heard / level) * level
    return np.asarray(found[0].cpu())


def train(
    name: str,
    marked: Any,
    clean: Any,
    *,
    device: str = "cpu",
    budgets: Sequence[int] = BUDGETS,
    minutes: float = 60.0,
    batch: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Network]:
    """Train a remover on pairs (chunks, samples) of 16-bit samples; yield it at each budget.

    When the minutes are over before the last budget, it is yielded once more as it then is. It is
    the network in training: save or use it before asking for the next.
    """
    import torch

    begun, kind = time.monotonic(), KINDS[name]
    heard, wanted = (torch.as_tensor(np.asarray(v, np.int16)).to(device) for v in (marked, clean))
    parts = build(name, seed).parts.to(device)
    optimiser = torch.optim.AdamW(parts.parameters(), lr=kind.rate, fused=device != "cpu")
    chance = torch.Generator(device).manual_seed(seed)
    clips, offsets = batch or kind.batch, torch.arange(CROP, device=device)
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        for step in range(1, max(budgets) + 1):
            row = torch.randint(len(heard), (clips, 1), generator=chance, device=device)
            last = heard.shape[1] - CROP + 1
            at = torch.randint(last, (clips, 1), generator=chance, device=device) + offsets
            x, target = heard[row, at] / FULL_SCALE, wanted[row, at] / FULL_SCALE
            level = (x.square().mean(1, keepdim=True) + 1e-10).sqrt()
            loss: Any = kind.loss(kind.run(parts, x / level), target / level)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parts.parameters(), 1.0)
            optimiser.step()
            spent = (time.monotonic() - begun) / 60
            if step % 500 == 0:  # seldom, because a look at the loss waits for the device
                say(f"{name} {step}: loss {loss.item():.4f}, {spent:.1f} min")
            if step in budgets or spent > minutes:
                yield Network(name, step, parts)
            if spent > minutes:
                return


def train_all(
    pairs: Sequence[str | Path],
    folder: str | Path,
    *,
    device: str = "cuda",
    minutes: float = 9.0,
    budgets: Sequence[int] = BUDGETS,
    batch: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> list[Path]:
    """Train all removers one after the other from files of pairs; write each budget's weights.

    The networks share the minutes; what one leaves, the next may use.
    """
    from safetensors.numpy import load_file

    end = time.monotonic() + 60 * minutes
    files = [load_file(path) for path in pairs]
    marked, clean = (np.concatenate([f[side] for f in files]) for side in ("marked", "clean"))
    say(f"{marked.size / CROP / 60:.1f} min of pairs")
    written = []
    for number, name in enumerate(KINDS):
        share = (end - time.monotonic()) / 60 / (len(KINDS) - number)
        options: Any = {"device": device, "budgets": budgets, "batch": batch, "seed": seed}
        for network in train(name, marked, clean, minutes=share, say=say, **options):
            written.append(save(network, Path(folder)))
            say(f"wrote {written[-1]}")
    return written


def save(network: Network, folder: Path) -> Path:
    """Write a remover, in half precision: 16 bits are enough to take a mark away."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{network.name}-{network.steps}.safetensors"
    state = {k: v.detach().half().cpu() for k, v in network.parts.state_dict().items()}
    save_file(state, path, {"network": network.name, "steps": str(network.steps)})
    return path


def load(path: Path) -> Network:
    """Read a remover."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        facts, names = file.metadata(), list(file.keys())
        parts = build(facts["network"]).parts
        parts.load_state_dict({name: file.get_tensor(name).float() for name in names})
    return Network(facts["network"], int(facts["steps"]), parts)
