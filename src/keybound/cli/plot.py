"""Plot where a recording is marked: presence over time, and the spans. Knows no keys."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from keybound import output
from keybound.errors import AudioError, missing
from keybound.types import Detection

MOST_POINTS = 2000  # a curve with more looks the same, and an SVG of hours would not open
ENDINGS = (".svg", ".png", ".pdf")


def check(path: Path) -> None:
    """Raise an error where a picture cannot be written, before hours of audio are analysed."""
    if path.suffix.lower() not in ENDINGS:
        what = f"{path} does not end in the name of a picture"
        raise AudioError(what, hint=f"{', '.join(ENDINGS)} can be written")
    output.check(path, replace=True)
    if find_spec("matplotlib") is None:
        raise missing("matplotlib", "plot")


def draw(found: Detection, path: Path, title: str = "") -> None:
    """Write a picture of a detection, in the format of the file's suffix."""
    check(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    chance = found.frame_presence
    starts = np.arange(0, len(chance), -(-len(chance) // MOST_POINTS))
    sizes = np.diff(np.append(starts, len(chance)))
    means = np.add.reduceat(chance, starts) / sizes
    axes.plot((starts + sizes / 2) * found.frame_s, means, lw=0.8, color="0.25", label="presence")
    for span in found.spans:
        axes.axvspan(span.start_s, span.end_s, color="tab:green", alpha=0.3, lw=1.5)
    count = len(found.spans)
    where = f"marked in {count} span{'s' * (count != 1)}"
    said = where if found.present else "no mark found"
    axes.set(title=f"{title}: {said}" if title else said, ylim=(0, 1.02), xlabel="seconds")
    axes.set(xlim=(0, len(chance) * found.frame_s), ylabel="presence")
    with output.writing(path, replace=True) as part:
        figure.savefig(part, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
