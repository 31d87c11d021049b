"""Complete the card of exported networks: thresholds and figures from a validation folder.

Thresholds are for clips of a second. `clean` holds presence to one false alarm in a hundred on
clean unmarked speech (the paper's); `attacked`, which is the one in use, to one in a hundred after
every single attack, hence to far fewer on clean speech; `excess` is how far beyond that presence
must lie to be rarer by a factor of e, for recordings that are heard in several views. `evidence`
holds recordings of any length to one in a hundred.

`keybound export` calibrates what it exports, `keybound bench calibrate` weights that exist.
"""

import dataclasses
import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from keybound.attacks import available
from keybound.attacks.suites import PAPER
from keybound.benchmark.measure import false_alarms, run
from keybound.benchmark.measure.methods import keybound
from keybound.benchmark.measure.plan import Plan
from keybound.benchmark.measure.samples import USUAL, Sample, threshold_at
from keybound.model.detection import Tail
from keybound.model.tail import fit, fit_excess

ATTACKS = (*PAPER, "lyra-9.2", "lyra-3.2", "opus-16", "mel")
OTHERS_ATTACKS = ("clean", "noise-20", "noise-10", "echo", "lyra-6")  # the worst, for long folders
SECONDS = 1.0  # of a clip
FALSE_ALARMS = 0.01  # on clean speech
ATTACKED_ALARMS = 0.01  # after the attack that makes the most


def calibrate(
    folder: Path,
    validation: Path,
    *,
    others: Sequence[Path] = (),
    attacks: Sequence[str] = ATTACKS,
    progress: Callable[[int, int], None] = lambda *_: None,
    workers: int = 0,
) -> dict[str, Any]:
    """Measure the networks in a folder and write thresholds and figures into its card."""
    here = tuple(name for name in attacks if available(name) is None)
    less: Any = {"every": True, "damage": False, "opinion": False}
    make = partial(keybound, folder)
    plan = Plan(make, (validation,), (run.ATTACKS,), here, {SECONDS: None}, **less)
    rows = Sample(list(run.collect(plan, progress=progress, workers=workers)))
    unmarked = {name: rows.where(attack=name).mean("unmarked").values for name in here}
    least = threshold_at(unmarked["clean"], FALSE_ALARMS)
    worst = max(least, *(threshold_at(scores, ATTACKED_ALARMS) for scores in unmarked.values()))
    card = json.loads((folder / "card.json").read_text())
    card["thresholds"] = {"attacked": worst, "clean": least}
    judged = dataclasses.replace(rows, cuts={USUAL: worst}, rho=card["rho"])
    card["validation"] = {
        "clips": len(unmarked["clean"]),
        "seconds_each": SECONDS,
        "quality": quality(rows.where(attack="quality")),
        "robustness": {name: robustness(judged.where(attack=name)) for name in here},
    }
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    calibrate_evidence(folder, [validation, *others], attacks=attacks, workers=workers)
    return dict(card["validation"])


def calibrate_evidence(
    folder: Path, speech: Sequence[Path], *, attacks: Sequence[str] = ATTACKS, workers: int = 1
) -> Tail:
    """Measure how much evidence unmarked speech holds, and write that into the card of a folder.

    Each folder of speech counts by itself after each attack, those behind the first, which are
    long, after one draw of the worst attacks: the worst of them sets the tail. How fast high
    presence gets rarer is measured on the same speech.
    """
    here = [name for name in attacks if available(name) is None]
    worst = [name for name in here if name in OTHERS_ATTACKS]
    first, *others = speech
    pairs = [(first, name, false_alarms.DRAWS) for name in here]
    pairs = [*((one, name, 1) for one in others for name in reversed(worst)), *pairs]
    with multiprocessing.get_context("spawn").Pool(workers or os.cpu_count()) as pool:
        negatives = pool.starmap(partial(false_alarms.measure, folder), pairs, 1)
    fitted = fit(negatives)
    card = json.loads((folder / "card.json").read_text())
    card["evidence"] = dataclasses.asdict(fitted)
    card["thresholds"]["excess"] = fit_excess(negatives)
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    return fitted


def robustness(of: Sample) -> dict[str, float]:
    """Return DA, FPR, BA and V_A after an attack."""
    rates = {"da": of.reached(), "fpr": of.reached(side="unmarked"), "va": of.verified()}
    figures = {name: rate.value for name, rate in rates.items()} | {"ba": of.accuracy().value}
    return {name: round(figures[name] or 0.0, 4) for name in ("da", "fpr", "ba", "va")}


def quality(of: Sample) -> dict[str, float]:
    """Return mean and worst of each measure, and how many clips it could not score."""
    figures: dict[str, float] = {}
    for name in ("pesq", "stoi", "visqol", "zimtohrli", "snr_db"):
        found = of.mean(name)
        if found.value is not None:
            figures[name] = round(found.value, 4)
            figures[f"{name}_worst"] = round(min(found.values), 4)
            figures[f"{name}_unscored"] = found.left_out
    return figures
