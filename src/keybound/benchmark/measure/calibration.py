"""Complete the card of exported networks: thresholds and figures from a validation folder.

Thresholds are for clips of a second. `clean` holds presence to one false alarm in a hundred on
clean unmarked speech (the paper's); `attacked`, which is the one in use, to two in a hundred after
every single attack, hence to far fewer on clean speech; `excess` is how far beyond that presence
must lie to be rarer by a factor of e, for recordings that are heard in several views. `evidence`
holds recordings of any length to one in a hundred.

`keybound export` calibrates what it exports, `keybound bench calibrate` weights that exist.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keybound.attacks import available
from keybound.attacks.suites import PAPER
from keybound.benchmark.measure import tail
from keybound.benchmark.measure.methods import keybound
from keybound.benchmark.measure.metrics import threshold_at
from keybound.benchmark.measure.plan import Plan
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.measure.run import ATTACKS as ATTACKED
from keybound.benchmark.measure.run import collect
from keybound.model.detection import Tail
from keybound.watermark.watermarker import Watermarker

ATTACKS = (*PAPER, "lyra-9.2", "lyra-3.2", "opus-16", "mel")
SECONDS = 1.0  # of a clip
FALSE_ALARMS = 0.01  # on clean speech
ATTACKED_ALARMS = 0.02  # after the attack that makes the most


def calibrate(
    folder: Path,
    validation: Path,
    *,
    attacks: Sequence[str] = ATTACKS,
    progress: Callable[[int, int], None] = lambda *_: None,
    workers: int = 0,
) -> dict[str, Any]:
    """Measure the networks in a folder and write thresholds and figures into its card."""
    here = tuple(name for name in attacks if available(name) is None)
    less: Any = {"every": True, "damage": False, "opinion": False}
    plan = Plan(
        partial(keybound, folder), (validation,), (ATTACKED,), here, {SECONDS: None}, **less
    )
    rows = list(collect(plan, progress=progress, workers=workers))
    heard = [row for row in rows if row["attack"] != "quality"]
    unmarked = {name: [r["unmarked"] for r in heard if r["attack"] == name] for name in here}
    clean = unmarked["clean"]
    least = threshold_at(clean, FALSE_ALARMS)
    worst = max(least, *(threshold_at(scores, ATTACKED_ALARMS) for scores in unmarked.values()))
    card = json.loads((folder / "card.json").read_text())
    card["thresholds"] = {"attacked": worst, "clean": least}
    card["validation"] = {
        "clips": len(clean),
        "seconds_each": SECONDS,
        "quality": quality([row for row in rows if row["attack"] == "quality"]),
        "robustness": summary(heard, worst, card["rho"]),
    }
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    calibrate_evidence(folder, validation, attacks=attacks)
    return dict(card["validation"])


def calibrate_evidence(folder: Path, validation: Path, *, attacks: Sequence[str] = ATTACKS) -> Tail:
    """Measure how much evidence unmarked speech holds, and write that into the card of a folder.

    How fast high presence gets rarer is measured on the same speech.
    """
    negatives = tail.measure(Watermarker(folder), validation, attacks)
    fitted = tail.fit(negatives)
    card = json.loads((folder / "card.json").read_text())
    card["evidence"] = dataclasses.asdict(fitted)
    card["thresholds"]["excess"] = tail.fit_excess(negatives)
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    return fitted


def summary(rows: Iterable[Row], threshold: float, rho: int) -> dict[str, dict[str, float]]:
    """Return DA, FPR, BA and V_A of each attack at a presence threshold."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row["attack"], []).append(row)

    def share(values: Iterable[float]) -> float:
        return round(float(np.mean(list(values))), 4)

    return {
        name: {
            "da": share(r["marked"] >= threshold for r in part),
            "fpr": share(r["unmarked"] >= threshold for r in part),
            "ba": share(1 - r["errors"] / r["bits"] for r in part),
            "va": share(r["marked"] >= threshold and r["errors"] <= rho for r in part),
        }
        for name, part in kinds.items()
    }


def quality(rows: Sequence[Row]) -> dict[str, float]:
    """Return mean and worst of each measure, and how many clips it could not score."""
    figures: dict[str, float] = {}
    for name in ("pesq", "stoi", "visqol", "zimtohrli", "snr_db"):
        scores = [row[name] for row in rows if row.get(name) is not None]
        if scores:
            figures[name] = round(float(np.mean(scores)), 4)
            figures[f"{name}_worst"] = round(min(scores), 4)
            figures[f"{name}_unscored"] = len(rows) - len(scores)
    return figures
