"""What a registry has of its own: the keys of its identifiers, its issuer's number, its provider.

The keys are key files as those of parties: never in the database. Old ones are kept and tried.
Knows the tables of `schema`: no audio, no records.
"""

import json
import warnings
from datetime import UTC, datetime
from pathlib import Path

from keybound.crypto.keys import Key
from keybound.errors import KeyFileWarning, RecordError, RegistryError
from keybound.provenance import declared, key_files
from keybound.provenance.database import Database, TakenError
from keybound.provenance.declared import NOTHING, Declared
from keybound.provenance.key_files import KeyFile

ISSUER_BITS = 16
SET = "INSERT INTO setting (name, value) VALUES (?, ?)"
SET_ANEW = f"{SET} ON CONFLICT (name) DO UPDATE SET value = excluded.value"
ROTATE = "keybound registry rotate --key FILE, a file that every machine has under this name"


def keys(database: Database) -> tuple[KeyFile, ...]:
    """Return the key files of the registry, the newest first."""
    query = "SELECT key_file, key_id, created FROM registry_key ORDER BY number DESC"
    found = (key_files.of_row(*row) for row in database.rows(query))
    # By their dates: those of an import may be older than this registry's own.
    return tuple(sorted(found, key=lambda one: one.since, reverse=True))


def read(database: Database, one: KeyFile) -> Key:
    """Return a key of the registry; raise an error where its file holds another."""
    return one.key(f"registry {database.name!r}", "restore the registered key file")


def newest(database: Database) -> Key:
    """Return the key for new marks. The first of an SQLite registry is made, with a warning."""
    known = keys(database)
    if known:
        return read(database, known[0])
    if database.shared:
        what = f"registry {database.name!r} has no key for identifiers"
        raise RegistryError(what, hint=ROTATE)
    made = rotate(database, None, first=True)
    told = f"made the registry's key {str(made.path)!r}; keep it secret and keep a copy"
    warnings.warn(told, KeyFileWarning, stacklevel=3)
    return read(database, made)


def rotate(database: Database, path: Path | None, *, first: bool = False) -> KeyFile:
    """Add a key, which new marks use from now on; return where it is kept.

    It is read from the file, or a new one is written to it; without a name the file is beside an
    SQLite registry. With `first` it is only added where there is none.
    """
    if path is None and database.shared:
        raise RegistryError("a registry on a server needs a named key file", hint=ROTATE)
    with database.writing():
        known = keys(database) if first else ()
        if known:  # made by another program just now
            return known[0]
        kept = _written(database, path)
        insert = "INSERT INTO registry_key (key_file, key_id, created) VALUES (?, ?, ?)"
        try:
            database.execute(insert, kept.row())
        except TakenError:
            what = f"key {kept.id} is or was a key of this registry"
            raise RegistryError(what, hint="keybound keygen makes a new one") from None
    return kept


def issuer(database: Database) -> int | None:
    """Return the issuer's number of the registry; None until it is set."""
    row = database.row("SELECT value FROM setting WHERE name = ?", ("issuer",))
    return None if row is None else int(row[0])


def set_issuer(database: Database, number: int) -> None:
    """Set the issuer's number, once: identifiers that are out there carry it."""
    if type(number) is not int or not 0 <= number < 1 << ISSUER_BITS:
        hint = f"from 0 to {(1 << ISSUER_BITS) - 1}"
        raise RegistryError(f"{number!r} is not an issuer's number", hint=hint)
    database.execute(f"{SET} ON CONFLICT DO NOTHING", ("issuer", str(number)))
    known = issuer(database)
    if known != number:
        what = f"the issuer's number of this registry is {known}"
        raise RegistryError(what, hint="it is set once: public identifiers carry it")


def provider(database: Database) -> Declared:
    """Return what is declared of a recording where its embedding says nothing else."""
    row = database.row("SELECT value FROM setting WHERE name = ?", ("provider",))
    try:
        return NOTHING if row is None else declared.parse(json.loads(row[0]))
    except (RecordError, ValueError, TypeError, KeyError) as error:
        what = f"registry {database.name!r} is damaged at what its provider declares"
        raise RegistryError(what, hint="keybound registry provider sets it again") from error


def set_provider(database: Database, usual: Declared) -> None:
    """Set what is declared of a recording where its embedding says nothing else."""
    text = declared.canonical(usual.members()).decode()
    database.execute(SET_ANEW, ("provider", text))


def _written(database: Database, path: Path | None) -> KeyFile:
    """Return a key file: the one at a path, or a new one."""
    if path is not None and path.exists():
        key = Key.read(path)
    else:
        key = Key.generate()
        if path is None:
            beside = Path(database.name)
            path = beside.with_name(f"{beside.stem}-{key.id}.key")
        key.write(path, comment="key of a registry's identifiers")
    return KeyFile(path, key.id, datetime.now(UTC))
