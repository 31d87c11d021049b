"""A marked file and its record appear together: kills at every step, a registry that is locked."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_registry_file import KEY, STAMPED, statement

from keybound import output, stages
from keybound.errors import RegistryError
from keybound.provenance import database, records
from keybound.provenance.registry import Registry

Run = Callable[..., Any]  # to the outcome of `run` in conftest
Embed = Callable[..., int]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills and locks are POSIX")

# Where a program is killed while it marks a file: what is put in place of which function.
DIE = "import os, signal\ndie = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
STEPS = {
    "reserved": "from keybound.watermark import files; files.write = die",
    "marked": "from keybound.watermark.reservation import Reservation; Reservation.stamped = die",
    "before the record waits": "from keybound.provenance import pending; pending.appear = die",
    "the record waits": "from keybound.provenance.database import Database as D\n"
    "begin = D.writing; D.writing = lambda *a, **k: die() if k else begin(*a)",
    "before the file appears": "from keybound import output; output.Part.publish = die",
    "the name is taken": "from keybound import output; output._sync_folder = die",
    "the file is there": "from keybound import output; publish = output.Part.publish\n"
    "output.Part.publish = lambda part: (publish(part), die())",
    "the record is kept": "from keybound import stages; stages.shutil.rmtree = die",
}
APPEARED = list(STEPS)[-3:]


@pytest.fixture
def killed(
    run: Run,
    key: Path,
    host: Path,
    home: Path,
    place: Path | str,
    monkeypatch: pytest.MonkeyPatch,
) -> Embed:
    """Mark the host for alice in a process that dies at a step."""
    monkeypatch.setenv("KEYBOUND_REGISTRY", str(place))
    assert run("party", "add", "alice", "--key", key, "--payload", "0x5eed").code == 0

    def embed(step: str, *more: str) -> int:
        program = f"{DIE}{STEPS[step]}\nfrom keybound.cli.main import main\nmain()"
        command = [sys.executable, "-c", program, "embed", str(host), "out.wav"]
        command += ["--party", "alice", "--no-check", *more]
        return subprocess.run(command, cwd=home, capture_output=True).returncode

    return embed


def listed(run: Run) -> list[dict[str, Any]]:
    shown = run("record", "list", "--json")
    assert shown.code == 0, shown.err
    return [json.loads(line) for line in shown.out.splitlines()]


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("step", STEPS)
def test_after_a_kill_there_are_both_or_neither(
    run: Run,
    killed: Embed,
    host: Path,
    home: Path,
    hidden: Callable[[Path], list[Path]],
    place: Path | str,
    step: str,
) -> None:
    assert killed(step) == -signal.SIGKILL
    there = step in APPEARED
    assert (home / "out.wav").exists() == there
    records = listed(run)  # the next command settles it
    assert len(records) == there
    if there:
        shown = run("record", "show", records[0]["number"], "--json").json
        assert shown["record"]["sha256"] == hash_of(home / "out.wav")
        found = run("verify", "out.wav", "--party", "alice", "--require", "sealed", "--json")
        assert found.code == 0
        assert found.json["origin"]["match"] == "same"
        (home / "out.wav").rename(home / "first.wav")
    again = run("embed", host, "out.wav", "--party", "alice", "--no-check", "--json")
    assert (again.code, again.json["position"]) == (0, 1), again.err  # never the first again
    assert hidden(home) == []
    assert [row["position"] for row in listed(run)] == [0, 1][not there :]
    with Registry(place) as known:
        assert pending(known) == 0


@pytest.mark.parametrize("step", ["the record waits", "the file is there"])
def test_a_file_that_was_to_be_replaced_stays_or_goes_with_its_record(
    run: Run, killed: Embed, home: Path, step: str
) -> None:
    (home / "out.wav").write_bytes(b"old")
    assert killed(step, "--force") == -signal.SIGKILL
    records = listed(run)
    if step in APPEARED:
        shown = run("record", "show", records[0]["number"], "--json").json
        assert shown["record"]["sha256"] == hash_of(home / "out.wav")
    else:
        assert records == []
        assert (home / "out.wav").read_bytes() == b"old"


def test_with_the_registry_locked_nothing_appears_and_a_retry_works(
    run: Run,
    key: Path,
    host: Path,
    home: Path,
    hidden: Callable[[Path], list[Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("party", "add", "alice", "--key", key, "--payload", "0x5eed")
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    other = sqlite3.connect(home / "registry.sqlite", isolation_level=None)
    appear = Registry.appear

    def locked(*arguments: Any) -> int:
        other.execute("BEGIN IMMEDIATE")
        return appear(*arguments)

    command = ("embed", host, "out.wav", "--party", "alice", "--no-check", "--json")
    with monkeypatch.context() as patch:
        patch.setattr(Registry, "appear", locked)
        made = run(*command)
    assert (made.code, made.out) == (2, "")
    assert "is in use by another program (try again)" in made.err
    assert not (home / "out.wav").exists()
    assert hidden(home) == []
    other.execute("ROLLBACK")
    assert listed(run) == []
    again = run(*command)
    assert (again.code, again.json["record"], again.json["position"]) == (0, 1, 1)
    other.close()


def pending(known: Registry) -> int:
    """Count the records whose files are about to appear."""
    return int(known._database.rows("SELECT count(*) FROM pending")[0][0])


def test_what_is_under_way_is_left_alone(place: Path | str, tmp_path: Path) -> None:
    with output.staged(tmp_path / "out.bin") as part:
        with Registry(place) as known:
            paths = [os.fsencode(one) for one in (part.output, part.stage)]
            row = (STAMPED.to_bytes(), stages.machine(), *paths)
            insert = "INSERT INTO pending (data, machine, output, stage) VALUES (?, ?, ?, ?)"
            known._database.execute(insert, row)
        with Registry(place) as known:
            assert (pending(known), known.records()) == (1, ())  # only what is final is shown
            assert part.path.exists()
    with Registry(place) as known:
        assert (pending(known), known.records()) == (0, ())


def test_a_reader_cannot_part_a_file_from_its_record(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads holds up a commit: then nothing must have appeared yet."""
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with Registry(path) as known, output.staged(tmp_path / "out.bin") as part:
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM record").fetchall()
        with pytest.raises(RegistryError, match="in use by another program"):
            known.appear(STAMPED, part)
        assert not part.output.exists()
        reader.close()
        assert known.appear(STAMPED, part) == 1
        assert part.output.exists()
        assert pending(known) == 0


def test_an_output_that_came_first_leaves_no_record(place: Path | str, tmp_path: Path) -> None:
    with (
        Registry(place) as known,
        output.staged(tmp_path / "out.bin", kind=RegistryError) as part,
    ):
        part.path.write_bytes(b"marked")
        part.output.write_bytes(b"somebody's")
        with pytest.raises(RegistryError, match=r"out\.bin exists"):
            known.appear(STAMPED, part)
        assert (pending(known), known.records()) == (0, ())
    assert (tmp_path / "out.bin").read_bytes() == b"somebody's"


def test_a_damaged_pending_record_is_named(path: Path) -> None:
    Registry(path).close()
    row = f"1, x'7b7d', '{stages.machine()}', x'2f6e', x'2f6e'"
    statement(path, f"INSERT INTO pending VALUES ({row})")
    with pytest.raises(RegistryError, match="damaged at a record that is not kept yet"):
        Registry(path)


def test_the_records_of_several_tracks_appear_together(place: Path | str, tmp_path: Path) -> None:
    other = records.stamp(replace(STAMPED.record, position=4242, serial=None), KEY)
    with Registry(place) as known:
        with output.staged(tmp_path / "out.bin", kind=RegistryError) as part:
            part.path.write_bytes(b"marked")
            part.output.write_bytes(b"somebody's")
            with pytest.raises(RegistryError, match=r"out\.bin exists"):
                known.appear_all([STAMPED, other], part)
            assert (pending(known), known.records()) == (0, ())
            part.output.unlink()
            numbers = known.appear_all([STAMPED, other], part)
        assert (tmp_path / "out.bin").read_bytes() == b"marked"
        assert tuple(one.number for one in known.records()) == numbers
        assert [one.stamped for one in known.records()] == [STAMPED, other]
        assert pending(known) == 0
