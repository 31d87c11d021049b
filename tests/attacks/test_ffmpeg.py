"""The codecs of ffmpeg: bitrates by the size of the stream, delays by cross-correlation."""

import shutil

import numpy as np
import pytest

from keybound.attacks import ATTACKS, available, codecs, ffmpeg
from keybound.errors import AttackError

NAMES = ("aac", "g722", "speex-wb2", "gsm", "g723", "ra-144", "codec2-3200")
CODED = [name for name in NAMES if available(name) is None]
ABSENT = {name: available(name) for name in NAMES if name not in CODED}


@pytest.fixture(autouse=True, scope="module")
def _ffmpeg_here():
    if ABSENT:
        pytest.skip(f"not run: {ABSENT}")


@pytest.fixture
def streams(monkeypatch):
    """Record the arguments and the size of what ffmpeg encodes."""
    seen = []
    convert = ffmpeg.convert

    def spy(path, source, target, content):
        made = convert(path, source, target, content)
        if "-c:a" in target:
            rate = int(source[source.index("-ar") + 1])
            seen.append((rate, len(made) * 8 / 1000 * rate / (len(content) / 4)))
        return made

    monkeypatch.setattr(ffmpeg, "convert", spy)
    return seen


@pytest.mark.parametrize("name", CODED)
def test_length_and_finiteness_hold(voice, name):
    hit = ATTACKS[name]
    parameters = hit.draw(np.random.default_rng(0))
    for sample_rate, seconds in ((8000, 0.01), (44100, 0.1)):
        samples = voice(sample_rate, seconds)
        attacked = hit.apply(samples, sample_rate, parameters)
        assert attacked.shape == samples.shape
        assert np.isfinite(attacked).all()


@pytest.mark.parametrize("name", CODED)
def test_silence_stays_quiet_and_the_same_clip_comes_out_the_same(clip, name):
    hit = ATTACKS[name]
    parameters = hit.draw(np.random.default_rng(0))
    quiet = hit.apply(np.zeros(8000, np.float32), 16000, parameters)
    assert np.abs(quiet).max() < (0.01 if name == "codec2-3200" else 1e-3)  # it has no silence
    attacked = hit.apply(clip, 16000, parameters)
    assert not np.array_equal(attacked, clip)
    np.testing.assert_array_equal(hit.apply(clip, 16000, parameters), attacked)


@pytest.mark.parametrize(
    ("sample_rate", "coded_at", "kbps"),
    [(8000, 11025, 64.0), (16000, 16000, 64.0), (48000, 48000, 64.0), (192000, 96000, 128.0)],
)
def test_aac_has_about_its_bitrate_and_no_delay(lag, voice, streams, sample_rate, coded_at, kbps):
    clip = voice(sample_rate)
    attacked = ffmpeg.aac(clip, sample_rate, bitrate_kbps=kbps)
    assert streams[0][0] == coded_at
    assert streams[0][1] == pytest.approx(kbps, rel=0.25)
    assert lag(clip, attacked) == 0
    assert np.corrcoef(clip, attacked)[0, 1] > 0.99


@pytest.fixture
def hiss():
    """Give white noise, whose correlation has but one peak."""
    return 0.1 * np.random.default_rng(0).standard_normal(16000).astype(np.float32)


def test_g722_has_64_kbps_and_no_delay(lag, hiss, streams):
    attacked = ffmpeg.g722(hiss, 16000)
    assert streams[0] == (16000, pytest.approx(64.0, rel=0.001))
    assert lag(hiss, attacked) == 0
    assert np.corrcoef(hiss, attacked)[0, 1] > 0.95


def test_speex_has_its_bitrate_and_no_delay(lag, hiss, streams):
    for quality in (2, 10):
        assert lag(hiss, ffmpeg.speex(hiss, 16000, quality=quality)) == 0
    assert streams[0][1] == pytest.approx(7.75, abs=3)  # 155 bits every 20 ms, and the pages


def test_gsm_has_its_bitrate_and_no_delay(lag, speech, streams):
    assert {lag(host, ffmpeg.gsm(host, 16000)) for host in speech} <= {-2, -1, 0, 1, 2}
    assert streams[0] == (8000, pytest.approx(13.2, rel=0.02))  # 33 bytes every 20 ms


@pytest.mark.parametrize(("code", "kbps"), [(ffmpeg.g723, 6.4), (ffmpeg.ra144, 14.0)])
def test_celp_codecs_have_their_bitrate_and_no_delay(lag, speech, streams, code, kbps):
    """24 bytes every 30 ms; 20 bytes every 20 ms, and Matroska's headers of each."""
    assert {lag(host, code(host, 16000)) for host in speech} <= {-2, -1, 0, 1, 2}
    assert streams[0] == (8000, pytest.approx(kbps, rel=0.1))


def test_codec2_has_its_bitrate_and_its_envelope_no_delay(lag, speech, streams):
    from scipy.ndimage import uniform_filter1d

    lags = []
    for host in speech:
        attacked = ffmpeg.codec2(host, 16000, bitrate_bps=3200)
        loud = [uniform_filter1d(np.abs(x), 320) for x in (host, attacked)]
        lags.append(lag(*(x - x.mean() for x in loud)))
    assert streams[0] == (8000, pytest.approx(3.2, rel=0.05))
    assert abs(np.median(lags)) < 80  # 5 ms


def test_the_telephones_mu_law_is_that_of_ffmpeg(clip):
    narrow = np.concatenate([clip[::2], np.linspace(-1, 1, 8000, dtype=np.float32)])
    raw = ("-f", "f32le", "-ar", "8000", "-ac", "1")
    path = ffmpeg.needs("pcm_mulaw")
    coded = ffmpeg.convert(path, (*raw, "-i", "pipe:"), ("-f", "mulaw"), narrow.tobytes())
    law = ("-f", "mulaw", "-ar", "8000", "-ac", "1", "-i", "pipe:")
    theirs = np.frombuffer(ffmpeg.convert(path, law, raw, coded), "<f4")
    ours = codecs._round_trip(narrow, 8000, "WAV", "ULAW")
    steps = np.maximum(np.abs(theirs) / 7, 2.5e-4)  # at the coarse end of each segment
    assert (np.abs(ours - theirs) <= steps).all()
    assert np.mean(ours == theirs) > 0.9  # but for rounding at the edges of the steps


def test_an_absent_encoder_is_said_to_be_absent():
    with pytest.raises(AttackError, match="cannot encode amrwb") as caught:
        ffmpeg.needs("libamrwb")
    assert "apt install" in (caught.value.hint or "")


def test_an_absent_ffmpeg_is_said_to_be_absent(monkeypatch, clip):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(AttackError, match="ffmpeg is absent"):
        ffmpeg.g722(clip, 16000)


def test_what_ffmpeg_complains_of_is_passed_on():
    with pytest.raises(AttackError, match="ffmpeg failed"):
        ffmpeg.convert(ffmpeg.needs("g722"), ("-f", "ogg", "-i", "pipe:"), ("-f", "ogg"), b"x" * 99)
