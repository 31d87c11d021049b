"""The tables of a registry: how they are made, brought up to date, and told from others'.

Knows SQLite alone. The schema is specified in docs/spec.md.
"""

import os
import sqlite3
from pathlib import Path

from keybound.errors import RegistryError

VERSION = 3
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
    fingerprint TEXT    NOT NULL,
    created     TEXT    NOT NULL,
    drawn       INTEGER NOT NULL DEFAULT 0
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
DRAWN = "ALTER TABLE party ADD COLUMN drawn INTEGER NOT NULL DEFAULT 0"
# What brings a registry to the next version: 1 knew no seals, 2 knew no records.
STEPS = {0: (PARTY, RECORD, FOUND_BY), 1: (DRAWN, RECORD, FOUND_BY), 2: (RECORD, FOUND_BY)}


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make or upgrade the tables; refuse the file of another program or version."""
    if _pragma(connection, "user_version") < VERSION:
        # Two programs may open one new file: the second waits here and finds the tables made.
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            is_ours = _pragma(connection, "application_id") == APPLICATION_ID
            version = _pragma(connection, "user_version")
            if version < VERSION and (is_ours if version else tables[0] == 0):
                for step in STEPS[version]:
                    connection.execute(step)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise RegistryError(
            f"{os.fspath(path)!r} is a database of another program, not a registry",
            hint="is $KEYBOUND_REGISTRY set to the right file?",
        )
    version = _pragma(connection, "user_version")
    if version != VERSION:
        raise RegistryError(
            f"registry {os.fspath(path)!r} has schema {version}, "
            f"and this program reads schema {VERSION}",
            hint="it was made by a newer keybound: upgrade",
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
