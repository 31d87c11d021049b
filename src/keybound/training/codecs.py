"""Real codecs beside training: encoded on the CPU in threads while the device goes on.

A request sends marked and unmarked clips through MP3, Opus or Vorbis and gives what the codec
changed. Training adds that change to the same clips marked anew some steps later, which is the
straight-through gradient with a slightly stale residual: nobody waits for an encoder.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from keybound.attacks import ATTACKS
from keybound.training.nets import RATE

KINDS = (  # name, strength from, to: kbps, kbps, quality
    ("mp3", 20.0, 64.0),
    ("opus", 9.0, 32.0),
    ("vorbis", 0.1, 0.7),
)


def encode(samples: np.ndarray, *seeds: int) -> np.ndarray:
    """Send one clip through a codec and a strength drawn from the seeds."""
    rng = np.random.default_rng(seeds)
    name, low, high = KINDS[rng.integers(len(KINDS))]
    attack = ATTACKS[name]
    peak = np.float32(max(1.0, np.abs(samples).max()))  # codecs clip beyond full scale
    parameters = attack.draw(rng, float(rng.uniform(low, high)))
    scaled = (samples / peak).astype(np.float32)
    return attack.apply(scaled, RATE, parameters) * peak


class Request:
    """Clips on their way through the codecs."""

    def __init__(self, pool: ThreadPoolExecutor, clips: Tensor, *seeds: int) -> None:
        self.clips = clips.detach().to("cpu", non_blocking=True)
        ready = torch.cuda.Event() if clips.is_cuda else None
        if ready is not None:
            ready.record()
        self.seeds = seeds
        self.done: Future[list[np.ndarray]] = pool.submit(self.run, pool, ready)

    def run(self, pool: ThreadPoolExecutor, ready: Any) -> list[np.ndarray]:
        if ready is not None:
            ready.synchronize()
        clips = self.clips.float().numpy()
        jobs = [pool.submit(encode, clip, *self.seeds, i) for i, clip in enumerate(clips)]
        return [job.result() for job in jobs]

    def residual(self) -> Tensor:
        """Wait for the codecs and give what they changed, on the CPU: (clips, samples)."""
        return torch.from_numpy(np.stack(self.done.result())).float() - self.clips.float()
