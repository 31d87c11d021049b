"""Many processes over connections of their own mark at once while some are killed."""

import hashlib
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
        position = known.reserve_for(KEY.id, [task])[task] if number % 2 else known.reserve(KEY.id)
        with output.staged(path) as part:
            part.path.write_bytes(f"{{task}} at {{position}}".encode())
            sha256 = hashlib.sha256(part.path.read_bytes()).hexdigest()
            record = replace(RECORD, position=position, sha256=sha256)
            known.appear(records.stamp(record, KEY), part)
"""


def mark_and_kill(
    place: Path | str, root: Path, *, processes: int, each: int, kills: int, pause_s: float
) -> None:
    """Run processes on two machines, kill some, start those again, and wait for all."""
    rng = random.Random(20)
    folders = [root / f"{number}" for number in range(processes)]

    def start(number: int) -> subprocess.Popen[bytes]:
        folders[number].mkdir(exist_ok=True)
        command = [sys.executable, "-c", WORKER, str(place), str(folders[number]), str(each)]
        return subprocess.Popen(command, env=os.environ | {"KEYBOUND_MACHINE": f"m{number % 2}"})

    running = [start(number) for number in range(processes)]
    time.sleep(4 * pause_s)  # until they are at work
    done = 0
    while done < kills and any(one.poll() is None for one in running):
        time.sleep(rng.uniform(0, 2 * pause_s))
        number = rng.randrange(processes)
        if running[number].poll() is None:
            running[number].kill()
            done += running[number].wait() == -signal.SIGKILL
            running[number] = start(number)
    assert done == kills, "the processes ended before they were killed"
    assert [one.wait() for one in running] == [0] * processes


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
    assert len(set(positions)) == count  # none twice
    assert max(one for one in positions if one is not None) < next_position
    assert (waiting, held) == ([], [])


def test_nothing_is_lost_or_given_twice_while_processes_are_killed(
    place: Path | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Registry(place).close()
    files = tmp_path / "files"
    files.mkdir()
    mark_and_kill(place, files, processes=4, each=50, kills=6, pause_s=0.15)
    check_all(place, files, 200, monkeypatch)
