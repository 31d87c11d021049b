"""Mark recordings of 5 s through one registry from many processes, while some are killed.

    python scripts/registry_kills.py PLACE --recordings 5000 --processes 8 --kills 40

PLACE is a new SQLite file or the address of an empty PostgreSQL database. Each process is a
`keybound batch embed` of its own, with a connection and a folder of its own, on one of two machines
by name. Whoever is killed is started again. At the end every recording must be marked and have its
record, and no serial and no position may have been given twice. Prints JSON; exit status 1 if not.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from keybound.crypto.keys import Key
from keybound.demo import SPEECH
from keybound.provenance.registry import Registry

LENGTH_S = 5
PROGRAM = "from keybound.cli.main import main; main()"


def make(folder: Path, processes: int, count: int) -> None:
    """Write the recordings of each process: speech from different starts at different levels."""
    samples, rate = soundfile.read(SPEECH, dtype="float32")
    long = np.tile(samples, -(-2 * LENGTH_S * rate // len(samples)))
    rng = np.random.default_rng(20)
    for number in range(count):
        own = folder / f"in{number % processes}"
        own.mkdir(exist_ok=True)
        start = rng.integers(len(long) - LENGTH_S * rate)
        cut = rng.uniform(0.3, 0.9) * long[start : start + LENGTH_S * rate]
        soundfile.write(own / f"{number}.wav", cut, rate)


def start(folder: Path, place: str, number: int) -> subprocess.Popen[bytes]:
    """Start one process, or start it again."""
    what = [f"in{number}", "--out", f"out{number}", "--results", f"r{number}.jsonl"]
    command = [sys.executable, "-c", PROGRAM, "batch", "embed", *what, "--party", "maker"]
    env = os.environ | {"KEYBOUND_REGISTRY": place, "KEYBOUND_MACHINE": f"m{number % 2}"}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--jobs", "1"], cwd=folder, env=env, stdout=log, stderr=log
        )


def marked(folder: Path, number: int) -> int:
    """Return how many files of a process are marked."""
    return len(list((folder / f"out{number}").glob("*.wav")))


def run(folder: Path, place: str, processes: int, each: int, kills: int) -> int:
    """Run all processes to their end, killing some on the way; return how many were killed."""
    rng = random.Random(20)
    running = [start(folder, place, number) for number in range(processes)]
    killed = 0
    for turn in range(kills):
        number = turn % processes
        until = marked(folder, number) + max(1, each * processes // (2 * max(kills, 1)))
        while running[number].poll() is None and marked(folder, number) < min(until, each):
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3))  # anywhere in the work on a file
        running[number].kill()
        killed += running[number].wait() < 0
        running[number] = start(folder, place, number)
    for number, one in enumerate(running):
        while one.wait() != 0:  # such as a registry that was in use for too long
            one = start(folder, place, number)
    return killed


def check(folder: Path, place: str, count: int) -> dict[str, int]:
    """Return what is wrong, each with how often; all zero if nothing is."""
    for machine in ("m0", "m1"):
        os.environ["KEYBOUND_MACHINE"] = machine
        Registry(place).close()  # settles what a kill left
    with Registry(place) as known:
        kept = [entry.stamped.record for entry in known.records()]
        left = sum(one.files + one.tasks for one in known.unfinished())
    files = list(folder.glob("out*/*.wav"))
    hashes = {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    recorded = {record.sha256 for record in kept}
    positions = [record.position for record in kept]
    serials = [record.serial for record in kept if record.serial is not None]
    return {
        "not_marked": count - len(files),
        "files_without_record": len(hashes - recorded),
        "records_without_file": len(recorded - hashes),
        "positions_twice": len(positions) - len(set(positions)),
        "serials_twice": len(serials) - len(set(serials)),
        "left_open": left,
        "parts_left": len(list(folder.glob("out*/.keybound-*"))),
    }


def main() -> None:
    """Mark, kill, check and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("place")
    parser.add_argument("--recordings", type=int, default=40)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--kills", type=int, default=8)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, begun = Path(name), time.perf_counter()
        Key.generate().write(folder / "maker.key")
        party = ["party", "add", "maker", "--key", str(folder / "maker.key"), "--payload", "7"]
        env = os.environ | {"KEYBOUND_REGISTRY": asked.place}
        subprocess.run([sys.executable, "-c", PROGRAM, *party], env=env, check=True)
        with Registry(asked.place) as known:
            known.rotate_key(folder / "registry.key")
        make(folder, asked.processes, asked.recordings)
        each = -(-asked.recordings // asked.processes)
        killed = run(folder, asked.place, asked.processes, each, asked.kills)
        wrong = check(folder, asked.place, asked.recordings)
        told = {"recordings": asked.recordings, "killed": killed}
        told["seconds"] = round(time.perf_counter() - begun)
    print(json.dumps(told | wrong))
    sys.exit(1 if any(wrong.values()) else 0)


if __name__ == "__main__":
    main()
