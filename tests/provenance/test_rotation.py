"""A party has keys with dates: new marks use the newest, records name their own."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_registry_file import KEY, RECORD

from keybound.crypto.keys import Key
from keybound.errors import KeyFileError, RegistryError
from keybound.provenance import records
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry

Run = Callable[..., Any]  # to the outcome of `run` in conftest


@pytest.fixture
def newer(tmp_path: Path) -> Key:
    made = Key(bytes(range(1, 33)))
    made.write(tmp_path / "newer.key")
    return made


def test_new_marks_use_the_newest_key(
    place: Path | str, party: Party, newer: Key, tmp_path: Path
) -> None:
    with Registry(place) as known:
        known.add(replace(party, name="bob"))
        known.add(party)
        known.reserve(KEY.id)
        made = known.rotate("alice", tmp_path / "newer.key")
        now = known.get("alice")
        assert (now.key_id, now.key(), now.next_position) == (newer.id, newer, 0)
        assert (now.kept, now.older) == (made, (party.kept,))
        assert known.get("bob").older == ()
        assert [one.name for one in known.list()] == ["alice", "bob"]
        assert known.list()[0] == now
        before = known.get("alice", KEY.id)
        assert before == replace(party, next_position=1)
        assert known.versions("alice") == (now, before)
        assert [one.key_id for one in known.versions()] == [newer.id, KEY.id, KEY.id]
        with pytest.raises(RegistryError, match="party 'bob' has no key"):
            known.get("bob", newer.id)


def test_records_are_found_by_the_key_that_they_name(
    place: Path | str, party: Party, newer: Key, tmp_path: Path
) -> None:
    with Registry(place) as known:
        known.add(party)
        known.append(records.stamp(RECORD, KEY))
        known.rotate("alice", tmp_path / "newer.key")
        known.append(records.stamp(replace(RECORD, key=newer.id), newer))
        now, before = known.versions("alice")
        assert [entry.number for entry in known.records(now)] == [2]
        assert [entry.number for entry in known.records(before)] == [1]
        for one in known.records():
            named = one.stamped.record
            one.stamped.check(known.get(named.party, named.key).key())


def test_a_key_is_given_to_a_party_once(place: Path | str, party: Party, tmp_path: Path) -> None:
    with Registry(place) as known:
        known.add(party)
        with pytest.raises(RegistryError, match=f"key {KEY.id} is or was a key of party 'alice'"):
            known.rotate("alice", party.key_file)
        with pytest.raises(KeyFileError, match="does not exist"):
            known.rotate("alice", tmp_path / "absent.key")
        with pytest.raises(RegistryError, match="no party is named 'carol'"):
            known.rotate("carol", party.key_file)
        assert known.get("alice") == party  # a refusal leaves nothing locked


def test_a_party_that_is_removed_loses_all_its_keys(
    place: Path | str, party: Party, newer: Key, tmp_path: Path
) -> None:
    with Registry(place) as known:
        known.add(party)
        known.rotate("alice", tmp_path / "newer.key")
        rotated = known.get("alice")
        known.remove("alice")
        assert known.versions() == ()
        known.add(rotated)  # as an import does, with the keys before
        assert known.get("alice") == rotated
        assert known.get("alice").key() == newer


def test_rotation_on_the_command_line(run: Run, key: Path, home: Path) -> None:
    run("party", "add", "alice", "--key", key, "--payload", "0x5eed")
    new = run("keygen", home / "new.key").out.strip()
    assert run("party", "rotate", "alice", "--key", "new.key").err == (
        f"keybound: alice has key {new} now\n"
    )
    shown = json.loads(run("party", "list", "--json").out)
    assert shown["key_id"] == new
    assert [one["key_id"] for one in shown["older"]] == [KEY.id]
    assert shown["older"][0]["since"] < shown["since"]
    assert KEY.id in run("party", "list").out
    assert run("party", "rotate", "alice", "--key", "-").code == 2


def test_records_of_older_keys_are_listed_and_checked(
    run: Run, home: Path, party: Party, newer: Key
) -> None:
    with Registry(home / "registry.sqlite") as known:
        known.add(party)
        known.append(records.stamp(RECORD, KEY))
        known.rotate("alice", home / "newer.key")
        known.append(records.stamp(replace(RECORD, key=newer.id), newer))
        known.append(records.stamp(replace(RECORD, party="bob"), KEY))
    shown = run("record", "list", "--party", "alice", "--json").out.splitlines()
    assert [json.loads(line)["number"] for line in shown] == [1, 2]
    for number in (1, 2):
        run("record", "export", number, f"{number}.kbr")
        assert run("record", "check", f"{number}.kbr", "--party", "alice").code == 0
    run("party", "add", "carol", "--key", "newer.key", "--payload", "1")
    assert run("record", "check", "1.kbr", "--party", "carol").code == 1
