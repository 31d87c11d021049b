"""Gallery: clips to look at and to listen to, each as a spectrogram and as embedded audio."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.signal
import soundfile
from matplotlib import rc_context
from matplotlib.figure import Figure

from keybound.benchmark.report.figures import STYLE, blank

Samples = npt.NDArray[Any]
RANGE_DB = 80.0  # shown below the loudest point of the first clip
TOP_HZ = 8000
FRAME_S, OVERLAP = 0.032, 0.75


@dataclass(frozen=True)
class Exhibit:
    """One clip: its picture, and its sound as a data address."""

    name: str
    seconds: float
    figure: Figure
    sound: str


def exhibits(clips: Mapping[str, tuple[Samples, int]]) -> list[Exhibit]:
    """Make exhibits of clips; all share the scale of the first, the host by custom."""
    found: list[Exhibit] = []
    top_db: float | None = None
    for name, (samples, rate) in clips.items():
        mono = np.asarray(samples, np.float64).reshape(len(samples), -1).mean(axis=1)
        power_db = spectrogram(mono, rate)
        top_db = float(power_db.max()) if top_db is None else top_db
        seconds = len(mono) / rate
        picture = draw(power_db, seconds, rate, top_db)
        found.append(Exhibit(name, seconds, picture, sound(samples, rate)))
    return found


def spectrogram(mono: Samples, rate: int) -> Samples:
    """Return the power of a clip in dB, (bins, frames), lowest frequency first."""
    frame = min(round(FRAME_S * rate), len(mono))
    _, _, power = scipy.signal.spectrogram(
        mono, rate, nperseg=frame, noverlap=round(OVERLAP * frame), mode="psd"
    )
    decibels: Samples = 10 * np.log10(power + 1e-20)  # digital silence has no logarithm
    return decibels


def draw(power_db: Samples, seconds: float, rate: int, top_db: float) -> Figure:
    """Draw a spectrogram on a given scale."""
    with rc_context(STYLE):
        figure = blank(4.4, 2.2)
        axes = figure.subplots()
        axes.imshow(
            power_db,
            extent=(0, seconds, 0, rate / 2000),
            origin="lower",
            aspect="auto",
            cmap="magma",
            vmin=top_db - RANGE_DB,
            vmax=top_db,
        )
        axes.set(ylabel="kHz", xlabel="seconds", ylim=(0, min(TOP_HZ, rate / 2) / 1000))
    return figure


def sound(samples: Samples, rate: int) -> str:
    """Return a clip as an address that holds the whole sound: FLAC, 16 bits."""
    file = BytesIO()
    soundfile.write(file, np.asarray(samples), rate, format="FLAC", subtype="PCM_16")
    return "data:audio/flac;base64," + base64.b64encode(file.getvalue()).decode()
