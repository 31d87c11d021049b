"""Many processes over connections of their own mark at once while some are killed."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_registry_file import KEY

from keybound.provenance.registry import Registry

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills are POSIX")

# Gives each of its files a position and lets it appear with its record; goes on where it was.
WORKER = f"""
import hashlib, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from keybound import output
from keybound.provenance import records
from keybound.provenance.registry import Registry
from test_registry_file import KEY, RECORD

place, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
with Registry(place) as known:
    for number in range(count):
        path = folder / f"{{number}}.bin"
        if path.exists():
            continue
        task = f"task {{folder.name}} {{number}}"
        if number % 2:
            position, serial = known.reserve_for(KEY.id, [task])[task]
        else:
            position, serial = known.reserve(KEY.id), known.draw_serial()
        with output.staged(path) as part:
            part.path.write_bytes(f"{{task}} at {{position}}".encode())
            sha256 = hashlib.sha256(part.path.read_bytes()).hexdigest()
            own = {{"serial": serial, "registry_key": KEY.id, "sha256": sha256}}
            record = replace(RECORD, position=position, **own)
            known.appear(records.stamp(record, KEY), part)
"""


def mark_and_kill(place: Path | str, root: Path, *, processes: int, each: int, kills: int) -> int:
    """Run processes on two machines, kill some and start those again, wait for all.

    Return how many were killed at work: others were at their end.
    """
    rng = random.Random(20)
    folders = [root / f"{number}" for number in range(processes)]
    until = [0] * processes  # as many files are there at the next kill
    ends = []

    def start(number: int) -> subprocess.Popen[bytes]:
        folders[number].mkdir(exist_ok=True)
        command = [sys.executable, "-c", WORKER, str(place), str(folders[number]), str(each)]
        return subprocess.Popen(command, env=os.environ | {"KEYBOUND_MACHINE": f"m{number % 2}"})

    running = [start(number) for number in range(processes)]
    for _ in range(kills):
        number = rng.randrange(processes)
        until[number] += each // (kills + 1)
        while (
            running[number].poll() is None and len(list(folders[number].glob("*"))) < until[number]
        ):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.01))  # anywhere in the work on a file
        running[number].kill()
        ends.append(running[number].wait())
        running[number] = start(number)
    assert [one.wait() for one in running] == [0] * processes
    assert set(ends) <= {0, -signal.SIGKILL}
    return ends.count(-signal.SIGKILL)


def check_all(place: Path | str, root: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for machine in ("m0", "m1"):
        monkeypatch.setenv("KEYBOUND_MACHINE", machine)
        Registry(place).close()  # settles what the last kill left
    with Registry(place) as known:
        kept = [entry.stamped.record for entry in known.records()]
        waiting = known._database.rows("SELECT id FROM pending")
        held = known._database.rows("SELECT position FROM reserved")
        next_position = known.next_position(KEY.id)
    files = [path for path in root.rglob("*.bin") if ".keybound" not in str(path)]
    assert len(files) == count
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    assert sorted(hashes) == sorted(record.sha256 or "" for record in kept)
    positions = [record.position for record in kept]
    assert len(set(positions)) == len({record.serial for record in kept}) == count  # none twice
    assert max(one for one in positions if one is not None) < next_position
    assert (waiting, held) == ([], [])


SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "registry_kills.py"


def test_real_marking_by_many_processes_that_are_killed(place: Path | str) -> None:
    how = ["--recordings", "9", "--processes", "3", "--kills", "3"]
    done = subprocess.run([sys.executable, SCRIPT, str(place), *how], capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["recordings"], told["not_marked"], told["files_without_record"]) == (9, 0, 0)


def test_nothing_is_lost_or_given_twice_while_processes_are_killed(
    place: Path | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Registry(place).close()
    files = tmp_path / "files"
    files.mkdir()
    assert mark_and_kill(place, files, processes=4, each=40, kills=6) >= 3
    check_all(place, files, 160, monkeypatch)
