"""Stand-ins: a peer's checkout runs without the packages that only its training needs."""

import sys

import numpy as np
import pytest

from keybound.benchmark.measure.protocol import secret_of
from keybound.benchmark.peers import METHODS, available, stand_ins

pytestmark = pytest.mark.usefixtures("one_thread")


CHECKOUT = """
import torch
import audiomentations, hifigan, kornia, librosa, torchaudio
import librosa.util as librosa_util
from audiomentations import Compose, Mp3Compression
from librosa.filters import mel
from librosa.util import pad_center, tiny
from .blocks import DEPTH


def get_vocoder(device):
    raise RuntimeError("the vocoder serves training")


class Encoder(torch.nn.Module):
    def __init__(self, process, model, bits, win_dim, embedding_dim):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(bits) * DEPTH)
        assert pad_center(torch.ones(4).numpy(), 6).shape == (6,)
        assert mel(22050, 1024, 80, 0.0, 8000.0).shape == (80, 513)

    def test_forward(self, x, message):  # (1, 1, samples), (1, 1, bits) of 1 and -1
        marked = x + (self.scale * message).sum()
        return marked[..., :-5], None


class Decoder(torch.nn.Module):
    def __init__(self, process, model, bits, win_dim, embedding_dim):
        super().__init__()
        self.vocoder = get_vocoder("cpu")
        self.offset = torch.nn.Parameter(torch.linspace(-2, 2, bits))

    def test_forward(self, y):
        return self.offset[None, None]
"""


@pytest.fixture
def checkout(tmp_path):
    """Lay out something with the interface of Timbre's repository, which is GPL and not here."""
    pytest.importorskip("torch")
    pytest.importorskip("yaml")
    pytest.importorskip("julius")
    files = {
        "model/__init__.py": "",
        "model/blocks.py": "DEPTH = 0.01\n",
        "model/conv2_mel_modules.py": CHECKOUT,
        "config/process.yaml": "audio: {sample_rate: 22050, win_len: 256}",
        "config/model.yaml": "dim: {embedding: 512}",
        "config/train.yaml": "watermark: {length: 10}",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_timbre_comes_from_a_checkout(checkout, monkeypatch, clip):
    import torch

    monkeypatch.delenv("KEYBOUND_TIMBRE", raising=False)
    assert available("timbre", trained=False) == "no checkout"
    monkeypatch.setenv("KEYBOUND_TIMBRE", str(checkout))
    assert available("timbre") == "weights absent"
    assert available("timbre", trained=False) is None
    before = set(sys.modules), list(sys.path)
    method = METHODS["timbre"](trained=False)
    left = {name.partition(".")[0] for name in set(sys.modules) - before[0]}
    assert not left & {"model", "librosa", "hifigan", "torchaudio", "kornia", "audiomentations"}
    assert sys.path == before[1]

    host = clip(22050, 1.0)
    marked = method.embed(host, secret_of(0, 0, 10))
    assert marked.shape == host.shape
    np.testing.assert_array_equal(marked[-5:], host[-5:])
    np.testing.assert_array_equal(
        METHODS["timbre"](trained=False).embed(host, secret_of(0, 0, 10)), marked
    )
    reading = method.read(marked)
    sizes = np.minimum(np.abs(np.linspace(-2, 2, 10)), 1)
    assert reading.presence == pytest.approx(sizes.mean())
    assert method.decode(reading, None) == 0b0000011111

    state = {"encoder": {"scale": torch.ones(10)}, "decoder": {"offset": torch.ones(10)}}
    weights = checkout / "results" / "ckpt" / "pth" / "none-conv2_ep_20.pth.tar"
    weights.parent.mkdir(parents=True)
    torch.save(state | {"en_de_op": {"state": {}}}, weights)
    assert available("timbre") is None
    trained = METHODS["timbre"]()
    assert trained.decode(trained.read(host), None) == 0b1111111111


def test_stand_ins_leave_no_trace():
    sys.modules.pop("pkg_resources", None)
    before = dict(sys.modules)
    real = sys.modules["scipy"]
    with stand_ins.standing_in(stand_ins.pkg_resources() | stand_ins.unused(scipy="signal io")):
        import pkg_resources
        import scipy

        assert scipy is not real
        assert pkg_resources.resource_filename("keybound", "py.typed").endswith("py.typed")
    assert sys.modules == before


@pytest.mark.parametrize("how", ["soxr_hq", "polyphase"])
def test_the_stand_in_for_librosa_resamples(how, clip):
    resample = stand_ins.librosa()["librosa"]["resample"]
    host = clip(16000, 1.0)
    there = resample(host, orig_sr=16000, target_sr=32000, res_type=how)
    assert there.shape == (32000,)
    assert there.dtype == np.float32
    back = resample(there, orig_sr=32000, target_sr=16000, res_type=how)
    assert np.abs(back - host)[100:-100].max() < 0.05 * np.abs(host).max()
