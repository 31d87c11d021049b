"""Measures of audio. Each takes plain arrays and returns a plain number.

A measure that cannot score a clip returns None, so that means can leave it out and count it. The
packages that some need are those of the extra `bench`, imported when they are asked for.
"""

import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.audio import recordings

Clip = npt.NDArray[np.float32]
PESQ_RATE = 16000
ZIMTOHRLI_RATE, ZIMTOHRLI_DBFS = 48000, -25.0


def snr_db(host: Clip, marked: Clip) -> float | None:
    """Return the ratio of the host to what was added to it."""
    if not np.any(host) or np.array_equal(host, marked):
        return None
    x, y = host.astype(np.float64), marked.astype(np.float64)
    return float(10 * np.log10(np.sum(x**2) / np.sum((y - x) ** 2)))


def si_snr_db(host: Clip, heard: Clip) -> float | None:
    """Return the scale-invariant ratio of what is left of the host to the rest."""
    x, y = host.astype(np.float64), heard.astype(np.float64)
    x, y = x - x.mean(), y - y.mean()
    if not x.any() or not y.any():
        return None
    kept = x * (x @ y) / (x @ x)
    rest = np.sum((y - kept) ** 2)
    return float(10 * np.log10(np.sum(kept**2) / rest)) if rest > 0 else None


def aligned(host: Clip, heard: Clip, most: int = 800) -> tuple[Clip, int]:
    """Shift by the integer lag, up to `most` samples, at which both agree best."""
    import scipy.signal

    both = scipy.signal.correlate(heard, host, mode="full", method="fft")
    lags = scipy.signal.correlation_lags(len(heard), len(host))
    near = np.abs(lags) <= most
    lag = int(lags[near][np.argmax(np.abs(both[near]))])
    moved = np.roll(heard, -lag)
    if lag > 0:
        moved[-lag:] = 0
    elif lag < 0:
        moved[:-lag] = 0
    return moved, lag


def pesq(host: Clip, heard: Clip, rate: int) -> float | None:
    """Return wideband PESQ."""
    import pesq as package

    if not host.any() or not heard.any():
        return None
    pair = [recordings.resample(v, rate, PESQ_RATE).astype(np.float32) for v in (host, heard)]
    try:
        return float(package.pesq(PESQ_RATE, *pair, "wb"))
    except package.PesqError:  # no utterance found: a clip of pauses
        return None


def stoi(host: Clip, heard: Clip, rate: int) -> float | None:
    """Return short-time intelligibility."""
    import pystoi

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of what the return value says too
        value = float(pystoi.stoi(host, heard, rate))
    return value if value > 1e-4 else None  # 1e-5 is how pystoi says that it cannot


def visqol(host: Clip, heard: Clip, rate: int) -> float | None:
    """Return ViSQOL in speech mode with its lattice, under which a perfect second has 4.48."""
    pair = [recordings.resample(v, rate, 16000).astype(np.float64) for v in (host, heard)]
    if not np.any(pair[0]) or not np.any(pair[1]):
        return None
    return float(_visqol_judge().measure_from_arrays(*pair, 16000).moslqo)


@cache
def _visqol_judge() -> Any:
    from visqol import VisqolApi

    judge = VisqolApi()
    judge.create(mode="speech")
    return judge


def zimtohrli(host: Clip, heard: Clip, rate: int) -> float | None:
    """Return Zimtohrli as MOS, 5 for the same sound; at 48 kHz, both levelled to -25 dBFS."""
    import zimtohrli as package

    if not host.any() or not heard.any():
        return None
    pair = [recordings.resample(v, rate, ZIMTOHRLI_RATE) for v in (host, heard)]
    level = 10 ** (ZIMTOHRLI_DBFS / 20)
    pair = [(v * level / np.sqrt(np.mean(np.square(v)))).astype(np.float32) for v in pair]
    return float(package.mos_from_signals(*pair))


def scores(host: Clip, heard: Clip, rate: int) -> dict[str, float | None]:
    """Return each of the four measures above, by its name, whose package is installed."""
    meters = {"pesq": pesq, "pystoi": stoi, "visqol": visqol, "zimtohrli": zimtohrli}
    found = (meter for package, meter in meters.items() if find_spec(package))
    return {meter.__name__: meter(host, heard, rate) for meter in found}


def dnsmos(heard: Clip, rate: int) -> float:
    """Return DNSMOS's overall opinion of speech without a reference, repeated to its 9 seconds."""
    sound = recordings.resample(heard, rate, 16000).astype(np.float32)
    sound = np.resize(sound, 144160)[None]
    _, _, overall = _dnsmos_session().run(None, {"input_1": sound})[0][0]
    return float(np.polyval([-0.06766283, 1.11546468, 0.04602535], overall))


@cache
def _dnsmos_session() -> Any:
    import onnxruntime
    import speechmos

    weights = Path(speechmos.__path__[0]) / "dnsmos_models" / "sig_bak_ovr.onnx"
    return onnxruntime.InferenceSession(weights, providers=["CPUExecutionProvider"])
