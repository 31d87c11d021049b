"""The attack channel of training: shapes, finite gradients, chance that repeats; moves."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from keybound.attacks import attack
from keybound.training import channel, hearing, losses, neural, resynthesis, twins
from keybound.training.data import Stream, read_folder
from keybound.training.nets import Remover
from keybound.training.recipe import KINDS
from keybound.training.spectra import mel_bank

CPU = torch.device("cpu")


def halve(y: torch.Tensor) -> torch.Tensor:
    """Stand for a neural codec."""
    return torch.tanh(y) / 2


@pytest.fixture
def tools(sources):
    torch.manual_seed(0)
    noise = Stream(read_folder(sources.noise, level=False), CPU)
    remover = Remover(width=16, blocks=1)
    made = {"half": halve, "same": torch.tanh}
    return twins.Tools(torch.Generator(), torch.Generator(), noise, made, remover)


def hit(name: str, y: torch.Tensor, tools: twins.Tools, seed: int) -> torch.Tensor:
    tools.begin(seed)
    return channel.ATTACKS[name](y, tools)


def test_recipes_know_the_attacks():
    assert tuple(channel.ATTACKS) == KINDS


@pytest.mark.parametrize("name", KINDS)
def test_attacks_keep_shape_and_give_finite_gradients(name, tools, speech):
    for seed, clips in enumerate((speech[:2, :8000], torch.zeros(2, 8000), 1e-7 * speech[:2])):
        y = clips.clone().requires_grad_()
        heard = hit(name, y, tools, seed)
        assert heard.shape == y.shape
        assert heard.isfinite().all()
        (heard.square().sum() + heard.sum()).backward()
        assert y.grad.isfinite().all()
        assert seed or y.grad.abs().sum() > 0  # through speech; silence may stop it
        assert torch.equal(y.detach(), clips)  # attacks do not write into what they are given


@pytest.mark.parametrize("name", KINDS)
def test_attacks_repeat_with_their_seed_and_differ_between_seeds(name, tools, speech):
    clips = speech[:2, :8000]
    with torch.no_grad():
        heard = [hit(name, clips, tools, seed) for seed in range(6)]
        again = hit(name, clips, tools, 3)
    assert torch.equal(again, heard[3])
    drawn = {tuple(y.flatten().tolist()) for y in heard}
    if name in ("identity", "remover"):
        assert len(drawn) == 1
    elif name == "neural":
        assert len(drawn) == 2  # as many as there are codecs
    else:
        assert len(drawn) > 2


@pytest.mark.parametrize("name", set(KINDS) - {"identity"})
def test_attacks_change_speech(name, tools, speech):
    with torch.no_grad():
        changes = [(hit(name, speech, tools, seed) - speech).norm() for seed in range(4)]
    assert max(changes) > 1e-3 * speech.norm()


def test_what_is_played_slower_has_no_highest_band(tools):
    y = 0.1 * torch.randn(64, 16000)
    power = torch.fft.rfft(hit("speed", y, tools, 0)).abs().square()
    top, rest = power[:, 7800:].mean(1), power[:, :7000].mean(1)
    slower = top < 1e-4 * rest
    assert 0.25 < slower.float().mean() < 0.75
    assert (top[~slower] > 0.1 * rest[~slower]).float().mean() > 0.8  # but near the middle


def test_speed_takes_long_clips(tools):
    y = torch.randn(1, 100_000)
    assert hit("speed", y, tools, 0).isfinite().all()


def test_noise_has_its_level(tools, speech):
    for seed in range(5):
        added = hit("hard_noise", speech, tools, seed) - speech
        assert (hearing.snr_db(speech, added) > 4.5).all()
        assert (hearing.snr_db(speech, added) < 15.5).all()


def test_resampling_loses_highs_only(tools):
    noise = torch.randn(4, 16000)
    before, after = (torch.fft.rfft(y).abs() for y in (noise, hit("resample", noise, tools, 1)))
    assert torch.allclose(after[:, :2500], before[:, :2500], rtol=1e-2)
    assert (after[:, 7950:] < 0.02 * before[:, 7950:]).all()


def test_griffin_lim_keeps_magnitudes_and_loses_phases(tools, speech):
    tools.begin(0)
    magnitude = resynthesis.spectrum(speech, 1024).abs()
    phase = resynthesis.griffin_lim_phase(magnitude, 1024, speech.shape[-1], tools, 12)
    found = resynthesis.waveform(magnitude * phase, 1024, speech.shape[-1])
    again = resynthesis.spectrum(found, 1024).abs()
    assert (again - magnitude).norm() < 0.3 * magnitude.norm()
    assert (found - speech).norm() > 0.5 * speech.norm()


def test_each_neural_codec_serves_once_a_step_then_the_envelope(tools, speech):
    tools.begin(0)
    y = speech[:1]
    with torch.no_grad():
        first, second, third = (resynthesis.neural(y, tools) for _ in range(3))
    assert not torch.equal(first, second)
    assert tools.unused == []
    assert third.shape == y.shape


def test_neural_codecs_get_audio_within_full_scale(tools, speech):
    seen = []
    tools.neural = {"spy": lambda y: seen.append(y) or y}
    loud = 5 * speech / speech.abs().max()
    assert torch.allclose(hit("neural", loud, tools, 0), loud, rtol=1e-4)
    assert seen[0].abs().max() <= 0.9


def test_finish_shifts_by_at_most_half_a_block_and_scales(tools):
    clicks = torch.zeros(8, 8000)
    clicks[:, 4000] = 1.0
    tools.begin(0)
    moved = channel.finish(clicks, tools)
    places, sizes = moved.argmax(-1), moved.amax(-1)
    assert ((places - 4000).abs() <= 160).all()
    assert places.unique().numel() > 3
    assert (sizes > 10 ** (-12.1 / 20)).all()
    assert (sizes < 10 ** (6.1 / 20)).all()


def test_no_shift_moves_nothing(tools):
    clicks = torch.zeros(8, 8000)
    clicks[:, 4000] = 1.0
    tools.begin(0)
    tools.shift = 0
    heard = channel.finish(clicks, tools)
    assert (heard.argmax(-1) == 4000).all()
    assert heard.amax(-1).unique().numel() == 8  # scaled all the same


@pytest.mark.parametrize(("name", "hz"), [("lowpass", 4000), ("highpass", 500)])
def test_filters_of_the_paper_are_those_it_tests(name, hz, tools, speech):
    tools.strengths = replace(twins.STRENGTHS["paper"], lowpass_hz=(hz, hz), highpass_hz=(hz, hz))
    hit = attack(name)
    tested = hit.apply(speech[0].numpy(), 16000, hit.draw(np.random.default_rng(0)))
    heard = torch.cat([twins.band_filter(speech[:1], tools) for _ in range(12)])
    error = (heard - torch.from_numpy(tested).float()).norm(dim=1) / np.linalg.norm(tested)
    assert error.min() < 0.02  # some of them are this filter, phase and all, the others its twin


def test_strengths_of_the_paper_are_within_the_wide_ones(tools, speech):
    wide, paper = (twins.STRENGTHS[name] for name in ("wide", "paper"))
    for name in ("noise_db", "lowpass_hz", "highpass_hz", "resample_hz", "bits", "echo_ms"):
        (low, high), (first, last) = getattr(wide, name), getattr(paper, name)
        assert low <= first < last <= high
    tools.strengths = paper
    for seed in range(12):
        tools.begin(seed)
        added = twins.noise(speech, tools) - speech
        snr = hearing.snr_db(speech, added)
        assert (snr > 5.5).all()
        assert (snr < 25.5).all()


def test_suffer_attacks_twins_alike_and_spares_some(tools, speech, monkeypatch):
    monkeypatch.setattr(channel, "finish", lambda y, _: y)
    monkeypatch.setitem(channel.ATTACKS, "noise", lambda y, _: y + 1)
    residual = torch.full((4, 16000), 2.0)
    tools.begin(0)
    marked, unmarked = channel.apply(
        ["codec", "noise"], speech, -speech, 1.0, tools, residual=residual
    )
    assert torch.equal(marked, speech + torch.tensor([2.0, 2.0, 1.0, 1.0])[:, None])
    assert torch.equal(unmarked, -speech + torch.tensor([2.0, 2.0, 1.0, 1.0])[:, None])
    untouched, _ = channel.apply(["noise", "noise"], speech, -speech, 0.0, tools)
    assert torch.equal(untouched, speech)


def test_residual_transplants_add_the_carrier_to_another_host(speech):
    host, other, carrier = speech[0:1], speech[1:2], 0.01 * speech[2:3]
    forged = losses.transplant_residual(host, host + carrier, other)
    assert torch.allclose(forged, other + carrier, atol=1e-6)


def test_gain_transplants_scale_another_host_alike():
    generator = torch.Generator().manual_seed(0)
    host, other = 0.1 * torch.randn(2, 1, 16000, generator=generator)
    tilt = torch.exp(0.4 * torch.cos(torch.linspace(0, 6, 8001)))  # smooth over frequency
    marked, wanted = (torch.fft.irfft(torch.fft.rfft(y) * tilt, n=16000) for y in (host, other))
    forged = losses.transplant_gains(host, marked, other)
    assert (forged - wanted).norm() < 0.05 * wanted.norm()
    assert (other - wanted).norm() > 0.2 * wanted.norm()


def test_gain_transplants_pass_gradients_and_take_silence(speech):
    marked = (1.1 * speech[:1]).requires_grad_()
    losses.transplant_gains(speech[:1], marked, speech[1:2]).square().sum().backward()
    assert marked.grad.isfinite().all()
    assert marked.grad.abs().sum() > 0
    quiet = torch.zeros(1, 16000).requires_grad_()
    losses.transplant_gains(quiet.detach(), quiet, speech[:1]).square().sum().backward()
    assert quiet.grad.isfinite().all()


def test_fourier_resampling_there_and_back(speech):
    assert neural.resample(speech, 3, 2).shape == (4, 24000)
    assert torch.allclose(neural.resample(neural.resample(speech, 3, 2), 2, 3), speech, atol=1e-5)


def test_celp_keeps_about_as_much_of_small_gains_as_real_codecs_of_telephones(tools, speech):
    """G.723.1 keeps .57 of a mark of 1.15 dB, RealAudio 14.4 .58 (validation speech)."""
    generator = torch.Generator().manual_seed(0)
    bank = mel_bank(40, 513)[:28]  # what both keep: below 3.3 kHz
    gains = 0.13 * torch.randn(len(speech), 40, 51, generator=generator).sign()  # nepers, 20 ms

    def bands(y: torch.Tensor) -> torch.Tensor:
        Y = torch.stft(y, 1024, 320, window=torch.hann_window(1024), return_complex=True)
        return torch.log(bank @ Y.abs().square() + 1e-6)

    Y = resynthesis.spectrum(speech, 1024)
    field = mel_bank(40, 513).T @ gains / (mel_bank(40, 513).sum(0)[:, None] + 1e-9)
    field = torch.nn.functional.interpolate(field, Y.shape[-1], mode="nearest")
    marked = resynthesis.waveform(Y * field.exp(), 1024, speech.shape[-1])
    before = bands(marked) - bands(speech)
    loud = bands(speech) > bands(speech).amax() - 8
    kept = []
    for seed in range(6):
        after = bands(hit("celp", marked, tools, seed)) - bands(hit("celp", speech, tools, seed))
        kept.append((before * after)[loud].sum() / before[loud].square().sum())
    assert 0.3 < float(torch.stack(kept).mean()) < 0.8
