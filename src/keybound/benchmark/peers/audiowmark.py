"""audiowmark 0.6.5 (GPL-3): a program of its own, 128 bits in blocks of 52 s, any rate.

The command is found on PATH, or named by `KEYBOUND_AUDIOWMARK`. Its sync pattern follows from its
key, so nobody finds a mark without it; here all clips have its default key, which any reader has.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import soundfile

from keybound.benchmark.measure.methods import Reading
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.peers.peer import Functions, Peer
from keybound.crypto.codes import to_bits
from keybound.errors import ModelError

RATE, BITS = 16000, 128


def load(files: Sequence[Path]) -> Functions:
    """Return its functions: presence is the sync score of its best match, the payload its first.

    Matches come in its own order of relevance. It leaves it to the user to know a message, and its
    scores of short clips are high without a mark: there is no threshold that it ships with.
    """
    (command,) = files

    def run(clip: Clip, *arguments: str) -> None:
        soundfile.write(arguments[1], clip, RATE, subtype="FLOAT")
        subprocess.run([command, "--quiet", *arguments], capture_output=True, check=True)

    def embed(clip: Clip, secret: Secret) -> Clip:
        with TemporaryDirectory() as place:
            files = [f"{place}/host.wav", f"{place}/marked.wav"]
            run(clip, "add", *files, f"{secret.payload:032x}")
            return np.asarray(soundfile.read(files[1], dtype="float32")[0])

    def read(clip: Clip) -> Reading:
        with TemporaryDirectory() as place:
            answer = Path(place) / "answer.json"
            run(clip, "get", f"{place}/heard.wav", "--json", str(answer))
            matches = json.loads(answer.read_text())["matches"]
        if not matches:
            return Reading(0.0, np.zeros(BITS, np.float32))
        bits = to_bits(int(matches[0]["bits"], 16), BITS)
        score = max(match["quality"] for match in matches)
        return Reading(float(score), bits.astype(np.float32) - 0.5)

    return embed, read


def release(files: Sequence[Path]) -> str:
    """Return the version that the command says it has."""
    (command,) = files
    told = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    return told.stdout.split()[-1]


def find(folder: Path | None, trained: bool) -> list[Path]:  # noqa: ARG001
    """Find the command."""
    if not trained:
        raise ModelError("audiowmark: has no weights")
    found = shutil.which(os.environ.get("KEYBOUND_AUDIOWMARK", "audiowmark"))
    if found is None:
        hint = "github.com/swesterfeld/audiowmark, or set KEYBOUND_AUDIOWMARK to the command"
        raise ModelError("audiowmark: not installed", hint=hint)
    return [Path(found)]


PEER = Peer("audiowmark", RATE, BITS, load, (), find=find, release=release)
