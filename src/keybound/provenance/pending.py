"""A marked file and its record appear together, also when the program is killed in between.

The record waits, with the machine, the name and the hash of its file, until the file has appeared.
When the registry is opened next on that machine, what a killed program left is settled: where the
file exists the record is kept, else both are removed. Other machines cannot see the file and leave
it alone. Knows records, parts and the tables of `schema`: no audio.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from keybound import stages
from keybound.errors import RecordError, RegistryError
from keybound.identity.identifier import written
from keybound.output import Part
from keybound.provenance import packing, positions, records, serials
from keybound.provenance.database import Database, TakenError, Value
from keybound.provenance.records import Stamped

COLUMNS = "serial, party, key, position, created, nonce, sha256, manifest, data"
KEEP = f"INSERT INTO record ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def keep(database: Database, stamped: Stamped) -> int:
    """Add a record and return its number.

    Raise an error where another has its serial or its manifest.
    """
    serial = stamped.record.serial
    try:
        number = int(database.rows(KEEP, columns(stamped))[0][0])
    except TakenError:
        named = "" if serial is None else f"serial {written(serial)} already, or with "
        what = f"there is a record with {named}its manifest"
        raise RegistryError(what) from None
    if serial is not None:
        serials.reserve(database, [serial])
    return number


def columns(stamped: Stamped) -> tuple[Value, ...]:
    """Return what is stored of a record: what it is found by, and the whole."""
    one = stamped.record
    sha256 = None if one.sha256 is None else bytes.fromhex(one.sha256)
    found_by = (one.serial, one.party, one.key, one.position, microseconds(one.created))
    manifest = None if one.manifest is None else one.manifest.id
    return (*found_by, one.nonce or None, sha256, manifest, packing.packed(stamped.to_bytes()))


def microseconds(moment: datetime) -> int:
    """Return a time as it is stored: in microseconds since 1970."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def appear(database: Database, stamped: Sequence[Stamped], part: Part) -> list[int]:
    """Publish a part together with its records; return the numbers of the records.

    Nothing appears where the registry cannot be written to.
    """
    paths = [os.fsencode(path.absolute()) for path in (part.output, part.stage)]
    insert = "INSERT INTO pending (data, machine, output, stage) VALUES (?, ?, ?, ?) RETURNING id"
    # Committed before the file appears, so that a kill cannot part them.
    with database.writing():
        waiting = [
            database.rows(insert, (one.to_bytes(), stages.machine(), *paths))[0][0]
            for one in stamped
        ]
    try:
        # Exclusive from here on: once the file is there, no other program can hold up its records.
        with database.writing(exclusive=True):
            if any(_taken(database, one) for one in waiting):
                raise RegistryError("another program took this for abandoned", hint="try again")
            numbers = [keep(database, one) for one in stamped]
            for one in stamped:
                if one.record.position is not None:
                    positions.end(database, one.record.key, one.record.position)
            part.publish()
    except BaseException:
        with contextlib.suppress(RegistryError):  # else it is settled later
            if not any(_is_there(part.output, one.record.sha256) for one in stamped):
                for own in waiting:
                    database.execute("DELETE FROM pending WHERE id = ?", (own,))
        raise
    return numbers


def _taken(database: Database, waiting: int) -> bool:
    """Remove a record that waits; return whether another program has."""
    return database.execute("DELETE FROM pending WHERE id = ?", (waiting,)) == 0


def settle(database: Database) -> None:
    """Keep or drop the records of files whose program was killed while they appeared here."""
    query = "SELECT id, data, output, stage FROM pending WHERE machine = ?"
    for waiting, data, output, stage in database.rows(query, (stages.machine(),)):
        stamped = _stamped(data)
        one = stamped.record
        with stages.reclaimed(Path(os.fsdecode(stage))) as abandoned:
            kept = _is_there(Path(os.fsdecode(output)), one.sha256)
            if not (kept or abandoned):
                continue  # its program is at work
            with database.writing():
                own = f"SELECT id FROM pending WHERE id = ?{database.words.unlocked}"
                if database.row(own, (waiting,)) is None:
                    continue  # settled by another program, or about to be committed by its own
                database.execute("DELETE FROM pending WHERE id = ?", (waiting,))
                if kept:
                    keep(database, stamped)
                if one.position is not None:
                    positions.end(database, one.key, one.position)


class Unfinished(NamedTuple):
    """What a machine has not ended: records of files that are about to appear, and tasks."""

    machine: str
    files: int
    tasks: int


def unfinished(database: Database) -> tuple[Unfinished, ...]:
    """Return what machines have not ended, in the order of their names."""
    files = dict(database.rows("SELECT machine, count(*) FROM pending GROUP BY machine"))
    held = "SELECT machine, count(*) FROM reserved WHERE task IS NOT NULL GROUP BY machine"
    tasks = dict(database.rows(held))
    names = sorted(files.keys() | tasks.keys())
    return tuple(Unfinished(name, files.get(name, 0), tasks.get(name, 0)) for name in names)


def settle_for(database: Database, machine: str) -> Unfinished:
    """Keep the records that a machine left waiting and end its tasks; return how many.

    Those of this machine that wait are left: its files can be seen (`settle`).
    """
    query = f"SELECT id, data FROM pending WHERE machine = ?{database.words.unlocked}"
    with database.writing():
        waiting = [] if machine == stages.machine() else database.rows(query, (machine,))
        for number, data in waiting:
            keep(database, _stamped(data))
            database.execute("DELETE FROM pending WHERE id = ?", (number,))
        ends = "DELETE FROM reserved WHERE machine = ? AND task IS NOT NULL"
        tasks = database.execute(ends, (machine,))
    return Unfinished(machine, len(waiting), tasks)


def forget(database: Database, before: datetime, *, dry_run: bool = False) -> int:
    """Remove the records made before a time and return how many; or only count them."""
    made = microseconds(before)
    if dry_run:
        query = "SELECT count(*) FROM record WHERE created < ?"
        return int(database.rows(query, (made,))[0][0])
    database.rows(database.words.erasing)
    return database.execute("DELETE FROM record WHERE created < ?", (made,))


def _stamped(data: bytes) -> Stamped:
    try:
        return records.parse(data)
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
