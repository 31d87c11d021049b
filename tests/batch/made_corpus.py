"""Made corpora: recordings and manifests to run on, and what a run leaves to look at."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

RATE = 16_000
WHOSE = ("--key", "alice.key", "--payload", "0x5eed")  # of `home` in conftest

pa = pytest.importorskip("pyarrow", reason="results in Parquet need pyarrow")
parquet = pytest.importorskip("pyarrow.parquet", reason="results in Parquet need pyarrow")


def fill(folder: Path, samples: np.ndarray[Any, Any], count: int) -> list[Path]:
    """Make a corpus of recordings, the same names in two folders."""
    made = [folder / "ab"[n % 2] / f"{n // 2}.wav" for n in range(count)]
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
        sf.write(path, samples, RATE)
    return made


def write_manifest(path: Path, table: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in table for name in row))
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table), encoding="utf-8")
    elif path.suffix == ".parquet":
        whole = [{name: row.get(name) for name in names} for row in table]
        parquet.write_table(pa.Table.from_pylist(whole), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(table)


def rows(path: str) -> list[dict[str, Any]]:
    return list(parquet.read_table(path).to_pylist())


def entries(path: Path) -> list[dict[str, Any]]:
    """Read the whole lines of a journal that are there by now."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def done(path: Path) -> list[dict[str, Any]]:
    return [entry for entry in entries(path) if "done" in entry]


def times(folder: Path) -> dict[Path, int]:
    """Return when each output was written; folders in which others are made come and go."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".")]
        paths = [Path(place, name) for name in names if name.endswith(".wav")]
        found |= {path: path.stat().st_mtime_ns for path in paths}
    return found


def hidden(folder: Path) -> list[Path]:
    return list(folder.rglob(".keybound-*"))
