"""What unmarked speech holds by chance is measured, and extends to other lengths."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keybound.benchmark.measure import calibration, lengths, tail
from keybound.benchmark.measure.methods import keybound
from keybound.benchmark.measure.plan import Plan
from keybound.benchmark.measure.run import collect
from keybound.errors import ModelError
from keybound.model.detection import stretches
from keybound.model.networks import CAUTIOUS, CAUTIOUS_EXCESS, SHIPPED, read_card
from keybound.watermark.watermarker import Watermarker

DATA = Path(__file__).parents[2] / "data"


@given(st.lists(st.integers(0, 8), min_size=1, max_size=200))
def test_the_highest_peak_is_what_the_strongest_stretch_holds(eighths: list[int]) -> None:
    chance = np.array(eighths, np.float32) / 8
    most, _ = stretches(chance, 0.02, 1e9)
    assert tail.peaks(chance, 0.02).max(initial=0) == pytest.approx(most)


def test_the_fit_finds_an_exponential_tail_and_the_worst_attack() -> None:
    rng = np.random.default_rng(0)
    negatives = [
        tail.Negative("clean", (0.01,) * 9, 1000.0),
        tail.Negative("mild", tuple(rng.exponential(0.05, 500)), 1000.0),
        tail.Negative("harsh", tuple(rng.exponential(0.1, 400)), 1000.0),
    ]
    fitted = tail.fit(negatives)
    assert 0.1 <= fitted.scale_s <= 0.16  # 0.1, and caution
    beyond = np.mean(
        [rng.exponential(0.1, rng.poisson(400)).max() > fitted.threshold(1000) for _ in range(3000)]
    )
    assert beyond <= 0.01


def test_the_excess_holds_several_views_to_the_rate_of_one() -> None:
    rng = np.random.default_rng(0)
    mild, harsh = rng.exponential(0.03, 1000), rng.exponential(0.12, 1000)
    negatives = [
        tail.Negative("mild", (), 1000.0, tuple(mild)),
        tail.Negative("harsh", (), 1000.0, tuple(harsh)),
    ]
    excess = tail.fit_excess(negatives)
    assert 0.12 <= excess <= 0.2  # and caution
    views = rng.exponential(0.12, (100_000, 3))
    threshold = np.quantile(views, 0.98)
    assert np.mean(views.max(axis=1) >= threshold + excess * np.log(3)) <= 0.02
    assert tail.fit_excess([tail.Negative("clean", (), 9.0, (0.1,) * 9)]) == tail.LEAST_EXCESS


def test_the_fit_of_hardly_anything_is_still_one() -> None:
    assert tail.fit([tail.Negative("clean", (), 60.0)]).threshold(3600) > 0.2
    one = tail.fit([tail.Negative("clean", (0.04,), 60.0)])
    assert one.threshold(3600) > one.threshold(60) > 0.04


def test_the_card_gets_what_was_measured(tmp_path: Path) -> None:
    for name in ("card.json", "embedder.onnx", "detector.onnx"):
        shutil.copy(SHIPPED / name, tmp_path)
    facts = json.loads((tmp_path / "card.json").read_text())
    facts.pop("evidence", None)
    facts["thresholds"].pop("excess")
    (tmp_path / "card.json").write_text(json.dumps(facts))
    assert read_card(tmp_path).tail == CAUTIOUS
    assert read_card(tmp_path).excess == CAUTIOUS_EXCESS
    fitted = calibration.calibrate_evidence(tmp_path, DATA, attacks=("clean", "noise-10"))
    assert read_card(tmp_path).tail == fitted
    negatives = tail.measure(Watermarker(tmp_path), DATA, ("clean", "noise-10"))
    (clean, noisy, *_) = negatives
    assert clean.seconds == noisy.seconds > 5
    plan = Plan(partial(keybound, tmp_path), (DATA,), ("false-alarms",), ("clean",), files_s=(1, 5))
    (row,) = collect(plan, workers=1)
    assert (row["alarms"], row["files"]) == ([0, 0], [int(clean.seconds / tail.DRAWS), 1])
    assert tail.table([row]).splitlines()[1].split() == ["clean", "5", "s", "0", "of", "1"]
    assert tail.fit(negatives) == fitted
    assert read_card(tmp_path).excess == tail.fit_excess(negatives)
    (row,) = collect(replace(plan, stereo=True, files_s=(3,)), workers=1)
    assert (row["files"], row["alarms"], row["alone"]) == ([2], [0], [[0, 0, 0]])


def test_two_channels_are_counted_with_each_view_alone() -> None:
    plan = Plan(keybound, (DATA,), ("false-alarms",), ("gain",), files_s=(2.0,), stereo=True)
    (row,) = collect(plan, workers=1)
    (files,), (alone,) = row["files"], row["alone"]
    assert files >= 3
    assert row["alarms"] == [0]
    assert alone == [0, 0, 0]  # the mix and both channels
    assert tail.table([row]).endswith(f"0 of {files}  mix and channels alone [0, 0, 0]")


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


def test_pieces_of_a_speaker_get_longer_and_better(tmp_path: Path) -> None:
    for number, path in enumerate(sorted(DATA.glob("*.flac"))):
        shutil.copy(path, tmp_path / f"00{number}-7-1-000{number}.flac")
    plan = Plan(keybound, (tmp_path,), ("length",), ("clean",), {1.0: 3, 5.0: 3})
    rows = list(collect(plan, workers=1))
    _, _, short, long = (line.split(" | ") for line in lengths.table(rows).splitlines())
    assert (short[1], short[4], long[1], long[4]) == ("1", "3 |", "5", "1 |")
    assert float(short[2]) > 0.9
    assert float(long[2]) == float(long[3]) == 1
