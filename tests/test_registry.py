"""The registry of parties."""

import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from keybound import records, registry, schema
from keybound.errors import CodeError, KeyFileError, RegistryError
from keybound.fingerprint import Fingerprint
from keybound.keys import Key
from keybound.registry import Party, Registry, default_path

KEY = Key(bytes(range(32)))
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
RECORD = records.Record(
    created=NOON,
    party="alice",
    payload=0x5EED,
    bits=16,
    nonce=b"",
    position=7,
    key=KEY.fingerprint,
    detector="keybound 0.1.0",
    samples=4800,
    rate=48000,
    sha256=None,
    fingerprint=Fingerprint(3, bytes(range(6))),
)
STAMPED = records.stamp(RECORD, KEY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keybound" / "registry.sqlite"


@pytest.fixture
def party(tmp_path: Path) -> Party:
    key_file = tmp_path / "alice.key"
    KEY.write(key_file)
    return Party("alice", 0x5EED, 16, 2, key_file, KEY.fingerprint, NOON)


def test_parties_outlive_the_registry_object(path: Path, party: Party) -> None:
    bob = replace(party, name="bob", payload=0)
    with Registry(path) as opened:
        opened.add(bob)
        opened.add(party)
    with Registry(path) as opened:
        assert opened.get("alice") == party
        assert opened.list() == (party, bob)
        opened.remove("bob")
        assert opened.list() == (party,)


@pytest.mark.parametrize("payload", [0, 1, 2**64, 2**256 - 1])
def test_payloads_of_256_bits_fit(path: Path, party: Party, payload: int) -> None:
    wide = replace(party, bits=256, payload=payload, rho=60)
    with Registry(path) as opened:
        opened.add(wide)
        assert opened.get("alice") == wide


def test_names_are_one_name_in_either_unicode_form(path: Path, party: Party) -> None:
    composed, decomposed = "Jos\u00e9 Ångström", "Jose\u0301 Ångström"
    with Registry(path) as opened:
        opened.add(replace(party, name=decomposed))
        assert opened.get(composed).name == opened.get(decomposed).name == composed
        opened.remove(composed)
        assert opened.list() == ()
        opened.add(replace(party, name="é" * 100))  # the longest


def test_times_are_kept_in_utc(path: Path, party: Party) -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
    with Registry(path) as opened:
        opened.add(replace(party, created=elsewhere))
        assert opened.get("alice").created == NOON
        assert opened.get("alice").created.utcoffset() == timedelta(0)


def test_a_relative_key_file_becomes_absolute(
    path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(party.key_file.parent)
    with Registry(path) as opened:
        opened.add(replace(party, key_file=Path("alice.key")))
        monkeypatch.chdir("/")
        assert opened.get("alice").key_file == party.key_file
        assert opened.get("alice").key() == KEY


def test_a_taken_name_is_refused(path: Path, party: Party) -> None:
    with Registry(path) as opened:
        opened.add(party)
        with pytest.raises(RegistryError, match="'alice' is already registered"):
            opened.add(replace(party, payload=1))
        assert opened.list() == (party,)


def test_unknown_names_are_refused(path: Path) -> None:
    with Registry(path) as opened:
        for call in (opened.get, opened.remove):
            with pytest.raises(RegistryError, match="no party is named 'carol'") as caught:
                call("carol")
            assert caught.value.hint == "keybound party list shows them all"


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "a\x00", "\x1b[31m", "a\u200bb", "\ud800", " a", "a ", "x" * 101]
)
def test_bad_names_are_refused(path: Path, party: Party, name: str) -> None:
    with pytest.raises(RegistryError) as caught:
        replace(party, name=name)
    assert caught.value.message.isprintable()
    assert caught.value.hint is not None
    with Registry(path) as opened, pytest.raises(RegistryError):
        opened.get(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"payload": 2**16}, "does not fit"),
        ({"payload": -1}, "does not fit"),
        ({"bits": 257}, "1 to 256 bits"),
        ({"rho": -1}, "wrong bits"),
        ({"rho": 8}, "too large"),
    ],
)
def test_payload_and_rule_are_checked(party: Party, change: dict[str, int], message: str) -> None:
    with pytest.raises(CodeError, match=message):
        replace(party, **change)  # type: ignore[arg-type]


def test_other_fields_are_checked(party: Party, path: Path) -> None:
    with pytest.raises(RegistryError, match="standard input"):
        replace(party, key_file=Path("-"))
    with pytest.raises(RegistryError, match="no time zone"):
        replace(party, created=NOON.replace(tzinfo=None))
    # A secret in the place of the fingerprint would be stored for all to read.
    with pytest.raises(RegistryError, match="fingerprint"):
        replace(party, fingerprint=KEY.secret.hex())
    with Registry(path) as opened, pytest.raises(RegistryError, match="UTF-8"):
        opened.add(replace(party, key_file=Path("/keys/\udcff")))


def test_key_is_read_from_its_file_and_checked(party: Party) -> None:
    assert party.key() == KEY
    party.key_file.unlink()
    with pytest.raises(KeyFileError, match="does not exist"):
        party.key()
    Key(bytes(32)).write(party.key_file)
    with pytest.raises(RegistryError, match=f"registered with key {KEY.fingerprint}"):
        party.key()


def test_the_key_is_not_in_the_file(path: Path, party: Party) -> None:
    with Registry(path) as opened:
        opened.add(party)
    data = path.read_bytes()
    assert party.fingerprint.encode() in data
    assert KEY.secret not in data
    assert KEY.secret.hex().encode() not in data


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


def test_positions_are_never_given_out_twice(tmp_path: Path, party: Party) -> None:
    path = tmp_path / "registry"
    with Registry(path) as one, Registry(path) as two:
        one.add(party)
        assert [one.draw("alice"), two.draw("alice"), one.draw("alice")] == [0, 1, 2]
        assert two.get("alice").drawn == 3
        with pytest.raises(RegistryError, match="no party is named 'bob'"):
            one.draw("bob")
        assert one.draw("alice") == 3  # a refusal leaves nothing locked


@pytest.mark.parametrize("version", [1, 2])
def test_an_earlier_registry_is_brought_up_to_date(
    tmp_path: Path, party: Party, version: int
) -> None:
    path = tmp_path / "registry"
    with Registry(path) as known:
        known.add(party)
    statement(path, f"DROP TABLE record; PRAGMA user_version = {version}")  # knew no records
    if version == 1:
        statement(path, "ALTER TABLE party DROP COLUMN drawn")  # and no seals
    with Registry(path) as known:
        assert known.get("alice") == party
        assert known.draw("alice") == 0
        assert known.records() == ()
        assert known.append(STAMPED) == 1


def test_records_are_kept_as_they_are_and_found_by_party_and_key(path: Path, party: Party) -> None:
    other = Key(bytes(32))
    bobs = records.stamp(replace(RECORD, party="bob"), KEY)
    later = records.stamp(replace(RECORD, key=other.fingerprint), other)
    with Registry(path) as opened:
        opened.add(party)
        assert [opened.append(one) for one in (STAMPED, bobs, later)] == [1, 2, 3]
        assert [entry.stamped for entry in opened.records()] == [STAMPED, bobs, later]
        assert opened.records(party) == (records.Entry(1, STAMPED),)
        assert opened.record(2).stamped == bobs
        opened.remove("alice")  # evidence outlives the party
        assert len(opened.records()) == 3
    with Registry(path) as opened:
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


def test_a_newer_schema_is_refused(path: Path) -> None:
    Registry(path).close()
    statement(path, f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(RegistryError, match="has schema 4, and this program reads schema 3"):
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


def test_a_name_is_data_and_not_sql(path: Path, party: Party) -> None:
    name = "x'); DROP TABLE party; --"
    with Registry(path) as opened:
        opened.add(replace(party, name=name))
        assert opened.get(name).name == name


def test_two_registries_see_each_other(path: Path, party: Party) -> None:
    with Registry(path) as one, Registry(path) as two:
        one.add(party)
        assert two.get("alice") == party
        with pytest.raises(RegistryError, match="already registered"):
            two.add(party)
        two.remove("alice")
        assert one.list() == ()


def test_many_threads_make_and_fill_one_registry(path: Path, party: Party) -> None:
    start = threading.Barrier(4)

    def fill(worker: int) -> None:
        start.wait()
        with Registry(path) as opened:
            for number in range(5):
                opened.add(replace(party, name=f"{worker}-{number}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(4)))  # raises what a thread raised
    with Registry(path) as opened:
        assert len(opened.list()) == 20


def test_a_locked_registry_is_reported(
    path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BUSY_S", 0.05)
    with Registry(path) as opened:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RegistryError, match="in use by another program"):
            opened.add(party)
        other.close()
        opened.add(party)


def test_default_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("KEYBOUND_REGISTRY", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    usual = tmp_path / ".local" / "share" / "keybound" / "registry.sqlite"
    assert default_path() == usual
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_path() == usual
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_path() == tmp_path / "data" / "keybound" / "registry.sqlite"
    monkeypatch.setenv("KEYBOUND_REGISTRY", str(tmp_path / "mine.sqlite"))
    assert default_path() == tmp_path / "mine.sqlite"
    monkeypatch.setenv("KEYBOUND_REGISTRY", "~/mine.sqlite")
    assert default_path() == tmp_path / "mine.sqlite"
    monkeypatch.setenv("KEYBOUND_REGISTRY", "")
    assert default_path() == tmp_path / "data" / "keybound" / "registry.sqlite"
