"""Neural channels: Lyra exact and without delay, vocoders by their mel, absent weights named."""

import importlib.util
import json
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from keybound.attacks import ATTACKS, attack, available, neural
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


@pytest.mark.usefixtures("one_thread")
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


# Vocoders. What librosa 0.11 gives for filters.mel(sr=22050, n_fft=1024, n_mels=80, fmax=8000),
# by bin and band: the spectrogram that HiFi-GAN was trained on.
LIBROSA = {
    (1, 0): 0.01552772, (2, 0): 0.02265139, (20, 10): 0.01168657, (46, 25): 0.01082017,
    (47, 25): 0.0, (100, 45): 0.00221076, (365, 79): 0.00157493, (371, 79): 0.00012545,
}  # fmt: skip


def test_the_mel_bands_are_those_of_librosa():
    triangles = neural.mel_triangles(22050, 1024, 80, 8000.0)
    assert triangles.shape == (513, 80)
    for place, expected in LIBROSA.items():
        assert triangles[place] == pytest.approx(expected, abs=1e-8)


@pytest.fixture
def hifigan(request):
    request.getfixturevalue("one_thread")
    if available("hifigan"):
        pytest.skip(f"not run: {available('hifigan')}")
    return ATTACKS["hifigan"]


def test_hifigan_says_the_same_in_another_waveform(hifigan, speech, lag):
    from scipy.ndimage import uniform_filter1d

    host = np.concatenate([speech[0][:8000], speech[1][:8000]])
    attacked = hifigan.apply(host, 16000, {})
    assert attacked.shape == host.shape
    assert np.abs(log_mel(host) - log_mel(attacked)).mean() < 0.6
    assert abs(np.corrcoef(host, attacked)[0, 1]) < 0.9
    loud = [uniform_filter1d(np.abs(x), 160) for x in (host, attacked)]
    assert abs(lag(*(x - x.mean() for x in loud))) <= 16  # 1 ms


def test_hifigan_repeats_itself_on_short_clips_at_any_rate(hifigan, voice, clip):
    for sample_rate, seconds in ((8000, 0.01), (44100, 0.1)):
        samples = voice(sample_rate, seconds)
        attacked = hifigan.apply(samples, sample_rate, {})
        assert attacked.shape == samples.shape
        assert np.isfinite(attacked).all()
    piece = clip[2000:4000]
    np.testing.assert_array_equal(hifigan.apply(piece, 16000, {}), hifigan.apply(piece, 16000, {}))
    assert np.abs(hifigan.apply(np.zeros(2000, np.float32), 16000, {})).max() < 0.02


# EnCodec, DAC and BigVGAN: nobody has their weights here, so packages that look like theirs stand
# in, and the tests see what would be asked of them.
@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    def make(name, source):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setenv(f"KEYBOUND_{name.upper()}", str(tmp_path))
        return tmp_path

    yield make
    for name in ("encodec", "dac", "bigvgan"):
        sys.modules.pop(name, None)


ENCODEC = """
class EncodecModel:
    @classmethod
    def encodec_model_24khz(cls, repository):
        assert (repository / "encodec_24khz-d7cc33bc.th").is_file()
        return cls()
    def set_target_bandwidth(self, kbps):
        self.kbps = kbps
    def eval(self):
        return self
    def __call__(self, batch):
        assert batch.shape == (1, 1, 24000)
        return batch * self.kbps
"""


@pytest.mark.usefixtures("one_thread")
def test_encodec_is_asked_at_its_rate_and_bandwidth(stand_in, clip):
    folder = stand_in("encodec", ENCODEC)
    assert available("encodec-6") == "weights absent"
    with pytest.raises(AttackError, match="encodec: weights absent"):
        neural.encodec(clip, 16000, bitrate_kbps=6.0)
    (folder / neural.ENCODEC_FILE).write_bytes(b"")
    assert available("encodec-6") is None
    for name, factor in (("encodec-6", 6.0), ("encodec@1.5", 1.5)):
        hit = attack(name)
        attacked = hit.apply(clip, 16000, hit.draw(np.random.default_rng(0)))
        np.testing.assert_allclose(attacked, factor * clip, atol=0.02 * factor)
    with pytest.raises(AttackError, match="no 5 kbps"):
        attack("encodec").apply(clip, 16000, {"bitrate_kbps": 5.0})


DAC = """
import torch
class DAC(torch.nn.Module):
    def __init__(self, n_codebooks, sample_rate):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(1))
        self.sample_rate = sample_rate
    def forward(self, batch, sample_rate, n_quantizers):
        assert sample_rate == self.sample_rate
        assert batch.shape == (1, 1, sample_rate)
        return {"audio": self.gain * n_quantizers * batch[..., 8:]}
"""


@pytest.mark.usefixtures("one_thread")
def test_dac_is_asked_at_its_rate_with_its_codebooks(stand_in, voice):
    import torch

    folder = stand_in("dac", DAC)
    for name, rate, codebooks in (("dac-16", 16000, 12), ("dac-44@7", 44100, 7)):
        assert available(name) == "weights absent"
        stored = {
            "state_dict": {"gain": torch.full((1,), 0.5)},
            "metadata": {"kwargs": {"n_codebooks": codebooks, "sample_rate": rate}},
        }
        torch.save(stored, folder / neural.DAC_FILES[rate])
        assert available(name) is None
        hit, host = attack(name), voice(rate)
        attacked = hit.apply(host, rate, hit.draw(np.random.default_rng(0)))
        expected = np.pad(codebooks / 2 * host[8:], (0, 8))
        np.testing.assert_allclose(attacked, expected, rtol=1e-6)


BIGVGAN = """
import torch
class BigVGAN(torch.nn.Module):
    def __init__(self, h, use_cuda_kernel):
        super().__init__()
        assert not use_cuda_kernel and not hasattr(h, "missing")
        self.h = h
        self.level = torch.nn.Parameter(torch.zeros(1))
    def forward(self, mel):
        assert mel.shape[:2] == (1, self.h.num_mels)
        return self.level * torch.ones(1, 1, mel.shape[2] * self.h.hop_size)
"""


@pytest.mark.usefixtures("one_thread")
def test_bigvgan_is_given_its_mel_spectrogram(stand_in, clip):
    import torch

    folder = stand_in("bigvgan", BIGVGAN)
    assert available("bigvgan") == "weights absent"
    settings = {"n_fft": 1024, "hop_size": 256, "num_mels": 100, "sampling_rate": 24000}
    (folder / "config.json").write_text(json.dumps({**settings, "fmax": None}))
    torch.save({"generator": {"level": torch.full((1,), 0.25)}}, folder / "bigvgan_generator.pt")
    assert available("bigvgan") is None
    attacked = ATTACKS["bigvgan"].apply(clip, 16000, {})
    np.testing.assert_allclose(attacked[200:-200], 0.25, atol=0.01)


def test_an_absent_package_is_said_to_be_absent(stand_in, clip, monkeypatch):
    folder = stand_in("encodec", "raise ImportError('no torchaudio')")
    (folder / neural.ENCODEC_FILE).write_bytes(b"")
    with pytest.raises(AttackError, match="no torchaudio"):
        neural.encodec(clip, 16000, bitrate_kbps=6.0)
    monkeypatch.setitem(sys.modules, "encodec", None)
    assert available("encodec-6") == "encodec is not installed"
    with pytest.raises(AttackError, match="encodec is not installed") as caught:
        neural.encodec(clip, 16000, bitrate_kbps=6.0)
    assert caught.value.hint == "pip install encodec"
