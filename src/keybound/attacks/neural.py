"""Neural channels: speech re-synthesised by other people's networks.

Lyra v2 (Google, Apache-2.0) is here exactly as released: the three `.tflite` files, run frame by
frame as the codec runs them in a call. Knows nothing of marks, keys or networks of ours.
"""

import os
from pathlib import Path

import numpy as np

from keybound.attacks.rates import Samples, at_rate, fit
from keybound.errors import AttackError

LYRA_RATE_HZ = 16000
LYRA_FRAME = 320  # samples: 20 ms, 50 frames a second
LYRA_QUANTIZERS = {3.2: 16, 6.0: 30, 9.2: 46}  # kbps -> stages of 4 bits: 50 x 30 x 4 = 6000
LYRA_FILES = ("soundstream_encoder.tflite", "quantizer.tflite", "lyragan.tflite")
INT16 = np.float32(32768)


def lyra(samples: Samples, sample_rate: int, *, bitrate_kbps: float) -> Samples:
    """Send the clip through the Lyra v2 codec at 3.2, 6 or 9.2 kbps.

    Like the released codec it takes and gives 16-bit samples at 16 kHz. Its delay lies in the
    buffering of a call alone: samples come out where they went in.
    """
    if bitrate_kbps not in LYRA_QUANTIZERS:
        offered = ", ".join(f"{kbps:g}" for kbps in LYRA_QUANTIZERS)
        raise AttackError(f"lyra has no {bitrate_kbps:g} kbps", hint=f"it has {offered}")
    quantizers = LYRA_QUANTIZERS[bitrate_kbps]
    return at_rate(samples, sample_rate, LYRA_RATE_HZ, lambda clip: _lyra_frames(clip, quantizers))


def lyra_folder() -> Path:
    """Find the folder with Lyra's weights: `KEYBOUND_LYRA`, or beside the repository."""
    named = os.environ.get("KEYBOUND_LYRA")
    beside = Path(__file__).resolve().parents[4] / "shared" / "channels" / "lyra"
    folder = Path(named) if named else beside
    if not all((folder / file).is_file() for file in LYRA_FILES):
        raise AttackError(
            "lyra: weights absent", hint=f"set KEYBOUND_LYRA to a folder with {LYRA_FILES[0]}, ..."
        )
    return folder


def _lyra_frames(samples: Samples, quantizers: int) -> Samples:
    """Run the codec over a 16 kHz clip, frame by frame."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise AttackError(
            "lyra needs ai-edge-litert", hint="pip install keybound[bench]"
        ) from error
    folder = lyra_folder()
    # Fresh interpreters for each clip, because they hold the state of the stream and
    # `reset_all_variables` fills it with zero bytes, not with the models' own starting values
    # (int8 zero points): the second clip would come out otherwise than the first. They cost 2 ms,
    # and no state is shared between threads.
    encoder, quantizer, decoder = (
        Interpreter(model_path=str(folder / file), num_threads=1) for file in LYRA_FILES
    )
    analyse = encoder.get_signature_runner()
    to_codes = quantizer.get_signature_runner("encode")
    from_codes = quantizer.get_signature_runner("decode")
    synthesise = decoder.get_signature_runner()
    stages = np.array(quantizers, dtype=np.int32)

    whole = fit(samples, -(-samples.size // LYRA_FRAME) * LYRA_FRAME)
    frames = _as_int16(whole).reshape(-1, 1, LYRA_FRAME)
    decoded = np.empty_like(frames)
    for index, frame in enumerate(frames):  # (1, 320)
        features = analyse(input_audio=frame)["output_0"]  # (1, 1, 64)
        codes = to_codes(input_frames=features, num_quantizers=stages)["output_0"]  # (46, 1, 1)
        features = from_codes(encoding_indices=codes)["output_0"]
        decoded[index] = synthesise(input_audio=features)["output_0"]
    return _as_int16(decoded.reshape(-1))


def _as_int16(samples: Samples) -> Samples:
    """Round to the steps of 16-bit samples, still as floats from -1 to 1."""
    steps: Samples = np.clip(np.round(samples * INT16), -INT16, INT16 - 1)
    return steps / INT16
