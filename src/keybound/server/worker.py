"""A process that detects marks: one job a line on standard input, one answer a line back.

A process of its own can be stopped when a recording takes too long, and takes nothing with it when
a decoder fails. It ends with its input, and so with the server. Knows no HTTP.
"""

import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from keybound.errors import DEBUG, KeyBoundError, explain
from keybound.identity.reading import read_public
from keybound.watermark import files
from keybound.watermark.options import DetectOptions
from keybound.watermark.plain import as_plain
from keybound.watermark.watermarker import Watermarker


class Setup(NamedTuple):
    """What a worker is started with, as JSON in its only argument."""

    model: str | None
    longest_s: float
    decoded_bytes: int
    worker_bytes: int


def main() -> None:
    """Answer jobs until standard input ends."""
    setup = Setup(*json.loads(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints is no answer
    marker = Watermarker(setup.model)
    marker.detect(np.sin(np.arange(16_000, dtype=np.float32)), 16_000)  # loads the network
    # ffmpeg inherits the limits. A core dump would keep audio.
    _limit(resource.RLIMIT_FSIZE, setup.decoded_bytes)
    _limit(resource.RLIMIT_DATA, setup.worker_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    _say(answers, {"ready": marker.card.weights})
    for line in sys.stdin.buffer:
        _say(answers, answer(marker, setup, **json.loads(line)))


def answer(marker: Watermarker, setup: Setup, path: str, false_alarms: float) -> dict[str, Any]:
    """Return the detection in a file, or why there is none."""
    tempfile.tempdir = str(Path(path).parent)  # so that all of a request goes with its folder
    how = DetectOptions(false_alarms=false_alarms)
    try:
        found = files.detect(marker, path, how, longest_s=setup.longest_s)
    except (KeyBoundError, OSError) as error:
        message, hint = explain(error)
        return {"error": message.replace(path, "the file"), "hint": hint}
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        return {"failed": type(error).__name__}
    return {"found": as_plain(found, read_public(found) if found.present else [])}


def _say(answers: BinaryIO, said: dict[str, Any]) -> None:
    answers.write(json.dumps(said, allow_nan=False).encode() + b"\n")


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    main()
