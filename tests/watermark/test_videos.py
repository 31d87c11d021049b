"""Every track of a video is marked as a recording of its own, and read back from the video."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import soundfile as sf

from keybound.audio import containers
from keybound.crypto.keys import Key
from keybound.errors import AudioError
from keybound.output import Part
from keybound.watermark import files, videos
from keybound.watermark.options import EmbedOptions
from keybound.watermark.watermarker import Watermarker

Film = Callable[..., Path]  # of the fixture in conftest

KEY = Key(bytes(range(32)))


def options(seconds: float) -> EmbedOptions:
    assert 5.9 < seconds < 6.2
    return EmbedOptions(KEY, 0x5EED, position=7)  # of 256, a few are lost in six seconds of Opus


def test_every_track_with_sound_is_marked(marker: Watermarker, film: Film, tmp_path: Path) -> None:
    host, steps = film("a.mkv", "aac", "silent", "libopus"), list[tuple[int, int]]()
    appeared: list[Sequence[videos.Track]] = []

    def appear(part: Part, tracks: Sequence[videos.Track]) -> None:
        appeared.append(tracks)
        part.publish()

    made = videos.embed(
        marker,
        host,
        tmp_path / "out.mkv",
        options,
        progress=lambda *one: steps.append(one),
        appear=appear,
    )
    assert made.silent == (1,)
    assert [one.number for one in made.tracks] == [0, 2]
    assert appeared == [list(made.tracks)]
    for one in made.tracks:
        assert one.written.verdict is not None
        assert one.written.verdict.grade == "sealed"
        assert len(one.written.sha256) == 64
        assert one.written.fingerprint.columns > 140
    first, second = (one.written for one in made.tracks)
    assert first.sha256 == second.sha256
    assert files.detect(marker, tmp_path / "out.mkv", track=2).present
    assert not files.detect(marker, tmp_path / "out.mkv", track=1).present
    assert not files.detect(marker, host, track=2).present
    assert steps == sorted(steps)
    assert list(tmp_path.iterdir()) == [tmp_path / "out.mkv"]
    again = videos.embed(marker, host, tmp_path / "again.mp4", options, check=False)
    assert [one.written.verdict for one in again.tracks] == [None, None]
    lost = [one.written.not_carried for one in (*made.tracks, *again.tracks)]
    assert lost == [(), (), ("subtitles subrip", "attachment"), ()]
    assert again.tracks[0].written.fingerprint.columns > 140


def test_what_cannot_be_marked_leaves_nothing(
    marker: Watermarker, film: Film, tmp_path: Path
) -> None:
    sf.write(tmp_path / "a.wav", [0.1] * 16_000, 16_000)
    for host, why in (
        (film("a.mp4", "silent"), "no track has sound"),
        (film("mute.mp4"), "has no sound"),
        (tmp_path / "a.wav", "is no video"),
    ):
        with pytest.raises(AudioError, match=why):
            videos.embed(marker, host, tmp_path / "out.mp4", options)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.wav"]


def test_a_track_whose_mark_is_lost_leaves_nothing(
    marker: Watermarker, film: Film, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copy the host's tracks in place of the marked ones: nothing is to be read back."""
    write = videos.muxing.write
    monkeypatch.setattr(videos.muxing, "write", lambda host, _, part: write(host, {}, part))
    host = film("a.mkv", "aac", "silent", "libopus")
    with pytest.raises(AudioError, match=r"track 1 of .* does not hold a mark"):
        videos.embed(marker, host, tmp_path / "out.mkv", options)
    assert list(tmp_path.iterdir()) == []


def test_names_of_videos() -> None:
    assert all(videos.is_video(f"a{suffix.upper()}") for suffix in containers.MUXERS)
    assert not videos.is_video("a.m4a")
    assert not videos.is_video("mp4")
