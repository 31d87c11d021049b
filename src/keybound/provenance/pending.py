"""A marked file and its record appear together, also when the program is killed in between.

The record waits, with the name and the hash of its file, until the file has appeared. When the
registry is opened next, what a killed program left is settled: where the file exists the record is
kept, else both are removed. Knows SQLite, records and parts: no audio.
"""

import contextlib
import hashlib
import os
import sqlite3
from pathlib import Path

from keybound import stages
from keybound.errors import RecordError, RegistryError
from keybound.output import Part
from keybound.provenance import positions, records
from keybound.provenance.records import Record, Stamped
from keybound.provenance.schema import writing

KEEP = "INSERT INTO record (party, key, data) VALUES (?, ?, ?) RETURNING number"


def appear(connection: sqlite3.Connection, stamped: Stamped, part: Part) -> int:
    """Publish a part together with its record; return the number of the record.

    Nothing appears where the registry cannot be written to.
    """
    row = (stamped.record.party, stamped.record.key, stamped.to_bytes())
    paths = [os.fsencode(path.absolute()) for path in (part.output, part.stage)]
    insert = "INSERT INTO pending (party, key, data, output, stage) VALUES (?, ?, ?, ?, ?)"
    # Committed before the file appears, so that a kill cannot part them.
    waiting = connection.execute(insert, (*row, *paths)).lastrowid
    try:
        # Exclusive from here on: once the file is there, no other program can hold up its record.
        with writing(connection, "EXCLUSIVE"):
            if connection.execute("DELETE FROM pending WHERE id = ?", (waiting,)).rowcount == 0:
                raise RegistryError("another program took this for abandoned", hint="try again")
            number = int(connection.execute(KEEP, row).fetchall()[0][0])
            if stamped.record.position is not None:
                positions.end(connection, stamped.record.key, stamped.record.position)
            part.publish()
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # else it is settled later
            if not _is_there(part.output, stamped.record.sha256):
                connection.execute("DELETE FROM pending WHERE id = ?", (waiting,))
        raise
    return number


def settle(connection: sqlite3.Connection) -> None:
    """Keep or drop the records of files whose program was killed while they appeared."""
    query = "SELECT id, party, key, data, output, stage FROM pending"
    for waiting, *row, output, stage in connection.execute(query).fetchall():
        one = _record(row[2])
        with stages.reclaimed(Path(os.fsdecode(stage))) as abandoned:
            kept = _is_there(Path(os.fsdecode(output)), one.sha256)
            if not (kept or abandoned):
                continue  # its program is at work
            with writing(connection):
                delete = "DELETE FROM pending WHERE id = ?"
                if connection.execute(delete, (waiting,)).rowcount and kept:
                    connection.execute(KEEP, row).fetchall()
                if one.position is not None:
                    positions.end(connection, one.key, one.position)


def _record(data: bytes) -> Record:
    try:
        return records.parse(data).record
    except (RecordError, TypeError, AttributeError) as error:
        what = "the registry is damaged at a record that is not kept yet"
        raise RegistryError(what, hint="restore a backup") from error


def _is_there(path: Path, sha256: str | None) -> bool:
    """Return whether the file exists with this hash."""
    try:
        if not path.is_file():  # a pipe would keep its reader waiting
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
