"""Video files through ffmpeg: which streams they hold, and their tracks as sound.

A file may hold several tracks of sound beside pictures, subtitles and more; `muxing` writes copies
with other sound. Knows no keys, no networks.
"""

from dataclasses import dataclass, field
from pathlib import Path

from keybound.audio import ffmpeg
from keybound.audio.headers import head_of
from keybound.errors import AudioError

# Extensions, and ffmpeg's muxer for each.
MUXERS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska", ".webm": "webm"}
READERS = ("mov", "matroska")  # demuxers of files that may hold several tracks
LOSSLESS = ("flac", "alac")
DEPTHS = {8: "pcm_u8", 16: "pcm_s16le", 24: "pcm_s24le", 32: "pcm_s32le"}
EXACT = ("pcm_u8", "pcm_s16", "pcm_s24", "pcm_s32", "pcm_f64")  # which floats need not hold


@dataclass(frozen=True)
class Stream:
    """One stream of a file, as ffprobe tells it; `number` counts those of its kind from 0."""

    index: int
    number: int
    kind: str  # video, audio, subtitle, data or attachment
    codec: str
    tag: str
    sample_rate: int = 0
    channels: int = 0
    layout: str = ""
    bits: int = 0
    bitrate_bps: int = 0  # 0: unknown
    flags: tuple[str, ...] = ()
    file: tuple[str, str] = ("", "")  # name and media type of what is attached


@dataclass(frozen=True)
class Container:
    """A file with its streams."""

    path: Path
    reader: str
    streams: tuple[Stream, ...] = field(repr=False)

    @property
    def tracks(self) -> tuple[Stream, ...]:
        """Return the streams that are sound."""
        return tuple(one for one in self.streams if one.kind == "audio")

    @property
    def suffix(self) -> str:
        """Return the extension that fits, by the name or else by what the file holds."""
        if self.path.suffix.lower() in MUXERS:
            return self.path.suffix.lower()
        with self.path.open("rb") as file:
            head = file.read(64)
        if self.reader == "matroska":
            return ".webm" if b"webm" in head else ".mkv"
        if [one.kind for one in self.streams] == ["audio"]:
            return ".m4a"
        return ".mov" if head[8:12] == b"qt  " else ".mp4"


def opened(path: Path) -> Container | None:
    """Return a file that may hold several tracks; None for other files."""
    reader = ffmpeg.demuxer(head_of(path))
    if reader not in READERS:
        return None
    told = ffmpeg.probe(path, reader, "-show_streams")
    counted: dict[str, int] = {}
    streams = []
    for one in told.get("streams", []):
        kind = str(one.get("codec_type", "data"))
        number = counted[kind] = counted.get(kind, -1) + 1
        tags = one.get("tags", {})
        streams.append(
            Stream(
                int(one["index"]),
                number,
                kind,
                str(one.get("codec_name", "")),
                str(one.get("codec_tag_string", "")),
                int(one.get("sample_rate", 0)),
                int(one.get("channels", 0)),
                str(one.get("channel_layout", "")),
                int(one.get("bits_per_raw_sample", 0)),
                int(one.get("bit_rate", 0)),
                tuple(name for name, on in one.get("disposition", {}).items() if on),
                (str(tags.get("filename", "")), str(tags.get("mimetype", ""))),
            )
        )
    return Container(path, reader, tuple(streams))


def count_tracks(path: Path) -> int:
    """Return how many recordings a file holds: 1 unless it may hold several tracks."""
    host = opened(path)
    if host is None:
        return 1
    if not host.tracks:
        raise AudioError(f"{path} has no sound", hint="a video needs an audio track")
    return len(host.tracks)


def decode(host: Container, track: Stream, wav: Path) -> float:
    """Write a track as a WAV, whole in time, and return when it begins, in seconds."""
    start_s = begins_s(host.path, host.reader, track)
    fill = ("-af", "aresample=async=1")  # silence for gaps of a tenth of a second and more
    form = ("-map", f"0:a:{track.number}", "-map_metadata", "-1", *fill, "-c:a", _depth(track))
    arguments = ("-copyts", *ffmpeg.source(host.path, host.reader), *form, "-rf64", "auto")
    what = f"{host.path} cannot be decoded"
    ffmpeg.run(ffmpeg.find(host.path, "read"), (*arguments, "-f", "wav", f"file:{wav}"), what)
    return start_s


def begins_s(path: Path, reader: str, track: Stream) -> float:
    """Return the time of the first sample that a track decodes to."""
    select = ("-select_streams", f"a:{track.number}", "-read_intervals", "%+#8")
    told = ffmpeg.probe(path, reader, *select, "-show_entries", "frame=pts_time")
    times = [float(one["pts_time"]) for one in told.get("frames", []) if "pts_time" in one]
    return times[0] if times else 0.0


def bitrate_bps(path: Path, reader: str, track: int, seconds: float) -> int:
    """Return the mean bit rate of a track, from the sizes of its packets."""
    asked = ("-select_streams", f"a:{track}", "-show_entries", "packet=size")
    told = ffmpeg.probe(path, reader, *asked)
    size = sum(int(one.get("size", 0)) for one in told.get("packets", []))
    return int(size * 8 / seconds) if seconds else 0


def _depth(track: Stream) -> str:
    """Return the PCM that holds what a track decodes to."""
    if track.codec in LOSSLESS:
        return DEPTHS.get(track.bits, "pcm_s32le")
    plain = track.codec.removesuffix("be").removesuffix("le")
    if plain not in EXACT:
        return "pcm_f32le"
    return plain if plain == "pcm_u8" else f"{plain}le"
