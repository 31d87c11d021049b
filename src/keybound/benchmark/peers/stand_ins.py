"""Stand-ins for packages that peers import although marking and reading need little of them.

WavMark, SilentCipher, Perth and Timbre import librosa, torchaudio, pkg_resources and more at their
first line: for files, for training, for one resampling. Those packages bring a second torch, or
are gone (setuptools has no pkg_resources since 82). While a peer is imported a stand-in takes their
place, the same whether or not the real one is installed; afterwards everything is as before. No
code of theirs is here: each is a few lines over torch, scipy and soxr, with equal results.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from math import gcd, pi
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import scipy.signal
import soxr

Members = Mapping[str, Any]


@contextlib.contextmanager
def standing_in(
    modules: Mapping[str, Members], *, path: Path | None = None, forget: tuple[str, ...] = ()
) -> Iterator[None]:
    """Put modules of these members in the place of others for a while.

    `path` is searched first meanwhile. Packages of the names in `forget` are found afresh, and
    forgotten again: names too common to keep (`model`).
    """

    def passing(name: str) -> bool:
        return name in modules or name.partition(".")[0] in forget

    before = {name: sys.modules.pop(name) for name in list(sys.modules) if passing(name)}
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    search = [str(path)] if path else []
    sys.path[:0] = search
    try:
        yield
    finally:
        del sys.path[: len(search)]
        for name in list(sys.modules):
            if passing(name):
                del sys.modules[name]
        sys.modules.update(before)


def librosa() -> dict[str, Members]:
    """Stand in for librosa: resampling, and the corners that an STFT of its version 0.8 uses.

    The mel basis is one of zeros of the right shape: Timbre keeps one for its training.
    """

    def resample(samples: Any, *, orig_sr: int, target_sr: int, res_type: str = "soxr_hq") -> Any:
        if res_type == "polyphase":
            common = gcd(orig_sr, target_sr)
            return scipy.signal.resample_poly(samples, target_sr // common, orig_sr // common)
        return soxr.resample(samples, orig_sr, target_sr, quality="HQ")  # librosa's own default

    def pad_center(data: Any, size: int) -> Any:
        left = (size - len(data)) // 2
        return np.pad(data, (left, size - len(data) - left))

    def normalize(window: Any, norm: Any = np.inf) -> Any:
        return window if norm is None else window / np.abs(window).max()

    def mel(sr: int, n_fft: int, n_mels: int = 128, *_: Any, **__: Any) -> Any:  # noqa: ARG001
        return np.zeros((n_mels, n_fft // 2 + 1), np.float32)

    def tiny(values: Any) -> Any:
        return np.finfo(values.dtype).tiny

    return {
        "librosa": {"resample": resample},
        "librosa.util": {"pad_center": pad_center, "tiny": tiny, "normalize": normalize},
        "librosa.filters": {"mel": mel},
    }


def torchaudio() -> dict[str, Members]:
    """Stand in for torchaudio: the two transforms of Perth, with the buffers its weights have."""
    import torch

    class Spectrogram(torch.nn.Module):
        window: torch.Tensor

        def __init__(self, n_fft: int, win_length: int, hop_length: int, window_fn: Any, **_: Any):
            super().__init__()
            self.sizes = (n_fft, hop_length, win_length)
            self.register_buffer("window", window_fn(win_length))

        def forward(self, signal: torch.Tensor) -> torch.Tensor:
            return torch.stft(signal, *self.sizes, self.window, return_complex=True)

    class InverseSpectrogram(Spectrogram):
        def forward(self, spectrum: torch.Tensor) -> torch.Tensor:
            return torch.istft(spectrum, *self.sizes, self.window)

    class TimeStretch(torch.nn.Module):  # of Perth's training
        def __init__(self, n_freq: int, hop_length: int):
            super().__init__()
            phase = torch.linspace(0, pi * hop_length, n_freq)[:, None]
            self.register_buffer("phase_advance", phase)

    classes = (Spectrogram, InverseSpectrogram, TimeStretch)
    return {"torchaudio": {}, "torchaudio.transforms": {c.__name__: c for c in classes}}


def pkg_resources() -> dict[str, Members]:
    """Stand in for pkg_resources: the path of a file in a package."""

    def resource_filename(package: str, file: str) -> str:
        return str(Path(sys.modules[package].__path__[0]) / file)

    return {"pkg_resources": {"resource_filename": resource_filename}}


def unused(*names: str, **members: str) -> dict[str, Members]:
    """Stand in for packages of which nothing is called; `members` names what is imported."""
    return {name: {} for name in names} | {
        name: dict.fromkeys(listed.split()) for name, listed in members.items()
    }
