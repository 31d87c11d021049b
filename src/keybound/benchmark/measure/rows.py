"""Rows: one measurement each, as a line of JSON in a file that any run may add to.

A row names everything it depends on, so rows of several runs can lie in one file; a row that is
already there is not measured again. What rows share, such as method and version, stands once in a
line of its own, for all rows after it; a sorted file repeats less. Knows nothing of methods,
attacks or speech.
"""

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keybound.output import writing

Row = dict[str, Any]

DIGITS = 5
SHARED = ("method", "version")  # of the rows of a run
SORTED = (*SHARED, "suite", "attack", "seconds", "speech")  # of a sorted file, too
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


def shared_of(row: Row, names: Sequence[str] = SHARED) -> Row:
    """Return what a row shares with the rows around it."""
    return {k: row[k] for k in names if k in row}


def line_of(row: Row, shared: Row) -> str:
    """Return a row as a line, without what `read_rows` fills in.

    That is what it shares with others, what most clips have, and a lag of nothing.
    """
    row = rounded(row)
    usual = usual_of(row) | shared
    row = {k: v for k, v in row.items() if k not in usual or v != usual[k]}
    if row.get("lag") == 0:
        row = {k: v for k, v in row.items() if k not in ("lag", "si_snr_raw_db")}
    return json.dumps(row, separators=(",", ":")) + "\n"


def usual_of(row: Row) -> Row:
    """Return what most rows of its kind hold."""
    if "clip" not in row:
        return {}
    return USUAL | READ if "errors" in row and "suite" not in row else USUAL


def text_of(rows: Iterable[Row], names: Sequence[str]) -> str:
    """Return rows as lines, what they share before them."""
    lines: list[str] = []
    shared = None
    for row in rows:
        if (own := shared_of(row, names)) != shared:
            shared = own
            lines.append(json.dumps({"shared": own}, separators=(",", ":")) + "\n")
        lines.append(line_of(row, own))
    return "".join(lines)


def row_in(line: str, shared: Row) -> Row:
    """Read a row from its line and what its run shares."""
    row: Row = shared | json.loads(line)
    row = usual_of(row) | row
    if "si_snr_db" in row and row["attack"] != "quality":
        row = {"si_snr_raw_db": row["si_snr_db"], "lag": 0} | row
    return row


def read_rows(path: Path) -> list[Row]:
    """Read rows; a last line cut off by a kill is left out and will be measured again."""
    rows: list[Row] = []
    shared: Row = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                row = row_in(line, shared)
                shared = row.get("shared", shared)
                rows += [] if "shared" in row else [row]
    return rows


def add(path: Path, batches: Iterable[Iterable[Row]]) -> int:
    """Append rows as they come, batch by batch; return how many came."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_off = path.exists() and not path.read_bytes().endswith(b"\n")  # a line, by a kill
    made = 0
    with path.open("ab", buffering=0) as file:  # several may add: each batch is written at once
        file.write(b"\n" if cut_off else b"")
        for rows in batches:
            found = list(rows)
            file.write(text_of(found, SHARED).encode())
            made += len(found)
    return made


def sort(path: Path) -> None:
    """Write a file of rows anew, those together that share the most: it is smaller then."""
    rows = sorted(read_rows(path), key=lambda row: [str(row.get(name, "")) for name in SORTED])
    with writing(path, replace=True) as part:
        part.write_text(text_of(rows, SORTED), encoding="utf-8")


def add_missing(path: Path, rows: Iterable[Row]) -> int:
    """Append the rows that are not there yet, a reason beside a measurement; return how many."""
    done = {(identity(row), row.get("reason")) for row in read_rows(path)}
    return add(path, [[row for row in rows if (identity(row), row.get("reason")) not in done]])


def table_of(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return a small Markdown table; floats have four digits at most."""
    cells = [[str(rounded(cell, 4)) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *cells))
