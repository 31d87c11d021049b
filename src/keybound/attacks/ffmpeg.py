"""Codecs that libsndfile does not carry, through the ffmpeg of the machine, in memory.

Each takes its delay away: the lags were measured on speech, see `tests/attacks/test_ffmpeg.py`.
Knows nothing of marks, keys or networks.
"""

import shutil
import subprocess
from functools import cache

import numpy as np

from keybound.attacks.rates import Samples, at_rate, fit, next_rate
from keybound.errors import AttackError

AAC_RATES_HZ = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000)
AAC_BITS_A_SAMPLE = 6  # the most that a frame of 1024 samples holds: 6144 bits
AAC_DELAY = 1024  # samples: one frame
G722_RATE_HZ = 16000
G722_DELAY = 22  # samples: its two band-splitting filters
SPEEX_RATE_HZ = 16000  # wideband
SPEEX_DELAY = 223  # samples: look-ahead of the encoder and of the band-splitting filters
GSM_RATE_HZ = 8000
G723_RATE_HZ = RA144_RATE_HZ = 8000
G723_DELAY = 60  # samples: its look-ahead
RA144_DELAY = 160  # samples: one frame
CODEC2_RATE_HZ = 8000
CODEC2_DELAY = 160  # samples, by the envelope: phases are not kept


def needs(encoder: str) -> str:
    """Find ffmpeg, with this encoder inside, and give its path."""
    path = shutil.which("ffmpeg")
    if path is None:
        raise AttackError("ffmpeg is absent", hint="install it: apt install ffmpeg")
    if encoder not in _encoders(path):
        raise AttackError(
            f"this ffmpeg cannot encode {encoder.removeprefix('lib')}",
            hint="debian's can: apt install ffmpeg",
        )
    return path


@cache
def _encoders(path: str) -> frozenset[str]:
    listing = subprocess.run([path, "-hide_banner", "-encoders"], capture_output=True, text=True)
    return frozenset(
        words[1] for line in listing.stdout.splitlines() if (words := line.split())[1:]
    )


def aac(samples: Samples, sample_rate: int, *, bitrate_kbps: float) -> Samples:
    """Encode with ffmpeg's AAC (low complexity) at about `bitrate_kbps` and decode.

    The rate stays the clip's where AAC has it with this bitrate, else it is the next that has.
    """
    offered = [rate for rate in AAC_RATES_HZ if bitrate_kbps * 1000 <= AAC_BITS_A_SAMPLE * rate]
    working_hz = next_rate(sample_rate, offered)
    bitrate = ("-b:a", f"{bitrate_kbps * 1000:.0f}")
    return at_rate(
        samples,
        sample_rate,
        working_hz,
        lambda clip: _round_trip(clip, working_hz, "aac", ("adts", "aac"), AAC_DELAY, bitrate),
    )


def g722(samples: Samples, sample_rate: int) -> Samples:
    """Encode with G.722, the wideband codec of office telephones, at 64 kbps and decode."""
    return at_rate(
        samples,
        sample_rate,
        G722_RATE_HZ,
        lambda clip: _round_trip(clip, G722_RATE_HZ, "g722", ("g722", "g722"), G722_DELAY),
    )


def speex(samples: Samples, sample_rate: int, *, quality: int) -> Samples:
    """Encode with Speex in its wideband mode at a constant quality and decode."""
    setting = ("-cbr_quality", str(quality))
    return at_rate(
        samples,
        sample_rate,
        SPEEX_RATE_HZ,
        lambda clip: _round_trip(
            clip, SPEEX_RATE_HZ, "libspeex", ("ogg", "ogg"), SPEEX_DELAY, setting
        ),
    )


def gsm(samples: Samples, sample_rate: int) -> Samples:
    """Encode with GSM full rate, that of mobile telephones, at 13 kbps and 8 kHz, and decode."""
    return at_rate(
        samples,
        sample_rate,
        GSM_RATE_HZ,
        lambda clip: _round_trip(clip, GSM_RATE_HZ, "libgsm", ("gsm", "gsm"), delay=0),
    )


def g723(samples: Samples, sample_rate: int) -> Samples:
    """Encode with G.723.1 at 6.3 kbps and 8 kHz, a codec of internet telephones, and decode."""
    return at_rate(
        samples,
        sample_rate,
        G723_RATE_HZ,
        lambda clip: _round_trip(clip, G723_RATE_HZ, "g723_1", ("g723_1", "g723_1"), G723_DELAY),
    )


def ra144(samples: Samples, sample_rate: int) -> Samples:
    """Encode with RealAudio 14.4, a CELP codec at 8 kbps and 8 kHz, and decode."""
    formats = ("matroska", "matroska")
    return at_rate(
        samples,
        sample_rate,
        RA144_RATE_HZ,
        lambda clip: _round_trip(clip, RA144_RATE_HZ, "real_144", formats, RA144_DELAY),
    )


def codec2(samples: Samples, sample_rate: int, *, bitrate_bps: int) -> Samples:
    """Encode with Codec 2, a vocoder for radio, and decode: speech re-made at 8 kHz."""
    mode = ("-mode", str(bitrate_bps))
    formats = ("codec2raw", "codec2raw")
    return at_rate(
        samples,
        sample_rate,
        CODEC2_RATE_HZ,
        lambda clip: _round_trip(
            clip, CODEC2_RATE_HZ, "libcodec2", formats, CODEC2_DELAY, mode, read=mode
        ),
    )


def _round_trip(
    samples: Samples,
    sample_rate: int,
    encoder: str,
    formats: tuple[str, str],  # as ffmpeg names them when it writes and when it reads
    delay: int,
    settings: tuple[str, ...] = (),
    read: tuple[str, ...] = (),
) -> Samples:
    path = needs(encoder)
    raw = ("-f", "f32le", "-ar", str(sample_rate), "-ac", "1")
    written, stored = formats
    late = fit(samples, samples.size + delay).astype("<f4").tobytes()
    coded = convert(path, (*raw, "-i", "pipe:"), ("-c:a", encoder, *settings, "-f", written), late)
    decoded = convert(path, ("-f", stored, *read, "-i", "pipe:"), raw, coded)
    return np.frombuffer(decoded, "<f4")[delay:].astype(np.float32)


def convert(path: str, source: tuple[str, ...], target: tuple[str, ...], content: bytes) -> bytes:
    """Return what ffmpeg makes of some bytes."""
    quiet = ("-hide_banner", "-loglevel", "error")
    done = subprocess.run(
        [path, *quiet, *source, *target, "pipe:"], input=content, capture_output=True
    )
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()
        raise AttackError(f"ffmpeg failed: {why[-1] if why else done.returncode}".lower())
    return done.stdout
