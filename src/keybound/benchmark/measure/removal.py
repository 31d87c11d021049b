"""Removal: pairs for an attacker's removers, and what those leave of a mark and of the speech.

The networks and their training are in `keybound.attacks.removers`.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from keybound.attacks import removers
from keybound.audio import metrics
from keybound.audio.folders import read_clips
from keybound.benchmark.measure.methods import Method
from keybound.benchmark.measure.plan import Case, Plan
from keybound.benchmark.measure.protocol import Clip, secret_of
from keybound.benchmark.measure.rows import Row
from keybound.errors import KeyBoundError

CHUNK_S = 4.0  # of a training pair: one key and payload each, so short chunks show many codes


def save_pairs(
    method: Method, speech: Path, path: Path, *, minutes: float = 40.0, seed: int = 0
) -> float:
    """Mark the attacker's own speech with the public embedder into a file; return its minutes.

    A minute takes 3.8 MB. Chunks are taken evenly from the whole folder, so that few minutes still
    have many speakers.
    """
    from safetensors.numpy import save_file

    every = read_clips(speech, CHUNK_S, method.rate, every=True)
    if not every:
        why = f"no recordings of {CHUNK_S:g} s or more in {speech}"
        raise KeyBoundError(why, hint="removers learn from whole sentences")
    count = min(len(every), max(1, round(minutes * 60 / CHUNK_S)))
    chunks = [every[i * len(every) // count] for i in range(count)]
    # Secrets of another seed than any measurement's: the attacker does not hold the victim's.
    secrets = (secret_of(-1 - seed, i, method.bits) for i in range(len(chunks)))
    marked = [method.embed(*pair) for pair in zip(chunks, secrets, strict=True)]
    sides = {"clean": chunks, "marked": marked}
    limits = (-removers.FULL_SCALE, removers.FULL_SCALE - 1)
    whole = {k: np.rint(np.stack(v) * removers.FULL_SCALE).clip(*limits) for k, v in sides.items()}
    save_file({k: v.astype(np.int16) for k, v in whole.items()}, path)
    return len(chunks) * CHUNK_S / 60


def train(
    method: Method,
    folder: Path,
    *,
    train: Path | None,
    minutes: float,
    device: str,
    say: Callable[[str], None],
) -> None:
    """Train removers of a method on a folder of speech, if one is given, into another folder."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch raises either for what is not here
        raise KeyBoundError(f"no device {device!r} here", hint="cpu or cuda") from error
    if train is not None:
        folder.mkdir(parents=True, exist_ok=True)
        pairs = folder / "pairs.safetensors"
        save_pairs(method, train, pairs)
        removers.train_all([pairs], folder, device=device, minutes=minutes, say=say)


@cache
def load(path: Path) -> removers.Network:
    """Read a remover once."""
    from safetensors import SafetensorError

    try:
        return removers.load(path)
    except (SafetensorError, KeyError, TypeError, RuntimeError) as error:
        raise KeyBoundError(f"{path} is not a remover", hint="train it anew") from error


def each_remover(plan: Plan, index: int) -> list[Row]:  # noqa: ARG001
    """Return the name of a row for each trained remover of the plan."""
    parted = (path.stem.rpartition("-") for path in plan.removers)
    return [{"network": network, "budget": int(steps)} for network, _, steps in parted]


def removed(case: Case, face: Row) -> Clip:
    """Return what the remover that a row names makes of the marked recording."""
    name = f"{face['network']}-{face['budget']}"
    (path,) = (path for path in case.plan.removers if path.stem == name)
    return removers.apply(load(path), case.marked)


def measure(case: Case, face: Row) -> Row:
    """Return what a remover leaves of the mark, and of the speech."""
    host, heard, method = case.host, removed(case, face), case.method
    reading = method.read(heard)
    row: Row = {"marked": reading.presence, "errors": method.errors(reading, case.secret)}
    row |= {"bits": method.bits, "snr_db": metrics.snr_db(host, heard)}
    row |= {"pesq": metrics.pesq(host, heard, method.rate)}
    return row | {"stoi": metrics.stoi(host, heard, method.rate)}
