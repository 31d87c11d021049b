"""Whole registries as JSONL: exported, and imported into another.

The first line says what the file is; then come the parties, the records as each is exported by
itself, and what must not be given twice: positions and serials. Key files are named, keys are never
in it. The last line counts the others, so that a file that was cut short is refused. The form is
specified in docs/spec.md. Knows the tables of `schema`: no audio.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from keybound.crypto.keys import Key
from keybound.crypto.keystream import POSITIONS
from keybound.errors import KeyBoundError, RegistryError
from keybound.identity.identifier import SERIAL_BITS, written
from keybound.provenance import declared, packing, parties, pending, records, serials, settings
from keybound.provenance.database import Database, Value
from keybound.provenance.declared import NOTHING
from keybound.provenance.key_files import KeyFile
from keybound.provenance.parties import Party
from keybound.provenance.records import Stamped

VERSION = 1
PAGE = 1000  # rows that are read at a time: so long nobody else waits
RAISE = (
    "INSERT INTO stream (key, next) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET next ="
    " CASE WHEN excluded.next > stream.next THEN excluded.next ELSE stream.next END"
)
TAKE = "INSERT INTO reserved (key, position) VALUES (?, ?) ON CONFLICT DO NOTHING"
ADD_KEY = "INSERT INTO registry_key (key_file, key_id, created) VALUES (?, ?, ?)"


class Imported(NamedTuple):
    """How much was imported; `unchecked` are records whose key is not at hand."""

    records: int
    unchecked: int
    parties: int
    void: int  # serials without a record


def exported(database: Database) -> Iterator[bytes]:
    """Yield the lines of a registry. What is added meanwhile need not be among them."""
    count = 0
    for line in _lines(database):
        count += 1
        yield line
    yield _line({"end": count})


def _lines(database: Database) -> Iterator[bytes]:
    own = {"issuer": settings.issuer(database), "provider": settings.provider(database).members()}
    yield _line({"keybound": "registry", "version": VERSION, **own})
    for kept in reversed(settings.keys(database)):
        yield _line({"registry_key": _of_key_file(kept)})
    for party in parties.newest(database):
        yield _line({"party": _of_party(party)})
    query = "SELECT number, data FROM record WHERE number > ? ORDER BY number LIMIT ?"
    yield from (packing.unpacked(data).to_bytes() for _, data in _pages(database, query))
    # After the records: what was reserved for them is then among these.
    for key, following in database.rows("SELECT key, next FROM stream ORDER BY key"):
        yield _line({"stream": {"key": key, "next": following}})
    asked = "SELECT key, position FROM reserved WHERE task IS NULL ORDER BY key, position"
    for key, position in database.rows(asked):
        yield _line({"reserved": {"key": key, "position": position}})
    void = "NOT EXISTS (SELECT 1 FROM record WHERE record.serial = serial.serial)"
    query = f"SELECT serial FROM serial WHERE serial > ? AND {void} ORDER BY serial LIMIT ?"
    yield from (_line({"serial": serial}) for (serial,) in _pages(database, query))


def imported(database: Database, lines: Iterable[bytes]) -> Imported:
    """Import the lines of a registry, all or none, and return how much that was.

    Raise an error where a record is here already or its MAC does not hold. What this registry has
    of its own stays: its newest key, its number, its provider.
    """
    reader = Reader(database)
    with database.writing():
        for number, line in enumerate(lines, start=1):
            try:
                reader.take(line, first=number == 1)
            except KeyBoundError as error:
                raise type(error)(f"line {number}: {error.message}", hint=error.hint) from None
        if not reader.ended:
            raise RegistryError("the file is cut short", hint="export it again")
    return reader.told


class Reader:
    """What was read so far of the lines of an import."""

    def __init__(self, database: Database) -> None:
        self.told = Imported(0, 0, 0, 0)
        self.ended = False
        self._database = database
        self._keys: dict[str, Key | None] = {}  # by id; None: not at hand
        self._lines = 0
        self._kinds: dict[str, Callable[[Any], None]] = {
            "registry_key": self._registry_key,
            "party": self._party,
            "stream": self._stream,
            "reserved": self._reserved,
            "serial": self._serial,
            "end": self._end,
        }

    def take(self, line: bytes, first: bool) -> None:
        """Import a line."""
        if line.startswith(b'{"mac":'):
            self._record(records.parse(line))
        else:
            try:
                whole = json.loads(line)
                if first:
                    self._head(whole)
                else:
                    ((kind, value),) = whole.items()
                    self._kinds[kind](value)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                hint = "keybound record export --all makes one"
                raise RegistryError("this is no line of a registry", hint=hint) from error
        self._lines += 1

    def _head(self, whole: dict[str, Any]) -> None:
        if whole["keybound"] != "registry" or whole["version"] != VERSION:
            raise ValueError("another file")
        if whole["issuer"] is not None:
            settings.set_issuer(self._database, whole["issuer"])
        usual = declared.parse(whole["provider"])
        if settings.provider(self._database) == NOTHING:
            settings.set_provider(self._database, usual)

    def _registry_key(self, value: dict[str, str]) -> None:
        kept = _to_key_file(value)
        if kept.id not in {one.id for one in settings.keys(self._database)}:
            self._database.execute(ADD_KEY, kept.row())

    def _party(self, value: dict[str, Any]) -> None:
        party = _to_party(value)
        known = parties.find(self._database, party.name)
        if not known:
            parties.add(self._database, party)
            self.told = self.told._replace(parties=self.told.parties + 1)
        elif replace(known[0], next_position=0) != party:
            hint = "the same party has the same payload, dates and keys"
            raise RegistryError(f"another party {party.name!r} is here already", hint=hint)

    def _record(self, stamped: Stamped) -> None:
        one, told = stamped.record, self.told
        _check_new(self._database, stamped)
        key = self._key(one.key)
        if key is not None:
            stamped.check(key)
        pending.keep(self._database, stamped)
        self.told = told._replace(
            records=told.records + 1, unchecked=told.unchecked + (key is None)
        )

    def _key(self, key_id: str) -> Key | None:
        """Return the key of this id; None where no party has it at hand."""
        if key_id not in self._keys:
            self._keys[key_id] = None
            for one in parties.of_key(self._database, key_id):
                with contextlib.suppress(KeyBoundError):
                    self._keys[key_id] = one.key()
        return self._keys[key_id]

    def _stream(self, value: dict[str, Any]) -> None:
        self._database.execute(RAISE, (value["key"], _count(value["next"], POSITIONS)))

    def _reserved(self, value: dict[str, Any]) -> None:
        self._database.execute(TAKE, (value["key"], _count(value["position"], POSITIONS - 1)))

    def _serial(self, value: int) -> None:
        serials.reserve(self._database, [_count(value, (1 << SERIAL_BITS) - 1)])
        self.told = self.told._replace(void=self.told.void + 1)

    def _end(self, value: int) -> None:
        if self.ended or value != self._lines:
            raise RegistryError("lines are missing before this one", hint="export it again")
        self.ended = True


def _check_new(database: Database, stamped: Stamped) -> None:
    """Raise an error where a record is here already, or its serial is void here."""
    one = stamped.record
    ways: list[tuple[str, Value]] = [
        ("serial", one.serial),
        ("sha256", None if one.sha256 is None else bytes.fromhex(one.sha256)),
        ("position", one.position),
    ]
    found_by = [(name, value) for name, value in ways if value is not None][:1]
    where = "".join(f" AND {name} = ?" for name, _ in found_by)
    query = f"SELECT number, data FROM record WHERE key = ?{where}"
    for number, data in database.rows(query, (one.key, *(value for _, value in found_by))):
        if packing.unpacked(data) == stamped:
            raise RegistryError(f"record {number} is the same one", hint="import it once")
    void = "NOT EXISTS (SELECT 1 FROM record WHERE record.serial = serial.serial)"
    drawn = f"SELECT 1 FROM serial WHERE serial = ? AND {void}"
    if one.serial is not None and database.row(drawn, (one.serial,)) is not None:
        what = f"serial {written(one.serial)} is void here: its record was forgotten, or never was"
        raise RegistryError(what, hint="import into a new registry")


def _pages(database: Database, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query that takes the first column of the last row, and a limit."""
    last = -1
    while found := database.rows(query, (last, PAGE)):
        yield from found
        last = found[-1][0]


def _count(value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no count")
    return value


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _of_key_file(kept: KeyFile) -> dict[str, str]:
    # A name that is not UTF-8 has lone surrogates, which JSON can escape.
    return {"file": os.fspath(kept.path), "id": kept.id, "since": kept.since.isoformat()}


def _to_key_file(value: dict[str, str]) -> KeyFile:
    return KeyFile(Path(value["file"]), value["id"], datetime.fromisoformat(value["since"]))


def _of_party(party: Party) -> dict[str, Any]:
    return {
        "name": party.name,
        "payload": f"{party.payload:0{(party.bits + 3) // 4}x}",
        "bits": party.bits,
        "rho": party.rho,
        "created": party.created.isoformat(),
        "keys": [_of_key_file(one) for one in (party.kept, *party.older)],
    }


def _to_party(value: dict[str, Any]) -> Party:
    newest, *older = [_to_key_file(one) for one in value["keys"]]
    return Party(
        name=value["name"],
        payload=int(value["payload"], 16),
        bits=value["bits"],
        rho=value["rho"],
        key_file=newest.path,
        key_id=newest.id,
        created=datetime.fromisoformat(value["created"]),
        since=newest.since,
        older=tuple(older),
    )
