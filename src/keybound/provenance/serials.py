"""Serials: the random number of each recording, unique in its registry.

One that was drawn is never drawn again: it belongs to a record, or it is void, as after a failure
or when its record was forgotten. Knows the tables of `schema`.
"""

from keybound.identity import identifier
from keybound.provenance.database import Database

AT_ONCE = 500  # serials in a statement


def draw(database: Database, count: int = 1) -> list[int]:
    """Reserve and return as many new serials."""
    drawn: list[int] = []
    while len(drawn) < count:
        some = sorted({identifier.draw() for _ in range(min(count - len(drawn), AT_ONCE))})
        drawn += reserve(database, some)
    return drawn


def reserve(database: Database, some: list[int]) -> list[int]:
    """Reserve serials and return those that were free."""
    if not some:
        return []
    marks = ", ".join(["(?)"] * len(some))
    insert = f"INSERT INTO serial (serial) VALUES {marks} ON CONFLICT DO NOTHING RETURNING serial"
    return [int(row[0]) for row in database.rows(insert, some)]
