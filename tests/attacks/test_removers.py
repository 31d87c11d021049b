"""Removers: exact plumbing, and a mark simple enough to be learned in a few steps on the CPU."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import torch
from safetensors.numpy import save_file

from keybound.attacks import removers

DATA = Path(__file__).parents[1] / "data"
NETWORKS = tuple(removers.KINDS)


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    """Give two chunks of three seconds: (2, 48000) of 16-bit samples."""
    files = [sf.read(path, dtype="int16")[0] for path in sorted(DATA.glob("*.flac"))]
    return np.stack([samples[:48000] for samples in files])


@pytest.fixture
def _small(monkeypatch):
    """Train narrow networks, fast, on quarters of a second: more costs too much here."""
    changes = {"CROP": 4000, "CHANNELS": 4, "WIDTH": 32, "DILATIONS": (1, 2)}
    for name, value in changes.items():
        monkeypatch.setattr(removers, name, value)
    for name, kind in removers.KINDS.items():
        monkeypatch.setitem(removers.KINDS, name, replace(kind, rate=5e-3))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("length", [16000, 15937])
def test_an_untrained_remover_leaves_audio_as_it_is(name, length, speech):
    clip = (speech[0, :length] / removers.FULL_SCALE).astype(np.float32)
    found = removers.apply(removers.build(name), clip)
    assert found.dtype == np.float32
    assert np.allclose(found, clip, atol=1e-5)
    assert not removers.apply(removers.build(name), np.zeros(length, np.float32)).any()


@pytest.mark.parametrize("length", [16000, 15937])
def test_the_inverse_spectrum_is_that_of_torch(length):
    x = torch.randn(2, length, generator=torch.Generator().manual_seed(0))
    spectrum = removers._stft(x, 512) * torch.linspace(0.5, 2, 257)[:, None]
    window = torch.hann_window(512)
    wanted = torch.istft(spectrum, 512, 128, window=window, length=length)
    assert torch.allclose(removers._istft(spectrum, length), wanted, atol=1e-5)


def test_gains_stay_within_eight_decibels(speech):
    network = removers.build("gains")
    clip = (speech[0, 8000:24000] / removers.FULL_SCALE).astype(np.float32)
    for sign in (-1, 1):
        torch.nn.init.constant_(network.parts["last"].bias, 100.0 * sign)
        found = removers.apply(network, clip)
        assert np.allclose(found, clip * 10 ** (sign * 8 / 20), atol=1e-4)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_few_steps_take_off_a_plain_mark(name, speech):
    clean = speech // 2
    (network,) = removers.train(name, 2 * clean, clean, budgets=(20,), batch=1)
    heard, host = (
        (v[1, 8000:24000] / removers.FULL_SCALE).astype("f4") for v in (2 * clean, clean)
    )
    left = removers.apply(network, heard) - host
    assert np.square(left).sum() < 0.9 * np.square(heard - host).sum()
    assert network.steps == 20


@pytest.mark.usefixtures("_small")
def test_a_remover_is_given_at_each_budget_and_repeats(speech):
    def weights() -> list[tuple[int, torch.Tensor]]:
        trained = removers.train("gains", speech, speech // 2, budgets=(1, 2), batch=1)
        return [(n.steps, n.parts["last"].weight.detach().clone()) for n in trained]

    first, again = weights(), weights()
    assert [steps for steps, _ in first] == [1, 2]
    assert not torch.equal(first[0][1], first[1][1])
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(first, again, strict=True))


@pytest.mark.usefixtures("_small")
def test_training_ends_with_its_minutes(speech):
    trained = removers.train("gains", speech, speech, budgets=(5000,), batch=1, minutes=0)
    assert [network.steps for network in trained] == [1]


@pytest.mark.usefixtures("_small")
def test_silence_breaks_nothing():
    silent = np.zeros((1, 8000), np.int16)
    for name in NETWORKS:
        (network,) = removers.train(name, silent, silent, budgets=(2,), batch=1)
        assert all(p.isfinite().all() for p in network.parts.parameters())


@pytest.mark.usefixtures("_small")
def test_one_file_trains_both(tmp_path, speech):
    save_file({"marked": speech, "clean": speech // 2}, tmp_path / "pairs.safetensors")
    pairs, said = [tmp_path / "pairs.safetensors"] * 2, []
    written = removers.train_all(
        pairs, tmp_path / "out", device="cpu", budgets=(1, 2), batch=1, say=said.append
    )
    names = ["unet-1", "unet-2", "gains-1", "gains-2"]
    assert [path.stem for path in written] == names
    assert said[0] == "0.8 min of pairs"  # four chunks of twelve quarter seconds
    for path in written[1::2]:
        network = removers.load(path)
        assert f"{network.name}-{network.steps}" == path.stem


@pytest.mark.parametrize("name", NETWORKS)
def test_a_remover_is_saved_and_read_back(name, tmp_path, speech):
    network = removers.build(name)
    torch.nn.init.normal_(network.parts["last"].weight, std=0.01)
    path = removers.save(network, tmp_path)
    assert path.stat().st_size < 16 << 20  # as much as comes back from the machine with the GPU
    clip = (speech[0, :16000] / removers.FULL_SCALE).astype(np.float32)
    found, kept = (removers.apply(n, clip) for n in (network, removers.load(path)))
    assert np.abs(found - clip).max() > 1e-4
    assert np.allclose(found, kept, atol=2e-4)


def test_training_needs_nothing_else_of_keybound():
    run = f"import runpy, sys; runpy.run_path({str(removers.__file__)!r})"
    code = f"{run}; print([m for m in sys.modules if m[:8] in ('keybound', 'torch')])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
