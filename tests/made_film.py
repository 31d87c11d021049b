"""Videos for tests, made with ffmpeg: pictures, speech, subtitles, chapters, an attachment."""

import subprocess
from pathlib import Path

import soundfile as sf

from keybound.audio import recordings
from keybound.demo import SPEECH

LANGUAGES = ("eng", "deu", "fra", "nld")
SILENCE = ["-f", "lavfi", "-t", "6", "-i", "anullsrc=r=48000:cl=mono"]
COVER = ["-f", "lavfi", "-i", "testsrc=s=64x64:d=0.04", "-frames:v", "1", "cover.jpg"]


def prepare(folder: Path) -> None:
    """Write what videos are made of: six seconds of speech with clicks at 2 and 5 s, and texts."""
    samples, rate = sf.read(SPEECH, frames=6 * 24_000)
    voice = recordings.resample(0.4 * samples, rate, 48_000)
    for at in (2, 5):
        voice[at * 48_000 : at * 48_000 + 24] += 0.8
    sf.write(folder / "voice.wav", voice, 48_000)
    (folder / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,500\nhello\n")
    told = [";FFMETADATA1\ntitle=A title\n"]
    for start in (0, 3_000):
        told.append(f"[CHAPTER]\nTIMEBASE=1/1000\nSTART={start}\nEND={start + 3_000}\n")
        told.append(f"title=from {start}\n")
    (folder / "a.txt").write_text("".join(told))
    ffmpeg(folder, *COVER)


def make(folder: Path, name: str, *codecs: str, options: tuple[str, ...] = ()) -> Path:
    """Make a video with a track for each codec, of which every second one begins later.

    A codec `silent` makes a track without sound. What is named `cover` has a picture in place of an
    attachment.
    """
    path, cover = folder / "-".join([*codecs, name]), name.startswith("cover")
    if path.exists():
        return path
    inputs = ["-f", "lavfi", "-i", "testsrc=s=64x48:r=25:d=6", "-i", "a.txt"]
    maps = ["-map", "0:v", "-map_metadata", "1", "-map_chapters", "1"]
    maps += ["-c:v", "libvpx" if path.suffix == ".webm" else "mpeg4", "-deadline", "realtime"]
    for n, codec in enumerate(codecs):
        inputs += ["-itsoffset", "0.3"] if n % 2 else []
        inputs += SILENCE if codec == "silent" else ["-i", "voice.wav"]
        maps += ["-map", f"{n + 2}:a", f"-c:a:{n}", "aac" if codec == "silent" else codec]
        maps += [f"-metadata:s:a:{n}", f"language={LANGUAGES[n]}"]
    if path.suffix != ".webm":
        inputs += ["-i", "a.srt"]
        text = "srt" if path.suffix == ".mkv" else "mov_text"
        maps += ["-map", f"{len(codecs) + 2}:s", "-c:s", text]
    if path.suffix == ".mkv":
        file, media = ("cover.jpg", "image/jpeg") if cover else ("a.srt", "text/plain")
        maps += ["-attach", file, "-metadata:s:t", f"mimetype={media}"]
    elif cover:
        inputs += ["-i", "cover.jpg"]
        maps += ["-map", f"{len(codecs) + 3}:v", "-c:v:1", "copy"]
        maps += ["-disposition:v:1", "attached_pic"]
    ffmpeg(folder, *inputs, *maps, "-strict", "-2", *options, path.name)
    return path


def of_tracks(folder: Path, *sounds: bytes) -> Path:
    """Make a video without pictures, of which each track is one of these recordings."""
    words = []
    for number, data in enumerate(sounds):
        (folder / f"sound{number}").write_bytes(data)
        words += ["-i", f"sound{number}"]
    for number in range(len(sounds)):
        words += ["-map", f"{number}:a"]
    ffmpeg(folder, *words, "-c:a", "flac", "tracks.mkv")
    return folder / "tracks.mkv"


def ffmpeg(folder: Path, *words: str) -> None:
    subprocess.run(["ffmpeg", "-v", "error", *words], cwd=folder, check=True)
