"""The demo: one clip from key to verdict, with a table and a picture."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.signal
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from keybound import output
from keybound.attacks import attack
from keybound.audio import recordings
from keybound.crypto.keys import Key
from keybound.demo import SPEECH
from keybound.errors import AudioError
from keybound.seal.search import SealSearch
from keybound.watermark.watermarker import Watermarker

ATTACKS = ("noise-20", "noise-10", "mp3", "opus-16", "lowpass", "echo", "griffin-lim", "denoiser")
PAYLOAD = 0x5EED


def run(marker: Watermarker, folder: Path) -> None:
    """Mark the shipped clip, attack it, detect and verify it; write audio and a picture."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "--out names another folder"
        raise AudioError(f"{folder} cannot be made a folder", hint=hint) from error
    host = recordings.read(SPEECH)
    rate = host.sample_rate
    key, wrong = Key.generate(), Key.generate()
    made = marker.embed_with_position(host.samples, rate, key=key, payload=PAYLOAD)
    marked, search = made.samples, SealSearch((made.position or 0,))
    recordings.write(folder / "marked.flac", marked, host)
    table = Table("recording", "presence", "marked?", "bits right", "right key", "wrong key")
    clips = {"unmarked": host.samples[:, 0], "marked": marked[:, 0]}
    for name in ATTACKS:
        hit = attack(name)
        parameters = hit.draw(np.random.default_rng(0), None)
        clips[f"marked, {name}"] = hit.apply(marked[:, 0], rate, parameters)
    for name, samples in clips.items():
        analysis = marker.analyse(samples, rate)
        found = analysis.detection
        right, other = (
            marker.judge(analysis, key=one, payload=PAYLOAD, search=search) for one in (key, wrong)
        )
        bits = f"{right.bits - right.distance} of {right.bits}"
        answers = [right.grade, other.grade]
        marks = "yes" if found.present else "no"
        table.add_row(name, f"{found.presence:.3f}", marks, bits, *answers)
    Console(width=100).print(table)
    picture = draw(host.samples[:, 0], marked[:, 0], rate, folder / "spectrogram.png")
    print(f"wrote {folder / 'marked.flac'} and {picture}")


def draw(host: npt.NDArray[Any], marked: npt.NDArray[Any], rate: int, path: Path) -> Path:
    """Draw spectrograms of host, carrier and marked audio on one scale."""
    figure = Figure(figsize=(10, 9), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(3, 1, sharex=True, sharey=True)
    panels = {"host": host, "carrier": marked - host, "host with the carrier: marked": marked}
    top_db = None  # of the host, which comes first
    for axes, (title, samples) in zip(rows, panels.items(), strict=True):
        _, _, power = scipy.signal.spectrogram(samples, rate, nperseg=1024, noverlap=768)
        power_db = 10 * np.log10(power[::-1] + 1e-20)  # digital silence has no logarithm
        top_db = power_db.max() if top_db is None else top_db
        extent = (0, len(samples) / rate, 0, rate / 2)
        scale = {"vmin": top_db - 80, "vmax": top_db}
        image = axes.imshow(power_db, extent=extent, aspect="auto", **scale)
        axes.set(title=title, ylabel="Hz", ylim=(0, min(8000, rate / 2)))
        figure.colorbar(image, ax=axes, label="dB")
    rows[-1].set_xlabel("seconds")
    with output.writing(path, replace=True) as part:
        figure.savefig(part, dpi=100)
    return path
