"""Real codecs: the bitrate by the size of the file, the delay by cross-correlation."""

import numpy as np
import pytest

from keybound.attacks import codecs
from keybound.errors import AttackError


@pytest.fixture
def sizes(monkeypatch):
    """Record what each encoding came to, as (sample rate, kbps)."""
    seen = []
    encode = codecs.encode

    def spy(samples, sample_rate, *settings):
        file = encode(samples, sample_rate, *settings)
        seen.append((sample_rate, len(file) * 8 / 1000 * sample_rate / samples.size))
        return file

    monkeypatch.setattr(codecs, "encode", spy)
    return seen


@pytest.mark.parametrize(
    ("sample_rate", "kbps", "coded_at"),
    [
        (8000, 16, 8000),
        (8000, 32, 8000),
        (16000, 8, 16000),
        (16000, 32, 16000),
        (16000, 64, 16000),
        (22050, 48, 22050),
        (44100, 32, 44100),
        (48000, 32, 48000),
        (48000, 128, 48000),
        (48000, 16, 24000),  # MPEG 1 has no 16 kbps
        (8000, 96, 16000),  # nor MPEG 2.5 any 96
        (96000, 64, 48000),
    ],
)
def test_mp3_has_its_bitrate_and_no_delay(lag, voice, sizes, sample_rate, kbps, coded_at):
    clip = voice(sample_rate, 3.0)
    attacked = codecs.mp3(clip, sample_rate, bitrate_kbps=kbps)
    assert sizes[0][0] == coded_at
    assert sizes[0][1] == pytest.approx(kbps, rel=0.1)  # the tag and some padding in 3 s
    assert lag(clip, attacked) == 0
    assert np.corrcoef(clip, attacked)[0, 1] > 0.9


@pytest.mark.parametrize("sample_rate", [8000, 16000, 24000, 44100, 48000])
@pytest.mark.parametrize("kbps", [12, 16, 24, 32])
def test_opus_has_about_its_bitrate_and_no_delay(lag, voice, sizes, sample_rate, kbps):
    clip = voice(sample_rate, 2.0)
    attacked = codecs.opus(clip, sample_rate, bitrate_kbps=kbps)
    headers_kbps = 3.5  # 800 bytes and the pages, over 2 s
    assert sizes[0][1] == pytest.approx(kbps + headers_kbps, rel=0.3)
    assert abs(lag(clip, attacked)) * 16000 / sample_rate <= 1
    assert np.corrcoef(clip, attacked)[0, 1] > 0.9


@pytest.mark.parametrize("sample_rate", [8000, 16000, 44100, 48000])
def test_vorbis_spends_more_for_more_quality_and_has_no_delay(lag, voice, sizes, sample_rate):
    clip = voice(sample_rate)
    errors = [
        np.std(codecs.vorbis(clip, sample_rate, quality=quality) - clip)
        for quality in (0.1, 0.5, 1.0)
    ]
    assert errors == sorted(errors, reverse=True)
    assert [kbps for _, kbps in sizes] == sorted(kbps for _, kbps in sizes)
    assert lag(clip, codecs.vorbis(clip, sample_rate, quality=0.6)) == 0


def test_the_nominal_rates_hold_on_speech(sizes, speech):
    long = np.concatenate(speech)
    codecs.mp3(long, 16000, bitrate_kbps=32.0)
    codecs.opus(long, 16000, bitrate_kbps=16.0)
    codecs.vorbis(long, 16000, quality=0.6)
    measured = [kbps for _, kbps in sizes]
    assert measured[0] == pytest.approx(32, rel=0.03)
    assert measured[1] == pytest.approx(16 + 2, rel=0.1)  # 2 kbps of headers in 4 s
    assert measured[2] == pytest.approx(48 + 8, rel=0.15)  # 8 kbps of headers in 4 s


@pytest.mark.parametrize("length", [1, 2, 160, 1151, 1152, 1153])
def test_short_clips_come_back(voice, length):
    clip = voice(16000)[5000 : 5000 + length]
    for attacked in (
        codecs.mp3(clip, 16000, bitrate_kbps=32.0),
        codecs.opus(clip, 16000, bitrate_kbps=16.0),
        codecs.vorbis(clip, 16000, quality=0.6),
    ):
        assert attacked.shape == clip.shape


def test_a_codec_that_libsndfile_lacks_is_named(voice):
    with pytest.raises(AttackError, match="cannot encode opus"):
        codecs.encode(voice(44100), 44100, "OGG", "OPUS", 0.9, None)


@pytest.mark.parametrize("sample_rate", [8000, 16000, 48000])
def test_the_telephone_has_its_band(sample_rate):
    hiss = 0.1 * np.random.default_rng(0).standard_normal(4 * sample_rate).astype(np.float32)
    spectrum = np.abs(np.fft.rfft(codecs.telephone(hiss, sample_rate)))  # bins of 0.25 Hz
    before = np.abs(np.fft.rfft(hiss))

    def passed_db(low_hz, high_hz):
        band = slice(4 * low_hz, 4 * high_hz)
        return 10 * np.log10(np.sum(spectrum[band] ** 2) / np.sum(before[band] ** 2))

    loud = codecs.telephone(30 * hiss, sample_rate)  # far beyond full scale: clipped, not wrapped
    assert np.mean(loud[1000:] * hiss[1000:] > 0) > 0.55
    assert passed_db(500, 3000) == pytest.approx(0.0, abs=0.5)
    assert passed_db(20, 100) < -25  # the rounding of mu-law remains
    if sample_rate > 8000:
        assert passed_db(4200, 7500) < -40
