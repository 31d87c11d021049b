"""Videos: mark every track of sound of a file, each as a recording of its own, and copy the rest.

As with files, the output appears only when it is right: each track is read back from it and
verified first. A track without sound is copied as it is.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from keybound import output as outputs
from keybound.audio import containers, muxing, recordings
from keybound.audio.containers import Container, Stream
from keybound.errors import AudioError
from keybound.output import Part
from keybound.provenance import fingerprint
from keybound.watermark import files
from keybound.watermark.files import Progress, Written
from keybound.watermark.options import SILENCE_DBFS, EmbedOptions, why_unreadable
from keybound.watermark.watermarker import Watermarker

Give = Callable[[float], EmbedOptions]  # how a track of so many seconds is marked
STEPS = 1000  # of progress in each of the passes over a track
SILENT = 10 ** (SILENCE_DBFS / 10)  # mean square


@dataclasses.dataclass(frozen=True)
class Track:
    """A track that was marked; `number` is from 0."""

    number: int
    written: Written
    options: EmbedOptions


@dataclasses.dataclass(frozen=True)
class Video:
    """A video whose tracks were marked; `silent` are those without sound, which have no mark.

    What is not carried over, of the whole file, is told with the first track.
    """

    tracks: tuple[Track, ...]
    silent: tuple[int, ...]


Appear = Callable[[Part, Sequence[Track]], None]


def _publish(part: Part, _: Sequence[Track]) -> None:
    part.publish()


def is_video(output: str | os.PathLike[str]) -> bool:
    """Return whether an output of this name is a video."""
    return Path(output).suffix.lower() in containers.MUXERS


def embed(
    marker: Watermarker,
    host: str | os.PathLike[str],
    output: str | os.PathLike[str],
    give: Give,
    *,
    rho: int | None = None,
    check: bool = True,
    replace: bool = False,
    progress: Progress = lambda *_: None,
    appear: Appear = _publish,
) -> Video:
    """Embed a mark in each track of a video and return what was written.

    `give` is called for each track with its length. The other arguments are those of `files.embed`;
    `appear` gets all tracks that were marked.
    """
    source = containers.opened(Path(host))
    if source is None or not source.tracks:
        what = "has no sound" if source is not None else "is no video"
        raise AudioError(f"{host} {what}", hint="mp4, mov, mkv and webm with an audio track are")
    passes = len(source.tracks) * (2 if check else 1)
    done = 0

    def passing(n: int, of: int) -> None:
        progress(done * STEPS + n * STEPS // max(1, of), passes * STEPS)

    mode = outputs.mode_of(host)
    with outputs.staged(output, source=host, replace=replace, mode=mode) as part:
        tracks, silent, sounds = list[Track](), list[int](), dict[int, muxing.Sound]()
        for one in source.tracks:
            made = _mark(marker, source, one, part.stage, give, passing)
            if made is None:
                silent.append(one.number)
            else:
                track, sounds[one.number] = made
                tracks.append(track)
            done += 1
        if not tracks:
            what = f"{host} does not hold a mark: no track has sound"
            raise AudioError(what, hint="nothing was written")
        not_carried = muxing.write(source, sounds, part.path)
        for sound in sounds.values():
            sound.wav.unlink()
        for at, track in enumerate(tracks):
            tracks[at] = _checked(marker, host, part.path, track, rho, check, passing)
            done += check
        tracks = _hashed(tracks, part.path)
        first = dataclasses.replace(tracks[0].written, not_carried=not_carried)
        tracks[0] = dataclasses.replace(tracks[0], written=first)
        appear(part, tracks)
    return Video(tuple(tracks), tuple(silent))


def _mark(
    marker: Watermarker,
    source: Container,
    track: Stream,
    stage: Path,
    give: Give,
    progress: Progress,
) -> tuple[Track, muxing.Sound] | None:
    """Write a marked copy of a track beside the output; return None for one without sound."""
    decoded, wav = stage / f"decoded{track.number}.wav", stage / f"track{track.number}.wav"
    start_s = containers.decode(source, track, decoded)
    seconds = files.seconds_of(decoded)
    if not _sounds(decoded):
        decoded.unlink()
        return None
    options = give(seconds)
    written = files.write(marker, decoded, wav, options, progress)
    decoded.unlink()
    own = Track(track.number, dataclasses.replace(written, not_carried=()), options)
    return own, muxing.Sound(wav, start_s, seconds)


def _sounds(wav: Path) -> bool:
    """Return whether a recording is not silent."""
    energy = 0.0
    with recordings.Reader(wav) as file:
        if not file.frames:
            return False
        for block in file.blocks(file.sample_rate):
            energy += float(np.sum(np.square(block)))
            if energy >= SILENT * file.frames * file.channels:
                return True
    return False


def _checked(
    marker: Watermarker,
    host: str | os.PathLike[str],
    part: Path,
    track: Track,
    rho: int | None,
    check: bool,
    progress: Progress,
) -> Track:
    """Read a track back from the video; raise an error where its mark cannot be read."""
    written = track.written
    if not check:
        levels = files.levels_of(part, track.number)
    else:
        analysis = files.analyse(marker, part, track=track.number, progress=progress)
        verdict = files.read_back(marker, analysis, track.options, written.position, rho)
        if not verdict.rule_holds:
            why = why_unreadable(written.power, written.seconds)
            what = f"track {track.number + 1} of {host} does not hold a mark: {why}"
            raise AudioError(what, hint="nothing was written")
        written = dataclasses.replace(written, verdict=verdict)
        levels = analysis.levels[None]
    taken = fingerprint.take(levels)
    return dataclasses.replace(track, written=dataclasses.replace(written, fingerprint=taken))


def _hashed(tracks: Sequence[Track], path: Path) -> list[Track]:
    """Add the hash of the file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return [
        dataclasses.replace(one, written=dataclasses.replace(one.written, sha256=digest))
        for one in tracks
    ]
