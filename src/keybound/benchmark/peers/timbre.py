"""Timbre watermarking (GPL-3): 22.05 kHz, 10 bits, from a checkout that the user has.

`git clone https://github.com/TimbreWatermarking/TimbreWatermarking`, and set `KEYBOUND_TIMBRE` to
its folder `watermarking_model`; its weights lie in `results/ckpt/pth` there. It is imported from
where it is and never copied. Of what it imports only torch, scipy, julius and yaml are needed: the
vocoder, the distortions and the mel spectrogram serve its training.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keybound.attacks.packages import weights
from keybound.benchmark.measure.methods import Reading
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.peers import stand_ins
from keybound.benchmark.peers.peer import Functions, Peer, array
from keybound.crypto.codes import to_bits
from keybound.errors import ModelError

RATE, BITS = 22050, 10
MODULES = "model/conv2_mel_modules.py"
OWN_NAMES = ("model", "distortions")  # of the checkout: too common to stay imported


def load(files: Sequence[Path]) -> Functions:
    """Return Timbre's functions: presence is the mean size of its outputs, each counted up to 1.

    They are trained to be 1 or -1, and a decoder is all there is. The paper's score for it is
    derived from decoding too, but with the payload known: its DA is the share of clips whose ten
    bits are all right, which is `errors == 0` in our rows.
    """
    import torch

    encoder, decoder = _networks(files[0].parents[3] if files else checkout())
    for file in files:
        stored = torch.load(file, map_location="cpu", weights_only=True)
        encoder.load_state_dict(stored["encoder"])
        decoder.load_state_dict(stored["decoder"], strict=False)  # its vocoder is not built

    def embed(clip: Clip, secret: Secret) -> Clip:
        message = torch.from_numpy(to_bits(secret.payload, BITS).astype(np.float32)) * 2 - 1
        with torch.inference_mode():
            host = torch.from_numpy(clip)[None, None]
            marked = array(encoder.test_forward(host, message[None, None])[0])
        return np.concatenate([marked, clip[len(marked) :]])  # its frames may end before the clip

    def read(clip: Clip) -> Reading:
        with torch.inference_mode():
            logits = array(decoder.test_forward(torch.from_numpy(clip)[None, None]))
        return Reading(float(np.minimum(np.abs(logits), 1).mean()), logits)

    return embed, read


def checkout() -> Path:
    """Return the folder that `KEYBOUND_TIMBRE` names."""
    if "KEYBOUND_TIMBRE" not in os.environ:
        raise ModelError("timbre: no checkout", hint="set KEYBOUND_TIMBRE to watermarking_model")
    return weights("timbre", "KEYBOUND_TIMBRE", [], MODULES)


def find(folder: Path | None, trained: bool) -> list[Path]:
    """Return the newest of the weights in a checkout, as its scripts do; random: none."""
    stored = (folder or checkout()) / "results" / "ckpt" / "pth"
    if not trained:
        return []
    newest = sorted(stored.glob("*.pth.tar"), key=lambda path: path.stat().st_mtime)[-1:]
    if not newest:
        raise ModelError("timbre: weights absent", hint=f"put them in {stored}")
    return newest


def _networks(folder: Path) -> tuple[Any, Any]:
    """Build encoder and decoder from the checkout's settings."""
    import yaml

    process, model, train = (
        yaml.safe_load((folder / "config" / f"{name}.yaml").read_text())
        for name in ("process", "model", "train")
    )
    if (train["watermark"]["length"], process["audio"]["sample_rate"]) != (BITS, RATE):
        raise ModelError(f"{folder} is not set to {BITS} bits at {RATE} Hz")
    absent = stand_ins.unused(
        "torchaudio", "kornia", "hifigan", audiomentations="Compose Mp3Compression"
    )
    with stand_ins.standing_in(stand_ins.librosa() | absent, path=folder, forget=OWN_NAMES):
        modules: Any = importlib.import_module("model.conv2_mel_modules")
    modules.get_vocoder = lambda device: None  # noqa: ARG005
    sizes = (BITS, process["audio"]["win_len"], model["dim"]["embedding"])
    encoder, decoder = (
        kind(process, model, *sizes).eval() for kind in (modules.Encoder, modules.Decoder)
    )
    return encoder, decoder


PEER = Peer("timbre", RATE, BITS, load, ("torch", "yaml", "julius"), find=find)
