"""Measure the service on this machine: CPU of a request beside detection alone, and many clients.

    scripts/load.py --clients 200 --seconds 180

starts `keybound serve`, sends ten seconds of speech one request at a time, then from many clients
at once, and prints two tables. Every answer is checked.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import soundfile as sf

from keybound.crypto.keys import Key
from keybound.demo import SPEECH
from keybound.server.pool import THREADS
from keybound.watermark import files
from keybound.watermark.watermarker import Watermarker

LENGTH_S = 10.0
TURNS = 60
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=180.0)
    asked = parser.parse_args()
    if not THREADS.items() <= os.environ.items():  # numpy has read them by now
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | THREADS)
    with tempfile.TemporaryDirectory() as folder:
        paths = made(Path(folder))
        command = [sys.executable, "-m", "keybound", "serve", "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            port = int(re.findall(r":(\d+)", server.stderr.readline())[-1])
            threading.Thread(target=lambda: list(server.stderr), daemon=True).start()
            try:
                ask(port, paths[True].read_bytes())
                print_cpu(server.pid, port, paths[True])
                print_load(server.pid, port, paths, asked.clients, asked.seconds)
            finally:
                server.terminate()


def made(folder: Path) -> dict[bool, Path]:
    """Write ten seconds of speech, unmarked and marked, as WAV."""
    read, rate = sf.read(SPEECH, dtype="float32")
    host = np.resize(read, round(LENGTH_S * rate))
    marked = Watermarker().embed(host, rate, key=Key(bytes(32)), payload=1, position=0)
    for name, samples in (("host", host), ("marked", marked)):
        sf.write(folder / f"{name}.wav", samples, rate)
    return {False: folder / "host.wav", True: folder / "marked.wav"}


def ask(port: int, body: bytes) -> tuple[int, float, dict[str, object]]:
    """Send a recording; return the status, the seconds to wait if it is refused, and the JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/detect", body)
    answer = connection.getresponse()
    read = answer.status, float(answer.headers.get("Retry-After", 0)), json.loads(answer.read())
    connection.close()
    return read


def print_cpu(server: int, port: int, path: Path) -> None:
    """Print the CPU of a request and that of detection in the same file, in one run."""
    marker, body = Watermarker(), path.read_bytes()
    files.detect(marker, path)
    before = time.process_time()
    for _ in range(TURNS):
        files.detect(marker, path)
    alone_ms = (time.process_time() - before) / TURNS * 1000
    start = cpu_s(server)
    for _ in range(TURNS):
        assert ask(port, body)[2]["present"] is True
    request_ms = (cpu_s(server) - start) / TURNS * 1000
    print("| CPU for 10 s of audio | ms |\n| :-- | --: |")
    print(f"| detection alone, one thread | {alone_ms:.1f} |")
    print(f"| a request, server and workers | {request_ms:.1f} |")
    print(f"| ratio | {request_ms / alone_ms:.2f} |\n", flush=True)


def print_load(
    server: int, port: int, paths: dict[bool, Path], clients: int, seconds: float
) -> None:
    """Print what many clients at once were answered, and the memory before and after."""
    bodies = {marked: path.read_bytes() for marked, path in paths.items()}
    seen: Counter[str] = Counter()
    waits: list[float] = []
    end = time.monotonic() + seconds

    def client(number: int) -> None:
        own = bool(number % 2)
        while time.monotonic() < end:
            begun = time.monotonic()
            try:
                status, wait_s, found = ask(port, bodies[own])
            except OSError as error:
                seen[f"no answer: {type(error).__name__}"] += 1
                continue
            if status == 200:
                waits.append(time.monotonic() - begun)
                seen["right" if found["present"] is own else "wrong"] += 1
            else:
                seen[str(status)] += 1
                time.sleep(wait_s)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(min(20.0, seconds / 3))
    early = memory_mb(server)
    for thread in threads:
        thread.join()
    late = memory_mb(server)
    print(f"| {clients} clients, {seconds:g} s | |\n| :-- | --: |")
    for what, count in sorted(seen.items()):
        print(f"| {what} | {count} |")
    print(f"| right answers a second | {seen['right'] / seconds:.1f} |")
    half, most = np.quantile(waits, [0.5, 0.99])
    print(f"| time of a right answer, median and 99 % | {half:.2f} s, {most:.2f} s |")
    print(f"| memory early and at the end | {early:.0f} MB, {late:.0f} MB |")


def processes(server: int) -> list[int]:
    """Return a process and its children."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    return [server, *map(int, children)]


def cpu_s(server: int) -> float:
    """Return the CPU time of the service so far."""
    fields = [
        Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split() for one in processes(server)
    ]
    return sum(int(one[11]) + int(one[12]) for one in fields) / TICKS


def memory_mb(server: int) -> float:
    """Return the resident memory of the service."""
    pages = [int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in processes(server)]
    return sum(pages) * PAGE / 1e6


if __name__ == "__main__":
    main()
