"""The file of the registry: private, shared; its positions and records."""

import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from keybound.crypto.keys import Key
from keybound.errors import RegistryError
from keybound.provenance import database, records, schema
from keybound.provenance.fingerprint import Fingerprint
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry, default_place

KEY = Key(bytes(range(32)))
RECORD = records.Record(
    created=datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC),
    party="alice",
    payload=0x5EED,
    bits=16,
    nonce=b"",
    position=7,
    key=KEY.id,
    detector="keybound 0.1.0",
    samples=4800,
    rate=48000,
    sha256=None,
    fingerprint=Fingerprint(3, bytes(range(6))),
)
STAMPED = records.stamp(RECORD, KEY)


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_file_and_folder_are_private(path: Path, party: Party) -> None:
    before = os.umask(0)
    try:
        with Registry(path) as opened:
            opened.add(party)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    # A mode that the owner chose later is left alone.
    path.chmod(0o640)
    Registry(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def statement(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(sql)
    connection.close()


@pytest.mark.parametrize("data", [b"name,payload\nalice,1\n" * 100, KEY.to_text().encode(), b"xy"])
def test_other_files_are_refused_and_left_alone(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(RegistryError, match="is not a registry"):
        Registry(path)
    assert path.read_bytes() == data
    with pytest.raises(RegistryError, match="unable to open database file"):
        Registry(tmp_path)


def test_records_are_kept_as_they_are_and_found_by_party_and_key(
    place: Path | str, party: Party
) -> None:
    other = Key(bytes(32))
    bobs = records.stamp(replace(RECORD, party="bob"), KEY)
    later = records.stamp(replace(RECORD, key=other.id), other)
    with Registry(place) as opened:
        opened.add(party)
        assert [opened.append(one) for one in (STAMPED, bobs, later)] == [1, 2, 3]
        assert [entry.stamped for entry in opened.records()] == [STAMPED, bobs, later]
        assert opened.records(party) == (records.Entry(1, STAMPED),)
        assert opened.record(2).stamped == bobs
        opened.remove("alice")  # evidence outlives the party
        assert len(opened.records()) == 3
    with Registry(place) as opened:
        assert opened.record(1).stamped.record == RECORD
        with pytest.raises(RegistryError, match="no record 4"):
            opened.record(4)


@pytest.mark.parametrize("change", ["data = x'7b7d'", "data = 'text'", "data = 5"])
def test_a_damaged_record_is_refused(path: Path, change: str) -> None:
    with Registry(path) as opened:
        opened.append(STAMPED)
    statement(path, f"UPDATE record SET {change}")
    with Registry(path) as opened, pytest.raises(RegistryError, match="damaged at record 1"):
        opened.record(1)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_databases_of_other_programs_are_refused(tmp_path: Path, version: int) -> None:
    path = tmp_path / "music.sqlite"
    statement(path, f"CREATE TABLE music (title TEXT); PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(RegistryError, match="another program"):
        Registry(path)
    assert path.read_bytes() == before


def test_an_old_schema_is_refused(path: Path) -> None:
    Registry(path).close()
    statement(path, "PRAGMA user_version = 2")
    with pytest.raises(RegistryError, match="has schema 2, and this program reads"):
        Registry(path)


def test_a_newer_schema_is_refused(path: Path) -> None:
    Registry(path).close()
    statement(path, f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(RegistryError, match=f"this program reads schema {schema.VERSION}"):
        Registry(path)


def test_a_place_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RegistryError, match="cannot be made"):
        Registry(tmp_path / "file" / "registry.sqlite")


@pytest.mark.parametrize(
    "change", ["payload = 'zz'", "bits = 4", "created = 'today'", "rho = 'two'", "payload = x'00'"]
)
def test_a_damaged_row_is_refused_and_can_be_removed(path: Path, party: Party, change: str) -> None:
    with Registry(path) as opened:
        opened.add(party)
    statement(path, f"UPDATE party SET {change}")
    with Registry(path) as opened:
        with pytest.raises(RegistryError, match="damaged at party 'alice'"):
            opened.get("alice")
        opened.remove("alice")
        assert opened.list() == ()


def test_two_registries_see_each_other(place: Path | str, party: Party) -> None:
    with Registry(place) as one, Registry(place) as two:
        one.add(party)
        assert two.get("alice") == party
        with pytest.raises(RegistryError, match="already registered"):
            two.add(party)
        two.remove("alice")
        assert one.list() == ()


def test_many_threads_make_and_fill_one_registry(place: Path | str, party: Party) -> None:
    start = threading.Barrier(4)

    def fill(worker: int) -> None:
        start.wait()
        with Registry(place) as opened:
            for number in range(5):
                opened.add(replace(party, name=f"{worker}-{number}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(4)))  # raises what a thread raised
    with Registry(place) as opened:
        assert len(opened.list()) == 20


def test_a_locked_registry_is_reported(
    path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with Registry(path) as opened:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RegistryError, match="in use by another program"):
            opened.add(party)
        other.close()
        opened.add(party)


def test_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("KEYBOUND_REGISTRY", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    usual = tmp_path / ".local" / "share" / "keybound" / "registry.sqlite"
    assert default_place() == usual
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_place() == usual
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_place() == tmp_path / "data" / "keybound" / "registry.sqlite"
    monkeypatch.setenv("KEYBOUND_REGISTRY", str(tmp_path / "mine.sqlite"))
    assert default_place() == tmp_path / "mine.sqlite"
    monkeypatch.setenv("KEYBOUND_REGISTRY", "~/mine.sqlite")
    assert default_place() == tmp_path / "mine.sqlite"
    monkeypatch.setenv("KEYBOUND_REGISTRY", "")
    assert default_place() == tmp_path / "data" / "keybound" / "registry.sqlite"
