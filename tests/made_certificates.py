"""Certificates as C2PA demands them, made for a test: an authority, and a signer under it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("c2pa", reason="the extra c2pa is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
MONTH = timedelta(days=30)


@dataclass(frozen=True)
class Made:
    """PEM files of a signer, and the certificate of its authority as PEM."""

    certificate: Path
    key: Path
    authority: str

    @property
    def pair(self) -> tuple[str, str]:
        return str(self.certificate), str(self.key)


def make(
    folder: Path,
    name: str = "signer",
    *,
    usage: Any = ExtendedKeyUsageOID.EMAIL_PROTECTION,
    lasts: timedelta = MONTH,
    password: bytes | None = None,
    curve: Any = ec.SECP256R1,
) -> Made:
    """Make an authority and a signer under it, and write the signer's files."""
    authority, own = ec.generate_private_key(curve()), ec.generate_private_key(curve())
    above = _named(f"authority of {name}")
    root = _certificate(above, authority, above, authority, [
        (x509.BasicConstraints(True, None), True),
        (_usage("key_cert_sign", "crl_sign"), True),
        (x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), False),
    ])  # fmt: skip
    leaf = _certificate(_named(name), own, above, authority, [
        (x509.BasicConstraints(False, None), True),
        (_usage("digital_signature"), True),
        (x509.ExtendedKeyUsage([usage]), usage == ExtendedKeyUsageOID.TIME_STAMPING),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False),
        (x509.SubjectKeyIdentifier.from_public_key(own.public_key()), False),
    ], lasts)  # fmt: skip
    secret = NoEncryption() if password is None else BestAvailableEncryption(password)
    made = Made(folder / f"{name}.pem", folder / f"{name}-key.pem", _pem(root).decode())
    made.certificate.write_bytes(_pem(leaf) + _pem(root))
    made.key.touch(0o600)
    made.key.write_bytes(own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    return made


def _certificate(
    subject: Any, key: Any, issuer: Any, by: Any, extensions: Any, lasts: timedelta = MONTH
) -> Any:
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - MONTH)
    made = made.not_valid_after(now + lasts)
    for extension, critical in extensions:
        made = made.add_extension(extension, critical=critical)
    return made.sign(by, hashes.SHA256())


def _named(name: str) -> Any:
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example Ltd")
    return x509.Name([organisation, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*names: str) -> Any:
    return x509.KeyUsage(**{one: one in names for one in USAGES})


def _pem(certificate: Any) -> bytes:
    return bytes(certificate.public_bytes(Encoding.PEM))
