"""The command line marks videos and answers for each of their tracks."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]  # to the outcome of `run` in conftest
Film = Callable[..., Path]

WHOSE = ("--key", "alice.key", "--payload", "0x5eed")

pytestmark = pytest.mark.usefixtures("home", "key")


def test_the_tracks_of_a_party(run: Run, film: Film, home: Path) -> None:
    run("party", "add", "alice", "--key", "alice.key", "--payload", "0x5eed")
    made = run("embed", film("a.mp4", "aac", "libopus"), "out.mp4", "--party", "alice")
    assert made.code == 0
    assert [line[:15] for line in made.out.splitlines()] == ["track 1: marked", "track 2: marked"]
    assert "keybound: track 2: record 2, identifier " in made.err
    named = run("identify", "out.mp4", "--json")
    rows = [json.loads(line) for line in named.out.splitlines()]
    assert [(row["track"], row["record"], row["grade"]) for row in rows] == [
        (1, 1, "sealed"),
        (2, 2, "sealed"),
    ]
    verified = run("verify", "out.mp4", "--party", "alice")
    assert verified.code == 0
    assert [line[:16] for line in verified.out.splitlines()] == [
        f"track {n}: alice: " for n in "12"
    ]
    assert run("verify", "out.mp4", "--any", "--grade-only").out == "sealed\n"
    with_pipe = run("detect", "-", stdin=Path("out.mp4").read_bytes())
    assert [line[:18] for line in with_pipe.out.splitlines()] == [
        "-, track 1: marked",
        "-, track 2: marked",
    ]
    shown = [run("record", "show", n, "--json").json["record"] for n in (1, 2)]
    assert shown[0]["sha256"] == shown[1]["sha256"]
    assert sorted(path.name for path in home.glob("*.mp4")) == ["out.mp4"]


def test_a_track_without_sound_is_copied(run: Run, film: Film) -> None:
    host = film("a.mkv", "aac", "silent", "libopus")
    made = run("embed", host, "out.mkv", *WHOSE, "--json")
    assert made.code == 0
    assert "keybound: track 2 has no sound: it is copied without a mark\n" in made.err
    assert [json.loads(line)["track"] for line in made.out.splitlines()] == [1, 3]
    found = run("detect", "out.mkv", "--json")
    assert found.code == 0
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert [(row["track"], row["present"]) for row in rows] == [(1, True), (2, False), (3, True)]


def test_one_track_is_answered_as_a_recording_is(run: Run, film: Film) -> None:
    host = film("a.mov", "pcm_s16le")
    made = run("embed", host, "out.mov", *WHOSE, "--position", "4", "--json")
    assert (made.code, made.json["position"], "track" in made.json) == (0, 4, False)
    assert run("detect", "out.mov").out.startswith("marked (presence ")
    assert run("embed", host, "out.wav", *WHOSE).code == 0  # the sound alone
    assert run("verify", "out.wav", *WHOSE).code == 0
    piped = subprocess.run(
        ["ffmpeg", "-v", "error", "-i", "out.mov", "-f", "null", "-"], capture_output=True
    )
    assert (piped.returncode, piped.stderr) == (0, b"")


def test_what_is_refused(refused: Run, film: Film, host: Path) -> None:
    several = film("a.mp4", "aac", "libopus")
    assert "several tracks" in refused("embed", several, "o.mp4", *WHOSE, "--position", "1").err
    assert "host.wav is no video" in refused("embed", host, "o.mp4", *WHOSE).err
    assert "has no sound" in refused("embed", film("mute.mp4"), "o.mp4", *WHOSE).err
    for verb in ("detect", "identify"):
        assert "has no sound" in refused(verb, film("mute.mp4")).err
    assert "not several tracks" in refused("detect", several, "--plot", "a.svg").err
