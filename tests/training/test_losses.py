"""The objective: what pooling gives, what a right answer costs, what the ear is said to hear."""

import numpy as np
import pytest
import soxr
import torch

from keybound.model import detection
from keybound.training import hearing, losses


def test_pooling_is_that_of_the_package():
    generator = torch.Generator().manual_seed(0)
    presence = 5 * torch.randn(1, 50, generator=generator)
    logits = torch.randn(1, 16, 50, generator=generator)
    ours = detection.pool(presence[0].numpy(), logits[0].T.numpy())
    assert losses.pool(presence, logits)[0].numpy() == pytest.approx(ours, abs=1e-5)
    chance = 1 / (1 + np.exp(-presence[0].numpy()))
    assert float(losses.score(presence)) == pytest.approx(chance.mean(), abs=1e-6)


def test_frames_without_weight_do_not_count():
    presence = torch.tensor([[4.0, 4.0, -4.0]])
    right = losses.frame_presence(presence, torch.tensor([[1.0, 1, 0]]), torch.ones(1, 3))
    wrong = losses.frame_presence(presence, torch.tensor([[1.0, 1, 1]]), torch.ones(1, 3))
    spared = losses.frame_presence(
        presence, torch.tensor([[1.0, 1, 1]]), torch.tensor([[1.0, 1, 0]])
    )
    assert right < 0.1 < wrong
    assert spared == pytest.approx(float(right), abs=1e-5)
    assert losses.frame_presence(presence, presence, torch.zeros(1, 3)) == 0


def test_a_budget_holds_for_the_mean_and_loosely_for_each():
    within = torch.tensor([1.0, 1.0, 4.0])
    assert losses.over(within, 4 / losses.SLACK) == 0
    assert losses.over(within, 1.9) == pytest.approx(0.1 + (4 - losses.SLACK * 1.9) / 3)
    assert losses.over(within, 2.1) == pytest.approx((4 - losses.SLACK * 2.1) / 3)


def test_snr_is_in_decibels(speech):
    assert hearing.snr_db(speech, 0.1 * speech) == pytest.approx([20.0] * 4, abs=1e-3)


def test_the_ear_hears_nothing_of_nothing_and_more_of_more(speech):
    hear = hearing.Hearing()
    noise = torch.randn(speech.shape, generator=torch.Generator().manual_seed(0))
    copy = hear(speech, speech.clone())
    assert max(map(float, (copy.stft, copy.wave, copy.mel, copy.masking))) < 1e-3
    assert (copy.stoi > 0.9999).all()
    assert (copy.visqol > 0.99).all()
    assert copy.pesq == pytest.approx([hearing.BEST] * 4, abs=0.005)
    assert copy.zimtohrli == pytest.approx([5.0] * 4, abs=0.005)
    assert (copy.snr_db > 60).all()
    assert (copy.gain_db < 0.01).all()
    quiet, loud = (hear(speech, speech + level * noise) for level in (1e-3, 1e-2))
    for name in ("stft", "wave", "mel", "masking", "gain_db"):
        assert (getattr(quiet, name) < getattr(loud, name)).all()
    for name in ("stoi", "visqol", "pesq", "zimtohrli", "snr_db"):
        assert (getattr(quiet, name) > getattr(loud, name)).all()


def test_intelligibility_is_near_what_pystoi_measures(speech):
    pystoi = pytest.importorskip("pystoi")
    generator = torch.Generator().manual_seed(0)
    noisy = speech + 0.3 * speech.std(-1, keepdim=True) * torch.randn(
        speech.shape, generator=generator
    )
    found = hearing.Hearing()(speech, noisy).stoi
    for clip, other, value in zip(speech.numpy(), noisy.numpy(), found.tolist(), strict=True):
        assert value == pytest.approx(pystoi.stoi(clip, other, 16000), abs=0.05)


def test_quality_is_near_what_pesq_measures(speech):
    pesq = pytest.importorskip("pesq").pesq
    generator = torch.Generator().manual_seed(0)
    for share in (0.01, 0.05, 0.2):
        hiss = torch.randn(speech.shape, generator=generator)
        noisy = speech + share * speech.std(-1, keepdim=True) * hiss
        found = hearing.Hearing()(speech, noisy).pesq
        clips = zip(speech.numpy(), noisy.numpy(), strict=True)
        assert found.tolist() == pytest.approx([pesq(16000, *c, "wb") for c in clips], abs=0.4)


def test_zimtohrli_of_gains_is_near_what_it_measures(speech):
    judge = pytest.importorskip("zimtohrli").mos_from_signals
    window, generator = torch.hann_window(512), torch.Generator().manual_seed(0)
    spectrum = torch.stft(speech, 512, 128, window=window, return_complex=True)
    found, real = [], []
    bands = (0, 64, 3.0), (64, 257, 1.5), (64, 257, 3.0), (32, 64, 2.0), (128, 257, 2.0)
    for low, high, decibel in bands:  # bins, as marks do
        gain = torch.zeros(spectrum.shape)
        shape = (len(speech), -(-(high - low) // 8), -(-spectrum.shape[2] // 3))
        steps = decibel * torch.randn(shape, generator=generator)
        tiles = steps.repeat_interleave(8, 1).repeat_interleave(3, 2)
        gain[:, low:high] = tiles[:, : high - low, : spectrum.shape[2]]
        louder = spectrum * 10 ** (gain / 20)
        marked = torch.istft(louder, 512, 128, window=window, length=speech.shape[1])
        found.append(hearing.Hearing()(speech, marked).zimtohrli.numpy())
        level = 10 ** (-25 / 20) / speech.std(-1, keepdim=True)
        wide = [soxr.resample((level * v).numpy().T, 16000, 48000).T for v in (speech, marked)]
        pairs = zip(*(v.astype(np.float32).copy(order="C") for v in wide), strict=True)
        real.append(np.array([judge(*pair) for pair in pairs]))
    assert np.mean(found, 1) == pytest.approx(np.mean(real, 1), abs=0.03)
    assert np.corrcoef(np.ravel(found), np.ravel(real))[0, 1] > 0.95  # clip by clip


def test_gains_are_measured_in_decibels_and_levels_do_not_matter(speech):
    hear = hearing.Hearing()
    decibel = 10 ** (2 / 20)
    assert hear(speech, decibel * speech).gain_db == pytest.approx([2.0] * 4, abs=0.01)
    one, other = hear(speech, 1.1 * speech), hear(0.1 * speech, 0.11 * speech)
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a, b, rtol=1e-2, atol=1e-4)


def test_masking_spares_a_carrier_under_its_host(speech):
    hear = hearing.Hearing()
    beneath = hear(speech, 1.01 * speech)[3]  # 40 dB under the host, in its own bands
    generator = torch.Generator().manual_seed(0)
    hiss = torch.randn(speech.shape, generator=generator)
    hiss = hiss * 0.01 * speech.norm() / hiss.norm()  # as strong, but where the host is not
    assert beneath < 0.01 * hear(speech, speech + hiss)[3]


def test_what_hosts_add_is_told_from_what_codes_do():
    torch.manual_seed(0)
    n, code = 4, torch.randint(0, 2, (8, 16)).float()
    code = losses.twice(code, 1 - code, n)
    assert torch.equal(code[0], 1 - code[2])
    assert torch.equal(code[5], 1 - code[7])
    share = torch.ones(8, 1)
    swing = 6.0 * (2 * code - 1)
    assert losses.hosts_part(swing, code, share, n).item() == pytest.approx(0, abs=1e-6)
    own = torch.randn(8, 16)
    host = losses.twice(own, own, n)
    found = losses.hosts_part(swing + 3 * host, code, share, n)
    assert found.item() == pytest.approx(9 * host.square().mean().item() / 36, rel=0.01)
    share[2] = 0  # a clip that says nothing takes its twin with it
    part = losses.hosts_part(swing + 3 * host, code, share, n)
    rest = torch.cat([host[1:2], host[4:6]]).square().mean().item()
    assert part.item() == pytest.approx(9 * rest / 36, rel=0.01)


def test_removal_is_done_when_the_host_is_back(speech):
    assert losses.removal(speech, speech) < 1e-6
    assert losses.removal(1.1 * speech, speech) > losses.removal(1.01 * speech, speech) > 0


def test_full_marks_are_read_by_the_second_and_weak_ones_whole():
    target, weight = torch.ones(3, 150), torch.ones(3, 150)
    target[2, 50:] = 0  # marked in its first second alone
    read = losses.excerpts(target, weight, torch.tensor([1.0, 0.5, 1.0]))
    counts = read.counts.reshape(4, 3)  # whole, then three seconds
    assert counts.sum(0).tolist() == pytest.approx([1, 1, 1])
    assert counts[0].tolist() == [0, 1, 0]
    assert read.share.reshape(4, 3)[1:, 2].tolist() == [1, 0, 0]
    short = losses.excerpts(target[:, :50], weight[:, :50], torch.tensor([1.0, 0.5, 1.0]))
    assert short.counts.flatten().tolist() == [1, 1, 1]
