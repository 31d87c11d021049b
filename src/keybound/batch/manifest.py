"""Manifests: the inputs of a corpus, and the paths of its marked files. Opens no recording.

A manifest is a CSV, JSONL or Parquet file with a column `path`, or a folder, or a glob. Names in
a manifest are relative to the manifest's own folder, so that both can move together. Columns
that KeyBound does not know are carried to the results.
"""

import csv
import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from keybound.audio.formats import SUFFIXES
from keybound.errors import CorpusError

KINDS = "a csv, jsonl or parquet file with a column path, a folder, or a glob in quotes"
SECRETS = ("key", "key_file", "secret")


@dataclass(frozen=True, slots=True)
class Item:
    """One input as the manifest names it; `source` is where it is."""

    path: str
    source: str
    output: str | None = None  # where its marked copy goes
    party: str | None = None
    payload: int | None = None
    nonce: bytes | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def read(manifest: str, out: str | None = None, *, columns: Sequence[str] = ()) -> list[Item]:
    """Read a manifest, folder or glob. Of `out`, `party`, `payload`, `nonce` only `columns` count.

    With `out` among them each item gets an output: the column (within the folder `out` if there
    is one), or else the input's path relative to the corpus under the folder `out`. Files that
    lie in that folder are no part of a folder or glob.
    """
    path = Path(manifest)
    kind = path.suffix.lower()
    if path.is_dir():
        items = _found(path.rglob("*"), path, out)
    elif not path.exists() and glob.has_magic(manifest):
        names = glob.iglob(manifest, recursive=True)  # noqa: PTH207 (Path.glob has one root)
        items = _found(map(Path, names), _fixed(manifest), out)
    elif kind in READERS:
        items = [_item(row, where, str(path.parent), columns) for where, row in _rows(path)]
    elif kind in SUFFIXES and path.exists():
        hint = f"keybound embed takes one recording, a batch {KINDS}"
        raise CorpusError(f"{manifest} is a recording, not a manifest", hint=hint)
    else:
        what = "is no manifest" if path.exists() else "does not exist"
        raise CorpusError(f"{manifest} {what}", hint=f"a batch takes {KINDS}")
    if not items and out is not None and _within(path, out):
        hint = "name a folder for the outputs that does not hold the inputs"
        raise CorpusError(f"--out {out} is the corpus itself, or a folder around it", hint=hint)
    if not items:
        raise CorpusError(f"no recordings in {manifest}", hint=f"a batch takes {KINDS}")
    if "out" not in columns:
        return items
    root = path if path.is_dir() else path.parent if path.exists() else _fixed(manifest)
    return _with_outputs(items, absolute(root), out)


def expand(names: Sequence[str]) -> list[str]:
    """Return the recordings that are named: a folder stands for those in it and below."""
    made: list[str] = []
    for name in names:
        path = Path(name)
        if not path.is_dir():
            made.append(name)
        elif inside := _found(path.rglob("*"), path, None):
            made += [item.path for item in inside]
        else:
            raise CorpusError(f"no recordings in {name}", hint=f"names in {', '.join(SUFFIXES)}")
    return made


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a file, without resolving links."""
    return os.path.abspath(path)  # noqa: PTH100 (Path.absolute leaves .. in)


def _within(path: Path, out: str) -> bool:
    folder = path if path.is_dir() else _fixed(str(path))
    return Path(absolute(folder)).is_relative_to(absolute(out))


def joined(folder: str, name: str) -> str:
    """Return the path of a file in a folder. On a million names Path would take half a minute."""
    return os.path.join(folder, name)  # noqa: PTH118


def _found(names: Iterable[Path], root: Path, out: str | None) -> list[Item]:
    """Return the items that are recordings by their suffix, not hidden and not in `out`."""
    outputs = Path(absolute(out)) if out is not None else None
    base = absolute(root)
    items = []
    for name in sorted(names):
        if name.suffix.lower() not in SUFFIXES or not name.is_file():
            continue
        source = absolute(name)
        if outputs is not None and Path(source).is_relative_to(outputs):
            continue
        if any(part.startswith(".") for part in Path(mirrored(source, base)).parts):
            continue
        items.append(Item(str(name), source))
    return items


def _fixed(pattern: str) -> Path:
    """Return the folder before the first wildcard of a glob."""
    parts = Path(pattern).parts
    plain = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return Path(*parts[:plain])


def _csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        for row in reader:
            where = f"line {reader.line_num}"
            if None in row:
                raise CorpusError(f"{path}, {where} has more fields than the first line")
            yield where, row


def _jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise CorpusError(f"{path}, line {number} is not an object", hint="one a line")
                yield f"line {number}", row


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    parquet = arrow("pyarrow.parquet")
    rows = parquet.read_table(path).to_pylist()
    yield from ((f"row {number}", row) for number, row in enumerate(rows, start=1))


READERS = {
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".parquet": _parquet,
    ".pq": _parquet,
}


def arrow(name: str) -> Any:
    """Import pyarrow; raise an error with a hint where it is not installed."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = "pip install 'keybound[batch]', or use csv or jsonl"
        raise CorpusError("parquet needs pyarrow", hint=hint) from error


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        for where, row in READERS[path.suffix.lower()](path):
            yield f"{path}, {where}", row
    except (UnicodeDecodeError, json.JSONDecodeError, csv.Error, ValueError) as error:
        reason = str(error).splitlines()[0]  # pyarrow's refusals are ValueErrors too
        raise CorpusError(f"{path} cannot be read: {reason}", hint=f"it must be {KINDS}") from error


def _item(row: dict[str, Any], where: str, folder: str, columns: Sequence[str]) -> Item:
    """Return the item of a row; raise an error where its values are not valid."""
    row = {str(name).strip(): value for name, value in row.items()}
    if secret := next((name for name in SECRETS if name in row), None):
        hint = "register parties and name them in a column party, or use --key"
        raise CorpusError(f"{where}: a manifest holds no column {secret}", hint=hint)

    def take(name: str) -> str | None:
        value = row.pop(name, None)
        if value is not None and not isinstance(value, str):
            raise CorpusError(f"{where}: {value!r} is not a {name}", hint="it must be text")
        return value or None

    path = take("path")
    if path is None:
        raise CorpusError(f"{where} has no path", hint="every row needs a column path")
    nonce = take("nonce") if "nonce" in columns else None
    payload = row.pop("payload", None) if "payload" in columns else None
    try:
        if isinstance(payload, str):
            payload = int(payload, 0) if payload.strip() else None
        elif isinstance(payload, float) and payload.is_integer():  # how gaps are kept by pandas
            payload = int(payload)
        if payload is not None and type(payload) is not int:
            raise ValueError
    except ValueError:
        hint = "24301 or 0x5eed"
        raise CorpusError(f"{where}: {payload!r} is not a payload", hint=hint) from None
    try:
        octets = bytes.fromhex(nonce) if nonce is not None else None
    except ValueError:
        raise CorpusError(f"{where}: {nonce!r} is not a nonce in hexadecimal") from None
    return Item(
        path=path,
        source=absolute(joined(folder, path)),
        output=take("out") if "out" in columns else None,
        party=take("party") if "party" in columns else None,
        payload=payload,
        nonce=octets,
        extra=row,
    )


def _with_outputs(items: Sequence[Item], root: str, out: str | None) -> list[Item]:
    """Return the items with outputs; raise an error where two collide or one is an input."""
    inputs = {item.source for item in items}
    taken: dict[str, str] = {}
    made = []
    for item in items:
        if item.output is not None:
            output = joined(out if out is not None else root, item.output)
        elif out is not None:
            output = joined(out, mirrored(item.source, root))
        else:
            hint = "--out FOLDER, or a column out in the manifest"
            raise CorpusError(f"nothing says where the marked {item.path} goes", hint=hint)
        target = absolute(output)
        if target in inputs:
            hint = "name another folder or file for the outputs"
            raise CorpusError(f"{output} is an input and would be an output too", hint=hint)
        if target in taken:
            hint = "each output needs a name of its own"
            raise CorpusError(
                f"{output} would be the output of {taken[target]} and of {item.path}", hint=hint
            )
        taken[target] = item.path
        made.append(replace(item, output=output))
    return made


def mirrored(source: str, root: str) -> str:
    """Return a file's path relative to its corpus; of a file outside, its path without root."""
    inside = joined(root, "")
    if source.startswith(inside):
        return source[len(inside) :]
    return str(Path(*Path(source).parts[1:]))
