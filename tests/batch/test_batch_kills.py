"""Runs outlive kills, signals and dead workers, in processes of their own and on ray."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from made_corpus import RATE, WHOSE, done, fill, hidden, rows, times

from keybound.batch import executors
from keybound.errors import CorpusError

Run = Callable[..., Any]  # to the outcome of `run` in conftest


# Kills


@pytest.fixture
def started(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the program in a process of its own; whatever is left of it ends with the test."""
    programs = []

    def start(*args: object) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-c",
            "from keybound.cli.main import main; main()",
            *map(str, args),
        ]
        programs.append(
            subprocess.Popen(
                command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
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
        time.sleep(0.005)
    raise AssertionError("it did not happen")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


linux = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")


@linux
def test_a_killed_run_goes_on_and_redoes_and_loses_nothing(
    started: Callable[..., subprocess.Popen[str]],
    run: Run,
    home: Path,
    speech: np.ndarray[Any, Any],
) -> None:
    fill(home / "in", speech, 30)
    book = home / "r.parquet.journal"
    command = ("batch", "embed", "in", "--out", "in/marked", *WHOSE, "--results", "r.parquet")
    program = started(*command, "--jobs", 2)
    wait_for(lambda: len(done(book)) >= 5)
    for path in times(home / "in" / "marked"):  # what can be seen is whole at any moment
        assert sf.info(path).frames == len(speech)
    assert "another run is writing" in run(*command).err
    pids = children(program.pid)
    assert len(pids) >= 2
    program.kill()
    program.communicate()
    wait_for(lambda: not any(map(alive, pids)))  # its workers go with it
    before = times(home / "in" / "marked")
    finished = done(book)
    assert 5 <= len(finished) < 30
    with book.open("ab") as file:
        file.write(b'{"done":"cut sh')  # how a kill may leave it

    outcome = run(*command, "--jobs", 2)
    assert outcome.code == 0, outcome.err
    assert "30 done, 0 failed, 0 left" in outcome.out
    after = times(home / "in" / "marked")
    assert len(after) == 30
    assert {path: after[path] for path in before} == before  # not one was made again
    names = [entry["done"] for entry in done(book)]
    assert len(names) == len(set(names)) == 30  # each ended once
    assert done(book)[: len(finished)] == finished
    assert hidden(home) == []  # nor is anything left of what was in hand
    found = rows("r.parquet")
    assert len(found) == 30
    assert all(row["rule_holds"] for row in found)
    assert run(*command).code == 0  # and a third time there is nothing to do
    assert times(home / "in" / "marked") == after


def test_an_output_whose_end_was_not_noted_is_taken_as_it_is(
    run: Run, home: Path, speech: np.ndarray[Any, Any]
) -> None:
    fill(home / "in", speech, 3)
    book = home / "r.parquet.journal"
    command = ("batch", "embed", "in", "--out", "out", *WHOSE, "--results", "r.parquet")
    command += ("--jobs", "1")
    assert run(*command).code == 0
    # As if killed between the appearance of two outputs and their lines in the journal. In place
    # of the second one somebody has put a file of their own since.
    lines = [line for line in book.read_text().splitlines(True) if '"done"' not in line]
    book.write_text("".join(lines))
    sf.write("out/a/1.wav", speech, RATE)
    before = times(home / "out")
    outcome = run(*command)
    assert outcome.code == 2
    assert "out/a/1.wav exists (--force replaces it)" in outcome.err
    assert times(home / "out") == before
    statuses = {row["output"]: (row["status"], row["rule_holds"]) for row in rows("r.parquet")}
    assert statuses == {
        "out/a/0.wav": ("ok", True), "out/b/0.wav": ("ok", True), "out/a/1.wav": ("failed", None)
    }  # fmt: skip
    assert run(*command, "--force").code == 0
    assert times(home / "out")[home / "out/a/0.wav"] == before[home / "out/a/0.wav"]


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_in_order(
    started: Callable[..., subprocess.Popen[str]],
    home: Path,
    marked: np.ndarray[Any, Any],
    number: signal.Signals,
) -> None:
    fill(home / "in", marked, 60)
    book = home / "r.parquet.journal"
    command = ("batch", "detect", "in", "--results", "r.parquet", "--jobs", 2)
    program = started(*command)
    wait_for(lambda: len(done(book)) >= 3)
    program.send_signal(number)
    out, err = program.communicate()
    assert program.returncode == 128 + number
    assert "keybound: finishing the files under way; a second signal stops at once\n" in err
    assert "keybound: stopped; the same command continues from here\n" in err
    statuses = [row["status"] for row in rows("r.parquet")]
    ended = len(done(book))
    assert statuses.count("ok") == ended < 60
    assert statuses.count("pending") == 60 - ended
    assert f"{ended} done, 0 failed, {60 - ended} left" in out


POISON = """
import keybound.batch.worker as worker
import os, signal
call = worker.Worker.__call__
def poisoned(self, task):
    if "poison" in task.source:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(self, task)
worker.Worker.__call__ = poisoned
"""


@pytest.fixture
def poisonous(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every process that works on a file called poison die of it, as of too little memory."""
    (home / "site").mkdir()
    (home / "site" / "sitecustomize.py").write_text(POISON)
    monkeypatch.setenv("PYTHONPATH", f"{home / 'site'}{os.pathsep}{os.environ['PYTHONPATH']}")


@pytest.mark.usefixtures("poisonous")
def test_a_worker_that_dies_costs_one_row(
    run: Run, home: Path, marked: np.ndarray[Any, Any]
) -> None:
    fill(home / "in", marked, 4)
    sf.write("in/a/poison.wav", marked, RATE)
    outcome = run("batch", "detect", "in", "--jobs", 2, "--results", "r.parquet")
    assert outcome.code == 2
    assert "4 done, 1 failed, 0 left, 4 marked" in outcome.out
    (row,) = [row for row in rows("r.parquet") if row["status"] == "failed"]
    assert row["path"] == "in/a/poison.wav"
    assert row["error"].startswith("the process that worked on it died, signal 9 (")


# Ray


absent = [name for name in ("ray", "pandas") if importlib.util.find_spec(name) is None]


def test_ray_and_pyarrow_are_left_alone_until_asked_for() -> None:
    program = "import sys, keybound.cli.batch, keybound.batch.corpus, keybound.batch.executors\n"
    program += "print({'ray', 'pyarrow', 'pandas', 'torch', 'scipy'} & set(sys.modules))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_an_address_where_nobody_answers_is_refused_at_once() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for name in (address, f"ray://{address}"):
            with pytest.raises(CorpusError, match=r"no ray cluster answers at .*: connection ref"):
                executors._knock(name)


@pytest.mark.skipif(bool(absent), reason=f"not installed, see keybound[ray]: {absent}")
def test_ray_does_the_same_and_outlives_its_workers(
    started: Callable[..., subprocess.Popen[str]],
    home: Path,
    speech: np.ndarray[Any, Any],
) -> None:
    fill(home / "in", speech, 36)
    (home / "in" / "text.wav").write_text("dear diary")
    book = home / "r.parquet.journal"
    executor = ("--executor", "ray", "--jobs", 3, "--results", "r.parquet")
    program = started("batch", "embed", "in", "--out", "out", *WHOSE, *executor)
    first = wait_for(lambda: done(book))
    os.kill(first[0]["pid"], signal.SIGKILL)  # an actor, in the middle of its next block
    before = times(home / "out")
    out, err = program.communicate(timeout=90)
    assert program.returncode == 2, err
    assert "36 done, 1 failed, 0 left" in out
    ended = done(book)
    assert len(ended) == len({entry["done"] for entry in ended}) == 37
    pids = {entry["pid"] for entry in ended}
    assert len(pids) >= 3
    found = rows("r.parquet")
    assert sum(bool(row["rule_holds"]) for row in found) == 36
    assert [row["path"] for row in found if row["status"] == "failed"] == ["in/text.wav"]
    after = times(home / "out")
    assert {path: after[path] for path in before} == before
    assert hidden(home) == []
