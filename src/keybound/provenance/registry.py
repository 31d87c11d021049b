"""The registry: parties, records and keystream positions in an SQLite file or on PostgreSQL.

Holds the path of each key file and the key id, never the key itself; which
positions of each keystream are reserved (`positions`); and the records of what was marked, which
appear with their files (`pending`). Knows nothing of audio or networks, and leaves to its caller
which registry to open: `default_place` only says where one is usually kept. The tables are made in
`schema` and specified in docs/spec.md; `database` knows the two kinds of it.
"""

import contextlib
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from keybound.crypto import codes
from keybound.crypto.keys import KEY_ID_BYTES, Key
from keybound.errors import CodeError, RecordError, RegistryError
from keybound.output import Part
from keybound.provenance import pending, positions, records, schema
from keybound.provenance.database import ReadOnlyError, TakenError, Value, is_address
from keybound.provenance.records import Entry, Stamped

NAME_MAX = 100
COLUMNS = "name, payload, bits, rho, key_file, key_id, created"
PARTIES = f"SELECT {COLUMNS}, coalesce(next, 0) FROM party LEFT JOIN stream ON key = key_id"


def default_place() -> Path | str:
    """Return the usual place: $KEYBOUND_REGISTRY, else a file in the user's data folder."""
    chosen = os.environ.get("KEYBOUND_REGISTRY")
    if chosen:
        return chosen if is_address(chosen) else Path(chosen).expanduser()
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():  # the XDG rules ignore a relative folder
        data = Path.home() / ".local" / "share"
    return data / "keybound" / "registry.sqlite"


@dataclass(frozen=True)
class Party:
    """A party: its payload, the rule it verifies under, and where its key is.

    `next_position` is the position of its key that the registry reserves next, for whichever party:
    those below it are in use. A party that is added says nothing of it.
    """

    name: str
    payload: int
    bits: int
    rho: int
    key_file: Path
    key_id: str
    created: datetime
    next_position: int = 0

    def __post_init__(self) -> None:
        if os.fspath(self.key_file) == "-":
            raise RegistryError("a party needs a key file, not a key on standard input")
        # Stored values are canonical: a row reads back as the party that was added.
        object.__setattr__(self, "name", _check_name(self.name))
        object.__setattr__(self, "key_file", Path(self.key_file).absolute())
        codes.check_payload(self.payload, self.bits)
        codes.check_rho(self.bits, self.rho)
        if 2 * self.rho >= self.bits:
            hint = "with half of the bits or more, every second wrong key would verify"
            raise CodeError(f"rho {self.rho} is too large for {self.bits} bits", hint=hint)
        if not re.fullmatch(rf"[0-9a-f]{{{2 * KEY_ID_BYTES}}}", self.key_id):
            raise RegistryError(
                f"the key id of party {self.name!r} is not {2 * KEY_ID_BYTES} hex digits"
            )
        if self.created.tzinfo is None:
            raise RegistryError(f"the creation time of party {self.name!r} has no time zone")
        if type(self.next_position) is not int or self.next_position < 0:
            raise RegistryError(f"the next position of party {self.name!r} is not a count")

    def key(self) -> Key:
        """Return the party's key; raise an error where its file holds another key."""
        key = Key.read(self.key_file)
        if key.id != self.key_id:
            raise RegistryError(
                f"key file {os.fspath(self.key_file)!r} holds key {key.id}, "
                f"and party {self.name!r} is registered with key {self.key_id}",
                hint="restore the registered key file, or remove the party and add it again",
            )
        return key


class Registry:
    """An open registry; a context manager that closes it."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        """Open the registry at `place`, and make one without parties where there is none.

        A place is the path of an SQLite file, or an address that begins with postgresql://. A new
        file has mode 0600, and its folder 0700 if that is new too. What a killed program left half
        done on this machine is settled.
        """
        self._database = schema.opened(place)
        try:
            with contextlib.suppress(ReadOnlyError):
                pending.settle(self._database)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the registry."""
        self._database.close()

    def add(self, party: Party) -> None:
        """Register a party under a name that is not yet taken."""
        row = (
            party.name,
            f"{party.payload:0{(party.bits + 3) // 4}x}",
            int(party.bits),
            int(party.rho),
            os.fsencode(party.key_file),
            party.key_id,
            party.created.astimezone(UTC).isoformat(),
        )
        insert = f"INSERT INTO party ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
        try:
            self._database.execute(insert, row)
        except TakenError:
            what = f"a party named {party.name!r} is already registered"
            hint = "choose another name, or remove that party first"
            raise RegistryError(what, hint=hint) from None

    def get(self, name: str) -> Party:
        """Return the party of this name."""
        name = _check_name(name)
        row = self._database.row(f"{PARTIES} WHERE name = ?", (name,))
        if row is None:
            raise _unknown(name)
        return self._party(row)

    def list(self) -> tuple[Party, ...]:
        """Return all parties, in the order of their names."""
        # Sorted here: the order of names in PostgreSQL depends on the language of the database.
        parties = (self._party(row) for row in self._database.rows(PARTIES))
        return tuple(sorted(parties, key=lambda party: party.name))

    def next_position(self, key: str) -> int:
        """Return the next position of a key: those below it may be in use."""
        return positions.next_position(self._database, key)

    def reserve(self, key: str, position: int | None = None) -> int:
        """Reserve and return a new position of a key: the next, or the one asked for."""
        if position is None:
            return positions.reserve(self._database, key)
        positions.reserve_at(self._database, key, position)
        return position

    def reserve_for(self, key: str, tasks: Sequence[str]) -> dict[str, int]:
        """Return a position for each task: its own if it has one and did not end, or a new one."""
        return positions.reserve_for(self._database, key, tasks)

    def void(self, key: str, position: int) -> None:
        """Mark the position of a task that failed as void: it is never reserved again."""
        positions.end(self._database, key, position)

    def remove(self, name: str) -> None:
        """Remove the party of this name. Its key file and its records stay."""
        name = _check_name(name)
        if self._database.execute("DELETE FROM party WHERE name = ?", (name,)) == 0:
            raise _unknown(name)

    def append(self, stamped: Stamped) -> int:
        """Add a record and return its number. No record is ever changed or removed."""
        return pending.keep(self._database, stamped)

    def appear(self, stamped: Stamped, part: Part) -> int:
        """Publish a marked file together with its record; return the number of the record."""
        return pending.appear(self._database, stamped, part)

    def records(self, party: Party | None = None, position: int | None = None) -> tuple[Entry, ...]:
        """Return the records of a party under its present key, or all, the oldest first.

        With a position, those of the party that have it.
        """
        where, values = "", list[Value]()
        if party is not None:
            where, values = "WHERE key = ? AND party = ?", [party.key_id, party.name]
            if position is not None:
                where, values = f"{where} AND position = ?", [*values, position]
        query = f"SELECT number, data FROM record {where} ORDER BY number"
        return tuple(self._entry(*row) for row in self._database.rows(query, values))

    def positions(self, party: Party) -> Iterator[tuple[int, int | None]]:
        """Yield the number and position of each record of a party, none of them read whole."""
        query = "SELECT number, position FROM record WHERE key = ? AND party = ?"
        for number, position in self._database.each(query, (party.key_id, party.name)):
            yield int(number), position

    def record_of(self, key: str, sha256: str) -> Entry | None:
        """Return the record of a file by its hash; None if there is none under this key."""
        query = "SELECT number, data FROM record WHERE key = ? AND sha256 = ?"
        row = self._database.row(query, (key, bytes.fromhex(sha256)))
        return None if row is None else self._entry(*row)

    def masks(self, party: Party) -> Iterator[tuple[int, bytes]]:
        """Yield position and nonce of each record of a party whose mask is not the fixed one."""
        own = "key = ? AND party = ? AND position IS NOT NULL AND nonce IS NOT NULL"
        query = f"SELECT position, nonce FROM record WHERE {own}"
        for position, nonce in self._database.each(query, (party.key_id, party.name)):
            yield int(position), bytes(nonce)

    def record(self, number: int) -> Entry:
        """Return the record of this number."""
        row = self._database.row("SELECT number, data FROM record WHERE number = ?", (number,))
        if row is None:
            raise RegistryError(f"no record {number}", hint="keybound record list shows them all")
        return self._entry(*row)

    def _entry(self, number: int, data: bytes) -> Entry:
        try:
            return Entry(number, records.parse(data))
        except (RecordError, TypeError, AttributeError) as error:
            what = f"registry {self._database.name!r} is damaged at record {number}"
            raise RegistryError(what, hint="restore a backup") from error

    def _party(self, row: tuple[Any, ...]) -> Party:
        name, payload, bits, rho, key_file, key_id, created, next_position = row
        try:
            return Party(
                name=name,
                payload=int(payload, 16),
                bits=bits,
                rho=rho,
                key_file=Path(os.fsdecode(key_file)),
                key_id=key_id,
                created=datetime.fromisoformat(created),
                next_position=next_position,
            )
        except (CodeError, RegistryError, TypeError, ValueError) as error:
            what = f"registry {self._database.name!r} is damaged at party {name!r}"
            hint = "restore a backup, or remove the party and add it again"
            raise RegistryError(what, hint=hint) from error


def _check_name(name: str) -> str:
    """Return the name in form NFC, so that equal looks are equal names."""
    name = unicodedata.normalize("NFC", name)
    rule = f"a name has 1 to {NAME_MAX} printable characters, without spaces at its ends"
    if not name or name != name.strip():
        raise RegistryError(f"{name[:NAME_MAX]!r} is not a name for a party", hint=rule)
    if not name.isprintable():
        raise RegistryError("the name of a party holds a control character", hint=rule)
    if len(name) > NAME_MAX:
        raise RegistryError(f"the name of a party has {len(name)} characters", hint=rule)
    return name


def _unknown(name: str) -> RegistryError:
    return RegistryError(f"no party is named {name!r}", hint="keybound party list shows them all")
