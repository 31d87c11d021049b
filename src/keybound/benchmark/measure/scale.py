"""What an hour of audio costs in a batch: the figures of docs/scale.md.

Runs `keybound batch` itself on corpora made of a folder of speech and counts the time of all its
processes. What a run costs that has one clip for each process, hence its start, is taken away:
in a large corpus it is nothing. CPU seconds hold on a machine that is shared, within a tenth or
two; the elapsed time does not.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile as sf

from keybound.audio.folders import read_clips
from keybound.benchmark.measure.rows import Row, table_of

# Name, files, seconds of each, rate and channels.
CORPORA = (
    ("short clips", 200, 3.0, 16_000, 1),
    ("long files", 10, 300.0, 16_000, 1),
    ("long, 48 kHz stereo", 2, 300.0, 48_000, 2),
)
PROGRAM = "from keybound.cli.main import main; main()"


def measure(speech: Path, jobs: Sequence[int]) -> list[Row]:
    """Return elapsed and CPU seconds for each hour of audio, for each corpus and verb."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keygen = [sys.executable, "-c", PROGRAM, "keygen", str(folder / "key")]
        subprocess.run(keygen, check=True, capture_output=True)
        clips = np.concatenate(read_clips(speech, 3.0, 16_000, limit=200))
        for workers in jobs:
            start: dict[str, Row] = {}
            for corpus in (("start", workers, 3.0, 16_000, 1), *CORPORA):
                title, count, seconds, rate, channels = corpus
                made = folder / f"{workers} {title}"
                _fill(made, clips, count, seconds, rate, channels)
                for verb in ("embed", "detect"):
                    spent = _run(verb, made, folder / "key", workers)
                    row: Row = {"corpus": title, "files": count, "verb": verb, "jobs": workers}
                    row |= {"hours": count * seconds / 3600, **spent}
                    rows.append(row | _per_hour(row, start.setdefault(verb, row)))
    return rows


def _per_hour(row: Row, start: Row) -> Row:
    hours = row["hours"] - start["hours"]
    if row is start:
        return {}
    return {f"{n}_per_hour": (row[n] - start[n]) / hours for n in ("cpu_s", "elapsed_s")}


def _fill(folder: Path, clips: Any, count: int, seconds: float, rate: int, channels: int) -> None:
    from keybound.audio.recordings import resample

    folder.mkdir()
    frames = round(seconds * 16_000)
    for number in range(count):
        picked = np.arange(number * frames, (number + 1) * frames) % len(clips)
        wide = resample(clips[picked].astype(np.float32), 16_000, rate)
        sf.write(folder / f"{number}.flac", np.stack([wide] * channels, 1), rate)


def _run(verb: str, corpus: Path, key: Path, jobs: int) -> dict[str, float]:
    """Run the program; return elapsed and CPU seconds of it and all its children."""
    out = corpus.with_name(f"{corpus.name} marked")
    arguments = ["batch", verb, str(out if verb == "detect" else corpus), "--jobs", str(jobs)]
    arguments += ["--results", f"{out} {verb}.jsonl"]
    if verb == "embed":
        arguments += ["--out", str(out), "--key", str(key), "--payload", "24301"]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"elapsed_s": time.perf_counter() - begun, "cpu_s": cpu}


def table(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table; of a start, which has no hours, the seconds themselves."""
    lines = []
    for row in rows:
        cells = [row["corpus"], row["verb"], row["jobs"]]
        if "cpu_s_per_hour" in row:
            cpu, elapsed = row["cpu_s_per_hour"], row["elapsed_s_per_hour"]
            lines.append([*cells, f"{cpu:.1f}", f"{elapsed:.1f}", f"{3600 / elapsed:.0f}"])
        else:
            in_all = (f"({row[spent]:.1f} s in all)" for spent in ("cpu_s", "elapsed_s"))
            lines.append([*cells, *in_all, ""])
    heads = ("corpus", "verb", "processes", "CPU s per hour", "elapsed s per hour")
    return table_of((*heads, "times real time"), lines)
