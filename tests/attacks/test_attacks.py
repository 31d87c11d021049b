"""The table of attacks: names, drawing, chains, and what holds for every attack."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keybound.attacks import ATTACKS, attack
from keybound.errors import AttackError

PAPER = {
    "noise-20": {"snr_db": 20},
    "noise-10": {"snr_db": 10},
    "lowpass": {"cutoff_hz": 4000},
    "highpass": {"cutoff_hz": 500},
    "resample": {"factor": 0.8},
    "gain": {"factor": 0.5},
    "quantize": {"bits": 8},
    "mp3": {"bitrate_kbps": 32},
    "smoothing": {"window": 7},
    "echo": {"delay_s": 0.1, "decay": 0.4},
    "griffin-lim": {"iterations": 32},
    "denoiser": {},
}
LOCAL = [name for name, each in ATTACKS.items() if each.family != "neural-codec"]
SEEDED = ("noise", "noise-20", "noise-10", "pink", "griffin-lim", "mel")


@pytest.mark.parametrize("name", PAPER)
def test_the_nominal_parameters_are_the_papers(name):
    drawn = ATTACKS[name].draw(np.random.default_rng(0))
    drawn.pop("seed", None)
    assert drawn == PAPER[name]


@pytest.mark.parametrize("name", ATTACKS)
def test_parameters_survive_json_and_come_from_the_generator(name):
    first = ATTACKS[name].draw(np.random.default_rng(1))
    assert json.loads(json.dumps(first)) == first
    assert ATTACKS[name].draw(np.random.default_rng(1)) == first
    assert (ATTACKS[name].draw(np.random.default_rng(2)) != first) == (name in SEEDED)


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("sample_rate", [8000, 16000, 44100, 48000])
def test_length_type_and_finiteness_hold_at_every_rate(voice, name, sample_rate):
    hit = ATTACKS[name]
    parameters = hit.draw(np.random.default_rng(3))
    for seconds in (0.0, 0.01, 0.2):
        for samples in (voice(sample_rate, seconds), np.zeros_like(voice(sample_rate, seconds))):
            before = samples.copy()
            attacked = hit.apply(samples, sample_rate, parameters)
            assert attacked.shape == samples.shape
            assert attacked.dtype == np.float32
            assert np.isfinite(attacked).all()
            assert not np.shares_memory(attacked, samples)
            np.testing.assert_array_equal(samples, before)


@pytest.mark.parametrize("name", LOCAL)
def test_silence_stays_silent(name):
    hit = ATTACKS[name]
    silence = np.zeros(8000, np.float32)
    assert np.abs(hit.apply(silence, 16000, hit.draw(np.random.default_rng(0)))).max() < 1e-4


@pytest.mark.parametrize("name", LOCAL)
def test_the_same_parameters_give_the_same_samples(name, clip):
    hit = ATTACKS[name]
    parameters = hit.draw(np.random.default_rng(4))
    attacked = hit.apply(clip, 16000, parameters)
    np.testing.assert_array_equal(hit.apply(clip, 16000, parameters), attacked)
    assert not np.array_equal(attacked, clip)
    if name in SEEDED:
        other = {**parameters, "seed": parameters["seed"] + 1}
        assert not np.array_equal(hit.apply(clip, 16000, other), attacked)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([name for name in LOCAL if name not in ("mel", "griffin-lim")]),
    st.integers(8000, 192000),
    st.integers(1, 4000),
    st.integers(0, 2**32 - 1),
)
def test_odd_rates_and_lengths(name, sample_rate, length, seed):
    rng = np.random.default_rng(seed)
    samples = rng.uniform(-1, 1, length).astype(np.float32)
    attacked = ATTACKS[name].apply(samples, sample_rate, ATTACKS[name].draw(rng))
    assert attacked.shape == samples.shape
    assert np.isfinite(attacked).all()


def test_every_attack_says_what_it_is():
    for name, each in ATTACKS.items():
        assert "+" not in name
        assert "\n" not in each.summary
        assert each.summary == each.summary.lower()
        assert each.dial is None or each.dial in each.draw(np.random.default_rng(0))


def test_a_strength_sets_the_dial():
    rng = np.random.default_rng(0)
    assert attack("noise").draw(rng, 15)["snr_db"] == 15.0
    assert attack("mp3").draw(rng, 64)["bitrate_kbps"] == 64.0
    bits = attack("quantize").draw(rng, 10.0)["bits"]
    assert bits == 10
    assert isinstance(bits, int)


@pytest.mark.parametrize(
    ("name", "strength"),
    [
        ("noise-20", 15),
        ("polarity", 1),
        ("quantize", 7.5),
        ("mp3", 4),
        ("gain", float("nan")),
        ("mp3+gain", 2),
    ],
)
def test_an_impossible_strength_is_refused(name, strength):
    with pytest.raises(AttackError):
        attack(name).draw(np.random.default_rng(0), strength)


def test_an_unknown_name_is_answered_with_near_ones():
    with pytest.raises(AttackError, match="grifin-lim") as caught:
        attack("grifin-lim")
    assert caught.value.hint == "did you mean griffin-lim?"
    with pytest.raises(AttackError, match="'qqq'") as caught:
        attack("gain+qqq")
    assert caught.value.hint is not None
    assert "griffin-lim" in caught.value.hint
    with pytest.raises(AttackError):
        attack("")


def test_a_chain_applies_its_parts_in_order(clip):
    compound = attack("quantize + gain")
    parameters = compound.draw(np.random.default_rng(0))
    assert parameters == {"parts": [{"bits": 8}, {"factor": 0.5}]}
    steps = compound.apply(clip, 16000, parameters) * 256
    np.testing.assert_array_equal(steps, np.round(steps))
    assert compound.family == "compound"
    other = attack("gain+quantize")
    assert not np.array_equal(
        other.apply(clip, 16000, other.draw(np.random.default_rng(0))), steps / 256
    )


def test_a_chain_draws_for_each_part():
    first, second = attack("noise+noise").draw(np.random.default_rng(0))["parts"]
    assert first["seed"] != second["seed"]


@pytest.mark.parametrize(
    ("samples", "sample_rate"),
    [
        (np.zeros((2, 100), np.float32), 16000),
        (np.zeros(100, np.float32), 7999),
        (np.full(100, np.nan, np.float32), 16000),
    ],
)
def test_bad_samples_are_refused(samples, sample_rate):
    with pytest.raises(AttackError):
        attack("gain").apply(samples, sample_rate, {"factor": 0.5})
