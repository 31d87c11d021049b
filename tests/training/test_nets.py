"""The networks: exact spectra, bounded marks, finite context, nothing that breaks on silence."""

import math
from dataclasses import replace

import pytest
import torch

from keybound.errors import RecipeError
from keybound.training import hearing, nets
from keybound.training.checkpoint import grown
from keybound.training.losses import pool
from keybound.training.recipe import ModelSpec
from keybound.training.spectra import HOP, RATE, LogMel, Spectrum, line, mel_bank, to_blocks

NARROW = ModelSpec(width=16, expansion=2)  # all blocks of the released model
SMALL = {
    "spectral": ModelSpec(width=16, analysis_blocks=1, synthesis_blocks=1, detector_blocks=2),
    "additive": ModelSpec(generator="additive", latent=8),
}


def random_code(clips: int, bits: int = 16) -> torch.Tensor:
    return torch.randint(0, 2, (clips, bits)).float()


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def test_spectrum_is_that_of_torch(speech):
    window = torch.hann_window(2 * HOP).sqrt()
    padded = torch.nn.functional.pad(speech, (HOP, HOP))
    wanted = torch.stft(
        padded, 2 * HOP, HOP, window=window, center=False, return_complex=True
    ).abs()
    real, imag = Spectrum()(to_blocks(speech, HOP, HOP))
    got = torch.sqrt(real.square() + imag.square())
    assert torch.allclose(got, wanted, atol=2e-5 * float(wanted.max()))


def test_spectrum_inverts_perfectly(speech):
    spectrum = Spectrum()
    blocks = spectrum.inverse(*spectrum(to_blocks(speech, HOP, HOP)))
    back = blocks.transpose(1, 2).reshape(speech.shape)
    assert torch.allclose(back, speech, atol=1e-5 * float(speech.abs().max()))


@pytest.mark.parametrize(("bands", "bins"), [(40, 321), (80, 321), (80, 513)])
def test_mel_filters_share_each_bin(bands, bins):
    bank = mel_bank(bands, bins)
    assert bank.shape == (bands, bins)
    assert torch.allclose(bank.sum(0), torch.ones(bins), atol=1e-6)
    assert bank.min() >= 0


@pytest.mark.parametrize("generator", ["spectral", "additive"])
@pytest.mark.parametrize("blocks", [2, 25, 50])
def test_shapes(generator, blocks):
    embedder, detector = nets.build(SMALL[generator])
    x = 0.1 * torch.randn(3, blocks * HOP)
    carrier = embedder(x, random_code(3))
    assert carrier.shape == x.shape
    presence, logits = detector(x + carrier)
    assert presence.shape == (3, blocks)
    assert logits.shape == (3, 16, blocks)
    assert presence.abs().max() <= nets.PRESENCE_LIMIT


@pytest.mark.parametrize("generator", ["spectral", "additive"])
def test_the_carrier_follows_the_code_and_the_host(generator, speech):
    embedder, _ = nets.build(SMALL[generator])
    code = random_code(1)
    one, two = (embedder(x[None], code) for x in speech[:2])
    assert not torch.allclose(one, embedder(speech[:1], 1 - code), atol=1e-6)
    assert not torch.allclose(one, two, atol=1e-6)


def test_without_anchor_the_additive_carrier_forgets_the_host(speech):
    embedder, _ = nets.build(ModelSpec(generator="additive", latent=8, anchor=False))
    code = random_code(1)
    assert torch.equal(embedder(speech[:1], code), embedder(speech[1:2], code))


def test_marking_is_scaling_the_spectrum_by_the_gains(speech):
    embedder, _ = nets.build(SMALL["spectral"])
    embedder.out.weight.data.normal_()  # as large as gains get
    code = random_code(len(speech))
    real, imag = embedder.spectrum(to_blocks(speech, HOP, HOP))
    gains = embedder.gains(embedder.features(real, imag), code)
    assert 0.3 < gains.abs().max() <= embedder.limit + 1e-6
    scaled = embedder.spectrum.inverse(real * gains.exp(), imag * gains.exp())
    wanted = scaled.transpose(1, 2).reshape(speech.shape)
    marked = speech + embedder(speech, code)
    assert torch.allclose(marked, wanted, atol=1e-5)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_spectral_carrier_is_bounded_by_the_gain_limit(speech, sign):
    embedder, _ = nets.build(SMALL["spectral"])
    code = random_code(len(speech))
    most = math.expm1(embedder.limit) * speech.norm(dim=-1)
    embedder.out.weight.data.normal_(std=100)
    assert (embedder(speech, code).norm(dim=-1) <= most).all()
    embedder.out.weight.data.zero_()
    embedder.out.bias.data.fill_(100.0 * sign)  # all gains at their limit
    wanted = math.expm1(sign * embedder.limit) * speech
    assert torch.allclose(embedder(speech, code), wanted, atol=1e-5)


def span(value: torch.Tensor, x: torch.Tensor) -> tuple[int, int]:
    """Give the first and last sample that can change a value."""
    (slope,) = torch.autograd.grad(value, x, retain_graph=True)
    touched = slope[0].nonzero().flatten()
    return int(touched[0]), int(touched[-1])


def test_emphasis_is_a_line_through_its_points():
    hz = torch.tensor([0.0, 100.0, 150.0, 200.0, 4000.0])
    assert line(((0.0, 1.0),), hz).tolist() == [1.0] * 5
    found = line(((100.0, 0.2), (200.0, 0.6), (400.0, 1.4)), hz)
    assert found.tolist() == pytest.approx([0.2, 0.2, 0.4, 0.6, 1.4])


def test_gains_are_scaled_by_the_emphasis(speech):
    code, carriers = torch.ones(4, 16), []
    for points in (((0.0, 0.5),), ((0.0, 0.0),)):
        torch.manual_seed(0)
        embedder, _ = nets.build(ModelSpec(width=16, emphasis=points))
        carriers.append(embedder(speech, code).abs().max().item())
    assert carriers[0] > 0 == carriers[1]


def test_the_spectral_embedder_looks_at_most_200_ms_ahead():
    embedder, _ = nets.build(NARROW)
    x = (0.1 * torch.randn(1, 150 * HOP)).requires_grad_()
    carrier = embedder(x, random_code(1))[0]
    ahead, behind = [], []
    for sample in range(100 * HOP, 101 * HOP, 29):
        first, last = span(carrier[sample], x)
        ahead.append((last - sample) / RATE)
        behind.append((sample - first) / RATE)
    assert max(ahead) <= 0.160 <= 0.200  # what its documentation says, and the limit
    assert max(behind) <= 1.4  # finite


@pytest.mark.parametrize(("spans", "most_s"), [((), 0.490), ((49,), 0.850)])
def test_the_detector_looks_no_further_than_it_says(spans, most_s):
    _, detector = nets.build(replace(NARROW, presence_spans=spans))
    x = (0.1 * torch.randn(1, 150 * HOP)).requires_grad_()
    presence, logits = detector(x)
    for frame in (74, 75):
        middle = frame * HOP + HOP // 2
        for value in (presence[0, frame], logits[0, :, frame].sum()):
            first, last = span(value, x)
            assert max(middle - first, last - middle) / RATE <= most_s
            assert min(middle - first, last - middle) / RATE >= 0.300  # it uses what it may


def test_a_weight_of_its_own_pools_bits_as_presence_did(speech):
    _, plain = nets.build(NARROW)
    _, longer = nets.build(replace(NARROW, presence_spans=(49,)))
    longer.load_state_dict(grown(plain.state_dict(), longer))
    for one, other in zip(plain(speech), longer(speech), strict=True):
        assert torch.allclose(one, other, atol=1e-4)
    before = pool(*longer(speech))
    longer.heads.presence.bias.data += 1.0  # presence may change
    after = pool(*longer(speech))
    ratio = after / before
    assert (ratio > 0).all()  # but no bit
    assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-3)


@pytest.mark.parametrize("blocks", [1, 7, 8, 10, 15])
def test_the_detector_has_as_many_blocks_as_asked(blocks):
    detector = nets.Detector(ModelSpec(width=16, detector_blocks=blocks))
    assert len(detector.blocks) == blocks
    reach = 2 + 6 + sum(block.pad[0] for block in detector.blocks)
    assert reach <= detector.context


def test_a_detector_too_deep_for_its_context_is_refused():
    with pytest.raises(RecipeError, match="too many detector blocks"):
        nets.Detector(ModelSpec(width=16, detector_blocks=16))


@pytest.mark.parametrize("spans", [(50,), (49, 0), (-3,)])
def test_spans_that_have_no_middle_are_refused(spans):
    with pytest.raises(RecipeError, match="presence_spans must be odd"):
        nets.Detector(ModelSpec(width=16, presence_spans=spans))


def test_features_do_not_depend_on_level():
    x = 0.1 * torch.randn(2, 50 * HOP)
    features, spectrum = LogMel(past=24, future=0), Spectrum()
    loud, quiet = (features(*spectrum(to_blocks(y, 0, 0))) for y in (x, 0.01 * x))
    assert torch.allclose(loud, quiet, atol=2e-3)
    embedder, code = nets.SpectralEmbedder(NARROW), random_code(2)
    with torch.no_grad():
        loud, quiet = embedder(x, code), embedder(0.01 * x, code)
    assert torch.allclose(0.01 * loud, quiet, atol=1e-3 * float(quiet.abs().max()))


@pytest.mark.parametrize("generator", ["spectral", "additive"])
@pytest.mark.parametrize("level", [0.0, 1e-6, 1.0])
def test_silence_and_full_scale_are_finite_with_finite_gradients(generator, level):
    embedder, detector = nets.build(SMALL[generator])
    remover, hear = nets.Remover(width=16, blocks=1), hearing.Hearing()
    x = (level * torch.randn(2, 25 * HOP).clamp(-1, 1)).requires_grad_()
    marked = x + embedder(x, random_code(2))
    presence, logits = detector(remover(marked))
    terms = hear(x, marked)
    total = presence.sum() + logits.square().sum() + sum(term.sum() for term in terms)
    total.backward()
    assert all(term.isfinite().all() for term in (presence, logits, *terms))
    for tensor in (x, *embedder.parameters(), *detector.parameters(), *remover.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


def test_the_remover_gives_audio_of_the_same_shape(speech):
    found = nets.Remover(width=16, blocks=1)(speech)
    assert found.shape == speech.shape
    assert (found - speech).norm() < 0.3 * speech.norm()  # untrained, it changes little


@pytest.mark.parametrize("sides", [(6, 0), (5, 1), (2, 2), (1, 1)])
def test_a_block_is_the_same_with_its_channels_last(sides):
    block = nets.Block(32, 3, *sides)
    x = torch.randn(3, 32, 20)
    rows = block.rows(x.transpose(1, 2), nets.block_rows)
    assert torch.allclose(rows.transpose(1, 2), block(x), atol=1e-5)


@pytest.mark.parametrize("absolute", [False, True])
def test_absolute_features_hear_the_level_of_the_host(absolute, speech):
    torch.manual_seed(0)
    embedder, _ = nets.build(ModelSpec(generator="additive", latent=8, absolute=absolute))
    code = torch.ones(4, 16)
    with torch.no_grad():
        loud, quiet = (embedder(level * speech, code) for level in (1.0, 0.25))
    change = (loud - quiet).norm() / loud.norm()
    assert (change > 0.05) == absolute


def test_presence_is_bounded_where_the_recipe_bounds_it(speech):
    for limit in (2.0, 0.0):
        torch.manual_seed(0)
        spec = ModelSpec(generator="additive", latent=8, presence_limit=limit)
        _, detector = nets.build(spec)
        with torch.no_grad():
            detector.presence.weight *= 100
            most = detector(speech)[0].abs().max()
        assert (most <= 2.0) == (limit == 2.0)


def test_the_remover_on_the_waveform_begins_with_nothing_and_learns(speech):
    torch.manual_seed(0)
    remover = nets.build_remover(on_waveform=True)
    with torch.no_grad():
        assert torch.equal(remover(speech), speech)
    tone = 0.05 * torch.sin(torch.arange(16000) * 0.4)
    optimiser = torch.optim.AdamW(remover.parameters(), lr=5e-4)
    found = []
    for _ in range(20):
        loss = (remover(speech + tone) - speech).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(float(loss.detach()))
    assert found[-1] < 0.7 * found[0]
    assert remover(torch.zeros(1, 16000)).isfinite().all()


def test_longer_spans_are_as_steady_at_the_ends_of_a_recording():
    logits = torch.ones(1, 2, 60)
    assert (nets.steadiness(logits, 49) == 1).all()
    usual = nets.steadiness(logits, nets.USUAL_SPAN)
    assert usual[0, 0, 0] == pytest.approx(7 / 13)
    assert usual[0, 0, 30] == pytest.approx(1)
