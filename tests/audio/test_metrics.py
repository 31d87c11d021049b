"""Measures of audio: exact where they can be computed by hand, None where there is no sound."""

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from keybound.audio.metrics import aligned, pesq, si_snr_db, snr_db, stoi, zimtohrli

for package in ("pesq", "pystoi", "zimtohrli"):
    pytest.importorskip(package, reason="of the extra bench")

DATA = Path(__file__).parents[1] / "data"


def test_measures_of_audio():
    host = sf.read(DATA / "flite-rms.flac", dtype="float32")[0][:32000]
    noise = np.random.default_rng(0).standard_normal(len(host)).astype(np.float32)
    noise *= np.linalg.norm(host) / np.linalg.norm(noise) / 10
    assert snr_db(host, host + noise) == pytest.approx(20, abs=0.01)
    assert si_snr_db(host, 3 * (host + noise)) == pytest.approx(20, abs=0.2)
    late = np.concatenate([np.zeros(37, np.float32), host[:-37]])
    back, lag = aligned(host, late)
    assert lag == 37
    assert np.array_equal(back[:-37], host[:-37])
    assert pesq(host, host, 16000) > 4.6 > pesq(host, host + noise, 16000)
    assert stoi(host, host, 16000) == pytest.approx(1, abs=1e-3)
    assert zimtohrli(host, 0.1 * host, 16000) == pytest.approx(5, abs=1e-3)  # both are levelled
    assert zimtohrli(host, host + noise, 16000) < zimtohrli(host, host + noise / 10, 16000) < 5
    quiet = np.zeros(16000, np.float32)
    assert snr_db(quiet, quiet) is None
    assert pesq(quiet, quiet, 16000) is None
    assert zimtohrli(quiet, quiet, 16000) is None
