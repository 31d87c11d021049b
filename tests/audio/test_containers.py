"""Videos keep everything but their sound, which stays in time with the pictures."""

import functools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound.audio import containers, muxing, recordings
from keybound.audio.containers import Container
from keybound.errors import AudioError

Film = Callable[..., Path]  # of the fixture in conftest

# A name and the codecs of its tracks, of which every second one begins later.
MP4, MOV = ("a.mp4", "aac", "libopus"), ("a.mov", "alac", "pcm_s24be")
MKV = ("a.mkv", "aac", "flac", "libopus", "libmp3lame")
WEBM = ("a.webm", "libvorbis", "libopus")
CLOSE_S = 0.003


def asked(path: Path, *what: str) -> Any:
    command = ["ffprobe", "-v", "error", *what, "-of", "json", str(path)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def opened(path: Path) -> Container:
    made = containers.opened(path)
    assert made is not None
    return made


@functools.cache  # of a film several tests ask
def decoded(path: Path) -> dict[int, muxing.Sound]:
    """Decode all tracks of a video, beside it."""
    host, made, folder = opened(path), {}, path.parent
    for one in host.tracks:
        wav = folder / f"{path.name}{one.number}.wav"
        start_s = containers.decode(host, one, wav)
        info = sf.info(wav)
        made[one.number] = muxing.Sound(wav, start_s, info.frames / info.samplerate)
    return made


def clicks(sound: muxing.Sound) -> list[float]:
    """Return the times of the click in each half of a track."""
    samples, rate = sf.read(sound.wav, always_2d=True)
    half = 3 * rate
    parts = (np.abs(samples[:half, 0]), np.abs(samples[half:, 0]))
    found = (int(np.argmax(parts[0])), half + int(np.argmax(parts[1])))
    return [sound.start_s + at / rate for at in found]


def pictures_s(path: Path) -> float:
    """Return when the pictures begin."""
    told = asked(path, "-select_streams", "v:0", "-show_entries", "stream=start_time")
    return float(told["streams"][0]["start_time"])


def hashes(path: Path, kinds: str) -> list[str]:
    """Return the hash of each stream of some kinds, as it lies in the file."""
    maps = [word for kind in kinds for word in ("-map", f"0:{kind}?")]
    command = ["ffmpeg", "-v", "error", "-i", path, *maps, "-c", "copy", "-f", "streamhash", "-"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    return [line.split(",", 1)[1] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("named", [MP4, MOV, MKV, WEBM], ids=lambda one: one[0])
def test_sound_stays_in_time_and_all_else_as_it_is(
    film: Film, tmp_path: Path, named: tuple[str, ...]
) -> None:
    host = film(*named)
    before = decoded(host)
    part = tmp_path / f"part{host.suffix}"
    assert muxing.write(opened(host), before, part) == ()
    after = decoded(part)
    late_s = pictures_s(part) - pictures_s(host)
    assert 0 <= late_s < 0.03
    for track, sound in before.items():
        moved = np.subtract(clicks(after[track]), clicks(sound)) - late_s
        assert np.abs(moved).max() < CLOSE_S, (track, moved)
        if named == MOV:  # without loss
            samples = [recordings.read(one[track].wav).samples for one in (before, after)]
            np.testing.assert_array_equal(*samples)
    assert hashes(part, "vst") == hashes(host, "vst")
    own, other = opened(host), opened(part)
    for one, made in zip(own.streams, other.streams, strict=True):
        assert (one.kind, one.codec, one.flags) == (made.kind, made.codec, made.flags)
        assert (one.sample_rate, one.channels) == (made.sample_rate, made.channels)
    told = ("-show_chapters", "-show_entries", "chapter=start_time,end_time:chapter_tags=title")
    tags = ("-show_entries", "format_tags=title:stream_tags=language")
    assert asked(part, *told)["chapters"] == asked(host, *told)["chapters"]
    assert asked(part, *tags) == asked(host, *tags)


def test_a_gap_in_a_track_is_kept_as_silence(film: Film, tmp_path: Path) -> None:
    host = film("gap.mkv", "flac", options=("-af", "aselect='not(between(t,3.2,4.3))'"))
    (sound,) = decoded(host).values()
    assert clicks(sound) == pytest.approx([2.0, 5.0], abs=0.1)
    muxing.write(opened(host), {0: sound}, tmp_path / "part.mkv")
    (made,) = decoded(tmp_path / "part.mkv").values()
    assert clicks(made) == pytest.approx(clicks(sound), abs=CLOSE_S)


@pytest.mark.parametrize("name", ["cover.mkv", "cover.mp4"])
def test_a_cover_stays_a_cover(film: Film, tmp_path: Path, name: str) -> None:
    host = film(name, "aac")
    part = tmp_path / f"part{host.suffix}"
    muxing.write(opened(host), decoded(host), part)
    assert [one.flags for one in opened(part).streams if "attached_pic" in one.flags]
    assert hashes(part, "v") == hashes(host, "v")


def test_another_container_holds_what_it_can(film: Film, tmp_path: Path) -> None:
    host = film(*MKV)
    sounds = decoded(host)
    lost = muxing.write(opened(host), sounds, tmp_path / "part.mov")
    changed = ("flac of track 2, which is aac now", "opus of track 3, which is aac now")
    assert lost == ("subtitles subrip", "attachment", *changed)
    made = [one.codec for one in opened(tmp_path / "part.mov").tracks]
    assert made == ["aac", "aac", "aac", "mp3"]
    assert hashes(tmp_path / "part.mov", "v") == hashes(host, "v")
    with pytest.raises(AudioError, match="webm cannot hold mpeg4"):
        muxing.write(opened(host), sounds, tmp_path / "part.webm")


def test_a_track_that_is_not_replaced_is_copied(film: Film, tmp_path: Path) -> None:
    host = film(*MKV)
    sounds = decoded(host)
    muxing.write(opened(host), {0: sounds[0]}, tmp_path / "part.mkv")
    assert hashes(tmp_path / "part.mkv", "a")[1:] == hashes(host, "a")[1:]
    after = decoded(tmp_path / "part.mkv")
    late_s = pictures_s(tmp_path / "part.mkv") - pictures_s(host)
    for track in (0, 1, 2, 3):
        moved = np.subtract(clicks(after[track]), clicks(sounds[track])) - late_s
        assert np.abs(moved).max() < CLOSE_S


def test_each_track_can_be_read(film: Film) -> None:
    host = film(*MKV)
    assert containers.count_tracks(host) == 4
    for track in (1, 2):
        with recordings.Reader(host, track) as file:
            assert file.frames == 6 * 48_000
            assert 30_000 < (file.bitrate_bps or 0) < 500_000
            assert (file.bitrate_bps or 0) > 200_000 or track == 2
    with pytest.raises(AudioError, match="cannot be decoded"):
        recordings.Reader(host, 4)


def test_extensions_by_content(film: Film, tmp_path: Path) -> None:
    for named in (MP4, MOV, MKV, WEBM):
        (other := tmp_path / "recording").write_bytes(film(*named).read_bytes())
        assert recordings.suffix_of(other) == Path(named[0]).suffix


def test_what_is_no_video_or_has_no_sound(film: Film, tmp_path: Path) -> None:
    sf.write(tmp_path / "a.wav", np.zeros(800), 8_000)
    assert containers.opened(tmp_path / "a.wav") is None
    assert containers.count_tracks(tmp_path / "a.wav") == 1
    with pytest.raises(AudioError, match="has no sound"):
        containers.count_tracks(film("mute.mp4"))
    (tmp_path / "b.mkv").write_bytes(b"\x1a\x45\xdf\xa3" + bytes(3_000))
    with pytest.raises(AudioError, match=r"b\.mkv cannot be read"):
        containers.opened(tmp_path / "b.mkv")
