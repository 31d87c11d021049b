"""The database of a registry: an SQLite file, or a PostgreSQL server that many machines share.

Hides the two drivers behind one class: statements with `?` for values, one context manager for a
transaction that writes, and errors as `RegistryError`. What differs between the two is here and
nowhere else. Knows no table of the registry; psycopg is loaded where a server is named.
"""

import contextlib
import importlib
import os
import re
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from keybound.errors import RegistryError, missing

BUSY_S = 10.0  # how long another program's transaction is waited for
FETCHED = 10_000  # rows of a server in memory at once
SCHEMES = ("postgresql://", "postgres://")
# "kbnd" in ASCII: tells a registry from the databases of other programs.
APPLICATION_ID = 0x6B626E64
Value = str | bytes | int | None


class TakenError(RegistryError):
    """The name is taken: the one constraint that a checked party can break."""


class ReadOnlyError(RegistryError):
    """The registry can be read and not be written to."""


class Words(NamedTuple):
    """What the two databases say differently."""

    types: tuple[tuple[str, str], ...]  # of columns, as `schema` has them, and in this database
    begin: str  # a transaction that writes
    exclusive: str  # one whose commit no reader may hold up
    erasing: str  # before rows are deleted that nobody is to read again
    unlocked: str  # at the end of a SELECT: without the rows that another transaction changes


# One program writes at a time; readers can hold up a commit, unless the lock is exclusive.
SQLITE = Words((), "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "PRAGMA secure_delete = ON", "")
# Writers are serialised by the locks of rows: whoever reserves positions holds the row of the key
# in `stream`, whoever publishes a file its row in `pending`. So keys do not wait for each other, as
# they would for one advisory lock, and a lock ends with its transaction or connection. Each
# statement sees what is committed when it starts (READ COMMITTED): after the wait for a row that is
# its newest state, and no transaction fails that would need a retry. None holds a row while it
# waits for one that another may hold in the opposite order, so there is no deadlock.
POSTGRES = Words(
    (
        ("INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
        ("INTEGER", "BIGINT"),
        ("BLOB", "BYTEA"),
    ),
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    "SELECT 1",  # autovacuum makes the room free for other rows
    " FOR UPDATE SKIP LOCKED",
)
SESSION = (
    "SET lock_timeout = {busy_ms}",
    "SET default_transaction_isolation = 'read committed'",
    # A machine that went away keeps its locks for a minute, and not for hours.
    "SET tcp_keepalives_idle = 30",
    "SET tcp_keepalives_interval = 10",
    "SET tcp_keepalives_count = 3",
    # A position that a server forgets after a crash would be given twice.
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'",
)
# How an error begins that SQLite names or PostgreSQL numbers (SQLSTATE), and what it means.
TAKEN = ("SQLITE_CONSTRAINT", "23")
BUSY = ("SQLITE_BUSY", "55P03", "40")  # a lock that is not free in time; a transaction that lost
READ_ONLY = ("SQLITE_READONLY", "42501", "25006")
FULL = ("SQLITE_FULL", "53100")


def is_address(place: str | os.PathLike[str]) -> bool:
    """Return whether a place is an address, of whichever server, and not the path of a file."""
    return isinstance(place, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", place) is not None


class Database:
    """An open database; a context manager that closes it."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        """Open the file at a path, or connect to the server at an address."""
        self.shared = is_address(place)
        self.words = POSTGRES if self.shared else SQLITE
        # Absolute, so that a file named ":memory:" or "" is not SQLite's word for something else.
        self._place = os.fspath(place if self.shared else Path(place).absolute())
        self.name = _without_secrets(self._place) if self.shared else self._place
        if self.shared and not self._place.startswith(SCHEMES):
            hint = "postgresql://user@host/database, or the path of an SQLite file"
            raise RegistryError(f"{self.name!r} is no address of a registry", hint=hint)
        self._psycopg = _psycopg() if self.shared else None
        self._inside = False  # of a transaction
        self._connection = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; what was not committed is undone."""
        self._connection.close()

    def execute(self, statement: str, values: Sequence[Value] = ()) -> int:
        """Execute a statement and return how many rows it changed."""
        with self._refusals():
            return int(self._run(statement, values).rowcount)

    def execute_many(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        """Execute a statement for each row of values."""
        with self._refusals():
            self._connection.cursor().executemany(self._own(statement), rows)

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Return the rows that a statement selects or returns."""
        with self._refusals():
            return list(self._run(statement, values).fetchall())

    def row(self, statement: str, values: Sequence[Value] = ()) -> tuple[Any, ...] | None:
        """Return the first row that a statement selects or returns; None if there is none."""
        found = self.rows(statement, values)
        return found[0] if found else None

    def each(self, statement: str, values: Sequence[Value] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that a statement selects, not all of them in memory at once."""
        with self._refusals():
            if self._psycopg is None:
                yield from self._run(statement, values)
            else:  # a cursor that the server holds, beyond the transaction
                name = f"each_{secrets.token_hex(8)}"
                with self._connection.cursor(name, withhold=True) as cursor:
                    cursor.itersize = FETCHED
                    yield from cursor.execute(self._own(statement), values)

    @contextlib.contextmanager
    def writing(self, exclusive: bool = False) -> Iterator[None]:
        """Do what is inside in one transaction, which is undone where something is raised.

        Within another it is a part of that. With `exclusive` nobody can hold up its commit.
        """
        if self._inside:
            yield
            return
        self.execute(self.words.exclusive if exclusive else self.words.begin)
        self._inside = True
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(RegistryError):  # of a connection that was lost
                self.execute("ROLLBACK")
            raise
        finally:
            self._inside = False

    def make(self, statements: Sequence[str], version: int) -> None:
        """Make the tables of a registry of this version; in a server, unless another just did."""
        with self.writing():
            if self.shared:  # there is no row yet to hold: an advisory lock of the transaction
                self.rows("SELECT pg_advisory_xact_lock(?)", (APPLICATION_ID,))
                if self.version() is not None:
                    return
                self.execute("CREATE TABLE keybound_registry (version BIGINT NOT NULL)")
                self.execute("INSERT INTO keybound_registry (version) VALUES (?)", (version,))
            else:
                self.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self.execute(f"PRAGMA user_version = {version}")
            for statement in statements:
                for ours, own in self.words.types:
                    statement = statement.replace(ours, own)
                self.execute(statement)

    def version(self) -> int | None:
        """Return the version of the tables; None where they are not those of a registry."""
        if not self.shared:
            ours = self.rows("PRAGMA application_id")[0][0] == APPLICATION_ID
            return int(self.rows("PRAGMA user_version")[0][0]) if ours else None
        # Looked up in the catalogue: to_regclass may not see a table that was made a moment ago.
        named = "tablename = 'keybound_registry' AND schemaname = current_schema()"
        if self.row(f"SELECT 1 FROM pg_tables WHERE {named}") is None:
            return None
        row = self.row("SELECT version FROM keybound_registry")
        return int(row[0]) if row else None

    def is_empty(self) -> bool:
        """Return whether a server's database, in the schema that is used, has no table yet."""
        tables = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() LIMIT 1"
        return self.row(tables) is None

    def _connect(self) -> Any:  # a connection of either driver
        with self._refusals():
            if self._psycopg is None:
                return sqlite3.connect(self._place, timeout=BUSY_S, isolation_level=None)
            asked = self._asked(self._psycopg)
            usual = {"connect_timeout": round(BUSY_S), "application_name": "keybound"}
            own = {"client_encoding": "utf8", "autocommit": True}
            connection = self._psycopg.connect(**(usual | asked | own))
            for statement in SESSION:
                connection.execute(statement.format(busy_ms=round(1000 * BUSY_S)))
        if connection.info.parameter_status("server_encoding") != "UTF8":
            connection.close()
            hint = "createdb --encoding UTF8 --template template0 makes one"
            raise RegistryError(f"registry {self.name!r} is not a database in UTF-8", hint=hint)
        return connection

    def _asked(self, psycopg: ModuleType) -> dict[str, str]:
        try:
            return dict(psycopg.conninfo.conninfo_to_dict(self._place))
        except psycopg.ProgrammingError:  # which quotes the address with its password
            hint = "such as postgresql://user@host/database"
            raise RegistryError(f"{self.name!r} is not an address", hint=hint) from None

    def _run(self, statement: str, values: Sequence[Value]) -> Any:  # a cursor of either driver
        if self.shared and self._connection.broken and not self._inside:
            self._connection = self._connect()  # the server was started again since
        return self._connection.execute(self._own(statement), values)

    def _own(self, statement: str) -> str:
        return statement.replace("?", "%s") if self.shared else statement

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn what a driver raises into what KeyBound raises."""
        raised = sqlite3.Error if self._psycopg is None else self._psycopg.Error
        try:
            yield
        except raised as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> RegistryError:
        code = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None) or ""
        what = f"registry {self.name!r}"
        said = str(error).partition("\n")[0]
        if code.startswith(TAKEN):
            return TakenError(said)
        if code == "SQLITE_NOTADB":
            hint = "is $KEYBOUND_REGISTRY right?"
            return RegistryError(f"{self.name!r} is not a registry", hint=hint)
        if code.startswith(BUSY):
            return RegistryError(f"{what} is in use by another program", hint="try again")
        if code.startswith(READ_ONLY):
            hint = "check what this user may do" if self.shared else "check its mode"
            return ReadOnlyError(f"{what} may not be written to", hint=hint)
        if code.startswith(FULL):
            full = "cannot be written: no space left on the disk"
            return RegistryError(f"{what} {full}", hint="make room")
        return RegistryError(f"{what} cannot be used: {said}")


def _psycopg() -> ModuleType:
    try:
        return importlib.import_module("psycopg")
    except ImportError as error:
        raise missing("psycopg", "postgres") from error


def _without_secrets(address: str) -> str:
    """Return an address for messages, without its password and options."""
    try:
        parts = urlsplit(address)
    except ValueError:  # such as a bracket that is not closed: psycopg says what is wrong
        return address.partition("://")[0] + "://…"
    user, at, hosts = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}"
