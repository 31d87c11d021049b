"""Signatures that others can check: a pair of Ed25519 keys in a file of its own.

The pair is generated and derived from nothing, so that it tells nothing about a party's key. Needs
the package `cryptography` (the extra `sign`), which is imported only when a signature is made or
checked. Knows bytes: no records, no audio. The file is specified in docs/spec.md.
"""

import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keybound import output
from keybound.crypto.keys import check_private
from keybound.errors import KeyFileError, NotGenuineError, RecordError

SEED_BYTES = 32
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
CHECKSUM_BYTES = 4
PREFIX = "keybound-sign-1:"
FILE_MAX = 64 * 1024
INSTALL_HINT = "pip install keybound[sign]"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class SigningKey:
    """The secret half of a pair: 32 uniformly random bytes, the seed of RFC 8032."""

    seed: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.seed, bytes) or len(self.seed) != SEED_BYTES:
            raise KeyFileError(f"a signing key is made of {SEED_BYTES} bytes")

    def __repr__(self) -> str:
        return "SigningKey()"

    @classmethod
    def generate(cls) -> "SigningKey":
        """Make a new signing key from the operating system's randomness."""
        return cls(secrets.token_bytes(SEED_BYTES))

    @classmethod
    def parse(cls, text: str) -> "SigningKey":
        """Read a signing key from the text of its file: one line, beside comments."""
        lines = [line.strip() for line in text.split("\n")]
        lines = [line for line in lines if line and not line.startswith("#")]
        digits = 2 * (SEED_BYTES + CHECKSUM_BYTES)
        if len(lines) != 1 or not re.fullmatch(rf"{PREFIX}[0-9a-f]{{{digits}}}", lines[0]):
            hint = f"it has one line of {PREFIX} and {digits} hex digits"
            raise KeyFileError("this is not a signing key", hint=hint)
        data = bytes.fromhex(lines[0].removeprefix(PREFIX))
        if data[SEED_BYTES:] != _checksum(data[:SEED_BYTES]):
            raise KeyFileError("the signing key is mistyped or damaged: its checksum is wrong")
        return cls(data[:SEED_BYTES])

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "SigningKey":
        """Read a signing key from its file."""
        try:
            with Path(path).open("rb") as file:
                text = file.read(FILE_MAX).decode()
                mode = os.fstat(file.fileno()).st_mode
        except UnicodeDecodeError:
            raise KeyFileError(f"{os.fspath(path)!r} is not a signing key") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise KeyFileError(f"signing key {os.fspath(path)!r}: {reason}") from error
        key = cls.parse(text)
        check_private(mode, os.fspath(path), f"signing key {os.fspath(path)!r}")
        return key

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file of mode 0600; an existing file is never replaced."""
        text = "# keybound signing key: keep this file private\n"
        text += f"{PREFIX}{(self.seed + _checksum(self.seed)).hex()}\n"
        hint = "key files are never overwritten: choose another name"
        with output.writing(path, mode=output.PRIVATE, kind=KeyFileError, exists_hint=hint) as part:
            part.write_text(text)

    @property
    def public(self) -> bytes:
        """Return the public key, 32 bytes, which checks the signatures of this key."""
        key = _ed25519().Ed25519PrivateKey.from_private_bytes(self.seed)
        return bytes(key.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Sign some bytes."""
        key = _ed25519().Ed25519PrivateKey.from_private_bytes(self.seed)
        return bytes(key.sign(data))


def check(public: bytes, data: bytes, signature: bytes) -> None:
    """Raise `NotGenuineError` where the public key did not sign these bytes."""
    module = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        module.Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        raise NotGenuineError("the signature does not hold: something was changed") from None


def _checksum(seed: bytes) -> bytes:
    return hashlib.sha256(PREFIX.encode() + seed).digest()[:CHECKSUM_BYTES]


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise RecordError("signatures need the package cryptography", hint=INSTALL_HINT) from None
    return ed25519
