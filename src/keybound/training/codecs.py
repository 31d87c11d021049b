"""Real codecs beside training: encoded on the CPU while the device goes on.

A request sends marked and unmarked clips through MP3, Opus or Vorbis and gives what the codec
changed. Training adds that change to the same clips marked anew some steps later, which is the
straight-through gradient with a slightly stale residual: nobody waits for an encoder.
"""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from threading import Thread
from typing import Any

import numpy as np
import torch
from torch import Tensor

from keybound.attacks.codecs import mp3, opus, vorbis  # these alone: others are held out
from keybound.training.spectra import RATE

KINDS: tuple[tuple[Callable[..., Any], str, float, float], ...] = (  # parameter, from, to
    (mp3, "bitrate_kbps", 20.0, 64.0),
    (opus, "bitrate_kbps", 9.0, 32.0),
    (vorbis, "quality", 0.1, 0.7),
)


def encode(samples: np.ndarray, *seeds: int) -> np.ndarray:
    """Send one clip through a codec and a strength drawn from the seeds."""
    if not np.isfinite(samples).all():  # the step is skipped, and LAME would end the process
        return np.zeros_like(samples)
    rng = np.random.default_rng(seeds)
    codec, parameter, low, high = KINDS[rng.integers(len(KINDS))]
    peak = np.float32(max(1.0, np.abs(samples).max()))  # codecs clip beyond full scale
    scaled = (samples / peak).astype(np.float32)
    coded: np.ndarray = codec(scaled, RATE, **{parameter: float(rng.uniform(low, high))})
    return coded * peak


def workers(device: torch.device) -> Executor:
    """Start those who encode: processes beside a GPU, since threads hold up who launches kernels.

    Without a GPU there is nobody to hold up.
    """
    if device.type == "cpu":
        return ThreadPoolExecutor(max_workers=2)
    count = max(2, (os.cpu_count() or 4) - 3)
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))


class Request:
    """Clips on their way through the codecs."""

    def __init__(self, pool: Executor, clips: Tensor, *seeds: int) -> None:
        self.clips = clips.detach().to("cpu", non_blocking=True)
        ready = torch.cuda.Event() if clips.is_cuda else None
        if ready is not None:
            ready.record()
        self.jobs: list[Future[np.ndarray]] = []
        self.thread = Thread(target=self.submit, args=(pool, ready, seeds))
        self.thread.start()

    def submit(self, pool: Executor, ready: Any, seeds: tuple[int, ...]) -> None:
        """Hand the clips out as soon as the device has given them."""
        if ready is not None:
            ready.synchronize()
        clips = self.clips.float().numpy()
        self.jobs = [pool.submit(encode, clip, *seeds, i) for i, clip in enumerate(clips)]

    def residual(self) -> Tensor:
        """Wait for the codecs and give what they changed, on the CPU: (clips, samples)."""
        self.thread.join()
        coded = np.stack([job.result() for job in self.jobs])
        return torch.from_numpy(coded).float() - self.clips.float()
