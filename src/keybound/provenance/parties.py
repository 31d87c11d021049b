"""Parties: who marks, with which payload, and the keys of each with their dates.

New marks use the newest key of a party; a mark is verified with the key that its record names.
Knows the tables of `schema`: no audio, no records.
"""

import os
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.errors import CodeError, RegistryError
from keybound.provenance import key_files
from keybound.provenance.database import Database, TakenError
from keybound.provenance.key_files import KeyFile

NAME_MAX = 100
QUERY = (
    "SELECT name, payload, bits, rho, party.created, key_file, key_id, party_key.created,"
    " coalesce(next, 0) FROM party JOIN party_key ON party_key.party = party.name"
    " LEFT JOIN stream ON stream.key = party_key.key_id"
)
ADD_KEY = "INSERT INTO party_key (party, key_file, key_id, created) VALUES (?, ?, ?, ?)"


@dataclass(frozen=True)
class Party:
    """A party: its payload, the rule it verifies under, and where its key is.

    `since` is the date of the key, by default that of the party; `older` are the keys that it had
    before, the newest first. `next_position` is the position of its key that the registry reserves
    next, for whichever party: those below it are in use. A party that is added says nothing of it.
    """

    name: str
    payload: int
    bits: int
    rho: int
    key_file: Path
    key_id: str
    created: datetime
    next_position: int = 0
    since: datetime | None = None
    older: tuple[KeyFile, ...] = ()

    def __post_init__(self) -> None:
        if os.fspath(self.key_file) == "-":
            raise RegistryError("a party needs a key file, not a key on standard input")
        # Stored values are canonical: a row reads back as the party that was added.
        object.__setattr__(self, "name", check_name(self.name))
        object.__setattr__(self, "key_file", Path(self.key_file).absolute())
        object.__setattr__(self, "since", self.since or self.created)
        codes.check_payload(self.payload, self.bits)
        codes.check_rho(self.bits, self.rho)
        if 2 * self.rho >= self.bits:
            hint = "with half of the bits or more, every second wrong key would verify"
            raise CodeError(f"rho {self.rho} is too large for {self.bits} bits", hint=hint)
        if self.created.tzinfo is None:
            raise RegistryError(f"the creation time of party {self.name!r} has no time zone")
        if type(self.next_position) is not int or self.next_position < 0:
            raise RegistryError(f"the next position of party {self.name!r} is not a count")
        _ = self.kept  # checks the key id

    @property
    def kept(self) -> KeyFile:
        """Return where the key is kept."""
        return KeyFile(self.key_file, self.key_id, self.since or self.created)

    def key(self) -> Key:
        """Return the party's key; raise an error where its file holds another key."""
        hint = "restore the registered key file, or remove the party and add it again"
        return self.kept.key(f"party {self.name!r}", hint)


def add(database: Database, party: Party) -> None:
    """Register a party under a name that is not yet taken, with its key and those before it."""
    insert = "INSERT INTO party (name, payload, bits, rho, created) VALUES (?, ?, ?, ?, ?)"
    payload = f"{party.payload:0{(party.bits + 3) // 4}x}"
    created = party.created.astimezone(UTC).isoformat()
    try:
        with database.writing():
            row = (party.name, payload, int(party.bits), int(party.rho), created)
            database.execute(insert, row)
            for one in (*reversed(party.older), party.kept):
                database.execute(ADD_KEY, (party.name, *one.row()))
    except TakenError:
        what = f"a party named {party.name!r} is already registered"
        hint = "choose another name, or remove that party first"
        raise RegistryError(what, hint=hint) from None


def versions(database: Database, name: str) -> tuple[Party, ...]:
    """Return the party of this name with each of its keys, the newest first."""
    found = find(database, name)
    if not found:
        raise _unknown(check_name(name))
    return found


def find(database: Database, name: str) -> tuple[Party, ...]:
    """Return what `versions` does, and nothing where there is no such party."""
    query = f"{QUERY} WHERE name = ? ORDER BY party_key.number DESC"
    return _versions(database, database.rows(query, (check_name(name),)))


def of_key(database: Database, key_id: str) -> tuple[Party, ...]:
    """Return the parties that have or had a key, each with that key."""
    query = f"{QUERY} WHERE key_id = ? ORDER BY party_key.number DESC"
    return tuple(_party(database, row) for row in database.rows(query, (key_id,)))


def every(database: Database) -> tuple[Party, ...]:
    """Return all parties with each of their keys: in the order of names, the newest key first."""
    own: dict[str, list[tuple[Any, ...]]] = {}
    for row in database.rows(f"{QUERY} ORDER BY party_key.number DESC"):
        own.setdefault(row[0], []).append(row)
    # Sorted here: the order of names in PostgreSQL depends on the language of the database.
    return tuple(one for name in sorted(own) for one in _versions(database, own[name]))


def newest(database: Database) -> tuple[Party, ...]:
    """Return all parties with their newest keys, in the order of their names."""
    found: dict[str, Party] = {}
    for one in every(database):
        found.setdefault(one.name, one)
    return tuple(found.values())


def rotate(database: Database, name: str, key: KeyFile) -> None:
    """Give a party a new key: new marks use it, and the older ones stay."""
    with database.writing():
        party = versions(database, name)[0]
        try:
            database.execute(ADD_KEY, (party.name, *key.row()))
        except TakenError:
            what = f"key {key.id} is or was a key of party {party.name!r}"
            raise RegistryError(what, hint="keybound keygen makes a new one") from None


def remove(database: Database, name: str) -> None:
    """Remove the party of this name. Its key files and its records stay."""
    name = check_name(name)
    with database.writing():
        if database.execute("DELETE FROM party WHERE name = ?", (name,)) == 0:
            raise _unknown(name)
        database.execute("DELETE FROM party_key WHERE party = ?", (name,))


def _versions(database: Database, rows: Iterable[tuple[Any, ...]]) -> tuple[Party, ...]:
    """Return a party with each of its keys from its rows, the newest first."""
    made = [_party(database, row) for row in rows]
    kept = tuple(one.kept for one in made)
    return tuple(replace(one, older=kept[at + 1 :]) for at, one in enumerate(made))


def _party(database: Database, row: tuple[Any, ...]) -> Party:
    name, payload, bits, rho, created, key_file, key_id, since, next_position = row
    try:
        kept = key_files.of_row(key_file, key_id, since)
        return Party(
            name=name,
            payload=int(payload, 16),
            bits=bits,
            rho=rho,
            key_file=kept.path,
            key_id=kept.id,
            created=datetime.fromisoformat(created),
            next_position=next_position,
            since=kept.since,
        )
    except (CodeError, RegistryError, TypeError, ValueError) as error:
        what = f"registry {database.name!r} is damaged at party {name!r}"
        hint = "restore a backup, or remove the party and add it again"
        raise RegistryError(what, hint=hint) from error


def check_name(name: str) -> str:
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
