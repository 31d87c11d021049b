"""`keybound detect` of several recordings, and what nobody foresaw."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import soundfile as sf

from keybound.watermark import files

Run = Callable[..., Any]  # to the outcome of `run` in conftest
RATE = 16_000


@pytest.fixture
def folder(home: Path, clip: Any, marked: Any) -> Path:
    """Two recordings, one of them marked, in a folder and one below it."""
    (home / "calls" / "may").mkdir(parents=True)
    sf.write(home / "calls" / "plain.wav", clip, RATE)
    sf.write(home / "calls" / "may" / "marked.wav", marked, RATE)
    (home / "calls" / "notes.txt").write_text("not a recording")
    return home / "calls"


def test_several_recordings_and_folders_have_a_line_each(run: Run, folder: Path) -> None:
    outcome = run("detect", "calls", "calls/plain.wav")
    assert outcome.code == 0  # one of them is marked
    names = [line.split(": ")[0] for line in outcome.out.splitlines()]
    assert names == ["calls/may/marked.wav", "calls/plain.wav", "calls/plain.wav"]
    first, second, _ = outcome.out.splitlines()
    assert ": marked (presence 0.9" in first
    assert first.endswith(" s")  # its span
    assert ": no mark found (presence 0.0" in second
    assert run("detect", "calls/plain.wav", "calls/plain.wav").code == 1
    assert folder.is_dir()


@pytest.mark.usefixtures("folder")
def test_detect_plots_where_the_mark_is(run: Run, refused: Run) -> None:
    for name in ("spans.svg", "spans.png"):
        assert run("detect", "calls/may/marked.wav", "--plot", name).code == 0
        assert Path(name).stat().st_size > 2_000
    assert "marked in 1 span" in Path("spans.svg").read_text()
    assert run("detect", "calls/plain.wav", "--plot", "none.svg").code == 1
    refusal = refused("detect", "calls/may/marked.wav", "--plot", "a.x")
    assert "does not end in the name of a picture" in refusal.err


@pytest.mark.usefixtures("folder")
def test_false_alarms_are_as_rare_as_was_asked_from_3_s_on(run: Run, marked: Any) -> None:
    rare = run("detect", "calls/may/marked.wav", "--false-alarms", "1e-6", "--json").json
    assert (rare["present"], rare["false_alarms"]) == (True, 1e-6)
    usual = run("detect", "calls/may/marked.wav", "--json").json
    assert usual["false_alarms"] == 1e-3
    assert usual["evidence_threshold_s"] < rare["evidence_threshold_s"]
    sf.write("short.wav", marked[: 2 * RATE], RATE)
    short = run("detect", "short.wav", "--false-alarms", "1e-4")
    assert short.code == 0
    assert short.err == "keybound: under 3 s the rate of false alarms is 0.01, not 0.0001\n"


@pytest.mark.usefixtures("folder")
def test_other_speeds_are_tried_on_request(run: Run, marked: Any) -> None:
    sf.write("slow.wav", marked, round(RATE * 0.92))  # played 8 % slower
    found = run("detect", "slow.wav", "--speed", "10", "--json").json
    assert (found["present"], found["speeds_tried"]) == (True, 9)
    assert found["speed"] == pytest.approx(0.92, abs=0.026)


@pytest.mark.usefixtures("folder")
def test_one_that_cannot_be_read_does_not_stop_the_others(run: Run) -> None:
    outcome = run("detect", "calls/notes.txt", "calls/may/marked.wav", "gone.wav", "--json")
    assert outcome.code == 2
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [row["path"] for row in rows] == ["calls/notes.txt", "calls/may/marked.wav", "gone.wav"]
    assert "error" in rows[0]
    assert rows[1]["present"] is True
    assert "no such file or directory" in rows[2]["error"]
    assert len(outcome.err.splitlines()) == 2


@pytest.mark.usefixtures("folder")
def test_what_several_recordings_cannot_have_is_refused(refused: Run, home: Path) -> None:
    assert "--plot draws one recording" in refused("detect", "calls", "--plot", "x.svg").err
    (home / "empty").mkdir()
    assert "no recordings in empty" in refused("detect", "empty").err


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), MemoryError(), RecursionError("deep")])
def test_what_nobody_foresaw_is_an_error_and_no_answer(
    refused: Run, host: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(files, "detect", fail)
    line = refused("detect", host).err
    if not isinstance(error, MemoryError):
        assert f"unexpected error: {type(error).__name__}" in line
        assert "KEYBOUND_DEBUG=1" in line


def test_the_traceback_is_shown_on_demand(
    run: Run, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "detect", lambda *_, **__: 1 / 0)
    monkeypatch.setenv("KEYBOUND_DEBUG", "1")
    outcome = run("detect", host)
    assert outcome.code == 2
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("keybound: unexpected error: ZeroDivisionError")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "keybound", "attack", "--list"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_names_that_are_not_utf8_simply_work(tmp_path: Path, host: Path) -> None:
    """All verbs, in a process of its own: what Python makes of such arguments is part of it."""
    env = os.environ | {"KEYBOUND_REGISTRY": os.fsdecode(os.fsencode(tmp_path) + b"/r\xe9.sqlite")}
    name = {kind: b"latin\xe9." + kind.encode() for kind in ("wav", "flac", "mp3", "key", "kbr")}
    (tmp_path / os.fsdecode(name["wav"])).write_bytes(host.read_bytes())
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / os.fsdecode(name["wav"])).write_bytes(host.read_bytes())

    def call(*args: str | bytes) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "keybound", *args]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done

    call("keygen", name["key"])
    call("party", "add", "alice", "--key", name["key"], "--payload", "0x5eed")
    assert b"alice" in call("party", "list").stdout
    call("embed", name["wav"], name["flac"], "--party", "alice")
    call("detect", name["flac"], name["flac"])
    rows = [json.loads(line) for line in call("detect", name["flac"], "--json").stdout.splitlines()]
    assert os.fsencode(rows[0]["path"]) == name["flac"]
    call("verify", name["flac"], "--party", "alice", "--require", "sealed")
    call("attack", "mp3", name["flac"], name["mp3"])
    call("record", "export", "1", name["kbr"])
    call("record", "check", name["kbr"], "--party", "alice")
    call("batch", "embed", "all", "--out", b"out\xe9", "--party", "alice", "--jobs", "1")
    call("batch", "verify", b"out\xe9", "--any", "--jobs", "1")


DAMAGE = {
    "text that is not UTF-8": "UPDATE party_key SET key_file = CAST(x'ff' AS TEXT)",
    "a name that is not UTF-8": "UPDATE party SET name = CAST(x'ff41' AS TEXT)",
    "a path that cannot be": "UPDATE party_key SET key_file = 'a' || char(0) || 'b'",
    "a count that is no number": "UPDATE stream SET next = 'x'",
    "a payload that is no number": "UPDATE party SET payload = 'zz'",
    "a table that is gone": "DROP TABLE record",
    "a key id that is none": "UPDATE party_key SET key_id = 'x'",
    "a record that is not JSON": "UPDATE record SET data = CAST(x'ff' AS TEXT)",
    "a record of the wrong kind": "UPDATE record SET data = CAST('[1]' AS BLOB)",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_registry_is_an_error_and_no_answer(
    run: Run, home: Path, key: Path, host: Path, name: str
) -> None:
    assert run("party", "add", "alice", "--key", key, "--payload", "5").code == 0
    assert run("embed", host, "out.wav", "--party", "alice").code == 0
    with sqlite3.connect(home / "registry.sqlite") as known:
        known.execute(DAMAGE[name])
    known.close()
    answer = run("verify", "out.wav", "--any")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("keybound: ")
    assert len(answer.err.splitlines()) == 1
    assert "unexpected" not in answer.err  # it is foreseen, and named
