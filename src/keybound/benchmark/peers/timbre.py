"""Timbre watermarking (GPL-3): 22.05 kHz, 10 bits, from a checkout that the user has.

`git clone https://github.com/TimbreWatermarking/TimbreWatermarking`, and set `KEYBOUND_TIMBRE` to
its folder `watermarking_model`; its weights lie in `results/ckpt/pth` there. It is imported from
where it is and never copied. Of what it imports only torch, scipy, julius and yaml are needed: the
vocoder, the distortions and the mel spectrogram serve its training.
"""

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from keybound.attacks.packages import package, weights
from keybound.benchmark.measure.methods import Method, Reading
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.peers import stand_ins
from keybound.benchmark.peers.keyless import array, bits_of, keyless, quiet, same_chance, tag
from keybound.errors import ModelError

RATE, BITS = 22050, 10
MODULES = "model/conv2_mel_modules.py"
OWN_NAMES = ("model", "distortions")  # of the checkout: too common to stay imported


def make(folder: Path | None = None, *, trained: bool = True) -> Method:
    """Return Timbre: presence is the mean size of its outputs, each counted up to 1.

    They are trained to be 1 or -1, and a decoder is all there is. The paper's score for it is
    derived from decoding too, but with the payload known: its DA is the share of clips whose ten
    bits are all right, which is `errors == 0` in our rows.
    """
    import torch

    files = needs(folder, trained=trained)
    with quiet(), same_chance():
        encoder, decoder = _networks(files[0].parents[1])
    if trained:
        stored = torch.load(files[1], map_location="cpu", weights_only=True)
        encoder.load_state_dict(stored["encoder"])
        decoder.load_state_dict(stored["decoder"], strict=False)  # its vocoder is not built

    def embed(clip: Clip, secret: Secret) -> Clip:
        message = torch.from_numpy(bits_of(secret.payload, BITS)).float() * 2 - 1
        with torch.inference_mode():
            host = torch.from_numpy(clip)[None, None]
            marked = array(encoder.test_forward(host, message[None, None])[0])
        return np.concatenate([marked, clip[len(marked) :]])  # its frames may end before the clip

    def read(clip: Clip) -> Reading:
        with torch.inference_mode():
            logits = array(decoder.test_forward(torch.from_numpy(clip)[None, None]))
        return Reading(float(np.minimum(np.abs(logits), 1).mean()), logits)

    return keyless("timbre", tag("checkout", files[1:]), embed, read, rate=RATE, bits=BITS)


def needs(folder: Path | None = None, *, trained: bool = True) -> list[Path]:
    """Find the checkout, `KEYBOUND_TIMBRE`, and the newest of its weights, as its scripts do."""
    for name, module in (("torch", "torch"), ("pyyaml", "yaml"), ("julius", "julius")):
        package(name, module)
    if folder is None and "KEYBOUND_TIMBRE" not in os.environ:
        raise ModelError("timbre: no checkout", hint="set KEYBOUND_TIMBRE to watermarking_model")
    folder = folder or weights("timbre", "KEYBOUND_TIMBRE", [], MODULES)
    if not trained:
        return [folder / MODULES]
    stored = (folder / "results" / "ckpt" / "pth").glob("*.pth.tar")
    newest = sorted(stored, key=lambda path: path.stat().st_mtime)[-1:]
    if not newest:
        raise ModelError("timbre: weights absent", hint=f"put them in {folder}/results/ckpt/pth")
    return [folder / MODULES, *newest]


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
