"""A peer: its facts, what it needs, how it is loaded; and what its loader may use.

Peers have no key: anyone reads their payload.
"""

import contextlib
import hashlib
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.attacks.packages import CACHE, package, weights
from keybound.benchmark.measure.methods import Method, Reading, plain
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.crypto.codes import tolerance
from keybound.errors import ModelError

Functions = tuple[Callable[[Clip, Secret], Clip], Callable[[Clip], Reading]]  # embed and read


@dataclass(frozen=True)
class Peer:
    """A watermark of others; `load` takes the files of its weights, none for random ones."""

    name: str
    rate: int
    bits: int
    load: Callable[[Sequence[Path]], Functions]
    modules: Sequence[str]  # that must be installed
    files: Sequence[str] = ()  # of its weights; without any its package holds them
    hub: str = ""  # pattern of the folder where its hub keeps them
    distribution: str = ""  # what its package is called where it is installed from
    seconds: float = 1.0  # the shortest clip it can work on
    threshold: float | None = None
    find: Callable[[Path | None, bool], list[Path]] | None = None  # where its files lie otherwise
    release: Callable[[Sequence[Path]], str] | None = None  # its version, where it is no package

    def needs(self, folder: Path | None = None, *, trained: bool = True) -> list[Path]:
        """Return the files of the weights in a folder, by default `KEYBOUND_NAME` or its hub's.

        Raises an error where a package or a file is absent.
        """
        for module in self.modules:
            package({"yaml": "pyyaml"}.get(module, module), module)
        if self.find is not None:
            return self.find(folder, trained)
        if not trained and not self.files:
            raise ModelError(f"{self.name}: comes with its weights")
        if not trained or not self.files:
            return []
        if folder is None:
            usual = sorted((CACHE / "huggingface" / "hub").glob(self.hub)) if self.hub else []
            folder = weights(self.name, f"KEYBOUND_{self.name.upper()}", usual, *self.files)
        paths = [folder / file for file in self.files]
        for path in paths:
            if not path.is_file():
                raise ModelError(f"{self.name}: weights absent", hint=f"there is no {path}")
        return paths

    def make(self, folder: Path | None = None, *, trained: bool = True) -> Method:
        """Return the method with its weights, or with random ones, the same on every run."""
        import torch

        files = self.needs(folder, trained=trained)
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            embed, read = self.load(files)
        if self.release is not None:
            tag = self.release(files)
        else:
            tag = "checkout" if self.find else version(self.distribution or self.name)
        if files and self.release is None:  # rows of other weights must not be taken for these
            held = b"".join(path.read_bytes() for path in files)
            tag += f" {hashlib.sha256(held).hexdigest()[:12]}"
        elif not trained:
            tag += " random weights"
        return Method(
            name=self.name,
            rate=self.rate,
            bits=self.bits,
            rho=tolerance(self.bits),
            seconds=self.seconds,
            keyed=False,
            threshold=self.threshold,
            embed=embed,
            read=read,
            decode=plain if self.bits else lambda reading, key: 0,  # noqa: ARG005
            version=tag,
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress a peer's prints and warnings."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def array(tensor: Any) -> npt.NDArray[np.float32]:
    """Return a tensor of one clip or one message as a row."""
    row: npt.NDArray[np.float32] = tensor.numpy().reshape(-1)
    return row
