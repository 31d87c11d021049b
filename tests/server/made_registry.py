"""A registry with a party, tokens and recordings, for a service that answers from it."""

import contextlib
import http.client
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import soundfile as sf
from made_service import Answer, Service

from keybound.crypto.keys import Key
from keybound.crypto.signing import SigningKey
from keybound.identity import identifier
from keybound.provenance.declared import Declared
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry
from keybound.provenance.tokens import Token
from keybound.watermark.options import EmbedOptions
from keybound.watermark.watermarker import Watermarker

RATE = 16_000
ISSUER = 7
KEY = Key(bytes(range(32)))
STRANGER = Key(bytes(32))
FREE = "free-field-of-the-record"  # which is never in a public answer
SAYS = Declared("Example Ltd", "Example Voice", "3.1", "https://example.org/ask", {"note": FREE})
ALL = ("embed", "identify", "verify")


@dataclass(frozen=True)
class Kept:
    """A registry on the disk, and the secrets of its tokens."""

    folder: Path

    @property
    def place(self) -> Path:
        return self.folder / "registry.sqlite"

    @property
    def signer(self) -> Path:
        return self.folder / "sign.key"

    def open(self) -> Registry:
        return Registry(self.place)

    def token(self, name: str, *scopes: str, **more: Any) -> str:
        """Add a token and return its secret."""
        with self.open() as known:
            return known.tokens.add(Token(name, scopes, datetime.now(UTC), **more))


def made(folder: Path) -> Kept:
    """Make a registry with two parties."""
    kept = Kept(folder)
    SigningKey(bytes(range(32))).write(kept.signer)
    with warnings.catch_warnings(), kept.open() as known:
        warnings.simplefilter("ignore")
        for name, key in (("alice", KEY), ("bob", Key(bytes([1]) * 32))):
            key.write(folder / f"{name}.key")
            path = folder / f"{name}.key"
            known.add(Party(name, 0x5EED, 16, 2, path, key.id, datetime.now(UTC)))
        known.set_issuer(ISSUER)
        known.set_provider(SAYS)
        known.newest_key()
    return kept


def spelling(marker: Watermarker, clip: Any, serial: int) -> Any:
    """Return ten seconds that spell a public identifier of the issuer under a stranger's key."""
    own = identifier.public(serial, ISSUER)
    host = np.resize(clip, 10 * RATE).astype(np.float32)
    stream = marker.embedder(RATE, EmbedOptions(STRANGER, 1, identifier=own))
    return np.concatenate([stream.push(host), stream.flush()])


def encoded(samples: Any, folder: Path, name: str = "a.wav") -> bytes:
    """Return samples as the bytes of a file."""
    sf.write(folder / name, samples, RATE)
    return (folder / name).read_bytes()


def post(
    service: Service,
    path: str,
    body: bytes,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send a recording with a token and return the answer."""
    own = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", path, body, own | dict(headers or {}))
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, named, response.read())
