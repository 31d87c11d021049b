"""SilentCipher 1.0.5 (Sony, MIT): its 44.1 kHz model, 40 bits in a message of 0.98 s.

`pip install --no-deps silentcipher`, with `pyyaml`. Its 16 kHz model is not offered: the messages
of its package (20 symbols of 4 values) do not fit into that model's 15 symbols of 3 values.
"""

import importlib
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keybound.benchmark.measure.methods import Reading
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.peers import stand_ins
from keybound.benchmark.peers.peer import Functions, Peer, quiet
from keybound.errors import ModelError

RATE, BITS = 44100, 40
MODULES = ("torch", "yaml", "silentcipher")
FILES = ("hparams.yaml", "enc_c.ckpt", "dec_c.ckpt", "dec_m_0.ckpt")
HUB = "models--sony--silentcipher/snapshots/*/44_1_khz/*"
SETTINGS = {  # hparams.yaml of the released model, for random weights
    "model_type": "silentcipher", "SR": RATE, "N_FFT": 4096, "HOP_LENGTH": 2048,
    "message_band_size": 1024, "message_dim": 5, "message_len": 21, "message_sdr": 47,
    "n_messages": 1, "enc_n_layers": 3, "dec_c_n_layers": 4, "ensure_negative_message": True,
    "ensure_constrained_message": False, "frame_level_normalization": False,
    "utterance_level_normalization": True, "no_normalization": False,
}  # fmt: skip


def load(files: Sequence[Path]) -> Functions:
    """Return SilentCipher's functions: presence is its confidence, 0 where it finds no message.

    That is the share of symbols that agree with the commonest at their place in the message, so
    it says nothing below two repetitions: clips have 2 s. It looks at one phase of its frames, as
    its documentation does; a search over 205 phases after a crop is its option and not used.
    """
    with stand_ins.standing_in(stand_ins.librosa() | stand_ins.unused(pydub="AudioSegment")):
        server = importlib.import_module("silentcipher.server")
        model = _model(server, files)

    def embed(clip: Clip, secret: Secret) -> Clip:
        message = list(secret.payload.to_bytes(BITS // 8, "big"))
        with quiet():
            marked, _ = model.encode_wav(
                clip, RATE, message, message_sdr=model.config.message_sdr, calc_sdr=False
            )
        return np.asarray(marked, np.float32)

    def read(clip: Clip) -> Reading:
        # Silence has no level to normalise; the decoder would call it certain of anything.
        found = model.decode_wav(clip, RATE, phase_shift_decoding=False) if clip.any() else {}
        if not found.get("status"):
            return Reading(0.0, np.zeros(BITS, np.float32))
        bits = np.unpackbits(np.array(found["messages"][0], np.uint8))
        return Reading(float(found["confidences"][0]), bits.astype(np.float32) - 0.5)

    return embed, read


def _model(server: Any, files: Sequence[Path]) -> Any:
    if files:
        model = server.get_model("44.1k", str(files[0].parent), str(files[0]))
        if model.sr != RATE or model.message_len != SETTINGS["message_len"]:
            raise ModelError(f"{files[0].parent} is not silentcipher's model for 44.1 kHz")
        return model
    # Its constructor loads weights; there are none to load.
    untrained = type("Untrained", (server.Model,), {"load_models": lambda *_: None})
    return untrained(Namespace(**SETTINGS, load_ckpt=None))


PEER = Peer("silentcipher", RATE, BITS, load, MODULES, FILES, HUB, seconds=2.0)
