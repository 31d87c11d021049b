"""What unmarked speech holds by chance is measured, and extends to other lengths."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from keybound.benchmark.measure import calibration, false_alarms
from keybound.benchmark.measure.methods import keybound
from keybound.benchmark.measure.plan import Plan
from keybound.benchmark.measure.run import collect
from keybound.errors import ModelError
from keybound.model.detection import SHORT_S
from keybound.model.networks import CAUTIOUS, CAUTIOUS_EXCESS, SHIPPED, read_card
from keybound.model.tail import fit, fit_excess

DATA = Path(__file__).parents[2] / "data"


def test_the_card_gets_what_was_measured(tmp_path: Path) -> None:
    for name in ("card.json", "embedder.onnx", "detector.onnx"):
        shutil.copy(SHIPPED / name, tmp_path)
    facts = json.loads((tmp_path / "card.json").read_text())
    facts.pop("evidence", None)
    facts["thresholds"].pop("excess")
    (tmp_path / "card.json").write_text(json.dumps(facts))
    assert read_card(tmp_path).tail == CAUTIOUS
    assert read_card(tmp_path).excess == CAUTIOUS_EXCESS
    fitted = calibration.calibrate_evidence(tmp_path, [DATA], attacks=("clean", "noise-10"))
    assert read_card(tmp_path).tail == fitted
    negatives = [false_alarms.measure(tmp_path, DATA, name) for name in ("clean", "noise-10")]
    clean, noisy = negatives
    assert noisy.seconds == pytest.approx(false_alarms.DRAWS * clean.seconds)  # by chance
    assert clean.seconds > 5
    plan = Plan(partial(keybound, tmp_path), (DATA,), ("false-alarms",), ("clean",), files_s=(1, 5))
    (row,) = collect(plan, workers=1)
    assert (row["alarms"], row["files"][1]) == ([0, 0], 1)
    assert (
        clean.seconds <= row["files"][0] < clean.seconds + SHORT_S
    )  # the rest fills no file there
    assert false_alarms.table([row]).splitlines()[1].split() == ["clean", "5", "s", "0", "of", "1"]
    assert fit(negatives) == fitted
    assert read_card(tmp_path).excess == fit_excess(negatives)
    (row,) = collect(replace(plan, stereo=True, files_s=(3,)), workers=1)
    assert (row["files"], row["alarms"], row["alone"]) == ([2], [0], [[0, 0, 0]])


def test_two_channels_are_counted_with_each_view_alone() -> None:
    plan = Plan(keybound, (DATA,), ("false-alarms",), ("gain",), files_s=(2.0,), stereo=True)
    (row,) = collect(plan, workers=1)
    (files,), (alone,) = row["files"], row["alone"]
    assert files >= 3
    assert row["alarms"] == [0]
    assert alone == [0, 0, 0]  # the mix and both channels
    assert false_alarms.table([row]).endswith(f"0 of {files}  mix and channels alone [0, 0, 0]")


def test_the_shipped_card_was_calibrated() -> None:
    shipped = read_card(SHIPPED).tail
    assert shipped != CAUTIOUS
    assert 0 < shipped.threshold(1) < shipped.threshold(10_800) < 5


@pytest.mark.parametrize("excess", [-0.1, float("nan"), "much"])
def test_an_excess_that_is_none_is_refused(tmp_path: Path, excess: object) -> None:
    facts = json.loads((SHIPPED / "card.json").read_text())
    facts["thresholds"]["excess"] = excess
    (tmp_path / "card.json").write_text(json.dumps(facts))
    with pytest.raises(ModelError, match="is not a model card"):
        read_card(tmp_path)
