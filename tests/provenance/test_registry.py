"""The registry of parties: what a party may be, and that it comes back as it was."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from keybound.crypto.keys import Key
from keybound.errors import CodeError, KeyFileError, RegistryError
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry

KEY = Key(bytes(range(32)))
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def test_parties_outlive_the_registry_object(place: Path | str, party: Party) -> None:
    bob = replace(party, name="bob", payload=0)
    with Registry(place) as opened:
        opened.add(bob)
        opened.add(party)
    with Registry(place) as opened:
        assert opened.get("alice") == party
        assert opened.list() == (party, bob)
        opened.remove("bob")
        assert opened.list() == (party,)


@pytest.mark.parametrize("payload", [0, 1, 2**64, 2**256 - 1])
def test_payloads_of_256_bits_fit(place: Path | str, party: Party, payload: int) -> None:
    wide = replace(party, bits=256, payload=payload, rho=60)
    with Registry(place) as opened:
        opened.add(wide)
        assert opened.get("alice") == wide


def test_names_are_one_name_in_either_unicode_form(place: Path | str, party: Party) -> None:
    composed, decomposed = "Jos\u00e9 Ångström", "Jose\u0301 Ångström"
    with Registry(place) as opened:
        opened.add(replace(party, name=decomposed))
        assert opened.get(composed).name == opened.get(decomposed).name == composed
        opened.remove(composed)
        assert opened.list() == ()
        opened.add(replace(party, name="é" * 100))  # the longest


def test_times_are_kept_in_utc(place: Path | str, party: Party) -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
    with Registry(place) as opened:
        opened.add(replace(party, created=elsewhere))
        assert opened.get("alice").created == NOON
        assert opened.get("alice").created.utcoffset() == timedelta(0)


def test_a_relative_key_file_becomes_absolute(
    place: Path | str, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(party.key_file.parent)
    with Registry(place) as opened:
        opened.add(replace(party, key_file=Path("alice.key")))
        monkeypatch.chdir("/")
        assert opened.get("alice").key_file == party.key_file
        assert opened.get("alice").key() == KEY


def test_a_taken_name_is_refused(place: Path | str, party: Party) -> None:
    with Registry(place) as opened:
        opened.add(party)
        with pytest.raises(RegistryError, match="'alice' is already registered"):
            opened.add(replace(party, payload=1))
        assert opened.list() == (party,)


def test_unknown_names_are_refused(place: Path | str) -> None:
    with Registry(place) as opened:
        for call in (opened.get, opened.remove):
            with pytest.raises(RegistryError, match="no party is named 'carol'") as caught:
                call("carol")
            assert caught.value.hint == "keybound party list shows them all"


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "a\x00", "\x1b[31m", "a\u200bb", "\ud800", " a", "a ", "x" * 101]
)
def test_bad_names_are_refused(place: Path | str, party: Party, name: str) -> None:
    with pytest.raises(RegistryError) as caught:
        replace(party, name=name)
    assert caught.value.message.isprintable()
    assert caught.value.hint is not None
    with Registry(place) as opened, pytest.raises(RegistryError):
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


def test_other_fields_are_checked(party: Party) -> None:
    with pytest.raises(RegistryError, match="standard input"):
        replace(party, key_file=Path("-"))
    with pytest.raises(RegistryError, match="no time zone"):
        replace(party, created=NOON.replace(tzinfo=None))
    # A secret in the place of the key id would be stored for all to read.
    with pytest.raises(RegistryError, match="key id"):
        replace(party, key_id=KEY.secret.hex())


def test_the_path_of_a_key_need_not_be_utf8(party: Party, place: Path | str) -> None:
    odd = replace(party, key_file=Path("/keys/\udcff"))
    with Registry(place) as opened:
        opened.add(odd)
        assert opened.get(odd.name) == odd


def test_key_is_read_from_its_file_and_checked(party: Party) -> None:
    assert party.key() == KEY
    party.key_file.unlink()
    with pytest.raises(KeyFileError, match="does not exist"):
        party.key()
    Key(bytes(32)).write(party.key_file)
    with pytest.raises(RegistryError, match=f"registered with key {KEY.id}"):
        party.key()


def test_the_key_is_not_in_the_file(path: Path, party: Party) -> None:
    with Registry(path) as opened:
        opened.add(party)
    data = path.read_bytes()
    assert party.key_id.encode() in data
    assert KEY.secret not in data
    assert KEY.secret.hex().encode() not in data


def test_a_name_is_data_and_not_sql(place: Path | str, party: Party) -> None:
    name = "x'); DROP TABLE party; --"
    with Registry(place) as opened:
        opened.add(replace(party, name=name))
        assert opened.get(name).name == name
