"""The tables of a registry: how they are made, and told from those of other programs.

They are written with the types of SQLite; `database` has those of PostgreSQL. Knows files. The
schema is specified in docs/spec.md.
"""

import contextlib
import os
from pathlib import Path

from keybound import output, stages
from keybound.errors import RegistryError
from keybound.provenance.database import Database, is_address

VERSION = 8
# The payload is hex text, because integers end at 64 bits; a path is bytes, since not all are text.
PARTY = """
CREATE TABLE party (
    name     TEXT    NOT NULL PRIMARY KEY,
    payload  TEXT    NOT NULL,
    bits     INTEGER NOT NULL,
    rho      INTEGER NOT NULL,
    created  TEXT    NOT NULL
)
"""
# New marks use the last of a party's keys.
PARTY_KEY = """
CREATE TABLE party_key (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    party    TEXT    NOT NULL,
    key_file BLOB    NOT NULL,
    key_id   TEXT    NOT NULL,
    created  TEXT    NOT NULL,
    UNIQUE (party, key_id)
)
"""
# Whole as it is exported, so that its MAC still holds, but compressed (`packing`); beside it what
# records are found by. The time is in microseconds since 1970.
RECORD = """
CREATE TABLE record (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    serial   INTEGER,
    party    TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    position INTEGER,
    created  INTEGER NOT NULL,
    nonce    BLOB,
    sha256   BLOB,
    manifest TEXT,
    data     BLOB    NOT NULL
)
"""
RECORD_AT = "CREATE INDEX record_at ON record (key, position)"
RECORD_OF = "CREATE INDEX record_of ON record (sha256) WHERE sha256 IS NOT NULL"
RECORD_SERIAL = "CREATE UNIQUE INDEX record_serial ON record (serial) WHERE serial IS NOT NULL"
RECORD_MANIFEST = (
    "CREATE UNIQUE INDEX record_manifest ON record (manifest) WHERE manifest IS NOT NULL"
)
# Every serial that was drawn: one that no record has is void, or about to be used.
SERIAL = "CREATE TABLE serial (serial INTEGER NOT NULL PRIMARY KEY)"
# The keys of identifiers: new marks use the last.
REGISTRY_KEY = """
CREATE TABLE registry_key (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    key_file BLOB    NOT NULL,
    key_id   TEXT    NOT NULL UNIQUE,
    created  TEXT    NOT NULL
)
"""
SETTING = """
CREATE TABLE setting (
    name     TEXT    NOT NULL PRIMARY KEY,
    value    TEXT    NOT NULL
)
"""
# The keystream of a key, whichever party has it: positions below `next` are reserved.
STREAM = """
CREATE TABLE stream (
    key      TEXT    NOT NULL PRIMARY KEY,
    next     INTEGER NOT NULL
)
"""
# Positions that were asked for by number (no task), and positions and serials of tasks that have
# not ended.
RESERVED = """
CREATE TABLE reserved (
    key      TEXT    NOT NULL,
    position INTEGER NOT NULL,
    serial   INTEGER,
    machine  TEXT,
    task     TEXT,
    PRIMARY KEY (key, position)
)
"""
RESERVED_BY = "CREATE INDEX reserved_by ON reserved (task) WHERE task IS NOT NULL"
# Records of files that are about to appear, on the machine that has the files.
PENDING = """
CREATE TABLE pending (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    data     BLOB    NOT NULL,
    machine  TEXT    NOT NULL,
    output   BLOB    NOT NULL,
    stage    BLOB    NOT NULL
)
"""
# Who may ask a service: the hash of each secret, times in microseconds since 1970.
TOKEN = """
CREATE TABLE token (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    hash     BLOB    NOT NULL UNIQUE,
    name     TEXT    NOT NULL,
    scopes   TEXT    NOT NULL,
    party    TEXT,
    daily    INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    ends     INTEGER
)
"""
# Answers to tokens by the day since 1970; those to all tokens have no name.
ANSWERED = """
CREATE TABLE answered (
    token    TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    given    INTEGER NOT NULL,
    PRIMARY KEY (token, day)
)
"""
NEW = (
    *(PARTY, PARTY_KEY, RECORD, RECORD_AT, RECORD_OF, RECORD_SERIAL, RECORD_MANIFEST, SERIAL),
    *(REGISTRY_KEY, SETTING, STREAM, RESERVED, RESERVED_BY, PENDING, TOKEN, ANSWERED),
)


def opened(place: str | os.PathLike[str]) -> Database:
    """Return the open database of a registry, made with its tables where there is none.

    Raise an error where it is of another program or version.
    """
    if not is_address(place):
        _create(Path(place).absolute())
    database = Database(place)
    try:
        if database.shared and database.version() is None and database.is_empty():
            database.make(NEW, VERSION)
        _check(database)
    except BaseException:
        database.close()
        raise
    return database


def _create(path: Path) -> None:
    """Make a file with its tables where there is none, in one step.

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
            with Database(part.path) as database:
                database.make(NEW, VERSION)
            with contextlib.suppress(FileExistsError):  # made by another program just now
                part.link()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RegistryError(f"registry {os.fspath(path)!r} cannot be made: {reason}") from error


def _check(database: Database) -> None:
    version = database.version()
    if version is None:
        raise RegistryError(
            f"{database.name!r} is a database of another program, not a registry",
            hint=f"is $KEYBOUND_REGISTRY set to the right {'one' if database.shared else 'file'}?",
        )
    if version != VERSION:
        newer = version > VERSION
        raise RegistryError(
            f"registry {database.name!r} has schema {version}, "
            f"and this program reads schema {VERSION}",
            hint=f"it was made by {'a newer' if newer else 'an older'} keybound"
            + (": upgrade" if newer else ""),
        )
