"""The tables of a registry: how they are made, and told from those of other programs.

Knows SQLite and files. The schema is specified in docs/spec.md.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from keybound import output, stages
from keybound.errors import RegistryError

VERSION = 5
# "kbnd" in ASCII: tells a registry from the databases of other programs.
APPLICATION_ID = 0x6B626E64
# The payload is hex text, because SQLite integers end at 64 bits.
PARTY = """
CREATE TABLE party (
    name        TEXT    NOT NULL PRIMARY KEY,
    payload     TEXT    NOT NULL,
    bits        INTEGER NOT NULL,
    rho         INTEGER NOT NULL,
    key_file    TEXT    NOT NULL,
    key_id      TEXT    NOT NULL,
    created     TEXT    NOT NULL
)
"""
# Whole as it is exported, so that its MAC still holds; beside it what records are found by.
RECORD = """
CREATE TABLE record (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    party    TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    data     BLOB    NOT NULL
)
"""
FOUND_BY = "CREATE INDEX record_of ON record (party, key)"
# The keystream of a key, whichever party has it: positions below `next` are reserved.
STREAM = """
CREATE TABLE stream (
    key      TEXT    NOT NULL PRIMARY KEY,
    next     INTEGER NOT NULL
)
"""
# Positions that were asked for by number (no task), and those of tasks that have not ended.
RESERVED = """
CREATE TABLE reserved (
    key      TEXT    NOT NULL,
    position INTEGER NOT NULL,
    task     TEXT,
    PRIMARY KEY (key, position)
)
"""
RESERVED_BY = "CREATE INDEX reserved_by ON reserved (task) WHERE task IS NOT NULL"
# Records of files that are about to appear: paths are bytes, since not all are text.
PENDING = """
CREATE TABLE pending (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    party    TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    data     BLOB    NOT NULL,
    output   BLOB    NOT NULL,
    stage    BLOB    NOT NULL
)
"""
POSITION = "json_extract(CAST(data AS TEXT), '$.record.position')"  # of a record
NONCE = "json_extract(CAST(data AS TEXT), '$.record.nonce')"  # of its mask, in hex digits
SHA256 = "json_extract(CAST(data AS TEXT), '$.record.sha256')"  # of its file
NEW = (PARTY, RECORD, FOUND_BY, STREAM, RESERVED, RESERVED_BY, PENDING)


class TakenError(RegistryError):
    """The name is taken: the one constraint that a checked party can break."""


class ReadOnlyError(RegistryError):
    """The registry can be read and not be written to."""


def create(path: Path) -> None:
    """Make a registry with its tables where there is none, in one step.

    So no program ever sees one without them: an empty file is damaged.
    """
    try:
        if path.exists():
            if path.stat().st_size == 0:
                what = f"registry {os.fspath(path)!r} is damaged: it is empty"
                hint = "restore a backup, or remove the file to begin with a new one"
                raise RegistryError(what, hint=hint)
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        stages.sweep(path.parent)
        with output.staged(path, replace=True, mode=output.PRIVATE, kind=RegistryError) as part:
            _make(part.path)
            with contextlib.suppress(FileExistsError):  # made by another program just now
                part.link()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RegistryError(f"registry {os.fspath(path)!r} cannot be made: {reason}") from error


def _make(path: Path) -> None:
    with refusals(path):
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            with writing(connection):
                _run(connection, NEW)
        finally:
            connection.close()


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise an error where the file is of another program or version."""
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise RegistryError(
            f"{os.fspath(path)!r} is a database of another program, not a registry",
            hint="is $KEYBOUND_REGISTRY set to the right file?",
        )
    version = _pragma(connection, "user_version")
    if version != VERSION:
        newer = version > VERSION
        raise RegistryError(
            f"registry {os.fspath(path)!r} has schema {version}, "
            f"and this program reads schema {VERSION}",
            hint=f"it was made by {'a newer' if newer else 'an older'} keybound"
            + (": upgrade" if newer else ""),
        )


@contextlib.contextmanager
def writing(connection: sqlite3.Connection, how: str = "IMMEDIATE") -> Iterator[None]:
    """Do what is inside in one transaction, which two programs cannot be in at once."""
    connection.execute(f"BEGIN {how}")
    with connection:
        yield


@contextlib.contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into what KeyBound raises."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise TakenError(str(error)) from error
    except sqlite3.Error as error:
        name, hint = getattr(error, "sqlite_errorname", ""), None
        what = f"registry {os.fspath(path)!r}"
        if name == "SQLITE_NOTADB":
            what, hint = f"{os.fspath(path)!r} is not a registry", "is $KEYBOUND_REGISTRY right?"
        elif name.startswith("SQLITE_BUSY"):
            what, hint = f"{what} is in use by another program", "try again"
        elif name.startswith("SQLITE_READONLY"):
            raise ReadOnlyError(f"{what} may not be written to", hint="check its mode") from error
        elif name == "SQLITE_FULL":
            what, hint = f"{what} cannot be written: no space left on the disk", "make room"
        else:
            what = f"{what} cannot be used: {error}"
        raise RegistryError(what, hint=hint) from error


def _run(connection: sqlite3.Connection, statements: tuple[str, ...]) -> None:
    for statement in statements:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
