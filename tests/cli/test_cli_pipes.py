"""The command line reads and writes recordings through pipes, as real processes do."""

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import soundfile as sf

from keybound.demo import SPEECH

Run = Callable[..., Any]  # to the outcome of `run` in conftest

PAYLOAD = "0x5eed"
WHOSE = ("--key", "alice.key", "--payload", PAYLOAD)
KEYBOUND = (sys.executable, "-m", "keybound")
FFMPEG = ("ffmpeg", "-v", "quiet", "-y")
PIPE = subprocess.PIPE

pytestmark = pytest.mark.usefixtures("home", "key")


@pytest.fixture
def ffmpeg() -> None:
    if not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg is not installed")


@pytest.fixture
def speech(home: Path) -> Path:
    samples, rate = sf.read(SPEECH)
    sf.write(home / "speech.wav", samples, rate)
    return home / "speech.wav"


def keybound(*args: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*KEYBOUND, *map(str, args)], input=stdin, capture_output=True)


def chained(*commands: Sequence[object]) -> list[tuple[int, bytes]]:
    """Run commands with pipes between them: the status and the messages of each."""
    running: list[subprocess.Popen[bytes]] = []
    source: Any = subprocess.DEVNULL
    with contextlib.ExitStack() as opened:
        for command in commands:
            words = [str(word) for word in command]
            one = subprocess.Popen(words, stdin=source, stdout=PIPE, stderr=PIPE)
            running.append(opened.enter_context(one))
            if source is not subprocess.DEVNULL:
                source.close()  # only its reader may hold it, or nobody sees it close
            source = one.stdout
        assert running[-1].stdout is not None
        assert running[-1].stdout.read() == b""
        return [(one.wait(300), one.stderr.read() if one.stderr else b"") for one in running]


@pytest.mark.usefixtures("ffmpeg")
@pytest.mark.parametrize("form", [("-f", "wav"), ("-ar", "48000", "-ac", "2", "-f", "flac")])
def test_ffmpeg_on_both_sides(run: Run, speech: Path, form: tuple[str, ...]) -> None:
    made = chained(
        (*FFMPEG, "-i", speech, *form, "-"),
        (*KEYBOUND, "embed", "-", "-", *WHOSE, "--position", 7),
        (*FFMPEG, "-i", "-", "out.mp3"),
    )
    assert [status for status, _ in made] == [0, 0, 0]
    said = made[1][1].decode().splitlines()
    assert said[0] == "keybound: sealed at position 7"
    assert said[1].startswith("marked, code agrees in 1")
    sealed = ("--position", "7", "--require", "sealed")
    assert run("verify", "out.mp3", *WHOSE, *sealed).code == 0


def test_a_pipe_gives_the_bytes_of_a_file(run: Run, speech: Path) -> None:
    whose = (*WHOSE, "--position", "7")
    assert run("embed", speech, "out.wav", *whose).code == 0
    expected = Path("out.wav").read_bytes()
    stream = keybound("embed", "-", "-", *whose, "--json", stdin=speech.read_bytes())
    assert stream.returncode == 0
    assert len(stream.stdout) == len(expected)
    assert sum(a != b for a, b in zip(stream.stdout, expected, strict=True)) < 100  # in last bits
    assert b'"grade": "sealed"' in stream.stderr
    assert keybound("embed", speech, "-", *whose).stdout == expected
    assert keybound("embed", "-", "again.wav", *whose, stdin=speech.read_bytes()).returncode == 0
    assert Path("again.wav").read_bytes() == expected


def test_all_verbs_read_standard_input(run: Run, host: Path) -> None:
    run("party", "add", "alice", "--key", "alice.key", "--payload", PAYLOAD)
    assert run("embed", host, "out.wav", "--party", "alice").code == 0
    data = Path("out.wav").read_bytes()
    found = run("detect", "-", "--json", stdin=data)
    assert (found.code, found.json["path"], found.json["present"]) == (0, "-", True)
    assert found.json | {"path": "out.wav"} == run("detect", "out.wav", "--json").json
    assert run("verify", "-", "--party", "alice", "--require", "sealed", stdin=data).code == 0
    named = run("identify", "-", stdin=data)
    assert (named.code, named.out[:10]) == (0, "-: sealed:")
    assert run("detect", "-", stdin=host.read_bytes()).code == 1


def test_a_party_has_a_record_of_what_went_through(run: Run, speech: Path) -> None:
    run("party", "add", "alice", "--key", "alice.key", "--payload", PAYLOAD)
    made = keybound("embed", "-", "-", "--party", "alice", stdin=speech.read_bytes())
    assert made.returncode == 0
    said = made.stderr.decode().splitlines()
    assert said[-3:-1] == ["keybound: sealed at position 0", said[-2]]
    assert said[-2].startswith("keybound: record 1, identifier ")
    assert run("record", "show", "1", "--json").json["record"]["samples"] == len(sf.read(speech)[0])
    found = run("identify", "-", "--json", stdin=made.stdout)
    assert (found.json["record"], found.json["grade"]) == (1, "sealed")


@pytest.mark.usefixtures("ffmpeg")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_endless_stream_is_marked_until_it_is_stopped(
    run: Run, speech: Path, number: int
) -> None:
    run("party", "add", "alice", "--key", "alice.key", "--payload", PAYLOAD)
    endless = (*FFMPEG, "-stream_loop", "-1", "-i", speech, "-f", "wav", "-")
    with subprocess.Popen(endless, stdout=PIPE, stdin=subprocess.DEVNULL) as source:
        # A shell that runs the tests in the background lets its children ignore SIGINT.
        hearing = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        program = f"{hearing}from keybound.cli.main import main; main()"
        command = (sys.executable, "-c", program, "embed", "-", "-", "--party", "alice")
        with subprocess.Popen(command, stdin=source.stdout, stdout=PIPE, stderr=PIPE) as marking:
            assert marking.stdout is not None
            data = marking.stdout.read(10 * 48_000)  # while more comes
            marking.send_signal(number)
            rest, said = marking.communicate(timeout=300)
        source.kill()
    assert marking.returncode == 128 + number
    assert said.decode().endswith("keybound: stopped\n")
    assert b"record 1, identifier" in said
    found = run("identify", "-", "--json", stdin=data + rest)
    assert (found.code, found.json["record"], found.json["grade"]) == (0, 1, "sealed")


@pytest.mark.usefixtures("ffmpeg")
def test_a_reader_that_goes_ends_it_quietly(speech: Path) -> None:
    made = chained(
        (*FFMPEG, "-stream_loop", "-1", "-i", speech, "-f", "flac", "-"),
        (*KEYBOUND, "embed", "-", "-", *WHOSE),
        ("sh", "-c", "head -c 100000 >/dev/null"),
    )
    assert made[1] == (128 + signal.SIGPIPE, b"")
    assert made[2] == (0, b"")


def test_a_mark_that_cannot_be_read_back_is_an_error_at_the_end(home: Path) -> None:
    sf.write(home / "silent.wav", [0.0] * 32_000, 16_000)
    data = (home / "silent.wav").read_bytes()
    made = keybound("embed", "-", "-", *WHOSE, stdin=data)
    assert made.returncode == 2
    assert len(made.stdout) == len(data)
    assert b"keybound: standard input does not hold a mark: the recording is silent" in made.stderr
    assert keybound("embed", "-", "-", *WHOSE, "--no-check", stdin=data).returncode == 0
    failed = keybound("embed", "silent.wav", "-", *WHOSE)
    assert (failed.returncode, failed.stdout) == (2, b"")


def test_what_cannot_come_through_a_pipe_is_refused(refused: Run, host: Path) -> None:
    data = host.read_bytes()
    by_hand = ("--key", "-", "--payload", PAYLOAD)
    for words in (("embed", "-", "out.wav"), ("embed", "-", "-"), ("verify", "-")):
        assert "--key needs a file" in refused(*words, *by_hand, stdin=data).err
    for verb in ("detect", "identify"):
        assert "names it twice" in refused(verb, "-", "-", stdin=data).err
    for garbage in (b"", b"words", bytes(9_000)):
        for words in (("embed", "-", "-"), ("embed", "-", "out.wav"), ("verify", "-")):
            assert "standard input" in refused(*words, *WHOSE, stdin=garbage).err
        assert "standard input" in refused("detect", "-", stdin=garbage).err


def test_a_terminal_is_refused(host: Path) -> None:
    master, terminal = pty.openpty()
    command = [*KEYBOUND, "embed", str(host), "-", *WHOSE]
    made = subprocess.run(command, stdout=terminal, stderr=PIPE)
    assert made.returncode == 2
    assert made.stderr.startswith(b"keybound: audio is not written to a terminal")
    made = subprocess.run([*KEYBOUND, "detect", "-"], stdin=terminal, stderr=PIPE)
    assert made.returncode == 2
    assert made.stderr.startswith(b"keybound: no recording comes through standard input")
    os.close(terminal)
    os.close(master)
