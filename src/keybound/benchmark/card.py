"""Complete the card of exported networks: thresholds and figures from a validation folder.

Thresholds hold presence to one false alarm in a hundred clips of a second: `clean` over clean
unmarked speech (the paper's), `pooled` over clean and attacked unmarked speech together.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keybound.attacks.neural import lyra_folder
from keybound.benchmark.measure import PAPER, Clip, quality, read_clips, robustness, summary
from keybound.errors import AttackError
from keybound.watermark import Watermarker

EXTRA = ("lyra-9.2", "lyra-3.2", "opus-16", "mel")
FALSE_ALARMS = 0.01


def calibrate(
    folder: Path, validation: Path, *, progress: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Measure the networks in a folder and write thresholds and figures into its card."""
    clips = read_clips(validation, 1.0, every=True)
    marker = Watermarker(folder)
    rows = robustness(marker, clips, attacks_here(), progress=progress)
    card = json.loads((folder / "card.json").read_text())
    clean = [r["unmarked"] for r in rows if r["attack"] == "clean"]
    pooled = threshold([r["unmarked"] for r in rows])
    card["thresholds"] = {"pooled": pooled, "clean": threshold(clean)}
    card["validation"] = {
        "clips": len(clips),
        "seconds_each": 1.0,
        "quality": rounded(quality(marker, clips)),
        "robustness": {k: rounded(v) for k, v in summary(rows, pooled).items()},
    }
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    return dict(card["validation"])


def attacks_here(extra: Sequence[str] = EXTRA) -> list[str]:
    """List the attacks of the paper and some more, without those whose weights are absent."""
    names = [*PAPER, *extra]
    try:
        lyra_folder()
    except AttackError:
        names = [name for name in names if not name.startswith("lyra")]
    return names


def threshold(scores: Sequence[float]) -> float:
    """Give the lowest threshold that at most one unmarked score in a hundred reaches."""
    ordered = np.sort(scores)[::-1]
    allowed = int(FALSE_ALARMS * len(ordered))
    return float(np.nextafter(ordered[allowed], 2.0))


def rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in figures.items()}


__all__ = ["Clip", "attacks_here", "calibrate", "threshold"]
