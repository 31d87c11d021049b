"""A recording played and recorded again: rooms whose physics is right, a loudspeaker that clips."""

import numpy as np
import pytest

from keybound.attacks import rooms
from keybound.attacks.rooms import replay, room_response
from keybound.attacks.signal import highpass

NEAR_S = 0.0025  # of the direct sound


def in_band(response: np.ndarray) -> np.ndarray:
    """Filter as the loudspeaker does: images add up at frequencies that it does not play."""
    return highpass(response, 16000, cutoff_hz=rooms.SPEAKER_HZ[0])


def direct_ratio_db(response: np.ndarray, rate: int) -> float:
    near = round(NEAR_S * rate)
    return float(10 * np.log10(np.sum(response[:near] ** 2) / np.sum(response[near:] ** 2)))


@pytest.mark.parametrize("rate", [8000, 16000, 48000])
def test_the_direct_sound_comes_first(rate):
    response = room_response(rate, 1.0, 0.4, 3)
    assert response[0] == pytest.approx(1.0, abs=0.01)
    assert np.argmax(response) == 0
    assert np.abs(response[1 : round(0.0005 * rate)]).max() < 0.01  # nothing is as near as it


@pytest.mark.parametrize("seed", range(3))
def test_direct_to_reverberant_ratio_falls_with_distance(seed):
    heard = [in_band(room_response(16000, d, 0.4, seed)) for d in (0.5, 1, 2, 4)]
    ratios = [direct_ratio_db(response, 16000) for response in heard]
    assert ratios == sorted(ratios, reverse=True)
    # A diffuse field is as loud everywhere, the direct sound 6 dB less at twice the distance.
    assert ratios[0] - ratios[3] == pytest.approx(18, abs=5)


@pytest.mark.parametrize("rt60_s", [0.3, 0.6])
def test_the_room_has_its_reverberation_time(rt60_s):
    found = []
    for seed in range(4):
        tail = in_band(room_response(16000, 2.0, rt60_s, seed))
        remaining_db = 10 * np.log10(np.cumsum(tail[::-1] ** 2)[::-1] / np.sum(tail**2) + 1e-12)
        at = [np.argmax(remaining_db < level) / 16000 for level in (-5, -25)]
        found.append(3 * (at[1] - at[0]))
    assert np.mean(found) == pytest.approx(rt60_s, rel=0.3)  # Eyring's is a diffuse field


def test_the_first_reflections_come_when_geometry_says(monkeypatch):
    source, microphone = np.array([1.0, 2.0, 1.0]), np.array([2.0, 2.0, 1.0])
    monkeypatch.setattr(rooms, "_places", lambda *_: (source, microphone))
    response = room_response.__wrapped__(48000, 1.0, 0.4, 0)
    floor_m = np.hypot(1.0, 2.0)  # down by a metre and up again
    late = (floor_m - 1.0) / rooms.SOUND_M_S * 48000
    early = response[20 : round(late) + 3]
    assert np.argmax(early) + 20 == pytest.approx(late, abs=1)


def test_the_loudspeaker_has_a_band_and_distorts():
    time_s = np.arange(32000) / 16000
    tone = (0.3 * np.sin(2 * np.pi * 500 * time_s)).astype(np.float32)
    quiet = {"distance_m": 0.5, "rt60_s": 0.1, "noise_db": 100.0, "seed": 0}

    def third_harmonic_db(drive):
        heard = np.abs(np.fft.rfft(replay(tone, 16000, drive=drive, **quiet)[16000:]))
        return 20 * np.log10(heard[1500] / heard[500])

    assert third_harmonic_db(0.01) < -60
    assert -40 < third_harmonic_db(1.0) < -15  # tanh: drive² / 12, less what the room does
    low = (0.3 * np.sin(2 * np.pi * 50 * time_s)).astype(np.float32)
    both = np.abs(np.fft.rfft(replay(tone + low, 16000, drive=0.01, **quiet)[16000:]))
    assert both[50] < 0.2 * both[500]


def test_noise_is_nearer_to_speech_further_away(clip):
    def noise_db(distance_m):
        how = {"distance_m": distance_m, "rt60_s": 0.1, "drive": 0.1, "seed": 1}
        quiet, loud = (replay(clip, 16000, noise_db=db, **how) for db in (200.0, 20.0))
        level = np.dot(quiet, loud) / np.dot(quiet, quiet)
        return 10 * np.log10(np.sum((loud / level - quiet) ** 2) / np.sum(quiet**2))

    assert noise_db(2.0) > noise_db(1.0) + 2
    assert noise_db(1.0) < -12


def test_level_stays_and_silence_stays(clip):
    heard = replay(clip, 16000, distance_m=2.0, rt60_s=0.4, drive=1.0, noise_db=30.0, seed=5)
    assert np.linalg.norm(heard) == pytest.approx(np.linalg.norm(clip), rel=1e-4)
    nothing = np.zeros(1000, np.float32)
    assert not replay(
        nothing, 16000, distance_m=2.0, rt60_s=0.4, drive=1.0, noise_db=30.0, seed=5
    ).any()
