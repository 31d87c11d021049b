"""Who signs C2PA manifests: a chain of X.509 certificates and the private key of the first.

Knows PEM files: nothing of audio, manifests or the keys of marks.
"""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from keybound.crypto.keys import check_private
from keybound.errors import KeyFileError, missing

FILE_MAX = 1 << 20
EXTRA = "c2pa"
CURVES = {"secp256r1": "es256", "secp384r1": "es384", "secp521r1": "es512"}


@dataclass(frozen=True)
class Signer:
    """What signs: an algorithm of C2PA, certificates as PEM, the private key as PKCS #8 in PEM.

    `stamped_by` is the address of a time stamping authority (RFC 3161), asked at each signature.
    """

    algorithm: str
    certificates: bytes
    key: bytes = field(repr=False)
    stamped_by: str | None = None


def read(
    certificates: str | os.PathLike[str],
    key: str | os.PathLike[str],
    stamped_by: str | None = None,
) -> Signer:
    """Read a signer from two PEM files; raise an error where they cannot sign together."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
    except ModuleNotFoundError as error:
        raise missing(error.name, EXTRA) from error
    name, data = os.fspath(certificates), _contents(certificates, "certificate")[0]
    try:
        first = x509.load_pem_x509_certificates(data)[0]
    except ValueError as error:
        hint = "PEM: that of the key, then those that issued it"
        raise KeyFileError(f"{name!r} holds no certificate", hint=hint) from error
    secret = _secret(os.fspath(key))
    if _public(secret) != _public(first):
        what = f"{os.fspath(key)!r} is not the key of the certificate {name!r}"
        raise KeyFileError(what, hint="the certificate of the key comes first in its file")
    _check_dates(first, name)
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = secret.private_bytes(serialization.Encoding.PEM, *plain)
    return Signer(_algorithm(secret), data, pem, stamped_by)


def read_trusted(path: str | os.PathLike[str]) -> str:
    """Return the certificates in a PEM file, under which signers are trusted."""
    data = _contents(path, "file of certificates")[0]
    if b"-----BEGIN CERTIFICATE-----" not in data or not data.isascii():
        raise KeyFileError(f"{os.fspath(path)!r} holds no certificate", hint="as PEM")
    return data.decode()


def _secret(name: str) -> Any:
    """Return the private key in a file."""
    from cryptography.hazmat.primitives import serialization

    data, mode = _contents(name, "private key")
    try:
        secret = serialization.load_pem_private_key(data, None)
    except TypeError:
        what = f"private key {name!r} is encrypted"
        raise KeyFileError(what, hint="openssl pkey -in KEY -out PLAIN decrypts it") from None
    except Exception as error:  # of several kinds, for what is no key
        what = f"{name!r} holds no private key"
        raise KeyFileError(what, hint="PEM, such as of openssl genpkey") from error
    check_private(mode, name, f"private key {name!r}")
    return secret


def _contents(path: str | os.PathLike[str], what: str) -> tuple[bytes, int]:
    """Return what a file holds, and its mode."""
    try:
        with Path(path).open("rb") as file:
            return file.read(FILE_MAX), os.fstat(file.fileno()).st_mode
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise KeyFileError(f"{what} {os.fspath(path)!r} cannot be read: {reason}") from error


def _public(holder: Any) -> bytes:
    """Return the public key of a certificate or a private key, in one form."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    found: bytes = holder.public_key().public_bytes(*form)
    return found


def _check_dates(certificate: Any, name: str) -> None:
    now = datetime.now(UTC)
    if now < certificate.not_valid_before_utc:
        begins = f"{certificate.not_valid_before_utc:%Y-%m-%d}"
        raise KeyFileError(f"certificate {name!r} is not valid before {begins}")
    if now > certificate.not_valid_after_utc:
        ended = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
        raise KeyFileError(f"certificate {name!r} is not valid after {ended}", hint="renew it")


def _algorithm(secret: Any) -> str:
    """Return the algorithm of C2PA that a private key signs with."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(secret, ec.EllipticCurvePrivateKey) and secret.curve.name in CURVES:
        return CURVES[secret.curve.name]
    if isinstance(secret, ed25519.Ed25519PrivateKey):
        return "ed25519"
    if isinstance(secret, rsa.RSAPrivateKey):
        return "ps256"
    hint = "an elliptic curve P-256, P-384 or P-521, Ed25519 or RSA"
    raise KeyFileError("C2PA does not sign with a private key of this kind", hint=hint)
