"""Lyra: the released codec, exact, stateless between clips, without delay."""

import importlib.util
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from keybound.attacks import ATTACKS, neural
from keybound.errors import AttackError


@pytest.fixture
def weights():
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    try:
        return neural.lyra_folder()
    except AttackError as error:
        pytest.skip(f"{error.message} (../shared/channels/lyra)")


def log_mel(samples):
    from keybound.attacks.spectral import _analyse, _mel_triangles

    return np.log(_mel_triangles(16000, 80) @ np.abs(_analyse(samples, 16000)) + 1e-5)


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("sample_rate", [8000, 16000, 44100, 48000])
@pytest.mark.parametrize("name", ["lyra-3.2", "lyra-6", "lyra-9.2"])
def test_length_and_silence_at_every_rate(voice, name, sample_rate):
    hit = ATTACKS[name]
    parameters = hit.draw(np.random.default_rng(0))
    for seconds in (0.0, 0.0001, 0.01, 0.25):
        samples = voice(sample_rate, seconds)
        attacked = hit.apply(samples, sample_rate, parameters)
        assert attacked.shape == samples.shape
        assert np.isfinite(attacked).all()
    quiet = hit.apply(np.zeros(sample_rate // 4, np.float32), sample_rate, parameters)
    assert np.abs(quiet).max() < 0.01


@pytest.mark.usefixtures("weights")
def test_no_clip_leaves_a_trace_in_the_next(clip):
    first = neural.lyra(clip, 16000, bitrate_kbps=6.0)
    neural.lyra(clip[::-1].copy(), 16000, bitrate_kbps=6.0)
    np.testing.assert_array_equal(neural.lyra(clip, 16000, bitrate_kbps=6.0), first)
    with ThreadPoolExecutor(4) as pool:
        for again in pool.map(lambda _: neural.lyra(clip, 16000, bitrate_kbps=6.0), range(8)):
            np.testing.assert_array_equal(again, first)


@pytest.mark.usefixtures("weights")
def test_there_is_no_delay_and_more_bits_sound_better(lag, speech):
    distances = []
    for kbps in (3.2, 6.0, 9.2):
        attacked = [neural.lyra(host, 16000, bitrate_kbps=kbps) for host in speech]
        if kbps == 9.2:
            lags = [abs(lag(h, a)) for h, a in zip(speech, attacked, strict=True)]
            assert max(lags) <= 2
        distances.append(
            np.mean(
                [
                    np.abs(log_mel(h) - log_mel(a)).mean()
                    for h, a in zip(speech, attacked, strict=True)
                ]
            )
        )
    assert distances == sorted(distances, reverse=True)


def test_it_agrees_with_the_torch_reading(weights, speech):
    for needed in ("torch", "tflite", "flatbuffers", "pesq"):
        pytest.importorskip(needed)
    import torch
    from pesq import pesq

    spec = importlib.util.spec_from_file_location("lyra_torch", weights / "lyra_torch.py")
    if spec is None or spec.loader is None or not (weights / "lyra_torch.py").is_file():
        pytest.skip("no lyra_torch.py beside the weights")
    reading = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it leaves its files open
        spec.loader.exec_module(reading)
        model = reading.LyraV2()
    speech = speech[:2]
    exact = [neural.lyra(host, 16000, bitrate_kbps=6.0) for host in speech]
    with torch.no_grad():
        read = list(model(torch.tensor(np.stack(speech)), bits=120).numpy())
    for host, ours, theirs in zip(speech, exact, read, strict=True):
        apart = np.abs(log_mel(ours) - log_mel(theirs)).mean()
        assert apart < 0.35
        assert apart < np.abs(log_mel(ours) - log_mel(host)).mean()
        assert np.corrcoef(ours, theirs)[0, 1] > 0.9
    scores = [
        np.mean([pesq(16000, host, out, "wb") for host, out in zip(speech, outs, strict=True)])
        for outs in (exact, read)
    ]
    assert scores[0] == pytest.approx(scores[1], abs=0.15)


def test_absent_weights_are_said_to_be_absent(monkeypatch, tmp_path, clip):
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    monkeypatch.setenv("KEYBOUND_LYRA", str(tmp_path))
    with pytest.raises(AttackError, match="weights absent") as caught:
        neural.lyra(clip, 16000, bitrate_kbps=6.0)
    assert "KEYBOUND_LYRA" in (caught.value.hint or "")


def test_an_absent_runtime_is_said_to_be_absent(monkeypatch, clip):
    monkeypatch.setitem(__import__("sys").modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(AttackError, match="ai-edge-litert") as caught:
        neural.lyra(clip, 16000, bitrate_kbps=6.0)
    assert caught.value.hint == "pip install keybound[bench]"


def test_other_bitrates_are_refused(clip):
    with pytest.raises(AttackError, match="no 5 kbps"):
        neural.lyra(clip, 16000, bitrate_kbps=5.0)
