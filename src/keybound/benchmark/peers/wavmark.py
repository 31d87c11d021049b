"""WavMark 0.0.3 (MIT): 16 kHz, in windows of a second 16 bits of a fixed pattern and 16 of payload.

`pip install --no-deps wavmark`, with `tqdm`. It marks pieces of 1.1 s, so a clip must have one.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keybound.benchmark.measure.methods import Reading
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.peers import stand_ins
from keybound.benchmark.peers.peer import Functions, Peer, quiet
from keybound.crypto.codes import to_bits

RATE, BITS = 16000, 16
MODULES = ("torch", "tqdm", "wavmark")
FILES = ("step59000_snr39.99_pesq4.35_BERP_none0.30_mean1.81_std1.81.model.pkl",)
HUB = "models--M4869--WavMark/snapshots/*"
WINDOW = 16000  # samples
STEP = 800  # samples between the places where its decoder looks
BATCH = 10


def load(files: Sequence[Path]) -> Functions:
    """Return WavMark's functions: presence is the share of its pattern in the best place of a clip.

    Its own decoder wants all of the pattern: that is its threshold, 1, and how the paper detects.
    The payload is read, as it does, from the places that show all of it; where none does, its
    logits are zero, and bit accuracy is at chance.
    """
    import torch

    unused = stand_ins.unused("resampy", huggingface_hub="hf_hub_download")
    with stand_ins.standing_in(stand_ins.librosa() | unused):
        wavmark = importlib.import_module("wavmark")
        model = wavmark.load_model(str(files[0])) if files else _random_model(wavmark)
    pattern = np.array(wavmark.wm_add_util.fix_pattern[: 32 - BITS])
    # A window is marked anew until its SNR is below 38 dB. Random weights never get there: once.
    limits = {} if files else {"min_snr": -np.inf, "max_snr": np.inf}

    def embed(clip: Clip, secret: Secret) -> Clip:
        with quiet():  # it prints which windows it leaves unmarked
            bits = to_bits(secret.payload, BITS)
            marked, _ = wavmark.encode_watermark(model, clip, bits, **limits)
        return np.asarray(marked, np.float32)

    def read(clip: Clip) -> Reading:
        places = [i * STEP for i in range((len(clip) - WINDOW) // STEP)]
        values = [np.zeros((0, 32), np.float32)]
        with torch.inference_mode():
            for i in range(0, len(places), BATCH):
                windows = np.stack([clip[p : p + WINDOW] for p in places[i : i + BATCH]])
                values.append(model.decode(torch.from_numpy(windows)).numpy())
        bits = np.concatenate(values) >= 0.5  # (places, 32)
        shown = (bits[:, : 32 - BITS] == pattern).mean(axis=1)  # (places,)
        whole = bits[shown == 1, 32 - BITS :]
        votes = whole.mean(axis=0) - 0.5 + 1e-3 if len(whole) else np.zeros(BITS)  # a draw is a one
        return Reading(float(shown.max(initial=0)), votes.astype(np.float32))

    return embed, read


def _random_model(wavmark: Any) -> Any:
    from torch.nn import init

    model = wavmark.my_model.Model(RATE, num_bit=32, n_fft=1000, hop_length=400, num_layers=8)
    for name, values in model.named_parameters():
        if "conv5" in name:  # born as zeros, with which nothing would be marked
            init.normal_(values, std=1e-3)
    return model.eval()


PEER = Peer("wavmark", RATE, BITS, load, MODULES, FILES, HUB, seconds=1.1, threshold=1.0)
