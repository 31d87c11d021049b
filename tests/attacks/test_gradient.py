"""Gradient steps against a detector that can be reasoned about: a sum of orthonormal patterns."""

import numpy as np
import pytest

from keybound.attacks.gradient import descend

torch = pytest.importorskip("torch", reason="torch is not installed")

BITS, SIZE = 16, 16000
PATTERNS = np.linalg.qr(np.random.default_rng(7).standard_normal((SIZE, BITS)))[0].T  # orthonormal


def snr_db(start: np.ndarray, changed: np.ndarray) -> float:
    added = changed.astype(np.float64) - start
    return float(10 * np.log10(np.square(start.astype(np.float64)).sum() / np.square(added).sum()))


def frames(clip):
    """Detect the linear mark in torch: four frames, each with the whole clip's logits."""
    logits = clip @ torch.from_numpy(PATTERNS.T).float()
    presence = logits.square().mean(1, keepdim=True) - 0.1
    return presence.repeat(1, 4), logits[..., None].repeat(1, 1, 4)


def test_steps_keep_their_budget_and_reach_their_goal():
    start = np.random.default_rng(1).standard_normal(SIZE).astype(np.float32) / 10
    code = 2.0 * np.unpackbits(np.array([0x5E, 0xED], np.uint8)) - 1
    marked = descend(frames, start, code, 20.0)
    assert snr_db(start, marked) >= 20 - 1e-3
    assert (np.sign(PATTERNS @ marked) == code).all()
    assert np.abs(PATTERNS @ marked).mean() > 2 * np.abs(PATTERNS @ start).mean()
    less = descend(frames, marked, None, 20.0)
    assert np.abs(PATTERNS @ less).mean() < np.abs(PATTERNS @ marked).mean() / 2
    assert snr_db(start, descend(frames, start, code, 40.0)) >= 40 - 1e-3
