"""What a registry has of its own: the keys of its identifiers, its number, its provider."""

import stat
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keybound.crypto.keys import Key
from keybound.errors import KeyFileError, KeyFileWarning, RecordError, RegistryError
from keybound.provenance.declared import Declared
from keybound.provenance.registry import Registry

USUAL = Declared("Example Ltd", "Example Voice", "3.1", "https://example.org", {"a": 1})


def test_the_first_key_is_made_beside_the_file_when_it_is_needed(path: Path) -> None:
    with Registry(path) as known:
        assert known.keys() == ()
        with pytest.warns(KeyFileWarning, match="made the registry's key .*keep a copy"):
            first = known.newest_key()
        (kept,) = known.key_files()
        assert kept.path.parent == path.parent
        assert kept.path.name == f"registry-{first.id}.key"
        assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
        assert known.newest_key() == first  # without a warning
    assert first.secret not in path.read_bytes()
    assert first.secret.hex().encode() not in path.read_bytes()


def test_many_at_once_make_one_first_key(path: Path) -> None:
    start = threading.Barrier(4)
    Registry(path).close()

    def make(_: int) -> str:
        start.wait()
        with Registry(path) as known:
            return known.newest_key().id

    with warnings.catch_warnings(), ThreadPoolExecutor(4) as pool:
        warnings.simplefilter("ignore", KeyFileWarning)
        assert len(set(pool.map(make, range(4)))) == 1
    with Registry(path) as known:
        assert len(known.key_files()) == 1


def test_after_a_rotation_the_old_keys_are_kept(place: Path | str, tmp_path: Path) -> None:
    theirs = Key.generate()
    theirs.write(tmp_path / "theirs.key")
    with Registry(place) as known:
        first = known.rotate_key(tmp_path / "first.key")  # which is made
        second = known.rotate_key(tmp_path / "theirs.key")
        assert known.key_files() == (second, first)
        newest, oldest = known.keys()
        assert (newest.id, oldest.id) == (theirs.id, first.id)
        assert known.newest_key() == theirs
        with pytest.raises(RegistryError, match="is or was a key of this registry"):
            known.rotate_key(tmp_path / "first.key")
        assert len(known.keys()) == 2
    with Registry(place) as known:
        (tmp_path / "first.key").unlink()
        with pytest.raises(KeyFileError, match="does not exist"):
            known.keys()
        assert known.newest_key() == theirs
        Key.generate().write(tmp_path / "first.key")
        with pytest.raises(RegistryError, match=f"is registered with key {first.id}"):
            known.keys()


def test_on_a_server_a_key_file_must_be_named(address: str) -> None:
    with Registry(address) as known:
        with pytest.raises(RegistryError, match="has no key for identifiers") as caught:
            known.newest_key()
        assert "keybound registry rotate --key FILE" in str(caught.value.hint)
        with pytest.raises(RegistryError, match="needs a named key file"):
            known.rotate_key()
        assert known.keys() == ()


def test_the_issuers_number_is_set_once(place: Path | str) -> None:
    with Registry(place) as known:
        assert known.issuer is None
        for wrong in (-1, 1 << 16, True):
            with pytest.raises(RegistryError, match="not an issuer's number"):
                known.set_issuer(wrong)
        known.set_issuer(0)
        known.set_issuer(0)
        with pytest.raises(RegistryError, match="the issuer's number of this registry is 0"):
            known.set_issuer(1)
    with Registry(place) as known:
        assert known.issuer == 0


def test_the_provider_is_kept_and_can_be_changed(place: Path | str) -> None:
    with Registry(place) as known:
        assert known.provider == Declared()
        known.set_provider(USUAL)
    with Registry(place) as known:
        assert known.provider == USUAL
        known.set_provider(Declared("Other"))
        assert known.provider == Declared("Other")
        known._database.execute("UPDATE setting SET value = ?", ('{"provider":1}',))
        with pytest.raises(RegistryError, match="damaged at what its provider declares"):
            _ = known.provider


def test_options_go_over_what_is_usual() -> None:
    mine = Declared(system_version="3.2", fields={"b": "x"})
    merged = mine.over(USUAL)
    assert merged == Declared(
        "Example Ltd", "Example Voice", "3.2", "https://example.org", {"a": 1, "b": "x"}
    )
    assert Declared().over(USUAL) == USUAL


@pytest.mark.parametrize(
    "wrong",
    [
        {"provider": ""},
        {"provider": "a\nb"},
        {"system": "e\u0301"},
        {"system_version": "x" * 201},
        {"system_version": 3},
        {"link": "http://example.org"},
        {"link": "https://"},
        {"link": "https://[x"},
        {"link": "https://example.org/a b"},
        {"link": "https://example.org/" + "x" * 2000},
        {"fields": []},
        {"fields": {"a": 1.5}},
        {"fields": {"a": 1 << 53}},
        {"fields": {"a": b"x"}},
        {"fields": {"a": "\ud800"}},
        {"fields": {"\ud800": 1}},
        {"fields": {1: 1}},
        {"fields": {"a": "x" * 4090}},
        {"fields": {"a": [[[[[[[[1]]]]]]]]}},
    ],
)
def test_what_nobody_can_declare(wrong: dict[str, object]) -> None:
    with pytest.raises(RecordError):
        Declared(**wrong)  # type: ignore[arg-type]


def test_members_are_ordered_as_rfc_8785_has_it() -> None:
    from keybound.provenance.declared import canonical

    # U+1F600 is two units in UTF-16, D83D DE00: before U+FB33, behind it by code points.
    made = canonical({"\ufb33": 1, "\U0001f600": 2, "€": 3, "1": 4, "\r": {"b": 5, "a": [6]}})
    want = '{"\\r":{"a":[6],"b":5},"1":4,"€":3,"\U0001f600":2,"\ufb33":1}'
    assert made.decode() == want
