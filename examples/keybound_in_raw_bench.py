"""Run KeyBound inside RAW-Bench: python examples/keybound_in_raw_bench.py eval.yaml

RAW-Bench (PyPI `raw-bench` 0.1.0) has a solver for each watermark. The one of AudioSeal asks for a
watermark to add and for logits to read, which KeyBound can give: only these two are replaced here,
so that data, attacks and scores are its own. The file is the configuration of its `scripts/eval.py`
with `model_type: keybound` and `sample_rate: 16000`; `checkpoint` is a folder of weights, or null
for those of the package. Its bits are KeyBound's payload under a key that is made here.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf
from raw_bench.solver.audioseal import SolverAudioSeal

import keybound


class Generator(torch.nn.Module):
    """What RAW-Bench asks for a watermark, by KeyBound."""

    def __init__(self, marker: keybound.Watermarker, key: keybound.Key) -> None:
        super().__init__()
        self.marker, self.key = marker, key

    def get_watermark(
        self, y: torch.Tensor, *, message: torch.Tensor, sample_rate: int
    ) -> torch.Tensor:
        """Return what is to be added to hosts (batch, 1, samples) for bits (batch, bits)."""
        marked = [
            self.marker.embed(
                host.cpu().numpy(), sample_rate, key=self.key, payload=to_payload(bits), check=False
            )
            for host, bits in zip(y[:, 0], message, strict=True)
        ]
        return torch.from_numpy(np.stack(marked))[:, None].to(y) - y


class SolverKeyBound(SolverAudioSeal):
    """RAW-Bench's evaluation with KeyBound in the place of AudioSeal."""

    def build_model(self) -> None:
        """Make the networks and a key."""
        self.marker = keybound.Watermarker(self.config.checkpoint)
        self.key = keybound.Key.generate()
        self.nbits = self.marker.card.bits
        self.model = torch.nn.ModuleDict({"generator": Generator(self.marker, self.key)})

    def load_models(self, checkpoint: object) -> None:
        """Load nothing: the networks come with their weights."""

    def detect_watermark(self, x: torch.Tensor) -> torch.Tensor:
        """Return for clips (batch, 1, samples) absence, presence and bits: (batch, 2 + bits, 1)."""
        rows = []
        for clip in x[:, 0]:
            found = self.marker.detect(clip.cpu().numpy(), self.sample_rate)
            payload = self.marker.decode(found, key=self.key)
            signs = [1.0 if payload >> i & 1 else -1.0 for i in reversed(range(self.nbits))]
            rows.append([1 - found.presence, found.presence, *signs])
        return torch.tensor(rows, device=x.device)[..., None]


def to_payload(bits: torch.Tensor) -> int:
    """Return bits, the most significant first, as a payload."""
    return int("".join(str(int(bit)) for bit in bits), 2)


def main(path: Path) -> None:
    """Evaluate as the configuration says; results go where RAW-Bench puts them."""
    solver = SolverKeyBound(OmegaConf.load(path))
    solver.eval(write_to_disk=True)
    solver.close_eval()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
