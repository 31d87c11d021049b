"""Tokens: who may ask a service what, and how many answers were given to whom.

A token is a secret of 32 random bytes; the registry holds its SHA-256 alone. What is changed here
holds for the next request, on every machine. Knows the tables of `schema`: no HTTP, no keys.
"""

import contextlib
import hashlib
import re
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from keybound.errors import RegistryError
from keybound.provenance.database import Database
from keybound.provenance.pending import EPOCH, microseconds

SCOPES = ("embed", "identify", "verify", "ask")
PREFIX = "kb_"  # by which a secret that was published by mistake is recognised
SECRET_BYTES = 32
NAME = re.compile(r"[\w.@-]{1,100}")
DAILY = 100
ALL = ""  # the name under which the answers of all tokens are counted
COLUMNS = "name, scopes, party, daily, created, ends"
SPEND = (
    "INSERT INTO answered (token, day, given) VALUES (?, ?, 1) ON CONFLICT (token, day)"
    " DO UPDATE SET given = answered.given + 1 RETURNING given"
)


class SpentError(Exception):
    """No answer is left today."""


@dataclass(frozen=True)
class Token:
    """What the holder of a token may do.

    `party` is the only one that it marks or verifies for; None: any. `daily` is the number of
    answers in a day to one who may only ask. It holds until `ends`; None: until it is revoked.
    """

    name: str
    scopes: tuple[str, ...]
    created: datetime
    party: str | None = None
    daily: int = DAILY
    ends: datetime | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            hint = "letters, digits, and . _ @ -"
            raise RegistryError(f"{self.name!r} is not a name of a token", hint=hint)
        if not self.scopes or not set(self.scopes) <= set(SCOPES):
            raise RegistryError("a token has no such scope", hint=f"some of {', '.join(SCOPES)}")
        if self.party is not None and "identify" in self.scopes:
            what = "a token of one party cannot identify, which tells of all"
            raise RegistryError(what, hint="leave the party or the scope out")
        if self.daily < 1:
            raise RegistryError("a token is given at least one answer a day")

    def may(self, *scopes: str) -> bool:
        """Return whether the token has any of some scopes."""
        return not set(scopes).isdisjoint(self.scopes)


class Tokens:
    """The tokens of a registry."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: Token) -> str:
        """Add a token under a name that is not yet taken, and return its secret."""
        with self._database.writing():
            if self._named(token.name):
                hint = "keybound token rotate gives it another secret"
                raise RegistryError(f"token {token.name!r} exists", hint=hint)
            return self._insert(token)

    def rotate(self, name: str, until: datetime) -> str:
        """Give a token another secret and return it; the old ones hold until a time."""
        with self._database.writing():
            known = self._named(name)
            if not known:
                raise _unknown(name)
            self._database.execute(
                "UPDATE token SET ends = ? WHERE name = ? AND (ends IS NULL OR ends > ?)",
                (microseconds(until), name, microseconds(until)),
            )
            ended = "DELETE FROM token WHERE name = ? AND ends <= ?"
            self._database.execute(ended, (name, microseconds(datetime.now(UTC))))
            return self._insert(replace(known[-1], created=datetime.now(UTC), ends=None))

    def revoke(self, name: str) -> None:
        """Remove a token with all its secrets. What was answered to it stays counted."""
        if self._database.execute("DELETE FROM token WHERE name = ?", (name,)) == 0:
            raise _unknown(name)

    def all(self) -> tuple[Token, ...]:
        """Return all tokens by their names, each secret of one by itself, the oldest first."""
        query = f"SELECT {COLUMNS} FROM token ORDER BY name, number"
        return tuple(_token(*row) for row in self._database.rows(query))

    def of_secret(self, secret: str) -> Token | None:
        """Return the token with a secret; None where none has it, or it has ended."""
        query = f"SELECT {COLUMNS} FROM token WHERE hash = ?"
        row = self._database.row(query, (_hash(secret),))
        if row is None:
            return None
        found = _token(*row)
        return found if found.ends is None or datetime.now(UTC) < found.ends else None

    def spend(self, token: Token, total: int) -> bool:
        """Count an answer to a token; return whether there was one left, for it and in total."""
        with contextlib.suppress(SpentError), self._database.writing():  # all of it, or nothing
            # The rows are locked in this order, so that no two wait for each other.
            for name, most in ((token.name, token.daily), (ALL, total)):
                if self._database.rows(SPEND, (name, _today()))[0][0] > most:
                    raise SpentError
            return True
        return False

    def answered(self, name: str) -> tuple[int, int]:
        """Return how many answers a token was given today, and ever."""
        query = (
            "SELECT coalesce(sum(given), 0),"
            " coalesce(sum(CASE WHEN day = ? THEN given ELSE 0 END), 0)"
            " FROM answered WHERE token = ?"
        )
        ever, today = self._database.rows(query, (_today(), name))[0]
        return int(today), int(ever)

    def _named(self, name: str) -> list[Token]:
        query = f"SELECT {COLUMNS} FROM token WHERE name = ? ORDER BY number"
        return [_token(*row) for row in self._database.rows(query, (name,))]

    def _insert(self, token: Token) -> str:
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        insert = f"INSERT INTO token (hash, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
        ends = None if token.ends is None else microseconds(token.ends)
        own = (token.name, " ".join(token.scopes), token.party, token.daily)
        self._database.execute(insert, (_hash(secret), *own, microseconds(token.created), ends))
        return secret


def _token(
    name: str, scopes: str, party: str | None, daily: int, created: int, ends: int | None
) -> Token:
    until = None if ends is None else _moment(ends)
    return Token(name, tuple(scopes.split()), _moment(created), party, daily, until)


def _moment(stored: int) -> datetime:
    return EPOCH + timedelta(microseconds=stored)


def _today() -> int:
    return (datetime.now(UTC) - EPOCH).days


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _unknown(name: str) -> RegistryError:
    return RegistryError(f"no token {name!r}", hint="keybound token list shows them all")
