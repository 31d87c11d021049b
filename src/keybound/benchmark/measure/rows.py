"""Rows: one measurement each, as a line of JSON in a file that any run may add to.

A row names everything it depends on, so rows of several runs can lie in one file; a row that is
already there is not measured again. Knows nothing of methods, attacks or speech.
"""

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]

DIGITS = 5
USUAL: Row = {"seed": 0, "seconds": 1.0}  # of a clip
READ: Row = {"bits": 16, "parameters": {}}  # of a clip that was read, where it is our code
IDENTITY = (
    "method", "version", "suite", "attack", "clip", "seconds", "seed", "copies", "network",
    "budget", "source", "domain", "verb", "speech",
)  # fmt: skip


def identity(row: Row) -> tuple[Any, ...]:
    """Return what makes two rows the same measurement."""
    return tuple(row.get(k) for k in IDENTITY)


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Return a row with its floats rounded, so that a file of rows stays small."""
    if isinstance(value, dict):
        return {k: rounded(v, digits) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v, digits) for v in value]
    return round(float(value), digits) if isinstance(value, float | np.floating) else value


def line_of(row: Row) -> str:
    """Return a row as a line, without what `read_rows` fills in: what most clips have, no lag."""
    row = rounded(row)
    usual = usual_of(row)
    row = {k: v for k, v in row.items() if k not in usual or v != usual[k]}
    if row.get("lag") == 0:
        row = {k: v for k, v in row.items() if k not in ("lag", "si_snr_raw_db")}
    return json.dumps(row, separators=(",", ":")) + "\n"


def usual_of(row: Row) -> Row:
    """Return what most rows of its kind hold."""
    if "clip" not in row:
        return {}
    return USUAL | READ if "errors" in row and "suite" not in row else USUAL


def row_in(line: str) -> Row:
    """Read a row from its line."""
    row: Row = json.loads(line)
    row = usual_of(row) | row
    if "si_snr_db" in row and row["attack"] != "quality":
        row = {"si_snr_raw_db": row["si_snr_db"], "lag": 0} | row
    return row


def read_rows(path: Path) -> list[Row]:
    """Read rows; a last line cut off by a kill is left out and will be measured again."""
    rows = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                rows.append(row_in(line))
    return rows


def add(path: Path, batches: Iterable[Iterable[Row]]) -> int:
    """Append rows as they come, batch by batch; return how many came."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_off = path.exists() and not path.read_bytes().endswith(b"\n")  # a line, by a kill
    made = 0
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" if cut_off else "")
        for rows in batches:
            for row in rows:
                file.write(line_of(row))
                made += 1
            file.flush()
    return made


def add_missing(path: Path, rows: Iterable[Row]) -> int:
    """Append the rows that are not there yet, a reason beside a measurement; return how many."""
    done = {(identity(row), row.get("reason")) for row in read_rows(path)}
    return add(path, [[row for row in rows if (identity(row), row.get("reason")) not in done]])


def table_of(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return a small Markdown table; floats have four digits at most."""
    cells = [[str(rounded(cell, 4)) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *cells))
