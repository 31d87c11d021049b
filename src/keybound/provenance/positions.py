"""Keystream positions: each is reserved once, for whichever party has the key.

Positions belong to the key, by its id, and are reserved before the first sample is marked. One
whose work fails is void: it is never reserved again. Whoever reserves holds the row of the key in
`stream` until the end of the transaction. Knows the tables of `schema`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from keybound import stages
from keybound.crypto.keystream import POSITIONS, check_position
from keybound.errors import RegistryError
from keybound.provenance import serials
from keybound.provenance.database import Database

# Changes nothing, and locks the row of the key: in SQLite the whole file is locked already.
HOLD = (
    "INSERT INTO stream (key, next) VALUES (?, 0)"
    " ON CONFLICT (key) DO UPDATE SET next = stream.next RETURNING next"
)
AT_ONCE = 500  # tasks in a statement


class Reserved(NamedTuple):
    """What a task marks with: a position of the key and a serial of the registry."""

    position: int
    serial: int


def next_position(database: Database, key: str) -> int:
    """Return the next position of a key: those below it may be in use."""
    row = database.row("SELECT next FROM stream WHERE key = ?", (key,))
    return 0 if row is None else _checked(key, row[0])


def unrecorded(database: Database, key: str, below: int) -> list[int]:
    """Return the positions of a key below a number that were given and that no record has."""
    query = "SELECT position FROM {} WHERE key = ? AND position < ?".format
    recorded, named = (
        {row[0] for row in database.rows(query(table), (key, below))}
        for table in ("record", "reserved")
    )
    given = named.union(range(min(below, next_position(database, key))))
    return sorted(given - recorded)


def reserve(database: Database, key: str) -> int:
    """Reserve and return the next position of a key."""
    with database.writing():
        return _following(database, key, _hold(database, key), 1)[0]


def reserve_at(database: Database, key: str, position: int) -> None:
    """Reserve a position; raise an error where it was reserved before."""
    check_position(position)
    with database.writing():
        insert = "INSERT INTO reserved (key, position) VALUES (?, ?) ON CONFLICT DO NOTHING"
        free = position >= _hold(database, key)
        if not free or database.execute(insert, (key, position)) == 0:
            raise RegistryError(
                f"position {position} of key {key} was given before",
                hint="each is used once: leave --position out for the next one",
            )


def reserve_for(database: Database, key: str, tasks: Sequence[str]) -> dict[str, Reserved]:
    """Reserve a position and a serial for each task; one that did not end keeps its own.

    Tasks are of this machine: equal names on two of them are two tasks.
    """
    here = stages.machine()
    given: dict[str, Reserved] = {}
    with database.writing():
        position = _hold(database, key)
        for start in range(0, len(tasks), AT_ONCE):
            some = tasks[start : start + AT_ONCE]
            marks = ", ".join("?" * len(some))
            own = f"key = ? AND machine = ? AND task IN ({marks})"
            query = f"SELECT task, position, serial FROM reserved WHERE {own}"
            given |= {
                row[0]: Reserved(*row[1:]) for row in database.rows(query, (key, here, *some))
            }
        left = [task for task in tasks if task not in given]
        places = _following(database, key, position, len(left))
        drawn = serials.draw(database, len(left))
        new = {task: Reserved(*own) for task, *own in zip(left, places, drawn, strict=True)}
        names = "key, position, serial, machine, task"
        insert = f"INSERT INTO reserved ({names}) VALUES (?, ?, ?, ?, ?)"
        database.execute_many(insert, [(key, *own, here, task) for task, own in new.items()])
    return given | new


def end(database: Database, key: str, position: int) -> None:
    """Remove the reservation of a task: its position was used, or is void."""
    delete = "DELETE FROM reserved WHERE key = ? AND position = ? AND task IS NOT NULL"
    database.execute(delete, (key, position))


def _hold(database: Database, key: str) -> int:
    """Return the next position of a key, which nobody else can reserve in this transaction."""
    return _checked(key, database.rows(HOLD, (key,))[0][0])


def _following(database: Database, key: str, position: int, count: int) -> list[int]:
    """Reserve and return the next positions of a key, without those reserved by number.

    `position` is the next, and its row is held.
    """
    found: list[int] = []
    query = "SELECT position FROM reserved WHERE key = ? AND position >= ? AND position < ?"
    while len(found) < count:
        stop = position + count - len(found)
        taken = {row[0] for row in database.rows(query, (key, position, stop))}
        found += [one for one in range(position, stop) if one not in taken]
        position = stop
    if position > POSITIONS:
        raise RegistryError(f"key {key} has no position left", hint="make a new key")
    database.execute("UPDATE stream SET next = ? WHERE key = ?", (position, key))
    return found


def _checked(key: str, count: object) -> int:
    if type(count) is not int or not 0 <= count <= POSITIONS:
        what = f"the registry is damaged at the positions of key {key}"
        raise RegistryError(what, hint="restore a backup")
    return count
