"""Outputs appear whole or not at all, replace only files, and have the mode they are to have."""

import errno
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound import output
from keybound.audio import ffmpeg
from keybound.errors import AudioError, CorpusError

Run = Callable[..., Any]  # to the outcome of `run` in conftest

PAYLOAD = "0x5eed"
PROGRAM = [sys.executable, "-c", "from keybound.cli.main import main; main()"]
posix = pytest.mark.skipif(os.name != "posix", reason="pipes, modes and locks are POSIX")


# One wins


@pytest.mark.parametrize("links", [True, False])
def test_of_many_at_once_one_gets_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not links:  # as on FAT
        monkeypatch.setattr(Path, "hardlink_to", no_links)
    ready = threading.Barrier(8)
    told: list[str] = []

    def write(number: int) -> int | None:
        with output.staged(tmp_path / "a.txt") as part:
            part.path.write_text(str(number))
            ready.wait()
            try:
                part.publish()
            except AudioError as error:
                told.append(error.message)
                return None
        return number

    with ThreadPoolExecutor(8) as pool:
        won = [number for number in pool.map(write, range(8)) if number is not None]
    assert len(won) == 1
    assert told == 7 * [f"{tmp_path / 'a.txt'} exists"]
    assert (tmp_path / "a.txt").read_text() == str(won[0])
    assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"]


def test_of_five_embeddings_at_once_one_gets_the_name(
    run: Run, key: Path, host: Path, home: Path, hidden: Callable[[Path], list[Path]]
) -> None:
    command = [*PROGRAM, "embed", host, "out.wav", "--key", key, "--payload", PAYLOAD]
    how: Any = {"cwd": home, "stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    programs = [
        subprocess.Popen([*map(str, command), "--position", str(n)], **how) for n in range(5)
    ]
    told = [program.communicate()[1] for program in programs]
    codes = [program.returncode for program in programs]
    assert sorted(codes) == [0, 2, 2, 2, 2], told
    won = codes.index(0)
    for number, said in enumerate(told):
        if number != won:
            assert said == "keybound: out.wav exists (--force replaces it)\n"
    whose = ("--key", key, "--payload", PAYLOAD, "--position", won, "--require", "sealed")
    assert run("verify", "out.wav", *whose).code == 0  # what is there is the winner's
    assert hidden(home) == []


# What may be replaced


def special(folder: Path, kind: str) -> Path:
    """Make something at out.wav that is no file."""
    path = folder / "out.wav"
    if kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("out.wav")
    elif kind == "a device":
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    else:
        path.symlink_to(folder / ("other.wav" if kind == "a symbolic link" else "nowhere.wav"))
    return path


KINDS = ["a named pipe", "a socket", "a device", "a symbolic link", "a dangling link"]


@posix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_only_files_are_replaced(
    refused: Run, key: Path, host: Path, home: Path, kind: str, force: tuple[str, ...]
) -> None:
    (home / "other.wav").write_bytes(b"precious")
    before = special(home, kind).lstat()
    message = f"out.wav is {kind.replace('dangling', 'symbolic')}, not a file (name another output)"
    whose = ("--key", key, "--payload", PAYLOAD)
    assert message in refused("embed", host, "out.wav", *whose, *force).err
    assert message in refused("embed", host, "out.wav", *whose, "--no-check", *force).err
    assert message in refused("attack", "polarity", host, "out.wav", *force).err
    after = (home / "out.wav").lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert not (home / "nowhere.wav").exists()


@posix
def test_a_pipe_that_comes_while_the_work_is_done_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    with output.staged(path, replace=True) as part:
        part.path.write_text("new")
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(AudioError, match="is a named pipe"):
            part.publish()
    assert stat.S_ISFIFO(path.lstat().st_mode)
    assert list(tmp_path.iterdir()) == [path]


@posix
def test_a_batch_replaces_only_files(run: Run, key: Path, host: Path, home: Path) -> None:
    (home / "in").mkdir()
    (home / "out").mkdir()
    host.rename(home / "in" / "a.wav")
    os.mkfifo(home / "out" / "a.wav")
    whose = ("--key", key, "--payload", PAYLOAD, "--jobs", "1", "--results", "r.jsonl")
    made = run("batch", "embed", "in", "--out", "out", "--force", *whose)
    assert made.code == 2
    assert "out/a.wav is a named pipe, not a file (name another output)" in made.err
    assert stat.S_ISFIFO((home / "out" / "a.wav").lstat().st_mode)


# Modes


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@posix
@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_an_output_has_the_mode_of_its_host(
    run: Run, key: Path, host: Path, home: Path, mode: int
) -> None:
    host.chmod(mode)
    whose = ("--key", key, "--payload", PAYLOAD)
    (home / "old.wav").touch(0o777)
    run("embed", host, "a.wav", *whose)
    run("embed", host, "b.wav", *whose, "--no-check")
    run("embed", host, "old.wav", *whose, "--no-check", "--force")
    run("attack", "polarity", host, "c.wav")
    for name in ("a.wav", "b.wav", "old.wav", "c.wav"):
        assert stat.S_IMODE((home / name).stat().st_mode) == mode, name


@posix
@pytest.mark.usefixtures("no_umask")
def test_records_results_and_journals_are_private(run: Run, key: Path, home: Path) -> None:
    (home / "in").mkdir()
    sf.write("in/a.wav", np.zeros(16_000), 16_000)
    (home / "in" / "a.wav").chmod(0o664)
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    for kind in ("jsonl", "parquet"):
        run("batch", "detect", "in", "--jobs", "1", "--results", f"r.{kind}")
    names = ["registry.sqlite", "r.jsonl", "r.jsonl.journal", "r.parquet", "r.parquet.journal"]
    assert {name: (home / name).stat().st_mode & 0o777 for name in names} == dict.fromkeys(
        names, 0o600
    )


def test_other_files_have_the_usual_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with output.writing(tmp_path / "a.svg") as part:
            part.write_text("picture")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.svg").stat().st_mode) == 0o640


# Full disks


@pytest.fixture
def little(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with room for a stage and little more."""
    place = tmp_path / "little"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root mounts disks")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg", "a.opus", "a.mp3", "a.m4a"])
def test_a_full_disk_is_called_full(run: Run, key: Path, little: Path, name: str) -> None:
    if name == "a.m4a" and shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is absent")
    noise = np.random.default_rng(0).normal(0, 0.1, 40 * 16_000)  # which nothing packs well
    sf.write("host.wav", noise, 16_000)
    whose = ("--key", key, "--payload", PAYLOAD, "--no-check")
    made = run("embed", "host.wav", little / name, *whose)
    assert made.code == 2
    full = "cannot be written: no space left on the disk (make room, or write to another disk)"
    assert made.err == f"keybound: {little / name} {full}\n"
    assert list(little.iterdir()) == []


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is absent")
def test_a_disk_that_fills_while_aac_is_encoded_is_called_full(
    tmp_path: Path, little: Path
) -> None:
    sf.write(tmp_path / "host.wav", np.random.default_rng(0).normal(0, 0.1, 80 * 16_000), 16_000)
    with pytest.raises(AudioError, match="cannot be written: no space left on the disk"):
        ffmpeg.encode(tmp_path / "host.wav", little / "part.m4a", 64_000)


def test_a_disk_without_room_for_a_name_is_called_full(
    run: Run, key: Path, host: Path, little: Path
) -> None:
    with (little / "fill").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(512))
            except OSError:
                break
    full = "cannot be written: no space left on the disk ("
    whose = ("--key", key, "--payload", PAYLOAD, "--no-check")
    for command in (
        ("embed", host, little / "a.wav", *whose),
        ("attack", "polarity", host, little / "a.wav"),
        ("keygen", little / "a.key"),
        ("detect", host, "--plot", little / "a.svg"),
    ):
        made = run(*command)
        assert (made.code, full in made.err) == (2, True), made.err
    assert [path.name for path in little.iterdir()] == ["fill"]


def test_a_write_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, words in (
        (errno.ENOSPC, "no space left on the disk"),
        (errno.EDQUOT, "no space left on the disk"),
        (errno.EIO, "input/output error"),
    ):

        def fail(*_: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", fail)
            with (
                pytest.raises(CorpusError, match=f"a.txt cannot be written: {words}") as caught,
                output.writing(tmp_path / "a.txt", kind=CorpusError) as part,
            ):
                part.write_text("new")
        assert "part" not in caught.value.message
    assert list(tmp_path.iterdir()) == []
