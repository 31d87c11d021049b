"""Codecs in training: real ones beside the device, neural ones that pass gradients."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from keybound.attacks import neural as attacks_neural
from keybound.errors import AttackError, RecipeError
from keybound.training import codecs, neural, resynthesis

CPU = torch.device("cpu")


@pytest.mark.parametrize("seed", range(6))
def test_real_codecs_change_a_clip_and_keep_it_in_place(speech, seed):
    clip = 3 * speech[0].numpy()  # beyond full scale
    coded = codecs.encode(clip, 1, seed)
    assert coded.shape == clip.shape
    assert np.isfinite(coded).all()
    assert np.array_equal(coded, codecs.encode(clip, 1, seed))
    assert 1e-4 < np.mean((coded - clip) ** 2) / np.mean(clip**2) < 0.5


@pytest.mark.parametrize("seed", range(6))
def test_a_clip_that_is_no_sound_ends_no_process(speech, seed):
    broken = speech[0].numpy().copy()
    broken[100] = np.nan
    assert not codecs.encode(broken, seed).any()


def test_a_request_gives_what_the_codecs_changed(speech):
    clips = speech[:2, :8000]
    with ThreadPoolExecutor(2) as pool:
        residual = codecs.Request(pool, clips, 5, 7).residual()
    for i, clip in enumerate(clips):
        wanted = codecs.encode(clip.numpy(), 5, 7, i)
        assert torch.allclose(clip + residual[i], torch.from_numpy(wanted), atol=1e-6)


@pytest.fixture(scope="module")
def lyra():
    try:
        folder = attacks_neural.lyra_folder()
    except AttackError as error:
        pytest.skip(f"{error.message} (../shared/channels/lyra)")
    pytest.importorskip("tflite", reason="tflite is not installed")
    return neural.load_lyra(folder, CPU)


def test_lyra_re_synthesises_and_passes_gradients(lyra, speech):
    assert sorted(lyra) == ["lyra-3.2", "lyra-6", "lyra-9.2"]
    for codec in lyra.values():
        y = speech[:1, :5000].clone().requires_grad_()  # not a whole number of frames
        heard = codec(y)
        assert heard.shape == y.shape
        heard.square().sum().backward()
        assert y.grad.isfinite().all()
        assert y.grad.abs().sum() > 0
    assert not any(p.requires_grad for codec in lyra.values() for p in codec.parameters())


def test_lyra_is_the_lyra_of_the_attacks(lyra, speech):
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    clip = speech[0]
    with torch.no_grad():
        ours = lyra["lyra-6"](clip[None])[0]
    released = torch.from_numpy(attacks_neural.lyra(clip.numpy(), 16000, bitrate_kbps=6.0))
    ours, released = (resynthesis.spectrum(y[None], 512).abs() for y in (ours, released))
    assert (ours - released).norm() < 0.5 * released.norm()


def test_lyra_absent_is_said(tmp_path):
    with pytest.raises(RecipeError, match=r"no lyra_torch\.py"):
        neural.load_lyra(tmp_path, CPU)


def test_encodec_absent_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    assert neural.load_encodec(CPU) == {}
    weights = tmp_path / "checkpoints" / "encodec_24khz-d7cc33bc.th"
    weights.parent.mkdir()
    weights.touch()
    monkeypatch.setitem(sys.modules, "encodec", None)  # weights alone, without the package
    assert neural.load_encodec(CPU) == {}


def test_encodec_stands_behind_the_same_interface(speech):
    class Stub(torch.nn.Module):  # what EnCodec offers, with a coarse quantiser
        frame_rate = 75

        def __init__(self):
            super().__init__()
            self.encoder, self.decoder, self.quantizer = torch.tanh, torch.atanh, self

        def encode(self, latent, frame_rate, kbps):
            assert (frame_rate, kbps) == (75, 6)
            return torch.round(64 * latent)

        def decode(self, codes):
            return codes / 64

    y = speech[:1].clone().requires_grad_()
    heard = neural.EnCodec(Stub(), 6)(y)
    assert heard.shape == y.shape
    assert 1e-4 < (heard - y).norm() / y.norm() < 0.3
    heard.sum().backward()
    assert y.grad.abs().sum() > 0
