"""What the peers have in common: no key, bits in a row, weights to find, talk to be silenced."""

import contextlib
import hashlib
import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.attacks.packages import CACHE, weights
from keybound.benchmark.measure.methods import Method, Reading, plain
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.crypto.keys import Key
from keybound.errors import ModelError

HUB = CACHE / "huggingface" / "hub"


def keyless(
    name: str,
    version: str,
    embed: Callable[[Clip, Secret], Clip],
    read: Callable[[Clip], Reading],
    *,
    rate: int,
    bits: int,
    seconds: float = 1.0,
    threshold: float | None = None,
) -> Method:
    """Return a method whose payload anyone reads."""

    def nothing(reading: Reading, key: Key | None) -> int:  # noqa: ARG001
        return 0

    return Method(
        name=name,
        rate=rate,
        bits=bits,
        rho=tolerance(bits),
        seconds=seconds,
        keyed=False,
        threshold=threshold,
        embed=embed,
        read=read,
        decode=plain if bits else nothing,
        version=version,
    )


def tolerance(bits: int) -> int:
    """Return the most wrong bits at which a random payload passes no oftener than with 2 of 16.

    That is 2.1e-3 for 2 of 16; so 0 of Timbre's 10 (9.8e-4), 10 of SilentCipher's 40 (1.1e-3).
    """

    def passes(bits: int, rho: int) -> float:
        return sum(comb(bits, i) for i in range(rho + 1)) / (1 << bits)

    return max((rho for rho in range(bits) if passes(bits, rho) <= passes(16, 2)), default=0)


def bits_of(payload: int, bits: int) -> npt.NDArray[np.uint8]:
    """Write a payload in bits, (bits,), the most significant first."""
    return np.array([payload >> i & 1 for i in reversed(range(bits))], np.uint8)


def find(peer: str, folder: Path | None, usual: Iterable[Path], files: Sequence[str]) -> list[Path]:
    """Return the files of a folder, of the one its variable names, or of a usual one."""
    if folder is None:
        folder = weights(peer, f"KEYBOUND_{peer.upper()}", usual, *files)
    paths = [folder / file for file in files]
    for path in paths:
        if not path.is_file():
            raise ModelError(f"{peer}: weights absent", hint=f"there is no {path}")
    return paths


def tag(version: str, files: Sequence[Path]) -> str:
    """Name a version and its weights, so that rows of other weights are not taken for these."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return f"{version} {digest.hexdigest()[:12] if files else 'random weights'}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep a peer's prints and warnings of old ways to itself."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def same_chance() -> Iterator[None]:
    """Draw random weights alike on every run, and leave torch's chance as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def array(tensor: Any) -> npt.NDArray[np.float32]:
    """Return a tensor of one clip or one message as a row."""
    row: npt.NDArray[np.float32] = tensor.numpy().reshape(-1)
    return row
