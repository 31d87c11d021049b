"""The journal of a batch and the results made from it. Knows nothing of audio, keys or networks.

Every finished input is one line, written before anything else happens to it, so that a run killed
at any moment loses nothing. The results file is made anew from the journal when a run ends.
"""

import contextlib
import glob
import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from keybound import output
from keybound.batch.manifest import Item, absolute, arrow
from keybound.errors import CorpusError

Row = dict[str, Any]

VERSION = 1
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
    "identifier": "string",  # the serials that it spells, the best evidence first
    "searched": "string",  # what was searched for the seal: all, some, start, short or none
    "position": "int64",  # of the seal in the key's stream
    "position_recurs": "bool",  # whether it is one of the usual ones, without a registry
    "record": "int64",  # its number in the registry
    "origin": "string",  # whether it is that record's audio: same, other, unclear or none
    "spans": "spans",
    "clipped": "int64",  # samples limited to full scale
    "manifest": "string",  # the id of the C2PA manifest that it was signed with
    "not_carried": "string",  # metadata of the host that the output cannot hold
    "took_s": "float64",
}


class Stamp(NamedTuple):
    """Size and time of a file, which show whether it has changed."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> "Stamp | None":
        """Return the stamp of a file; None if there is none."""
        try:
            found = Path(path).stat()
        except OSError:
            return None
        return cls(found.st_size, found.st_mtime_ns)


class Done(NamedTuple):
    """What is kept in memory of a finished input: the rest is read from the journal again."""

    offset: int
    ok: bool
    source: Stamp | None
    size: int | None  # of the output


class Journal:
    """The journal at a path, as far as it was written; a context manager that writes on.

    Its first line says which verb and manifest it belongs to; another one is refused. A last line
    that a kill cut short is cut off.
    """

    def __init__(self, path: Path, about: Mapping[str, str]) -> None:
        self.path = path
        self.about = {"keybound": "batch", "version": VERSION, **about}
        self.done: dict[str, Done] = {}
        self.fresh: set[str] = set()  # begun when their output did not exist: it can only be ours
        self._end = 0
        self._file: IO[bytes] | None = None
        self._load()

    def _load(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if self._end == 0:
                    self._check(line)
                else:
                    with contextlib.suppress(ValueError, KeyError, TypeError):
                        self._take(json.loads(line), self._end)
                self._end += len(line)

    def _check(self, line: bytes) -> None:
        hint = "--results names another file"
        try:
            found = json.loads(line)
            mine = found["keybound"] == "batch"
        except (ValueError, KeyError, TypeError):
            mine = False
        if not mine:
            raise CorpusError(f"{self.path} is not the journal of a batch", hint=hint)
        if found["version"] != VERSION:
            hint = "it was made by another version of keybound"
            raise CorpusError(f"{self.path} has version {found['version']}", hint=hint)
        for name, value in self.about.items():
            if found.get(name) != value:
                what = f"{self.path} belongs to another batch: its {name} is {found.get(name)}"
                raise CorpusError(what, hint=hint)

    def _take(self, entry: Row, offset: int) -> None:
        if "began" in entry:
            (self.fresh.add if entry["fresh"] else self.fresh.discard)(entry["began"])
            return
        self.fresh.discard(entry["done"])
        source = Stamp(*entry["source"]) if entry["source"] else None
        ok = entry["row"]["status"] == "ok"
        self.done[entry["done"]] = Done(offset, ok, source, entry["size"])

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._file = os.fdopen(os.open(self.path, flags, output.PRIVATE), "ab")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CorpusError(f"{self.path} cannot be written: {reason}") from error
        self._lock(self._file)
        self._file.truncate(self._end)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.fsync(self._file.fileno())
            if self._end == 0:  # refused before any work
                self.path.unlink()
            self._file.close()

    def _lock(self, file: IO[bytes]) -> None:
        """Lock the journal, so that one run at a time writes. The lock ends with the process."""
        try:
            import fcntl
        except ImportError:  # not on Windows
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            hint = "wait for it, or name other --results"
            raise CorpusError(f"another run is writing {self.path}", hint=hint) from None
        except OSError:  # file systems without locks
            return
        if file.seek(0, os.SEEK_END) != self._end:  # another run came and went since we read it
            self.done, self.fresh, self._end = {}, set(), 0
            self._load()

    def begin(self, name: str, fresh: bool) -> None:
        """Note that work on an input starts, and whether its output did not exist before."""
        self._append({"began": name, "fresh": fresh})

    def finish(self, name: str, entry: Row) -> None:
        """Note how an input ended: `row` for the results, `source` and `size` for the next run."""
        self._append({"done": name, **entry})

    def _append(self, entry: Row) -> None:
        assert self._file is not None
        line = b""
        if self._end == 0:
            line = json.dumps(self.about).encode() + b"\n"
        self._take(entry, self._end + len(line))
        line += json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        self._file.write(line)
        self._file.flush()  # to the system: a kill takes only what the process itself holds
        self._end += len(line)

    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        """Yield the row of each input, in this order; one without an end is pending."""
        if not self.path.exists():
            yield from ({"status": "pending"} for _ in names)
            return
        with self.path.open("rb") as file:
            for name in names:
                if name in self.done:
                    file.seek(self.done[name].offset)
                    yield json.loads(file.readline())["row"]
                else:
                    yield {"status": "pending"}


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
    spans = pa.list_(pa.struct([(n, pa.float64()) for n in ("start_s", "end_s", "score")]))
    own = [(n, spans if t == "spans" else pa.type_for_alias(t)) for n, t in COLUMNS.items()]
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
