"""The registry: parties, records and keystream positions in an SQLite file or on PostgreSQL.

Holds the path of each key file and the key id, never the key itself (`parties`, `settings`); which
positions of each keystream and which serials are reserved (`positions`, `serials`); and the records
of what was marked, which appear with their files (`pending`). Knows nothing of audio or networks,
and leaves to its caller which registry to open: `default_place` only says where one usually is.
The tables are made in `schema` and specified in docs/spec.md; `database` knows the two kinds of it.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from keybound.crypto.keys import Key
from keybound.errors import RecordError, RegistryError
from keybound.output import Part
from keybound.provenance import (
    packing,
    parties,
    pending,
    positions,
    schema,
    serials,
    settings,
    transfer,
)
from keybound.provenance.database import ReadOnlyError, Value, is_address
from keybound.provenance.declared import Declared
from keybound.provenance.fingerprint import Fingerprint
from keybound.provenance.key_files import KeyFile
from keybound.provenance.parties import Party
from keybound.provenance.pending import Unfinished
from keybound.provenance.positions import Reserved
from keybound.provenance.records import Entry, Stamped
from keybound.provenance.tokens import Tokens
from keybound.provenance.transfer import Imported


def default_place() -> Path | str:
    """Return the usual place: $KEYBOUND_REGISTRY, else a file in the user's data folder."""
    chosen = os.environ.get("KEYBOUND_REGISTRY")
    if chosen:
        return chosen if is_address(chosen) else Path(chosen).expanduser()
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():  # the XDG rules ignore a relative folder
        data = Path.home() / ".local" / "share"
    return data / "keybound" / "registry.sqlite"


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

    @property
    def name(self) -> str:
        """Return where the registry is: its path, or its address without a password."""
        return self._database.name

    def close(self) -> None:
        """Close the registry."""
        self._database.close()

    def add(self, party: Party) -> None:
        """Register a party under a name that is not yet taken."""
        parties.add(self._database, party)

    def get(self, name: str, key: str | None = None) -> Party:
        """Return the party of this name with its newest key, or with the one of this id."""
        for one in parties.versions(self._database, name):
            if key in (None, one.key_id):
                return one
        what = f"party {name!r} has no key {key}"
        raise RegistryError(what, hint="keybound party list shows its keys")

    def list(self) -> tuple[Party, ...]:
        """Return all parties with their newest keys, in the order of their names."""
        return parties.newest(self._database)

    def versions(self, name: str | None = None) -> tuple[Party, ...]:
        """Return a party, or all of them, with each of its keys, the newest first."""
        database = self._database
        return parties.every(database) if name is None else parties.versions(database, name)

    def rotate(self, name: str, key_file: Path) -> KeyFile:
        """Give a party the key in a file: new marks use it, and its older keys stay."""
        made = KeyFile(key_file, Key.read(key_file).id, datetime.now(UTC))
        parties.rotate(self._database, name, made)
        return made

    def remove(self, name: str) -> None:
        """Remove the party of this name. Its key files and its records stay."""
        parties.remove(self._database, name)

    def key_files(self) -> tuple[KeyFile, ...]:
        """Return where the keys of this registry's identifiers are, the newest first."""
        return settings.keys(self._database)

    def keys(self) -> tuple[Key, ...]:
        """Return the keys of this registry's identifiers, the newest first."""
        return tuple(settings.read(self._database, one) for one in self.key_files())

    def newest_key(self) -> Key:
        """Return the key for new identifiers.

        The first of an SQLite registry is made beside it, with a `KeyFileWarning`.
        """
        return settings.newest(self._database)

    def rotate_key(self, path: Path | None = None) -> KeyFile:
        """Add a key for new identifiers, from a file or to a new one; the older ones stay."""
        return settings.rotate(self._database, path)

    @property
    def issuer(self) -> int | None:
        """Return the issuer's number, which public identifiers carry; None until it is set."""
        return settings.issuer(self._database)

    def set_issuer(self, number: int) -> None:
        """Set the issuer's number, once."""
        settings.set_issuer(self._database, number)

    @property
    def provider(self) -> Declared:
        """Return what is declared of a recording where its embedding says nothing else."""
        return settings.provider(self._database)

    def set_provider(self, usual: Declared) -> None:
        """Set what is declared of a recording where its embedding says nothing else."""
        settings.set_provider(self._database, usual)

    def draw_serial(self) -> int:
        """Reserve and return a new serial."""
        return serials.draw(self._database)[0]

    def of_serial(self, serial: int) -> Entry | None:
        """Return the record with a serial; None if there is none."""
        return self._first("serial = ?", serial)

    def of_manifest(self, manifest_id: str) -> Entry | None:
        """Return the record with a C2PA manifest of this id; None if there is none."""
        return self._first("manifest = ?", manifest_id)

    @property
    def size(self) -> int:
        """Return how many records there are at most: the number of the last one."""
        return int(self._database.rows("SELECT coalesce(max(number), 0) FROM record")[0][0])

    def next_position(self, key: str) -> int:
        """Return the next position of a key: those below it may be in use."""
        return positions.next_position(self._database, key)

    def unrecorded(self, key: str, below: int) -> Sequence[int]:
        """Return the positions of a key below a number that were given and that no record has."""
        return positions.unrecorded(self._database, key, below)

    def reserve(self, key: str, position: int | None = None) -> int:
        """Reserve and return a new position of a key: the next, or the one asked for."""
        if position is None:
            return positions.reserve(self._database, key)
        positions.reserve_at(self._database, key, position)
        return position

    def reserve_for(self, key: str, tasks: Sequence[str]) -> dict[str, Reserved]:
        """Return position and serial for each task: its own until it ends, or new ones."""
        return positions.reserve_for(self._database, key, tasks)

    def void(self, key: str, position: int) -> None:
        """Mark the position of a task that failed as void: it is never reserved again."""
        positions.end(self._database, key, position)

    def append(self, stamped: Stamped) -> int:
        """Add a record and return its number. No record is ever changed."""
        return pending.keep(self._database, stamped)

    def appear(self, stamped: Stamped, part: Part) -> int:
        """Publish a marked file together with its record; return the number of the record."""
        return self.appear_all([stamped], part)[0]

    def appear_all(self, stamped: Sequence[Stamped], part: Part) -> tuple[int, ...]:
        """Publish a file together with the records of its tracks; return their numbers."""
        return tuple(pending.appear(self._database, stamped, part))

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

    def count(self, party: Party) -> int:
        """Return how many records a party has under its present key."""
        query = "SELECT count(*) FROM record WHERE key = ? AND party = ?"
        return int(self._database.rows(query, (party.key_id, party.name))[0][0])

    def fingerprints(self, party: Party) -> Iterator[tuple[int, Fingerprint]]:
        """Yield the number and fingerprint of each record of a party, the rest of it not read."""
        query = "SELECT number, data FROM record WHERE key = ? AND party = ?"
        for number, data in self._database.each(query, (party.key_id, party.name)):
            with self._damage(number):
                own = packing.fingerprint_of(data)
            yield int(number), own

    def record_of(self, key: str, sha256: str) -> Entry | None:
        """Return the record of a file by its hash; None if there is none under this key."""
        return self._first("key = ? AND sha256 = ?", key, bytes.fromhex(sha256))

    def record(self, number: int) -> Entry:
        """Return the record of this number."""
        entry = self._first("number = ?", number)
        if entry is None:
            raise RegistryError(f"no record {number}", hint="keybound record list shows them all")
        return entry

    def forget(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove the records made before a time and return how many; their serials stay void.

        With `dry_run` they are only counted.
        """
        return pending.forget(self._database, before, dry_run=dry_run)

    def exported(self) -> Iterator[bytes]:
        """Yield the whole registry as lines of JSON, without keys."""
        return transfer.exported(self._database)

    def import_lines(self, lines: Iterable[bytes]) -> Imported:
        """Import the lines of a registry, all or none; return how much that was."""
        return transfer.imported(self._database, lines)

    def counts(self) -> dict[str, int]:
        """Return how many parties, records and serials there are, and serials without a record.

        Such a serial is void, or about to be used.
        """
        counted = {"parties": "party", "records": "record", "serials": "serial"}
        query = "SELECT count(*) FROM {}".format
        made = {name: self._database.rows(query(table))[0][0] for name, table in counted.items()}
        used = self._database.rows("SELECT count(serial) FROM record")[0][0]
        return made | {"void": made["serials"] - used}

    @property
    def tokens(self) -> Tokens:
        """Return the tokens of those who may ask a service of this registry."""
        return Tokens(self._database)

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Return what machines have not ended: files about to appear, and tasks of a batch."""
        return pending.unfinished(self._database)

    def settle(self, machine: str) -> Unfinished:
        """Settle what a machine that is gone left: keep its records, end its tasks.

        Nobody can see whether its files appeared, and a record without a file does no harm.
        """
        return pending.settle_for(self._database, machine)

    def _first(self, where: str, *values: Value) -> Entry | None:
        row = self._database.row(f"SELECT number, data FROM record WHERE {where}", values)
        return None if row is None else self._entry(*row)

    def _entry(self, number: int, data: bytes) -> Entry:
        with self._damage(number):
            return Entry(number, packing.unpacked(data))

    @contextlib.contextmanager
    def _damage(self, number: int) -> Iterator[None]:
        try:
            yield
        except (RecordError, TypeError, AttributeError) as error:
            what = f"registry {self._database.name!r} is damaged at record {number}"
            raise RegistryError(what, hint="restore a backup") from error
