"""Files: read a recording in blocks, do one thing to it, write it back as it was.

However long a file is, only some seconds of it are in memory. An output appears only when it is
right: a marked file is read back and verified first.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from keybound import output as outputs
from keybound import stages
from keybound.audio import arrays, recordings
from keybound.crypto.keys import Key
from keybound.errors import AudioError
from keybound.output import Part
from keybound.provenance import fingerprint, records
from keybound.provenance.fingerprint import Fingerprint
from keybound.seal.search import Places
from keybound.types import Analysis, Detection, Levels
from keybound.watermark.channels import Hearing
from keybound.watermark.stream import SHORTEST_S, How, StreamDetector, too_short
from keybound.watermark.verdict import Verdict
from keybound.watermark.watermarker import BLOCK_S, Watermarker, why_unreadable

Progress = Callable[[int, int], None]  # frames done, of so many

Appear = Callable[[Part, "Written"], None]

NO_FINGERPRINT = Fingerprint(0, b"")
_BLOCK_SAMPLES = 1 << 22  # in all channels: what bounds memory at high rates


@dataclass(frozen=True)
class Written:
    """What was written while marking a file."""

    seconds: float
    power: float  # mean square of the host
    clipped: int  # samples that full scale limited
    position: int | None  # of the seal; None: not sealed
    samples: int  # of one channel
    rate: int
    sha256: str = ""  # of the file
    fingerprint: Fingerprint = NO_FINGERPRINT  # of what it sounds like
    not_carried: tuple[str, ...] = ()  # of what the host says beside its sound


def _appear(part: Part, _: Written) -> None:
    part.publish()


def embed(
    marker: Watermarker,
    host: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    rho: int | None = None,
    replace: bool = False,
    progress: Progress = lambda *_: None,
    appear: Appear = _appear,
    **how: Unpack[How],
) -> tuple[Verdict, Written]:
    """Mark a file; give the verdict on what was written, and what it came to.

    The mark is verified from the written file, after whatever its encoder did to it. If it
    cannot be read, an error says why and nothing is left behind. The output has the host's mode.
    `appear` is called with the finished part, and publishes it.
    """
    secret: Any = {name: how[name] for name in ("key", "payload", "nonce") if name in how}
    mode = outputs.mode_of(host)
    with outputs.staged(output, source=host, replace=replace, mode=mode) as part:
        written = _write(marker, host, part.path, how, lambda done, of: progress(done, 2 * of))
        heard = analyse(marker, part.path, progress=lambda done, of: progress(of + done, 2 * of))
        if written.position is None:
            verdict = marker.attribute(heard.detection, **secret, rho=rho)
        else:
            where = Places((written.position,), reach_s=0.0)
            verdict = marker.judge(heard, **secret, rho=rho, places=where)
        if not verdict.rule_holds:
            why = why_unreadable(written.power, written.seconds)
            raise AudioError(f"{host} does not hold a mark: {why}", hint="nothing was written")
        written = _described(written, part.path, heard.levels[None])
        appear(part, written)
    return verdict, written


def mark(
    marker: Watermarker,
    host: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    replace: bool = False,
    progress: Progress = lambda *_: None,
    appear: Appear = _appear,
    **how: Unpack[How],
) -> Written:
    """Mark a file without reading the mark back, in half the time: see `embed`."""
    mode = outputs.mode_of(host)
    with outputs.staged(output, source=host, replace=replace, mode=mode) as part:
        written = _write(marker, host, part.path, how, progress)
        written = _described(written, part.path, listen(part.path))
        appear(part, written)
    return written


def record(
    marker: Watermarker, written: Written, *, party: str, key: Key, payload: int, nonce: bytes
) -> records.Stamped:
    """Make the record of an embedding: what was marked for whom, now, and what it sounds like."""
    made = records.Record(
        created=datetime.now(UTC),
        party=party,
        payload=payload,
        bits=marker.card.bits,
        nonce=nonce,
        position=written.position,
        key=key.fingerprint,
        detector=marker.card.sha256["detector.onnx"],
        samples=written.samples,
        rate=written.rate,
        sha256=written.sha256 or None,
        fingerprint=written.fingerprint,
    )
    return records.stamp(made, key)


def _described(written: Written, path: Path, levels: Levels) -> Written:
    """Add what a record says of the file that was written."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return dataclasses.replace(written, sha256=digest, fingerprint=fingerprint.take(levels))


def _write(
    marker: Watermarker,
    host: str | os.PathLike[str],
    part: Path,
    how: How,
    progress: Progress,
) -> Written:
    """Write a marked copy of a file, in its own format."""
    with recordings.Reader(host) as file:
        if 0 < file.frames < SHORTEST_S * file.sample_rate:
            raise too_short(file.frames / file.sample_rate)
        stream = marker.embedder(file.sample_rate, channels=file.channels, **how)
        energy = 0.0
        with recordings.writing(part, file, file.frames, file.channels) as made:
            held = None  # the last block ends the stream
            for block in _blocks(file, progress):
                energy += float(np.sum(np.square(block)))
                if held is not None:
                    made.write(stream.push(held).reshape(-1, file.channels))
                held = block
            made.write(stream.flush(held).reshape(-1, file.channels))
    power = energy / max(1, made.frames * file.channels)
    seconds = made.frames / file.sample_rate
    done = Written(seconds, power, made.clipped, stream.position, made.frames, file.sample_rate)
    return dataclasses.replace(done, not_carried=made.not_carried)


def detect(
    marker: Watermarker,
    recording: str | os.PathLike[str],
    *,
    progress: Progress = lambda *_: None,
) -> Detection:
    """Return whether there is a mark in a file, and where. No key is needed."""
    return _pushed(marker, recording, levels=False, progress=progress).detection()


def analyse(
    marker: Watermarker,
    recording: str | os.PathLike[str],
    *,
    progress: Progress = lambda *_: None,
) -> Analysis:
    """Return the detection in a file with what seals and records are looked for in."""
    return _pushed(marker, recording, levels=True, progress=progress).analysis()


def _pushed(
    marker: Watermarker, recording: str | os.PathLike[str], *, levels: bool, progress: Progress
) -> StreamDetector:
    """Return a detector that has heard a whole file."""
    with recordings.Reader(recording) as file:
        stream = marker.detector(file.sample_rate, channels=file.channels, levels=levels)
        held = None  # the last block ends the stream
        for block in _blocks(file, progress):
            if held is not None:
                stream.push(held)
            held = block
    stream.flush(held)
    return stream


def listen(recording: str | os.PathLike[str]) -> Levels:
    """Hear the levels of a file, as a detection holds them, without the networks."""
    with recordings.Reader(recording) as file:
        hearing = Hearing(file.sample_rate, file.channels, levels=True)
        for block in _blocks(file, lambda *_: None):
            hearing.hear(block.astype(np.float32, copy=False))
    hearing.hear(np.zeros((0, file.channels), np.float32), end=True)
    return hearing.levels(last=True)[None]


def _blocks(file: recordings.Reader, progress: Progress) -> Iterator[arrays.Samples]:
    size = min(round(BLOCK_S * file.sample_rate), _BLOCK_SAMPLES // file.channels)
    done = 0
    for block in file.blocks(size):
        yield block
        done += len(block)
        progress(min(done, file.frames), file.frames)


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
    from keybound import attacks  # scipy and codecs, which marking does without

    hit = attacks.attack(name)
    parameters = hit.draw(np.random.default_rng(seed), strength)
    mode = outputs.mode_of(recording)
    stages.sweep(Path(output).parent)
    with outputs.staged(output, source=recording, replace=replace, mode=mode) as part:
        heard = recordings.read(recording)
        channels = [
            hit.apply(channel.astype(np.float32), heard.sample_rate, parameters)
            for channel in heard.samples.T
        ]
        attacked = arrays.check(np.stack(channels, axis=1), heard.sample_rate)
        with recordings.writing(part.path, heard, *attacked.shape) as made:
            made.write(attacked)
        part.publish()
    return parameters
