"""What signals and kills leave: nothing, or what the next run removes and never what is in use."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

import keybound

Run = Callable[..., Any]  # to the outcome of `run` in conftest
Start = Callable[..., subprocess.Popen[str]]

DATA = Path(__file__).parents[1] / "data"
KEY = "0f254a1c050bdb5a"  # the id of alice.key
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and locks are POSIX")
with_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is absent")


@pytest.fixture
def long(home: Path) -> Path:
    """Speech of some minutes: marking it takes seconds."""
    samples, rate = sf.read(DATA / "flite-rms.flac", dtype="float32")
    sf.write(home / "long.wav", np.tile(samples, 60), rate)
    return home / "long.wav"


# A shell that runs the tests in the background lets its children ignore SIGINT.
HEARING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


@pytest.fixture
def started(home: Path) -> Iterator[Start]:
    """Start the program in a process of its own, after some lines of Python."""
    programs = []

    def start(*args: object, first: str = "") -> subprocess.Popen[str]:
        program = f"{HEARING}{first}\nfrom keybound.cli.main import main\nmain()"
        command = [sys.executable, "-c", program, *map(str, args)]
        how: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        programs.append(subprocess.Popen(command, cwd=home, **how))
        return programs[-1]

    yield start
    for program in programs:
        if program.poll() is None:
            program.kill()
        program.communicate()


def wait_for(what: Callable[[], Any], limit_s: float = 60.0) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def being_written(folder: Path) -> list[Path]:
    """Look for parts that hold something."""

    def holds_much(path: Path) -> bool:
        try:
            return path.is_file() and path.stat().st_size > 10_000
        except FileNotFoundError:  # removed since it was listed
            return False

    return [path for path in folder.rglob("*") if ".keybound-" in str(path) and holds_much(path)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing(
    started: Start,
    key: Path,
    long: Path,
    home: Path,
    hidden: Callable[[Path], list[Path]],
    number: signal.Signals,
) -> None:
    program = started("embed", long, "out.wav", "--key", key, "--payload", "1")
    wait_for(lambda: being_written(home))
    program.send_signal(number)
    out, err = program.communicate()
    assert (program.returncode, out) == (128 + number, "")
    assert err.strip() == "keybound: stopped"
    assert hidden(home) == []
    assert not (home / "out.wav").exists()


def test_a_later_run_removes_what_a_killed_one_left_and_nothing_in_use(
    run: Run,
    started: Start,
    key: Path,
    host: Path,
    long: Path,
    home: Path,
    hidden: Callable[[Path], list[Path]],
) -> None:
    whose = ("--key", key, "--payload", "1")
    program = started("embed", long, "killed.wav", *whose)
    wait_for(lambda: being_written(home))
    program.kill()
    program.communicate()
    (left,) = hidden(home)
    alive = started("embed", long, "long-marked.wav", *whose)
    wait_for(lambda: being_written(home) and hidden(home) != [left])
    (used,) = hidden(home)  # the second run has removed what the first one left
    assert used != left
    assert run("embed", host, "out.wav", *whose, "--no-check").code == 0
    assert run("attack", "polarity", host, "hit.wav").code == 0
    assert hidden(home) == [used]
    assert alive.wait() == 0
    assert hidden(home) == []
    assert sf.info("long-marked.wav").frames == sf.info(long).frames


DIE = "import os, signal\ndie = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"


@with_ffmpeg
def test_a_kill_during_m4a_leaves_no_wav_for_ever(
    run: Run,
    started: Start,
    key: Path,
    host: Path,
    home: Path,
    hidden: Callable[[Path], list[Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (home / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(home / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    subprocess.run(["ffmpeg", "-v", "error", "-i", host, "host.m4a"], cwd=home, check=True)
    whose = ("--key", key, "--payload", "1", "--no-check")
    reading = DIE + "from keybound.audio import recordings; recordings.Reader.blocks = die"
    writing = DIE + "from keybound.audio import ffmpeg; ffmpeg.encode = die"
    for first in (reading, writing):
        program = started("embed", "host.m4a", "out.m4a", *whose, first=first)
        program.communicate()
        assert program.returncode == -signal.SIGKILL
    left = [path for path in home.rglob("*.wav") if path != host]
    assert left  # the floats
    assert run("embed", "host.m4a", "out.m4a", *whose).code == 0
    assert [path for path in home.rglob("*.wav") if path != host] == []
    assert (hidden(home), list((home / "tmp").glob("*keybound*"))) == ([], [])


# Key files


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_a_key_that_everybody_may_read_is_refused(
    refused: Run, key: Path, host: Path, mode: int
) -> None:
    key.chmod(mode)
    whose = ("--key", key, "--payload", "1")
    said = f"keybound: key file '{key}' is open to everybody (chmod 600 {key})\n"
    assert refused("embed", host, "out.wav", *whose).err == said
    assert refused("verify", host, *whose).err == said
    assert refused("party", "add", "alice", *whose).err == said


@pytest.mark.parametrize("mode", [0o640, 0o660])
def test_a_key_that_its_group_may_read_warns_in_one_line(
    run: Run, key: Path, host: Path, home: Path, mode: int
) -> None:
    assert run("party", "add", "alice", "--key", key, "--payload", "1").err.count("\n") == 1
    key.chmod(mode)
    said = f"keybound: key file '{key}' is open to its group (chmod 600 {key})\n"
    for whose in (("--party", "alice"), ("--key", key, "--payload", "1")):
        found = run("verify", host, *whose)
        assert (found.code, found.err) == (1, said)
    (home / "in").mkdir()
    host.rename(home / "in" / "a.wav")
    made = run("batch", "embed", "in", "--out", "out", "--party", "alice", "--jobs", "1")
    first, *rest = made.err.splitlines(keepends=True)
    assert (made.code, first) == (0, said)  # the workers do not say it again
    assert len(rest) == 1
    assert rest[0].startswith("keybound: made the registry's key")


def test_the_api_warns_of_a_key_that_its_group_may_read(key: Path) -> None:
    key.chmod(0o640)
    with pytest.warns(keybound.KeyFileWarning, match=r"is open to its group \(chmod 600 .*alice"):
        assert keybound.Key.read(key).id == KEY
    key.chmod(0o644)
    with pytest.raises(keybound.KeyBoundError, match="is open to everybody") as caught:
        keybound.Key.read(key)
    assert caught.value.hint == f"chmod 600 {key}"


def test_a_signing_key_is_as_private(run: Run, refused: Run, key: Path, host: Path) -> None:
    pytest.importorskip("cryptography")
    run("party", "add", "alice", "--key", key, "--payload", "1")
    run("embed", host, "out.wav", "--party", "alice", "--no-check")
    run("record", "keygen", "sign.key")
    Path("sign.key").chmod(0o644)
    sign = ("record", "export", "1", "one.kbr", "--sign", "sign.key")
    assert "signing key 'sign.key' is open to everybody (chmod 600 sign.key)" in refused(*sign).err
    Path("sign.key").chmod(0o600)
    assert run(*sign).code == 0
    assert stat.S_IMODE(Path("one.kbr").stat().st_mode) == 0o600


# A registry without a byte


def test_an_empty_registry_is_damage(refused: Run, key: Path, host: Path, home: Path) -> None:
    registry = home / "registry.sqlite"
    registry.touch()
    for command in (
        ("party", "list"),
        ("party", "add", "alice", "--key", key, "--payload", "1"),
        ("record", "list"),
        ("embed", host, "out.wav", "--party", "alice"),
        ("verify", host, "--any"),
    ):
        said = refused(*command).err
        assert f"registry '{registry}' is damaged: it is empty (restore a backup, or" in said
    assert registry.stat().st_size == 0


def test_twenty_programs_make_one_registry(home: Path, key: Path) -> None:
    command = [sys.executable, "-c", "from keybound.cli.main import main; main()", "party", "add"]
    how: Any = {"cwd": home, "stderr": subprocess.PIPE, "text": True}
    programs = [
        subprocess.Popen([*command, f"p{n}", "--key", str(key), "--payload", "1"], **how)
        for n in range(20)
    ]
    assert [program.communicate()[1] for program in programs] == [
        f"keybound: registered p{n}\n" for n in range(20)
    ]
    listed = subprocess.run(
        [*command[:-2], "party", "list", "--json"], cwd=home, capture_output=True, text=True
    )
    names = {json.loads(line)["name"] for line in listed.stdout.splitlines()}
    assert names == {f"p{n}" for n in range(20)}
    assert not [path for path in home.iterdir() if path.name.startswith(".")]
