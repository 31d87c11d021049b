"""AudioSeal 0.1.4 (Meta, MIT): 16 kHz, 16 bits, a presence head.

`pip install --no-deps audioseal==0.1.4`, with `omegaconf` and `julius`.
"""

import importlib
import pickle
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keybound.benchmark.measure.methods import Reading
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.peers.peer import Functions, Peer, array
from keybound.crypto.codes import to_bits
from keybound.errors import ModelError

RATE, BITS = 16000, 16
MODULES = ("torch", "omegaconf", "julius", "audioseal")
FILES = ("generator_base.pth", "detector_base.pth")


def load(files: Sequence[Path]) -> Functions:
    """Return AudioSeal's functions.

    Presence is the mean over samples of its probability of a mark: the verdict of its package,
    the share of samples above one half, has too many ties for a threshold.
    """
    import torch

    builder = importlib.import_module("audioseal.builder")
    marker = builder.create_generator(_settings(builder, "WM")).eval()
    finder = builder.create_detector(_settings(builder, "Detector")).eval()
    for net, file in zip((marker, finder), files, strict=False):
        net.load_state_dict(_state(file))

    def embed(clip: Clip, secret: Secret) -> Clip:
        message = torch.from_numpy(to_bits(secret.payload, BITS).copy())[None]  # (1, bits)
        with torch.inference_mode():
            marked = marker(torch.from_numpy(clip)[None, None], sample_rate=RATE, message=message)
        return array(marked)

    def read(clip: Clip) -> Reading:
        with torch.inference_mode():
            chances, message = finder(torch.from_numpy(clip)[None, None], sample_rate=RATE)
        # (1, 2, samples), the second for a mark; (1, bits)
        return Reading(float(chances[0, 1].mean()), array(torch.logit(message, eps=1e-6)))

    return embed, read


def _settings(builder: Any, kind: str) -> Any:
    """Read the card of the package: what the networks are made of."""
    from omegaconf import OmegaConf

    known = OmegaConf.structured(getattr(builder, f"AudioSeal{kind}Config"))
    card = Path(builder.__file__).parent / "cards" / f"audioseal_{kind.lower()}_16bits.yaml"
    facts = OmegaConf.to_container(OmegaConf.load(card))
    about = ("name", "model_type", "checkpoint")
    return OmegaConf.merge(known, {k: v for k, v in facts.items() if k not in about})


def _state(path: Path) -> Any:
    """Read a checkpoint. The released ones hold OmegaConf's objects, let in here and no others."""
    import torch
    from omegaconf import DictConfig, ListConfig, base, nodes

    known: list[Any] = [v for v in vars(nodes).values() if isinstance(v, type)]
    known += [DictConfig, ListConfig, base.ContainerMetadata, base.Metadata, defaultdict]
    known += [Any, dict, list, int, float, str, bool]
    try:
        with torch.serialization.safe_globals(known):
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(f"{path} is no checkpoint of audioseal") from error
    return stored.get("model", stored)


PEER = Peer("audioseal", RATE, BITS, load, MODULES, FILES, threshold=0.5)
