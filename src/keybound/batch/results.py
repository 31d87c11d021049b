"""The results of a batch: a table with one row for each input. Knows nothing of audio or keys."""

import glob
import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keybound import output
from keybound.batch.journal import Row
from keybound.batch.manifest import Item, absolute, arrow
from keybound.errors import CorpusError

# The columns of the results that are ours, with their Arrow types.
COLUMNS = {
    "path": "string",
    "output": "string",
    "status": "string",  # ok, failed, or pending when the run was stopped before it
    "error": "string",
    "seconds": "float64",  # of audio
    "party": "string",
    "present": "bool",
    "presence": "float64",
    "evidence_s": "float64",
    "false_alarms": "float64",  # share of unmarked recordings that are found marked
    "distance": "int32",  # wrong bits of the payload
    "bits": "int32",
    "rho": "int32",
    "bound": "float64",
    "tries": "int32",
    "untried": "int32",  # registered parties that could not be tried
    "grade": "string",  # none, present, attributed or sealed
    "rule_holds": "bool",  # the rule V_A alone
    "seal_p": "float64",
    "identifier": "string",  # the serial that it spells
    "searched": "string",  # what was searched for the seal: all, some, start, short or none
    "position": "int64",  # of the seal in the key's stream
    "position_recurs": "bool",  # whether it is one of the usual ones, without a registry
    "record": "int64",  # its number in the registry
    "origin": "string",  # whether it is that record's audio: same, other, unclear or none
    "spans": "spans",
    "identified": "marks",  # all of them, the best evidence first: the row is of the first
    "clipped": "int64",  # samples limited to full scale
    "manifest": "string",  # the id of the C2PA manifest that it was signed with
    "not_carried": "string",  # metadata of the host that the output cannot hold
    "took_s": "float64",
}
MARK = {
    "identifier": "string",
    "issuer": "int64",
    "party": "string",
    "record": "int64",
    "grade": "string",
    "claimed": "bool",
    "spans": "spans",
    "start_s": "float64",
    "bound": "float64",
}


def default_results(verb: str, manifest: str) -> str:
    """Return the name of the results table of a corpus: readable, and its own.

    The digits tell corpora of one name in different folders apart.
    """
    place = absolute(manifest)
    plain = [part for part in Path(place).parts if not glob.has_magic(part)]
    name = Path(*plain).stem or "corpus"
    digits = hashlib.sha256(os.fsencode(place)).hexdigest()[:6]
    kind = "parquet" if importlib.util.find_spec("pyarrow") else "jsonl"
    return f"keybound-{verb}-{name}-{digits}.{kind}"


def check_results(path: Path, journal: Path) -> None:
    """Raise an error where the results could not be written at the end of the work."""
    if path.suffix.lower() not in WRITERS:
        hint = "results.parquet or results.jsonl"
        raise CorpusError(f"{path} does not end in the name of a table's format", hint=hint)
    if path.suffix.lower() == ".parquet":
        arrow("pyarrow")
    output.check(path, replace=True, parent=False, kind=CorpusError)
    if path.exists() and not journal.exists():
        hint = "--results names another file"
        raise CorpusError(f"{path} exists and has no journal beside it", hint=hint)


def write_results(path: Path, items: Sequence[Item], rows: Iterator[Row]) -> None:
    """Write a table with one row for each item, whole or not at all."""
    with output.writing(path, replace=True, mode=output.PRIVATE, kind=CorpusError) as part:
        WRITERS[path.suffix.lower()](part, items, rows)


def _whole(item: Item, row: Row) -> Row:
    """Return a row of the results: our columns, then the manifest's, renamed where they clash."""
    named = {"path": item.path, "output": item.output}
    ours = {name: named[name] if name in named else row.get(name) for name in COLUMNS}
    return ours | {carried(name): value for name, value in item.extra.items()}


def carried(name: str) -> str:
    """Return the name in the results of a column of the manifest."""
    return f"manifest_{name}" if name in COLUMNS else name


def _jsonl(path: Path, items: Sequence[Item], rows: Iterator[Row]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for item, row in zip(items, rows, strict=True):
            file.write(json.dumps(_whole(item, row), default=str) + "\n")


def _parquet(path: Path, items: Sequence[Item], rows: Iterator[Row]) -> None:
    pa, parquet = arrow("pyarrow"), arrow("pyarrow.parquet")
    names = {name for item in items for name in item.extra}
    own = [(n, _type(pa, t)) for n, t in COLUMNS.items()]
    extra = {}
    for name in sorted(names):
        values = [item.extra.get(name) for item in items]
        try:
            extra[carried(name)] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # of several types: as JSON
            extra[carried(name)] = pa.array([json.dumps(v, default=str) for v in values])
    schema = pa.schema([*own, *((name, array.type) for name, array in extra.items())])
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, len(items), BLOCK_ROWS):
            block = items[start : start + BLOCK_ROWS]
            made = [_whole(item, row) for item, row in zip(block, rows, strict=False)]
            arrays = [pa.array([_utf8(row[n]) for row in made], t) for n, t in own]
            arrays += [array.slice(start, len(block)) for array in extra.values()]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _type(pa: Any, name: str) -> Any:
    """Return the Arrow type of a column."""
    if name == "spans":
        return pa.list_(pa.struct([(n, pa.float64()) for n in ("start_s", "end_s", "score")]))
    if name == "marks":
        return pa.list_(pa.struct([(n, _type(pa, t)) for n, t in MARK.items()]))
    return pa.type_for_alias(name)


def _utf8(value: Any) -> Any:
    """Return text as UTF-8, which Parquet needs; other values as they are."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value


BLOCK_ROWS = 10_000  # written at a time, so that a million rows are not held at once
WRITERS: dict[str, Callable[[Path, Sequence[Item], Iterator[Row]], None]] = {
    ".parquet": _parquet,
    ".jsonl": _jsonl,
}
