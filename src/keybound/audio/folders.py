"""Folders of speech: recordings in the order of their names, and clips cut from them.

Everything is mixed to one channel and brought to the rate that is asked for.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from keybound.audio import recordings
from keybound.audio.formats import SNDFILE_SUFFIXES
from keybound.errors import AudioError

Clip = npt.NDArray[np.float32]


def files_in(*folders: Path) -> list[Path]:
    """List the recordings in some folders in the order of their names."""
    paths = sorted(path for folder in folders for path in folder.iterdir())
    if found := [path for path in paths if path.suffix.lower() in SNDFILE_SUFFIXES]:
        return found
    where, endings = ", ".join(map(str, folders)), ", ".join(SNDFILE_SUFFIXES)
    raise AudioError(f"no recordings in {where}", hint=f"files ending in {endings}")


def read_mono(path: Path, rate: int) -> Clip:
    """Read a recording, mixed to one channel, at a rate."""
    recording = recordings.read(path)
    mono = recordings.resample(recordings.to_mono(recording.samples), recording.sample_rate, rate)
    return np.asarray(mono, np.float32)


def named_clips(
    folder: Path, seconds: float, rate: int, *, every: bool = False, limit: int | None = None
) -> list[tuple[str, Clip]]:
    """Cut clips from the recordings of a folder, each with the name of its recording.

    `every` takes all whole clips of each recording, otherwise only the first.
    """
    clips: list[tuple[str, Clip]] = []
    length = round(seconds * rate)
    for path in files_in(folder):
        if limit is not None and len(clips) >= limit:
            break
        mono = read_mono(path, rate)
        ends = range(length, len(mono) + 1, length)
        clips += [(path.name, mono[e - length : e]) for e in (ends if every else ends[:1])]
    return clips[:limit]


def read_clips(
    folder: Path, seconds: float, rate: int, *, every: bool = False, limit: int | None = None
) -> list[Clip]:
    """Cut clips from the recordings of a folder, as `named_clips` does."""
    return [clip for _, clip in named_clips(folder, seconds, rate, every=every, limit=limit)]


def speakers(folders: Sequence[Path], rate: int) -> Iterator[Clip]:
    """Join the recordings of each speaker of some folders.

    Recordings are named as in LibriSpeech, SPEAKER-CHAPTER-NUMBER; others are their own speakers.
    """

    def speaker(path: Path) -> str:
        return path.stem.split("-")[-3] if path.stem.count("-") >= 2 else path.stem

    for _, own in groupby(sorted(files_in(*folders), key=speaker), key=speaker):
        yield np.concatenate([read_mono(path, rate) for path in own])


def cut(voices: Sequence[Clip], length: int) -> list[Clip]:
    """Cut whole pieces, the first of each voice first."""
    ends = range(length, max(map(len, voices)) + 1, length)
    return [voice[end - length : end] for end in ends for voice in voices if end <= len(voice)]
