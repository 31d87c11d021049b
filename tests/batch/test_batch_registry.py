"""Batches and the registry: positions are never shared, outputs appear with their records."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from made_corpus import RATE, WHOSE, done, fill, hidden

from keybound.batch import corpus
from keybound.crypto.keys import Key
from keybound.provenance import database
from keybound.provenance.declared import Declared
from keybound.provenance.registry import Registry

Run = Callable[..., Any]  # to the outcome of `run` in conftest

KEY = Key(bytes(range(32))).id
MARKING = ("batch", "embed", "in", "--out", "out", "--party", "alice", "--results", "r.jsonl")
posix = pytest.mark.skipif(os.name != "posix", reason="kills and locks are POSIX")


@pytest.fixture
def alice(run: Run, home: Path, speech: np.ndarray[Any, Any]) -> None:
    """Four recordings in the folder in; alice and bob are registered with one key."""
    fill(home / "in", speech, 4)
    for name, payload in (("alice", "0x5eed"), ("bob", "7")):
        run("party", "add", name, "--key", "alice.key", "--payload", payload)
    run("registry", "rotate")  # a key for identifiers


def results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]


def check_records(home: Path) -> list[int]:
    """Look whether each output has one record and each record its file; give the positions."""
    with Registry(home / "registry.sqlite") as known:
        entries = [entry.stamped.record for entry in known.records()]
        assert known._database.row("SELECT count(*) FROM pending") == (0,)
        assert known._database.row("SELECT count(*) FROM reserved") == (0,)
    files = [path for path in (home / "out").rglob("*.wav") if ".keybound" not in str(path)]
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    assert sorted(str(entry.sha256) for entry in entries) == sorted(hashes)
    positions = [entry.position for entry in entries if entry.position is not None]
    assert len(set(positions)) == len(positions) == len(files)
    return sorted(positions)


@pytest.mark.usefixtures("alice")
def test_a_batch_takes_positions_from_the_registry(run: Run) -> None:
    one = ("embed", "in/a/0.wav", "out.wav", "--no-check", "--json", "--force")
    assert run(*one, "--party", "bob").json["position"] == 0
    sf.write("in/a/silence.wav", np.zeros(RATE), RATE)
    made = run(*MARKING, "--jobs", "1", "--json")
    assert (made.code, made.json["recurring"]) == (2, 0)
    rows = results()
    assert [row["position"] for row in rows] == [1, 2, None, 4, 5]  # what failed leaves 3 void
    assert [row["position_recurs"] for row in rows] == [False, False, None, False, False]
    assert run(*one, "--party", "alice").json["position"] == 6
    run(*MARKING, "--jobs", "1")  # tries what failed again
    assert run(*one, "--party", "alice").json["position"] == 8
    for row in rows:
        if row["status"] == "ok":
            found = run(
                "verify", row["output"], "--party", "alice", "--require", "sealed", "--json"
            )
            assert (found.code, found.json["seal"]["position"]) == (0, row["position"])
            assert found.json["origin"]["record"] == row["record"]


@pytest.mark.usefixtures("alice")
def test_an_input_that_changed_gets_a_new_position(
    run: Run, home: Path, speech: np.ndarray[Any, Any]
) -> None:
    assert run(*MARKING, "--jobs", "1").code == 0
    sf.write("in/a/0.wav", 0.5 * speech, RATE)
    (home / "out" / "b" / "1.wav").unlink()
    assert run(*MARKING, "--jobs", "1").code == 0
    assert [row["position"] for row in results()] == [4, 1, 2, 5]
    with Registry(home / "registry.sqlite") as known:
        assert [entry.stamped.record.position for entry in known.records()] == [0, 1, 2, 3, 4, 5]


def test_without_a_party_the_results_say_that_positions_recur(
    run: Run, home: Path, speech: np.ndarray[Any, Any]
) -> None:
    fill(home / "in", speech, 2)
    made = run("batch", "embed", "in", "--out", "out", *WHOSE, "--results", "r.jsonl", "--json")
    assert (made.code, made.json["recurring"]) == (0, 2)
    assert "sealed at one of 256 positions that recur: 2 files (" in made.err
    assert [row["position_recurs"] for row in results()] == [True, True]
    assert all(row["position"] < 256 for row in results())


DIE = """
import os, signal
from keybound import output
from keybound.provenance.database import Database as D
from keybound.batch import corpus
count = 0
def second(*_, **__):
    global count
    count += 1
    if count == 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""
STEPS = {
    "handed over": "appear = corpus._appear\ncorpus._appear = lambda *a: (second(), appear(*a))[1]",
    "the record waits": "begin = D.writing\n"
    "D.writing = lambda *a, **k: (k and second(), begin(*a, **k))[1]",
    "the file is there": "publish = output.Part.publish\n"
    "output.Part.publish = lambda part: (publish(part), second())",
    "the record is kept": "appear = corpus._appear\n"
    "corpus._appear = lambda *a: (appear(*a), second())[0]",
}


@posix
@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_leaves_no_output_without_a_record(run: Run, home: Path, step: str) -> None:
    program = f"{DIE}{STEPS[step]}\nfrom keybound.cli.main import main\nmain()"
    command = [sys.executable, "-c", program, *MARKING, "--jobs", "2"]
    dead = subprocess.run(command, cwd=home, capture_output=True)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert len(done(home / "r.jsonl.journal")) == 1
    run("record", "list")  # the next command settles it
    with Registry(home / "registry.sqlite") as known:
        kept = {entry.stamped.record.sha256 for entry in known.records()}
    shown = [path for path in (home / "out").rglob("*.wav") if ".keybound" not in str(path)]
    assert {hashlib.sha256(path.read_bytes()).hexdigest() for path in shown} == kept
    assert len(kept) == 1 + (step in ("the file is there", "the record is kept"))
    before = {path: path.stat().st_mtime_ns for path in shown}
    resumed = run(*MARKING, "--jobs", "2")
    assert resumed.code == 0, resumed.err
    assert {path: path.stat().st_mtime_ns for path in shown} == before  # none was made again
    positions = check_records(home)
    # A reservation is used by its own task, or is void: of a record that was dropped.
    assert positions == ([0, 1, 2, 3] if step != "the record waits" else positions)
    assert set(positions) <= set(range(5))
    numbers = [row["record"] for row in results()]
    assert sorted(numbers) == [1, 2, 3, 4]
    assert hidden(home) == []


@posix
@pytest.mark.usefixtures("alice")
def test_with_the_registry_locked_rows_fail_and_a_later_run_does_them(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    other = sqlite3.connect(home / "registry.sqlite", isolation_level=None)
    appear = corpus._appear

    def locked(*arguments: Any) -> Any:
        other.execute("BEGIN IMMEDIATE")
        try:
            return appear(*arguments)
        finally:
            other.execute("ROLLBACK")

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "_appear", locked)
        made = run(*MARKING, "--jobs", "1")
    assert made.code == 2
    assert made.err.count("is in use by another program (try again)") == 4
    assert [path for path in (home / "out").rglob("*") if path.is_file()] == []
    assert run(*MARKING, "--jobs", "1").code == 0
    check_records(home)
    other.close()


@pytest.mark.usefixtures("alice")
def test_records_of_a_batch_say_what_the_provider_declares(run: Run, home: Path) -> None:
    run("registry", "provider", "--provider", "Example Ltd", "--system", "Voice")
    more = ("--system-version", "3", "--field", "lang=en", "--no-fingerprint")
    assert run(*MARKING, "--jobs", "2", *more).code == 0
    with Registry(home / "registry.sqlite") as known:
        kept = [entry.stamped.record for entry in known.records()]
    want = Declared("Example Ltd", "Voice", "3", None, {"lang": "en"})
    assert [one.declared for one in kept] == [want] * 4
    assert {one.fingerprint.columns for one in kept} == {0}
