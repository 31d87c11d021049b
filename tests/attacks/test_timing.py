"""Timing: lengths, pitch and tempo by measurement, WSOLA beside ffmpeg's."""

import shutil
import subprocess

import numpy as np
import pytest
from scipy.ndimage import uniform_filter1d
from scipy.signal import resample_poly

from keybound.attacks import timing


def tone(hertz, sample_rate=16000, seconds=1.0):
    time_s = np.arange(round(sample_rate * seconds)) / sample_rate
    return sum(np.sin(2 * np.pi * n * hertz * time_s) / n for n in range(1, 6)).astype(np.float32)


def pitch_hz(samples, sample_rate=16000):
    """Measure the highest peak of the spectrum of the middle, between its bins."""
    middle = samples[samples.size // 5 : -samples.size // 5]
    spectrum = np.log(np.abs(np.fft.rfft(middle * np.hanning(middle.size), 8 * middle.size)))
    top = int(np.argmax(spectrum))
    before, at, after = spectrum[top - 1 : top + 2]
    return (
        (top + (before - after) / (2 * (before - 2 * at + after))) * sample_rate / 8 / middle.size
    )


def envelope(samples):
    return uniform_filter1d(np.abs(samples.astype(np.float64)), 320)


@pytest.mark.parametrize("sample_rate", [8000, 16000, 44100])
@pytest.mark.parametrize("tempo", [0.75, 0.9, 1.1, 1.5])
def test_stretching_changes_the_length_and_keeps_the_pitch(sample_rate, tempo):
    clip = tone(200.0, sample_rate)
    attacked = timing.stretch(clip, sample_rate, tempo=tempo)
    assert attacked.size == round(clip.size / tempo)
    assert pitch_hz(attacked, sample_rate) == pytest.approx(200.0, abs=1.0)
    assert np.std(attacked) == pytest.approx(np.std(clip), rel=0.05)


def test_the_true_tempo_changes_nothing(clip):
    np.testing.assert_allclose(timing.stretch(clip, 16000, tempo=1.0), clip, atol=1e-6)


def test_what_happens_happens_at_its_time():
    burst = np.zeros(16000, np.float32)
    burst[8000:8800] = tone(300.0)[:800]
    for tempo in (0.8, 1.25):
        attacked = timing.stretch(burst, 16000, tempo=tempo)
        middle = np.sum(np.arange(attacked.size) * attacked**2) / np.sum(attacked**2)
        assert middle == pytest.approx(8400 / tempo, abs=240)  # the reach of a frame, and a half


@pytest.mark.parametrize("tempo", [0.9, 1.1])
def test_stretched_speech_is_like_that_of_ffmpeg(speech, tempo):
    if shutil.which("ffmpeg") is None:
        pytest.skip("no ffmpeg")
    host = speech[0]
    raw = ["-f", "f32le", "-ar", "16000", "-ac", "1"]
    command = ["ffmpeg", "-loglevel", "error", *raw, "-i", "pipe:", "-af", f"atempo={tempo}", *raw]
    done = subprocess.run([*command, "pipe:"], input=host.tobytes(), capture_output=True)
    theirs = np.frombuffer(done.stdout, "<f4")
    ours = timing.stretch(host, 16000, tempo=tempo)
    length = min(ours.size, theirs.size)
    assert abs(ours.size - theirs.size) < 0.03 * ours.size
    assert np.corrcoef(envelope(ours)[:length], envelope(theirs)[:length])[0, 1] > 0.95


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_speed_is_resampling(voice, factor):
    clip = voice(16000)
    attacked = timing.speed(clip, 16000, factor=factor)
    expected = resample_poly(clip.astype(np.float64), 10, round(10 * factor))[: attacked.size]
    assert attacked.size == round(clip.size / factor)
    error = np.std(attacked[: expected.size] - expected) / np.std(expected)
    assert error < 10 ** (-28 / 20)  # the two differ in the transition band alone


def test_speed_moves_the_pitch():
    assert pitch_hz(timing.speed(tone(200.0), 16000, factor=1.1)) == pytest.approx(220.0, abs=0.5)


@pytest.mark.parametrize("semitones", [-1.0, 1.0, 4.0])
def test_pitch_moves_the_pitch_and_keeps_the_time(clip, semitones):
    attacked = timing.pitch(tone(200.0), 16000, semitones=semitones)
    assert pitch_hz(attacked) == pytest.approx(200.0 * 2 ** (semitones / 12), abs=1.0)
    attacked = timing.pitch(clip, 16000, semitones=semitones)
    assert abs(attacked.size - clip.size) <= 1
    assert np.corrcoef(envelope(clip), envelope(np.resize(attacked, clip.size)))[0, 1] > 0.95


def test_crop_keeps_the_middle():
    samples = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(timing.crop(samples, 8000, keep=0.5), samples[25:75])
    np.testing.assert_array_equal(timing.crop(samples, 8000, keep=1.0), samples)
    assert timing.crop(samples[:1], 8000, keep=0.01).size == 1


def test_trim_cuts_the_start_but_never_more_than_half():
    samples = np.arange(48000, dtype=np.float32)
    assert timing.trim(samples, 16000, trim_s=1.234)[0] == 19744
    assert timing.trim(samples[:16000], 16000, trim_s=1.234)[0] == 8000
    assert timing.trim(samples[:1], 16000, trim_s=1.234).size == 1


@pytest.mark.parametrize("percent", [0.0, 5.0, 10.0, 100.0])
def test_packets_come_whole_or_not_at_all(percent):
    samples = np.ones(16000 * 60, np.float32)
    attacked = timing.packet_loss(samples, 16000, loss_percent=percent, seed=1)
    packets = attacked.reshape(-1, 320)
    assert set(packets.sum(axis=1)) <= {0.0, 320.0}
    assert np.mean(packets[:, 0] == 0) == pytest.approx(percent / 100, abs=0.012)
