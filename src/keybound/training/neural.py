"""Neural codecs inside the training loop, differentiable, behind one interface: audio to audio.

Lyra v2 is read from a folder that holds its `.tflite` files and their torch reading; EnCodec
comes from its own package where that and its weights are installed.
"""

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keybound.errors import RecipeError
from keybound.training.spectra import HOP

LYRA_BITS = {"lyra-3.2": 64, "lyra-6": 120, "lyra-9.2": 184}


class Lyra(nn.Module):
    """Lyra v2 at one bitrate: (clips, samples) to (clips, samples)."""

    def __init__(self, codec: nn.Module, bits: int) -> None:
        super().__init__()
        self.codec, self.bits = codec, bits

    def forward(self, y: Tensor) -> Tensor:
        spare = -y.shape[-1] % HOP
        out: Tensor = self.codec(F.pad(y, (0, spare)), self.bits)
        return out[:, : y.shape[-1]]


def load_lyra(folder: Path, device: torch.device) -> dict[str, nn.Module]:
    """Load Lyra's three bitrates from a folder with `lyra_torch.py` and the weights beside it."""
    source = folder / "lyra_torch.py"
    spec = importlib.util.spec_from_file_location("lyra_torch", source)
    if not source.exists() or spec is None or spec.loader is None:
        raise RecipeError(f"no lyra_torch.py in {folder}", hint="name the folder of Lyra's weights")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # that reading leaves its files to the end
        codec = module.LyraV2(str(folder)).to(device).eval().requires_grad_(False)
    return {name: Lyra(codec, bits) for name, bits in LYRA_BITS.items()}


class EnCodec(nn.Module):
    """EnCodec 24 kHz with a straight-through quantiser, resampled from and to 16 kHz."""

    def __init__(self, codec: Any, kbps: float) -> None:
        super().__init__()
        self.codec, self.kbps = codec, kbps

    def forward(self, y: Tensor) -> Tensor:
        wide = resample(y, 3, 2)[:, None]
        latent = self.codec.encoder(wide)
        with torch.no_grad():
            codes = self.codec.quantizer.encode(latent, self.codec.frame_rate, self.kbps)
            found = self.codec.quantizer.decode(codes)
        out = self.codec.decoder(latent + (found - latent).detach())
        return resample(out[:, 0, : wide.shape[-1]], 2, 3)[:, : y.shape[-1]]


def load_encodec(device: torch.device) -> dict[str, nn.Module]:
    """Load EnCodec at 3, 6 and 12 kbps if its package and weights are installed, else nothing."""
    weights = Path(torch.hub.get_dir()) / "checkpoints" / "encodec_24khz-d7cc33bc.th"
    if not weights.is_file():  # the package would fetch them from the network unasked
        return {}
    try:
        from encodec import EncodecModel  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return {}
    codec = EncodecModel.encodec_model_24khz(pretrained=True).to(device).requires_grad_(False)
    codec.eval()
    codec.encoder.train()  # they do the same, but cuDNN's LSTM has a backward pass only so
    codec.decoder.train()
    return {f"encodec-{kbps}": EnCodec(codec, kbps) for kbps in (3, 6, 12)}


def resample(y: Tensor, up: int, down: int) -> Tensor:
    """Change the rate by up/down in the Fourier domain: (clips, samples)."""
    length = y.shape[-1] * up // down
    Y = torch.fft.rfft(y)
    bins = length // 2 + 1
    Y = F.pad(Y, (0, max(0, bins - Y.shape[-1])))[:, :bins]
    return torch.fft.irfft(Y, n=length) * (up / down)


Codecs = dict[str, Callable[[Tensor], Tensor]]
