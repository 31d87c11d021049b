"""The journal of a batch. Knows nothing of audio, keys or networks.

Every finished input is one line, written before anything else happens to it, so that a run killed
at any moment loses nothing. The results are made anew from the journal when a run ends (`results`).
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from keybound import output
from keybound.errors import CorpusError

Row = dict[str, Any]

VERSION = 1


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
