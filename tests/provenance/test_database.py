"""A registry on PostgreSQL, and one that several machines share."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_registry_file import KEY, RECORD, STAMPED

from keybound import output, stages
from keybound.errors import RegistryError
from keybound.provenance import database, records, schema
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry

Run = Callable[..., Any]  # to the outcome of `run` in conftest


def server(address: str, *statements: str) -> None:
    """Do something to a database of the server without KeyBound."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(address, autocommit=True) as connection:
        for one in statements:
            connection.execute(one)


# A database on a server


def test_databases_of_other_programs_are_refused(address: str) -> None:
    server(address, "CREATE TABLE music (title TEXT)")
    with pytest.raises(RegistryError, match="is a database of another program"):
        Registry(address)


def test_another_schema_is_refused(address: str) -> None:
    Registry(address).close()
    server(address, f"UPDATE keybound_registry SET version = {schema.VERSION + 1}")
    with pytest.raises(RegistryError, match=f"this program reads schema {schema.VERSION}"):
        Registry(address)


def test_a_database_that_is_not_in_utf8_is_refused(address: str) -> None:
    server(address, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(RegistryError, match="is not a database in UTF-8"):
        Registry(address.replace("/postgres?", "/latin?"))


def test_a_damaged_row_is_refused(address: str, party: Party) -> None:
    with Registry(address) as known:
        known.add(party)
        known.append(STAMPED)
        server(address, "UPDATE party SET payload = 'zz'", "UPDATE record SET data = '{}'")
        with pytest.raises(RegistryError, match="damaged at party 'alice'"):
            known.get("alice")
        with pytest.raises(RegistryError, match="damaged at record 1"):
            known.record(1)


def test_who_may_only_read_can_read(address: str, party: Party) -> None:
    with Registry(address) as known:
        known.add(party)
        known.append(STAMPED)
    name = address.rpartition("%3D")[2]
    grants = [f"GRANT USAGE ON SCHEMA {name} TO reader"]
    grants += [f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO reader"]
    server(address, "CREATE ROLE reader LOGIN", *grants)
    with Registry(address.replace("tests@", "reader@")) as known:
        assert (known.get("alice"), len(known.records())) == (party, 1)
        with pytest.raises(RegistryError, match="may not be written to") as caught:
            known.reserve(KEY.id)
        assert caught.value.hint == "check what this user may do"
    server(address, "DROP OWNED BY reader", "DROP ROLE reader")


def test_a_row_that_is_locked_is_reported(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    psycopg = pytest.importorskip("psycopg")
    with Registry(address) as known, psycopg.connect(address) as other:
        known.reserve(KEY.id)
        other.execute("SELECT * FROM stream FOR UPDATE")
        with pytest.raises(RegistryError, match="in use by another program"):
            known.reserve(KEY.id)
        assert known.reserve("0" * 16) == 0  # another key waits for nothing
        other.rollback()
        assert known.reserve(KEY.id) == 1


def test_a_server_that_was_started_again_is_used_again(address: str) -> None:
    with Registry(address) as known:
        known.reserve(KEY.id)
        server(
            address,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        with pytest.raises(RegistryError, match="cannot be used"):
            known.reserve(KEY.id)
        assert known.reserve(KEY.id) == 1


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("postgresql://me:secret@/nothing?host=/nowhere", "cannot be used: .*No such file"),
        ("postgresql://me:secret@[::1/db", "is not an address"),
        ("postgres://me:secret@host:port/db?password=secret", "cannot be used|is not an address"),
    ],
)
def test_a_wrong_address_is_refused_and_no_password_shown(place: str, message: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(RegistryError, match=message) as caught:
        Registry(place)
    assert "secret" not in caught.value.message
    assert "\n" not in caught.value.message


def test_the_address_on_the_command_line(
    run: Run, address: str, key: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whose = ("--key", key, "--payload", "5")
    assert run("party", "add", "alice", *whose, "--registry", address).code == 0
    monkeypatch.setenv("KEYBOUND_REGISTRY", address)
    made = run("embed", host, "marked.wav", "--party", "alice", "--json")
    assert (made.code, made.json["record"], made.json["position"]) == (0, 1, 0)
    assert run("verify", "marked.wav", "--party", "alice", "--require", "sealed").code == 0
    Path("in").mkdir()
    host.rename("in/host.wav")
    marking = ("batch", "embed", "in", "--out", "out", "--party", "alice", "--jobs", "1", "--json")
    refused = run(*marking)
    assert refused.code == 2
    assert "has no key for identifiers (keybound registry rotate --key FILE" in refused.err
    assert run("registry", "rotate", "--key", "registry.key").code == 0
    batch = run(*marking)
    assert (batch.code, batch.json["done"]) == (0, 1), batch.err
    found = run("batch", "verify", "out", "--any", "--jobs", "1", "--json")
    assert (found.code, found.json["sealed"]) == (0, 1), found.err
    with Registry(address) as known:
        assert [entry.stamped.record.position for entry in known.records()] == [0, 1]
        assert known._database.rows("SELECT * FROM reserved") == []
    assert not (host.parent / "registry.sqlite").exists()


def test_a_file_whose_record_is_being_committed_is_left_to_its_program(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is there, and its row is locked: nobody waits for it or takes it."""
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    publish, seen = output.Part.publish, []

    def published(part: output.Part) -> None:
        publish(part)
        with Registry(address) as other:
            seen.append((part.output.exists(), len(other.records())))

    monkeypatch.setattr(output.Part, "publish", published)
    with Registry(address) as known, output.staged(tmp_path / "out.bin") as part:
        part.path.write_bytes(b"marked")
        sha256 = hashlib.sha256(b"marked").hexdigest()
        known.appear(records.stamp(replace(RECORD, sha256=sha256), KEY), part)
        assert seen == [(True, 0)]
        assert len(known.records()) == 1


# Several machines


def test_a_file_that_appears_on_another_machine_is_left_alone(
    place: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stage is not there, which on its own machine would mean that its program is gone."""

    def seen_by(machine: str) -> tuple[int, int]:
        monkeypatch.setenv("KEYBOUND_MACHINE", machine)
        with Registry(place) as known:
            waiting = known._database.rows("SELECT count(*) FROM pending")[0][0]
            return waiting, len(known.records())

    with Registry(place) as known:
        values = (STAMPED.to_bytes(), "one", b"/of/one/out.bin", b"/of/one/.keybound-0")
        insert = "INSERT INTO pending (data, machine, output, stage) VALUES (?, ?, ?, ?)"
        known._database.execute(insert, values)
    assert seen_by("two") == (1, 0)
    assert seen_by("one") == (0, 0)


def test_equal_tasks_of_two_machines_have_positions_of_their_own(
    place: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    for machine in ("one", "two", "one"):
        monkeypatch.setenv("KEYBOUND_MACHINE", machine)
        with Registry(place) as known:
            given.append(known.reserve_for(KEY.id, ["/data/a.wav"])["/data/a.wav"])
    assert [one.position for one in given] == [0, 1, 0]
    assert given[0] == given[2]


def test_a_machine_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KEYBOUND_MACHINE", raising=False)
    monkeypatch.setattr(stages.platform, "node", lambda: "web")
    names = []
    for known in (b"", b"1" * 32 + b"\n", b"2" * 32 + b"\n"):
        (tmp_path / "machine-id").write_bytes(known)
        monkeypatch.setattr(stages, "MACHINE_ID", tmp_path / "machine-id")
        names.append(stages.machine())
    assert names[0] == "web"
    assert len(set(names)) == 3
    assert "1" * 32 not in names[1]  # the id itself is not for others to read
    monkeypatch.setenv("KEYBOUND_MACHINE", "mine")
    assert stages.machine() == "mine"


def test_records_are_found_by_position_hash_and_audio(
    place: Path | str, party: Party, tmp_path: Path
) -> None:
    with Registry(place) as known:
        known.add(party)
        for position in range(3):
            with output.staged(tmp_path / f"{position}.bin") as part:
                one = replace(RECORD, position=position, nonce=b"n" * position, sha256="ab" * 32)
                known.appear(records.stamp(one, KEY), part)
        assert [entry.number for entry in known.records(party, 1)] == [2]
        assert known.records(party, 3) == ()
        assert known.count(party) == 3
        assert list(known.fingerprints(party)) == [(n, RECORD.fingerprint) for n in (1, 2, 3)]
        found = known.record_of(KEY.id, "ab" * 32)
        assert found is not None
        assert known.record_of("0" * 16, "ab" * 32) is None
