"""Copies of video files with other sound, through ffmpeg: everything else stays as it is.

Times are those of the host: each new track begins where the decoded one began, with the samples
that its encoder puts before that. Matroska has no times below 0, so there all times may be later by
those samples, pictures and sound alike. Knows no keys, no networks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from keybound import output
from keybound.audio import containers, ffmpeg
from keybound.audio.containers import LOSSLESS, MUXERS, Container, Stream
from keybound.errors import AudioError

ENCODERS = {"opus": "libopus", "vorbis": "libvorbis", "mp3": "libmp3lame"} | {
    one: one for one in ("aac", "flac", "alac", "ac3", "eac3", "mp2")
}
OTHER = {"webm": "opus"}  # codec of what ffmpeg cannot encode; elsewhere aac
MATROSKA = ("matroska", "webm")
WEBM = ("vp8", "vp9", "av1", "webvtt")
SUBTITLES = {
    "matroska": ("subrip", "ass", "ssa", "webvtt", "hdmv_pgs_subtitle", "dvd_subtitle"),
    "webm": ("webvtt",),
    "mp4": ("mov_text", "dvd_subtitle"),
    "mov": ("mov_text",),
}
MADE_ANEW = ("text", "tmcd")  # tags of data that the muxer makes of chapters and time code
# Samples that an encoder puts before the sound, at times that may lie below 0.
PRIMING = {"aac": 1024, "mp3": 1105, "mp2": 481, "ac3": 256, "eac3": 256, "vorbis": 256}
OPUS_PRIMING_S = 0.0065  # which Matroska stores apart, so that its times begin at 0
TOLERANCE_S = 0.002  # Matroska rounds times to milliseconds
GOOD_BPS, MOST_BPS = 64_000, 256_000  # of a channel


@dataclass(frozen=True)
class Sound:
    """The sound that a track is to have, when it begins, and how long it is."""

    wav: Path
    start_s: float
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What a copy is made of: the streams that are held, and for some tracks other sound."""

    host: Container
    muxer: str
    held: tuple[Stream, ...]
    sounds: Mapping[int, Sound]
    codecs: Mapping[int, str]  # of the tracks with other sound

    @property
    def late_s(self) -> float:
        """Return by how much all times are later than the host's."""
        if self.muxer not in MATROSKA:
            return 0.0
        early = [
            PRIMING.get(self.codecs[n], 0) / self.host.tracks[n].sample_rate - sound.start_s
            for n, sound in self.sounds.items()
        ]
        return max(0.0, *early) if early else 0.0


def write(host: Container, sounds: Mapping[int, Sound], part: Path) -> tuple[str, ...]:
    """Write a copy in which some tracks, by their number, have other sound.

    Return what is not carried over: streams that the container of this name cannot hold, and codecs
    that ffmpeg cannot encode.
    """
    muxer = MUXERS[part.suffix.lower()]
    unheld = {one.index: _unheld(one, muxer) for one in host.streams}
    held = tuple(one for one in host.streams if not unheld[one.index])
    codecs = {n: _codec(host.tracks[n], muxer) for n in sounds}
    plan = Plan(host, muxer, held, sounds, codecs)
    opus = [n for n, codec in codecs.items() if muxer in MATROSKA and codec == "opus"]
    shifts = dict.fromkeys(opus, OPUS_PRIMING_S)
    _mux(plan, shifts, part)
    for n in opus:  # versions of ffmpeg differ in who allows for the priming
        begins_s = containers.begins_s(part, "matroska", host.tracks[n])
        error_s = begins_s - sounds[n].start_s - plan.late_s
        shifts[n] -= error_s if abs(error_s) > TOLERANCE_S else 0.0
    if any(shift != OPUS_PRIMING_S for shift in shifts.values()):
        _mux(plan, shifts, part)
    changed = [
        f"{host.tracks[n].codec} of track {n + 1}, which is {codec} now"
        for n, codec in codecs.items()
        if codec != host.tracks[n].codec
    ]
    lost = [unheld[one.index] for one in host.streams if one.tag not in MADE_ANEW]
    return (*filter(None, lost), *changed)


def _mux(plan: Plan, shifts: Mapping[int, float], part: Path) -> None:
    """Write a copy, the sound of some tracks shifted by seconds."""
    host = plan.host
    inputs, maps, files = list(ffmpeg.source(host.path, host.reader)), list[str](), 1
    pictures = [one for one in plan.held if _is_picture(one, plan.muxer)]
    for out, one in enumerate(one for one in plan.held if one not in pictures):
        sound = plan.sounds.get(one.number) if one.kind == "audio" else None
        copied = [f"-c:{out}", "copy"]
        if sound is not None:
            begins_s = sound.start_s + shifts.get(one.number, 0.0)
            inputs += ["-itsoffset", f"{begins_s:.6f}", "-i", f"file:{sound.wav}"]
            maps += ["-map", f"{files}:a:0", *_encoding(plan, one, sound, out)]
            files += 1
        elif plan.muxer in MATROSKA and one.codec == "opus":
            inputs += ["-itsoffset", f"{OPUS_PRIMING_S + 0.0005:.6f}"]  # to a whole millisecond
            inputs += ffmpeg.source(host.path, host.reader)
            maps += ["-map", f"{files}:{one.index}", *copied]
            files += 1
        else:
            maps += ["-map", f"0:{one.index}", *copied]
        maps += [f"-map_metadata:s:{out}", f"0:s:{one.index}"]
        maps += [f"-disposition:{out}", "+".join(one.flags) or "0"]
    for out, one in enumerate(pictures, len(plan.held) - len(pictures)):
        maps += _attached(plan, one, out, part.parent)
    maps += ["-map_metadata", "0", "-map_chapters", "0"]
    if plan.muxer in MATROSKA:  # ffmpeg's own shift would leave Opus behind
        maps += ["-avoid_negative_ts", "disabled", "-output_ts_offset", f"{plan.late_s:.6f}"]
    maps += ["-strict", "experimental"]  # as FLAC in MP4 was for a time
    arguments = ("-copyts", *inputs, *maps, "-f", plan.muxer, f"file:{part}")
    _run(host, arguments, part)


def _run(host: Container, arguments: Sequence[str], part: Path) -> None:
    what = f"{host.path} cannot be copied to {part.suffix[1:]}"
    try:
        ffmpeg.run(ffmpeg.find(part, "write"), arguments, what)
    except AudioError as error:
        if output.is_full(part.parent):
            raise output.unwritable(part, error) from error
        raise


def _is_picture(one: Stream, muxer: str) -> bool:
    """Return whether a stream is a cover, which Matroska holds as an attachment."""
    return muxer == "matroska" and "attached_pic" in one.flags


def _attached(plan: Plan, one: Stream, out: int, folder: Path) -> list[str]:
    """Write a cover to a file and return the arguments that attach it."""
    picture, host = folder / f"picture{one.index}", plan.host
    form = ("-map", f"0:{one.index}", "-c", "copy", "-f", "image2", "-update", "1")
    _run(host, (*ffmpeg.source(host.path, host.reader), *form, f"file:{picture}"), picture)
    usual = {"mjpeg": ("cover.jpg", "image/jpeg"), "png": ("cover.png", "image/png")}
    fallback = usual.get(one.codec, ("cover", "application/octet-stream"))
    name, media = (own or other for own, other in zip(one.file, fallback, strict=True))
    tags = [f"-metadata:s:{out}", f"filename={name}", f"-metadata:s:{out}", f"mimetype={media}"]
    return ["-attach", str(picture), *tags]


def _unheld(one: Stream, muxer: str) -> str:
    """Return the name of a stream that a container cannot hold, else nothing."""
    if one.kind == "data":
        return f"data {one.tag}"
    if one.kind == "attachment":
        return "" if muxer == "matroska" else "attachment"
    if one.kind == "subtitle":
        return "" if one.codec in SUBTITLES[muxer] else f"subtitles {one.codec}"
    if one.kind == "video" and muxer == "webm" and one.codec not in WEBM:
        if "attached_pic" in one.flags:
            return "picture"
        raise AudioError(f"webm cannot hold {one.codec}", hint="name an output that ends in mkv")
    return ""


def _codec(track: Stream, muxer: str) -> str:
    """Return the codec that a track gets: its own, where ffmpeg can encode it."""
    plain = track.codec.startswith("pcm_")
    held = track.codec in ENCODERS or plain
    if muxer == "webm":
        held = track.codec in ("opus", "vorbis")
    elif muxer == "mp4":
        held = held and not plain
    elif muxer == "mov":
        held = held and track.codec not in ("opus", "flac")
    return track.codec if held else OTHER.get(muxer, "aac")


def _encoding(plan: Plan, track: Stream, sound: Sound, out: int) -> Sequence[str]:
    """Return the arguments that encode a track as it was, at its bit rate or a good one."""
    codec = plan.codecs[track.number]
    form = [f"-c:{out}", ENCODERS.get(codec, codec)]
    if track.channels > 2 and track.layout:
        channels = "|".join(map(str, range(track.channels)))
        form += [f"-filter:{out}", f"channelmap=map={channels}:channel_layout={track.layout}"]
    if codec == "vorbis":
        return [*form, f"-q:{out}", "9"]
    if codec in LOSSLESS or codec.startswith("pcm_"):
        return form
    host, own = plan.host, track.bitrate_bps
    own = own or containers.bitrate_bps(host.path, host.reader, track.number, sound.seconds)
    least, most = GOOD_BPS * track.channels, MOST_BPS * track.channels
    return [*form, f"-b:{out}", str(min(most, max(least, own)))]
