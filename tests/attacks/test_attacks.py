"""The table of attacks: names, drawing, chains, and what holds for every attack."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keybound.attacks import ATTACKS, attack, available
from keybound.attacks.definition import nothing
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
# What runs everywhere and fast; the others have their own tests, where their tools are there.
LOCAL = [name for name, each in ATTACKS.items() if each.needs is nothing or name == "background"]
SEEDED = (
    "noise", "noise-20", "noise-10", "pink", "griffin-lim", "mel", "eq-24", "jitter", "reverb",
    "background", "packet-loss", "room", "music",
)  # fmt: skip
LENGTHS = {  # of those that do not keep it, by the length of the clip and the rate
    "stretch": lambda length, _: round(length / 1.1),
    "speed": lambda length, _: round(length / 1.1),
    "crop": lambda length, _: round(length / 2),
    "trim": lambda length, rate: max(length - round(1.234 * rate), length - length // 2),
}


def expected_length(name, length, sample_rate):
    assert ATTACKS[name].keeps_length == (name not in LENGTHS)
    if name not in LENGTHS or length == 0:
        return length
    return max(LENGTHS[name](length, sample_rate), 1)


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
    for seconds in (0.0, 0.01, 0.1):
        for samples in (voice(sample_rate, seconds), np.zeros_like(voice(sample_rate, seconds))):
            before = samples.copy()
            attacked = hit.apply(samples, sample_rate, parameters)
            assert attacked.shape == (expected_length(name, samples.size, sample_rate),)
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
    assert np.array_equal(attacked, clip) == (name == "clean")
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
    assert attacked.shape == (expected_length(name, length, sample_rate),)
    assert np.isfinite(attacked).all()


def test_every_attack_says_what_it_is():
    for name, each in ATTACKS.items():
        assert not {"+", "@"} & set(name)
        assert "\n" not in each.summary
        assert each.summary == each.summary.lower()
        assert each.dial is None or each.dial in each.draw(np.random.default_rng(0))


@pytest.mark.parametrize("name", ["stretch", "speed"])
def test_what_a_change_of_pace_does_is_said_by_its_own_factor(name):
    summary = attack(f"{name}@0.7").summary
    assert summary.endswith(f"{ATTACKS[name].dial} 0.7")
    assert "1.1 times" not in summary
    assert "/ 1.1" not in summary


def test_a_strength_sets_the_dial():
    rng = np.random.default_rng(0)
    assert attack("noise").draw(rng, 15)["snr_db"] == 15.0
    assert attack("mp3").draw(rng, 64)["bitrate_kbps"] == 64.0
    bits = attack("quantize").draw(rng, 10.0)["bits"]
    assert bits == 10
    assert isinstance(bits, int)


def test_a_strength_may_stand_in_the_name():
    quiet, nominal = attack("noise@30"), attack("noise")
    drawn = quiet.draw(np.random.default_rng(0))
    assert drawn == nominal.draw(np.random.default_rng(0), 30)
    assert quiet.dial is None
    assert quiet.summary.endswith("snr_db 30")
    chained = attack("quantize@12 + gain@0.25").draw(np.random.default_rng(0))
    assert chained == {"parts": [{"bits": 12}, {"factor": 0.25}]}
    assert attack("pitch@-1").draw(np.random.default_rng(0)) == {"semitones": -1.0}
    with pytest.raises(AttackError, match="30 already"):
        quiet.draw(np.random.default_rng(0), 20)


@pytest.mark.parametrize("name", ["noise-20@15", "mp3@4", "quantize@7.5", "noise@loud", "noise@"])
def test_an_impossible_strength_in_a_name_is_refused_at_once(name):
    with pytest.raises(AttackError):
        attack(name)


EXTREMES = {
    "noise": (-20, 100), "background": (-20, 100), "lowpass": (1, 96000), "highpass": (1, 96000),
    "resample": (0.05, 4), "gain": (0, 10), "quantize": (2, 24), "smoothing": (1, 1000),
    "echo": (0, 1), "echo-late": (0, 2), "eq-24": (0, 24), "phase-shift": (-180, 180),
    "allpass": (1, 64), "shift": (-1, 1), "jitter": (0, 10), "clipping": (0, 50),
    "compress": (-60, 0), "expander": (-60, 0), "limiter": (-60, 0), "reverb": (0.01, 5),
    "stretch": (0.5, 2), "speed": (0.5, 2), "pitch": (-12, 12), "crop": (0.01, 1),
    "trim": (0, 3600), "packet-loss": (0, 100), "mp3": (8, 320), "opus": (6, 256),
    "vorbis": (0, 1), "griffin-lim": (1,), "mel": (10, 128), "room": (0.1, 4),
    "music": (-20, 100),
}  # fmt: skip


@pytest.mark.parametrize("name", EXTREMES)
def test_the_ends_of_the_dial_work_and_beyond_them_it_is_refused(voice, name):
    for strength in EXTREMES[name]:
        hit = attack(f"{name}@{strength}")
        for samples in (voice(16000, 0.05), np.zeros(800, np.float32)):
            attacked = hit.apply(samples, 16000, hit.draw(np.random.default_rng(0)))
            assert np.isfinite(attacked).all()
            assert attacked.size > 0
    for strength in (-1e6, 1e6):
        with pytest.raises(AttackError, match="cannot be"):
            attack(f"{name}@{strength}")


def test_every_dial_is_turned():
    dials = {name for name in LOCAL if ATTACKS[name].dial}
    assert dials - set(EXTREMES) == {"pink"}  # as noise


def test_a_chain_keeps_the_length_if_all_its_parts_do(clip):
    assert attack("mp3+gain").keeps_length
    cut = attack("gain+crop")
    assert not cut.keeps_length
    assert cut.apply(clip, 16000, cut.draw(np.random.default_rng(0))).size == clip.size // 2


def test_what_is_missing_is_said_without_running_it(monkeypatch, tmp_path):
    assert available("noise@30+mp3") is None
    monkeypatch.setenv("KEYBOUND_ENCODEC", str(tmp_path))
    monkeypatch.setenv("KEYBOUND_NOISE", str(tmp_path))
    assert available("encodec-6") == "weights absent"
    assert available("noise+encodec@12") == "weights absent"
    assert available("background@5") == "recordings absent"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert available("aac-64") == "ffmpeg is absent"
    with pytest.raises(AttackError, match="no attack is named"):
        available("nothing")


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
