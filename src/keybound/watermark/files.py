"""Files: read a recording in blocks, embed, detect or attack, write it in its own format.

However long a file is, only some seconds of it are in memory. An output appears only when it is
right: a marked file is read back and verified first.
"""

import dataclasses
import hashlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keybound import output as outputs
from keybound import stages
from keybound.audio import arrays, recordings
from keybound.errors import AudioError
from keybound.output import Part
from keybound.provenance import fingerprint
from keybound.provenance.fingerprint import Fingerprint
from keybound.provenance.manifest import Manifest
from keybound.seal.search import SealSearch
from keybound.types import Analysis, Detection, Levels
from keybound.watermark.channels import ChannelFeeder
from keybound.watermark.options import (
    SHORTEST_S,
    USUAL,
    DetectOptions,
    EmbedOptions,
    too_short,
    why_unreadable,
)
from keybound.watermark.stream import StreamDetector
from keybound.watermark.verdict import Verdict
from keybound.watermark.watermarker import BLOCK_S, Watermarker

Progress = Callable[[int, int], None]  # frames done, of so many

Appear = Callable[[Part, "Written"], None]
Sign = Callable[[Path], Manifest]  # signs a file in place

NO_FINGERPRINT = Fingerprint(0, b"")
_BLOCK_SAMPLES = 1 << 22  # in all channels: what bounds memory at high rates


@dataclass(frozen=True)
class Written:
    """What was written when a file was marked."""

    seconds: float
    power: float  # mean square of the host
    clipped: int  # samples that full scale limited
    position: int | None  # keystream position of the seal; None: not sealed
    samples: int  # of one channel
    rate: int
    sha256: str = ""  # of the file
    fingerprint: Fingerprint = NO_FINGERPRINT
    not_carried: tuple[str, ...] = ()  # metadata of the host that the output cannot hold
    verdict: Verdict | None = None  # on what was read back; None: it was not
    manifest: Manifest | None = None  # of C2PA; None: the file is not signed


def _publish(part: Part, _: Written) -> None:
    part.publish()


def embed(
    marker: Watermarker,
    host: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: EmbedOptions,
    *,
    rho: int | None = None,
    check: bool = True,
    replace: bool = False,
    progress: Progress = lambda *_: None,
    sign: Sign | None = None,
    appear: Appear = _publish,
) -> Written:
    """Embed a mark in a file, write it to `output` and return what was written.

    With `check` the mark is verified from the written file, after its encoder; if it cannot be
    read, an error says why and no output is left. Without it half the time is needed. The output
    has the host's mode. `sign` signs the finished part, and `appear` publishes it.
    """
    mode, rounds = outputs.mode_of(host), 2 if check else 1
    with outputs.staged(output, source=host, replace=replace, mode=mode) as part:
        written = write(marker, host, part.path, options, lambda n, of: progress(n, rounds * of))
        if check:
            analysis = analyse(marker, part.path, progress=lambda n, of: progress(of + n, 2 * of))
            verdict = read_back(marker, analysis, options, written.position, rho)
            if not verdict.rule_holds:
                why = why_unreadable(written.power, written.seconds)
                raise AudioError(f"{host} does not hold a mark: {why}", hint="nothing was written")
            written = dataclasses.replace(written, verdict=verdict)
            levels = analysis.levels[None]
        else:
            levels = levels_of(part.path)
        if sign is not None:
            written = dataclasses.replace(written, manifest=sign(part.path))
        written = described(written, part.path, levels)
        appear(part, written)
    return written


def read_back(
    marker: Watermarker,
    analysis: Analysis,
    options: EmbedOptions,
    position: int | None,
    rho: int | None,
) -> Verdict:
    """Return the verdict on what was just embedded."""
    own: Any = {name: getattr(options, name) for name in ("key", "payload", "nonce", "identifier")}
    if position is None:
        return marker.attribute(analysis.detection, **own, rho=rho)
    where = SealSearch((position,), reach_s=0.0)
    return marker.judge(analysis, **own, rho=rho, search=where)


def described(written: Written, path: Path, levels: Levels) -> Written:
    """Add what a record says of the file that was written."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return dataclasses.replace(written, sha256=digest, fingerprint=fingerprint.take(levels))


def write(
    marker: Watermarker,
    host: str | os.PathLike[str],
    part: Path,
    options: EmbedOptions,
    progress: Progress,
) -> Written:
    """Write a marked copy of a file, in its own format."""
    with recordings.Reader(host) as file:
        if 0 < file.frames < SHORTEST_S * file.sample_rate:
            raise too_short(file.frames / file.sample_rate)
        length_s = file.frames / file.sample_rate if file.frames > 0 else math.inf
        stream = marker.embedder(file.sample_rate, options.within(length_s), channels=file.channels)
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
    options: DetectOptions = USUAL,
    *,
    track: int = 0,
    longest_s: float = math.inf,
    progress: Progress = lambda *_: None,
) -> Detection:
    """Return whether there is a mark in a file, and where. No key is needed.

    `track` is that of a video that holds several, from 0 (`containers.count_tracks`). A recording
    that is longer than `longest_s` is refused before any of it is analysed.
    """
    own = _pushed(
        marker,
        recording,
        options,
        levels=False,
        track=track,
        longest_s=longest_s,
        progress=progress,
    )
    return own.detection()


def analyse(
    marker: Watermarker,
    recording: str | os.PathLike[str],
    options: DetectOptions = USUAL,
    *,
    track: int = 0,
    longest_s: float = math.inf,
    progress: Progress = lambda *_: None,
) -> Analysis:
    """Return the detection in a file with the levels in which seals and records are searched.

    `track` and `longest_s` are those of `detect`.
    """
    own = _pushed(
        marker,
        recording,
        options,
        levels=True,
        track=track,
        longest_s=longest_s,
        progress=progress,
    )
    return own.analysis()


def _pushed(
    marker: Watermarker,
    recording: str | os.PathLike[str],
    options: DetectOptions,
    *,
    levels: bool,
    track: int,
    longest_s: float = math.inf,
    progress: Progress,
) -> StreamDetector:
    """Return a detector to which a whole file was pushed."""
    with recordings.Reader(recording, track, longest_s=longest_s) as file:
        stream = marker.detector(file.sample_rate, options, channels=file.channels, levels=levels)
        held = None  # the last block ends the stream
        for block in _blocks(file, progress):
            if held is not None:
                stream.push(held)
            held = block
    stream.flush(held)
    return stream


def seconds_of(recording: str | os.PathLike[str], longest_s: float = math.inf) -> float:
    """Return the length of a file; refuse one that is longer than `longest_s`."""
    with recordings.Reader(recording, longest_s=longest_s) as file:
        return file.frames / file.sample_rate


def levels_of(recording: str | os.PathLike[str], track: int = 0) -> Levels:
    """Return the levels of a file, all channels together: those of an `Analysis`."""
    with recordings.Reader(recording, track) as file:
        feeder = ChannelFeeder(file.sample_rate, file.channels, levels=True)
        for block in _blocks(file, lambda *_: None):
            feeder.push(block.astype(np.float32, copy=False))
    feeder.push(np.zeros((0, file.channels), np.float32), end=True)
    return feeder.levels(last=True)[None]


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
    """Attack a file channel by channel and return the parameters that were drawn."""
    from keybound import attacks  # scipy and codecs, which marking does without

    hit = attacks.attack(name)
    parameters = hit.draw(np.random.default_rng(seed), strength)
    mode = outputs.mode_of(recording)
    stages.sweep(Path(output).parent)
    with outputs.staged(output, source=recording, replace=replace, mode=mode) as part:
        read = recordings.read(recording)
        channels = [
            hit.apply(channel.astype(np.float32), read.sample_rate, parameters)
            for channel in read.samples.T
        ]
        attacked = arrays.check(np.stack(channels, axis=1), read.sample_rate)
        with recordings.writing(part.path, read, *attacked.shape) as made:
            made.write(attacked)
        part.publish()
    return parameters
