"""Keystream positions: each is reserved once, for whichever party has the key.

Positions belong to the key, by its id, and are reserved before the first sample is marked. One
whose work fails is void: it is never reserved again. Knows SQLite and the tables of `schema`.
"""

import sqlite3
from collections.abc import Iterator, Sequence

from keybound.crypto.keystream import POSITIONS, check_position
from keybound.errors import RegistryError
from keybound.provenance.schema import writing


def next_position(connection: sqlite3.Connection, key: str) -> int:
    """Return the next position of a key: those below it may be in use."""
    row = connection.execute("SELECT next FROM stream WHERE key = ?", (key,)).fetchone()
    if row is None:
        return 0
    if type(row[0]) is not int or not 0 <= row[0] <= POSITIONS:
        what = f"the registry is damaged at the positions of key {key}"
        raise RegistryError(what, hint="restore a backup")
    return int(row[0])


def reserve(connection: sqlite3.Connection, key: str) -> int:
    """Reserve and return the next position of a key."""
    with writing(connection):
        return next(_following(connection, key, 1))


def reserve_at(connection: sqlite3.Connection, key: str, position: int) -> None:
    """Reserve a position; raise an error where it was reserved before."""
    check_position(position)
    with writing(connection):
        insert = "INSERT OR IGNORE INTO reserved (key, position) VALUES (?, ?)"
        free = position >= next_position(connection, key)
        if not free or connection.execute(insert, (key, position)).rowcount == 0:
            raise RegistryError(
                f"position {position} of key {key} was given before",
                hint="each is used once: leave --position out for the next one",
            )


def reserve_for(connection: sqlite3.Connection, key: str, tasks: Sequence[str]) -> dict[str, int]:
    """Reserve a position for each task; a task that has one and did not end keeps it."""
    query = "SELECT position FROM reserved WHERE key = ? AND task = ?"
    given: dict[str, int] = {}
    with writing(connection):
        for task in tasks:
            row = connection.execute(query, (key, task)).fetchone()
            if row is not None:
                given[task] = int(row[0])
        left = [task for task in tasks if task not in given]
        new = dict(zip(left, _following(connection, key, len(left)), strict=True))
        insert = "INSERT INTO reserved (key, position, task) VALUES (?, ?, ?)"
        connection.executemany(insert, [(key, position, task) for task, position in new.items()])
    return given | new


def end(connection: sqlite3.Connection, key: str, position: int) -> None:
    """Remove the reservation of a task: its position was used, or is void."""
    delete = "DELETE FROM reserved WHERE key = ? AND position = ? AND task IS NOT NULL"
    connection.execute(delete, (key, position))


def _following(connection: sqlite3.Connection, key: str, count: int) -> Iterator[int]:
    """Reserve and yield the next positions of a key, without those reserved by number."""
    position = next_position(connection, key)
    query = "SELECT 1 FROM reserved WHERE key = ? AND position = ?"
    for _ in range(count):
        while connection.execute(query, (key, position)).fetchone():
            position += 1
        if position >= POSITIONS:
            raise RegistryError(f"key {key} has no position left", hint="make a new key")
        position += 1
        upsert = "INSERT OR REPLACE INTO stream (key, next) VALUES (?, ?)"
        connection.execute(upsert, (key, position))
        yield position - 1
