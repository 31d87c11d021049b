"""Combined copies and gradient steps: exact where they can be reasoned about, whole on the mark."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from keybound.audio.folders import read_clips
from keybound.benchmark.measure import adversaries
from keybound.benchmark.measure.adversaries import combined, stepped
from keybound.benchmark.measure.methods import Method, Reading, keybound
from keybound.benchmark.measure.plan import Case, Plan
from keybound.errors import KeyBoundError
from keybound.model.networks import SHIPPED
from keybound.training.export import read_detector

DATA = Path(__file__).parents[2] / "data"
BITS, SIZE = 16, 16000
PATTERNS = np.linalg.qr(np.random.default_rng(7).standard_normal((SIZE, BITS)))[0].T  # orthonormal


def spelled(code: int) -> np.ndarray:
    return np.array([1.0 if code >> (BITS - 1 - i) & 1 else -1.0 for i in range(BITS)])


def mask_of(key) -> int:
    return 0 if key is None else int.from_bytes(key.derive("test/mask", 2))


def linear() -> Method:
    """Make a mark whose logits are the weighted sum of the codes that were mixed."""

    def embed(clip, secret):
        return (clip + spelled(secret.payload ^ mask_of(secret.key)) @ PATTERNS).astype(np.float32)

    def read(clip):
        logits = PATTERNS @ clip
        return Reading(float(np.abs(logits).mean()), logits)

    def decode(reading, key):
        return int("".join("1" if v > 0 else "0" for v in reading.logits), 2) ^ mask_of(key)

    return Method("linear", 16000, BITS, 2, 1.0, True, 0.5, embed, read, decode, "1")


def case_of(method: Method, **plan: object) -> Case:
    silent = [np.zeros(SIZE, np.float32)] * 2
    return Case(Plan(lambda: method, (DATA,), (), **plan), method, silent, 1.0)


@pytest.mark.parametrize("copies", [2, 3, 8])
def test_combined_copies_are_read_as_their_codes_add_up(copies):
    case = case_of(linear())
    rows = {k: combined(case, {"attack": k, "copies": copies}) for k in adversaries.COMBINATIONS}
    for row in rows.values():
        assert sum(row["weights"]) == pytest.approx(1)
        assert len(row["errors"]) == copies
        assert row["parties"] == 200
        assert "holds" not in row  # no seal in this mark
    assert rows["mean"]["weights"] == [1 / copies] * copies
    assert rows["nearest"]["target_errors"] <= rows["drawn"]["target_errors"]
    if copies == 8:  # so many codes span what one of two hundred has, but for a few bits
        assert rows["nearest"]["target_errors"] <= case.method.rho
        assert rows["nearest"]["accepted"] >= 1
    if copies == 3:  # the majority is nearer to each of them than chance
        assert max(rows["mean"]["errors"]) < 8


def test_gradients_need_the_detector():
    with pytest.raises(KeyBoundError, match="in torch"):
        stepped(case_of(linear()), {"attack": "remove", "budget": 30})


@pytest.mark.usefixtures("one_thread")
def test_the_mark_gives_way_to_gradients_and_its_seal_does_not():
    method = keybound()
    hosts = read_clips(DATA, 3.0, method.rate)
    plan = Plan(keybound, (DATA,), (), detector=partial(read_detector, SHIPPED))
    case = Case(plan, method, hosts, 3.0)
    created = stepped(case, {"attack": "create", "budget": 20})
    assert created["snr_db"] > 19.9
    assert created["forged_errors"] <= method.rho
    assert created["presence"] > 0.3 > method.read(case.host).presence
    assert created["forged_holds"] is False
    removed = stepped(case, {"attack": "remove", "budget": 40})
    assert removed["holds"] is True
    assert removed["presence"] < 0.9 < method.read(case.marked).presence
    assert removed["usual"][0] == pytest.approx(method.read(case.host).presence)
    assert len(created["usual"]) == 2
    assert min(created["usual"]) > 0.5
    mixed = combined(case, {"attack": "mean", "copies": 2})
    assert len(mixed["holds"]) == 2
    assert mixed["target_holds"] is False
