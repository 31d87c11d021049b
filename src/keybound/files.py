"""Whole files: read a recording, do one thing to it, write it back as it was.

An output appears only when it is right: a marked file is read back and verified first.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from keybound import attacks, audio
from keybound.errors import AudioError
from keybound.keys import Key
from keybound.watermark import Verdict, Watermarker


def embed(
    marker: Watermarker,
    host: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    key: Key,
    payload: int,
    nonce: bytes = b"",
    rho: int | None = None,
    replace: bool = False,
) -> tuple[Verdict, int]:
    """Mark a file; give the verdict on what was written and the number of clipped samples.

    The mark is verified from the written file, after whatever its encoder did to it. If it
    cannot be read, an error says why and nothing is left behind.
    """
    with _output(host, output, replace) as part:
        recording = audio.read(host)
        samples, rate = recording.samples, recording.sample_rate
        marked = marker.embed(samples, rate, key=key, payload=payload, nonce=nonce, check=False)
        clipped = audio.write(part, marked, recording)
        heard = audio.read(part)
        verdict = marker.verify(
            heard.samples, heard.sample_rate, key=key, payload=payload, nonce=nonce, rho=rho
        )
        if not verdict.verified:
            why = marker.why_unreadable(samples, rate)
            raise AudioError(f"{host} does not hold a mark: {why}", hint="nothing was written")
    return verdict, clipped


def attack(
    name: str,
    recording: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    strength: float | None,
    seed: int,
    replace: bool = False,
) -> dict[str, Any]:
    """Attack a file channel by channel; give the parameters that were drawn."""
    hit = attacks.attack(name)
    parameters = hit.draw(np.random.default_rng(seed), strength)
    with _output(recording, output, replace) as part:
        heard = audio.read(recording)
        channels = [
            hit.apply(channel.astype(np.float32), heard.sample_rate, parameters)
            for channel in heard.samples.T
        ]
        audio.write(part, np.stack(channels, axis=1), heard)
    return parameters


@contextmanager
def _output(
    source: str | os.PathLike[str], output: str | os.PathLike[str], replace: bool
) -> Iterator[Path]:
    """Give a name beside the output that takes its place if all goes well, and vanishes if not."""
    path = Path(output)
    part = path.parent / f".keybound-{secrets.token_hex(8)}{path.suffix}"
    try:
        if path.exists():
            if Path(source).exists() and path.samefile(source):
                raise AudioError(f"{path} is the recording itself", hint="name another output")
            if path.is_dir():
                raise AudioError(f"{path} is a folder", hint="name a file in it")
            if not replace:
                raise AudioError(f"{path} exists", hint="--force replaces it")
        elif not path.parent.is_dir():  # known now rather than after an hour's work
            raise AudioError(f"{path.parent} is not a folder", hint="make it first")
        yield part
        part.replace(path)
    except AudioError as error:  # the name in between would tell the user nothing
        message = error.message.replace(str(part), str(path))
        raise AudioError(message, hint=error.hint) from error
    except OSError as error:
        hint = "check that the folder exists and may be written to"
        raise AudioError(f"{path} cannot be written", hint=hint) from error
    finally:
        with suppress(OSError):
            part.unlink()
