"""Removal: the pairs that removers learn from, and the rows of what they leave."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from keybound.attacks import removers
from keybound.audio.folders import read_clips
from keybound.benchmark.measure import removal
from keybound.benchmark.measure.methods import keybound
from keybound.benchmark.measure.plan import Plan
from keybound.benchmark.measure.run import collect

ROOT = Path(__file__).parents[3]
DATA, DEMO = ROOT / "tests" / "data", ROOT / "src" / "keybound" / "demo"


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", removers.KINDS)
def test_rows_tell_what_a_remover_leaves(name, tmp_path, monkeypatch):
    for constant, value in {"CHANNELS": 4, "WIDTH": 32, "DILATIONS": (1, 2)}.items():
        monkeypatch.setattr(removers, constant, value)
    path = removers.save(removers.build(name), tmp_path)
    rows = list(collect(Plan(keybound, (DATA,), ("remover",), removers=(path,)), workers=1))
    assert json.loads(json.dumps(rows)) == rows
    assert [row["clip"] for row in rows] == [0, 1]
    for row in rows:
        assert (row["suite"], row["network"], row["budget"]) == ("remover", name, 0)
        assert 0 <= row["marked"] <= 1
        assert 0 <= row["errors"] <= row["bits"] == 16
        assert row["snr_db"] > 0
        assert row["pesq"] > 1
        assert row["stoi"] > 0.5


def test_pairs_are_marked_by_the_public_embedder(tmp_path):
    path = tmp_path / "pairs.safetensors"
    assert removal.save_pairs(keybound(), DEMO, path) == pytest.approx(4 / 60)
    pairs = load_file(path)
    assert pairs["clean"].shape == pairs["marked"].shape == (1, 64000)
    assert pairs["clean"].dtype == pairs["marked"].dtype == np.int16
    (host,) = read_clips(DEMO, 4.0, 16000)
    assert np.array_equal(pairs["clean"][0], np.rint(host * 32768).astype(np.int16))
    added = pairs["marked"].astype(float) - pairs["clean"]
    assert 0 < np.square(added).sum() < 0.2 * np.square(pairs["clean"].astype(float)).sum()
