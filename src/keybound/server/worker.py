"""A process that works on recordings: one job a line on standard input, one answer a line back.

A process of its own can be stopped when a recording takes too long, and takes nothing with it when
a decoder fails. It ends with its input, and so with the server. Knows no HTTP.
"""

import json
import os
import resource
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from keybound.crypto.signing import SigningKey
from keybound.errors import DEBUG, KeyBoundError, explain
from keybound.provenance.registry import Registry
from keybound.server.jobs import INTERNAL, JOBS
from keybound.server.tools import Setup, Tools
from keybound.watermark.watermarker import Watermarker


def main() -> None:
    """Answer jobs until standard input ends."""
    # Not an argument: the address of a registry may hold a password, and all see arguments.
    setup = Setup.parse(sys.stdin.buffer.readline())
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints is no answer
    warnings.simplefilter("ignore")  # which may name key files
    marker = Watermarker(setup.model)
    marker.detect(np.sin(np.arange(16_000, dtype=np.float32)), 16_000)  # loads the network
    registry = None if setup.place is None else Registry(setup.place)
    # A core dump would keep audio and keys.
    limit(resource.RLIMIT_DATA, setup.worker_bytes)
    limit(resource.RLIMIT_CORE, 0)
    signer = None if setup.signer is None else SigningKey.read(setup.signer)
    certified = None if setup.signs is None else setup.signs.signer()
    tools = Tools(setup, marker, registry, signer, certified)
    _say(answers, {"ready": marker.card.weights})
    for line in sys.stdin.buffer:
        _say(answers, answer(tools, **json.loads(line)))


def answer(tools: Tools, do: str, path: str, **options: Any) -> dict[str, Any]:
    """Return what a job gives, or why it gives nothing."""
    tempfile.tempdir = str(Path(path).parent)  # so that all of a request goes with its folder
    try:
        return JOBS[do](tools, path=path, **options)
    except (KeyBoundError, OSError) as error:
        if isinstance(error, INTERNAL):
            return {"failed": type(error).__name__}
        message, hint = explain(error)
        return {"error": message.replace(path, "the file"), "hint": hint}
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        return {"failed": type(error).__name__}


def _say(answers: BinaryIO, said: dict[str, Any]) -> None:
    answers.write(json.dumps(said, allow_nan=False).encode() + b"\n")


def limit(kind: int, most: int) -> None:
    """Limit what this process, and what it starts, may use."""
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    main()
