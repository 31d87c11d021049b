"""Removal: pairs for an attacker's removers, and what those leave of a mark and of the speech.

The networks and their training are in `removers`, which knows nothing of this room.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from keybound.benchmark.measure import metrics
from keybound.benchmark.measure.methods import Method
from keybound.benchmark.measure.protocol import Clip, Row, read_clips, secret_of
from keybound.benchmark.measure.removers import FULL_SCALE, Network, apply
from keybound.errors import KeyBoundError

CHUNK_S = 4.0  # of a training pair: one key and payload each, so short chunks show many codes
CLIPS = 200  # the paper's: the first of the test clips


def save_pairs(
    method: Method, speech: Path, path: Path, *, minutes: float = 40.0, seed: int = 0
) -> float:
    """Mark the attacker's own speech with the public embedder into a file; give its minutes.

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
    limits = (-FULL_SCALE, FULL_SCALE - 1)
    whole = {k: np.rint(np.stack(v) * FULL_SCALE).clip(*limits) for k, v in sides.items()}
    save_file({k: v.astype(np.int16) for k, v in whole.items()}, path)
    return len(chunks) * CHUNK_S / 60


def measure(
    method: Method, network: Network, clips: Sequence[Clip], *, seed: int = 0
) -> Iterator[Row]:
    """Give a row for each clip: what is left of the mark, and of the speech."""
    for index, host in enumerate(clips[:CLIPS]):
        secret = secret_of(seed, index, method.bits)
        heard = apply(network, method.embed(host, secret))
        reading = method.read(heard)
        row: Row = {"suite": "remover", "method": method.name, "version": method.version}
        row |= {"network": network.name, "budget": network.steps, "clip": index, "seed": seed}
        row |= {"seconds": len(host) / method.rate, "marked": round(reading.presence, 5)}
        row |= {"errors": method.errors(reading, secret), "bits": method.bits}
        measures = {"pesq": metrics.pesq, "stoi": metrics.stoi}
        quality = {k: f(host, heard, method.rate) for k, f in measures.items()}
        quality["snr_db"] = metrics.snr_db(host, heard)
        yield row | {k: v if v is None else round(v, 5) for k, v in quality.items()}
