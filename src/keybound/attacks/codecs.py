"""Codec attacks: the real encoders and decoders that libsndfile carries, in memory.

MP3 is LAME at a constant bitrate, Opus and Vorbis are the reference libraries, which vary theirs,
and the telephone uses G.711.
A rate that the codec cannot take is resampled to one that it can, as its own tools do. The
settings below were measured by the size of the files: see `tests/attacks/test_codecs.py`.
Knows nothing of marks, keys or networks.
"""

from io import BytesIO

import numpy as np
import soundfile as sf
from scipy.signal import butter, sosfilt

from keybound.attacks.rates import Samples, at_rate, fit, next_rate
from keybound.errors import AttackError

# libsndfile maps its compression level from 0 to 1 linearly from the highest to the lowest
# bitrate; LAME then takes the nearest step that it has.
MP3_KBPS = {  # sample rate -> (lowest, highest)
    **dict.fromkeys((8000, 11025, 12000), (8, 64)),  # MPEG 2.5
    **dict.fromkeys((16000, 22050, 24000), (8, 160)),  # MPEG 2
    **dict.fromkeys((32000, 44100, 48000), (32, 320)),  # MPEG 1
}
MP3_HIGHEST_LEVEL = 0.9999  # libsndfile refuses 1.0
MP3_DELAY = 576 + 529  # samples: LAME's encoder delay and the decoder's
OPUS_RATES_HZ = (8000, 12000, 16000, 24000, 48000)
OPUS_KBPS = (6.0, 256.0)
VORBIS_HIGHEST_HZ = 48000
TELEPHONE_RATE_HZ = 8000
TELEPHONE_BAND_HZ = (300.0, 3400.0)


def mp3(samples: Samples, sample_rate: int, *, bitrate_kbps: float) -> Samples:
    """Encode with LAME at a constant `bitrate_kbps`, decode, and take the delay away.

    The rate stays the clip's where MPEG layer III has it with this bitrate; else the clip goes
    through the next higher one that has, or the highest below.
    """
    offered = [rate for rate, (low, high) in MP3_KBPS.items() if low <= bitrate_kbps <= high]
    working_hz = next_rate(sample_rate, offered)
    low, high = MP3_KBPS[working_hz]
    level = min((high - bitrate_kbps) / (high - low), MP3_HIGHEST_LEVEL)

    def round_trip(clip: Samples) -> Samples:
        decoded = _round_trip(clip, working_hz, "MP3", "MPEG_LAYER_III", level, "CONSTANT")
        # Where a frame has room for LAME's tag, the decoder learns the delay and length from it
        # and gives back the clip as it stood. Small frames (up to 32 kbps at 16 kHz) have none:
        # then the delay is still in front, and the outcome is longer than the clip.
        return decoded[MP3_DELAY:] if decoded.size > clip.size else decoded

    return at_rate(samples, sample_rate, working_hz, round_trip)


def opus(samples: Samples, sample_rate: int, *, bitrate_kbps: float) -> Samples:
    """Encode with Opus at a mean of about `bitrate_kbps` (variable) and decode.

    The decoder takes the codec's delay away to within two samples at 48 kHz.
    """
    working_hz = next_rate(sample_rate, OPUS_RATES_HZ)
    low, high = OPUS_KBPS
    level = (high - bitrate_kbps) / (high - low)
    return at_rate(
        samples,
        sample_rate,
        working_hz,
        lambda clip: _round_trip(clip, working_hz, "OGG", "OPUS", level),
    )


def vorbis(samples: Samples, sample_rate: int, *, quality: float) -> Samples:
    """Encode with Vorbis at a `quality` from 0 to 1 (the encoder's 0 to 10) and decode.

    Vorbis has no fixed bitrate: 0.6 is about 48 kbps for speech at 16 kHz.
    """
    working_hz = min(sample_rate, VORBIS_HIGHEST_HZ)
    return at_rate(
        samples,
        sample_rate,
        working_hz,
        lambda clip: _round_trip(clip, working_hz, "OGG", "VORBIS", 1 - quality),
    )


def telephone(samples: Samples, sample_rate: int) -> Samples:
    """Send the clip over a telephone line: 8 kHz, 300 to 3400 Hz, G.711 mu-law at 64 kbps.

    The band is cut by a Butterworth filter of fourth order at either end.
    """
    band = butter(4, TELEPHONE_BAND_HZ, "bandpass", fs=TELEPHONE_RATE_HZ, output="sos")

    def round_trip(clip: Samples) -> Samples:
        # Clipped, since libsndfile's mu-law wraps around beyond full scale.
        narrow = np.clip(sosfilt(band, clip), -1.0, 1.0)
        return _round_trip(narrow, TELEPHONE_RATE_HZ, "WAV", "ULAW")

    return at_rate(samples, sample_rate, TELEPHONE_RATE_HZ, round_trip)


def encode(
    samples: Samples,
    sample_rate: int,
    container: str,
    codec: str,
    level: float | None,
    mode: str | None,
) -> bytes:
    """Return the file that libsndfile writes for the clip at a compression level."""
    file = BytesIO()
    try:
        sf.write(
            file,
            samples,
            sample_rate,
            format=container,
            subtype=codec,
            compression_level=level,
            bitrate_mode=mode,
        )
    except (sf.LibsndfileError, ValueError) as error:
        raise AttackError(
            f"this soundfile cannot encode {codec.lower()}", hint="pip install 'soundfile>=0.13'"
        ) from error
    return file.getvalue()


def _round_trip(
    samples: Samples,
    sample_rate: int,
    container: str,
    codec: str,
    level: float | None = None,
    mode: str | None = None,
) -> Samples:
    file = encode(samples, sample_rate, container, codec, level, mode)
    decoded: Samples = sf.read(BytesIO(file), dtype="float32")[0]
    # A damaged tail can come back short; the caller counts on at least the clip's length.
    return fit(decoded, max(decoded.size, samples.size)).astype(np.float32)
