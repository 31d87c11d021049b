"""The synthetic speech of the benchmark: its sentences, and the cut of silence."""

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "synthetic.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="no scripts here")


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("synthetic", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_hundred_sentences_of_known_engines(script):
    with SCRIPT.with_suffix(".tsv").open(encoding="utf-8", newline="") as lines:
        asked = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len({line["text"] for line in asked}) == len(asked) == 100
    assert {line["engine"] for line in asked} == set(script.ENGINES)


@pytest.mark.parametrize("rate", [16000, 22050, 48000])
def test_silence_is_cut_at_the_ends_alone(script, rate):
    speech = 0.1 * np.random.default_rng(0).standard_normal(2 * rate)
    speech[rate // 2 : rate] = 0.0
    hiss = 1e-4 * np.random.default_rng(1).standard_normal(rate // 3)
    cut = script.trimmed(np.concatenate([hiss, speech, hiss]), rate)
    assert len(cut) / rate == pytest.approx(2 + 2 * script.MARGIN_S, abs=0.03)
    inside = script.trimmed(speech, rate)
    assert len(inside) / rate == pytest.approx(2, abs=0.02)
