"""Tokens: the registry holds hashes alone, a rotation has an overlap, answers are counted."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from keybound.errors import RegistryError
from keybound.provenance.registry import Registry
from keybound.provenance.tokens import Token


def made(name: str = "desk", *scopes: str, **more: Any) -> Token:
    return Token(name, scopes or ("ask",), datetime.now(UTC), **more)


def test_a_secret_is_known_by_its_hash_alone(place: Path | str) -> None:
    with Registry(place) as known:
        secret = known.tokens.add(made("desk", "embed", "verify", party="alice", daily=7))
        found = known.tokens.of_secret(secret)
        assert found == known.tokens.all()[0]
        assert (found.scopes, found.party, found.daily) == (("embed", "verify"), "alice", 7)
        assert found.may("verify", "ask")
        assert not found.may("ask")
        assert known.tokens.of_secret(secret[:-1]) is None
        assert known.tokens.of_secret("") is None
        stored = repr(known._database.rows("SELECT * FROM token"))
    assert secret not in stored
    assert secret.removeprefix("kb_") not in stored
    if isinstance(place, Path):
        assert secret.encode() not in place.read_bytes()


def test_a_rotation_keeps_the_old_secret_as_long_as_it_says(place: Path | str) -> None:
    with Registry(place) as known, Registry(place) as other:
        tokens, now = known.tokens, datetime.now(UTC)
        first = tokens.add(made())
        second = tokens.rotate("desk", now + timedelta(hours=1))
        assert [other.tokens.of_secret(one) is not None for one in (first, second)] == [True, True]
        third = tokens.rotate("desk", now)
        assert [other.tokens.of_secret(one) is not None for one in (first, second, third)] == [
            False,
            False,
            True,
        ]
        assert len(tokens.all()) == 1
        tokens.revoke("desk")
        assert other.tokens.of_secret(third) is None
        for wrong in (lambda: tokens.revoke("desk"), lambda: tokens.rotate("desk", now)):
            with pytest.raises(RegistryError, match="no token 'desk'"):
                wrong()


def test_a_token_ends(path: Path) -> None:
    with Registry(path) as known:
        past = datetime.now(UTC) - timedelta(seconds=1)
        assert known.tokens.of_secret(known.tokens.add(made(ends=past))) is None


def test_what_makes_no_sense_is_refused(path: Path) -> None:
    for wrong in (
        {"scopes": ()},
        {"scopes": ("everything",)},
        {"scopes": ("identify",), "party": "alice"},
        {"name": ""},
        {"name": "two words"},
        {"daily": 0},
    ):
        usual: dict[str, Any] = {"name": "desk", "scopes": ("ask",), "created": datetime.now(UTC)}
        with pytest.raises(RegistryError):
            Token(**(usual | wrong))
    with Registry(path) as known:
        known.tokens.add(made())
        with pytest.raises(RegistryError, match="exists"):
            known.tokens.add(made())


def test_answers_are_counted_by_token_and_in_total_over_connections(place: Path | str) -> None:
    few, many = made("few", daily=3), made("many", daily=100)
    given: list[bool] = []

    def ask(token: Token) -> None:
        with Registry(place) as own:
            given.extend(own.tokens.spend(token, 10) for _ in range(6))

    Registry(place).close()
    threads = [threading.Thread(target=ask, args=(one,)) for one in (few, many, few, many)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (len(given), sum(given)) == (24, 10)
    with Registry(place) as known:
        given_few, given_many = (known.tokens.answered(one.name)[0] for one in (few, many))
        assert given_few <= 3  # whoever asks first: many may have taken more than its share
        assert given_few + given_many == 10
        assert not known.tokens.spend(many, 10)
        assert known.tokens.spend(many, 11)
