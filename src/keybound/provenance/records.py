"""Records: what was embedded, when and in which recording, authenticated with the party's key.

A record is canonical JSON with a MAC under a key derived from the party's key, and with a signature
where others are to check it (`signing`). Knows keys and fingerprints: no audio, no networks, no
registry. The format is specified in docs/spec.md.
"""

import base64
import binascii
import hmac
import json
import os
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from keybound import output
from keybound.crypto import codes, keystream, signing
from keybound.crypto.keys import KEY_ID_BYTES, Key
from keybound.errors import KeyBoundError, NotGenuineError, RecordError
from keybound.identity.identifier import SERIAL_BITS
from keybound.provenance import declared, manifest
from keybound.provenance.declared import NOTHING, Declared, canonical, check_text
from keybound.provenance.fingerprint import Fingerprint
from keybound.provenance.manifest import Manifest

VERSION = 3
MAC_LABEL = "keybound-1/record"
MAC_BYTES = 32
SIGNED = b"keybound-1/record-signature\0"  # the purpose of a signature, before what it signs
FILE_MAX = 8 << 20  # a day's fingerprint is one megabyte
TEXT_MAX = 100  # characters of a name
NONCE_MAX = 1024  # bytes
DAMAGED_HINT = "take the file as it was exported, byte by byte"


@dataclass(frozen=True)
class Record:
    """One embedding: what was marked for whom, and what the marked recording is."""

    created: datetime
    party: str
    payload: int
    bits: int
    nonce: bytes
    position: int | None  # in the keystream; None for a recording without a seal
    key: str  # the id of the key
    detector: str  # which weights read the mark
    samples: int  # of one channel of the marked recording
    rate: int
    sha256: str | None  # of the file that was written, where there is one
    fingerprint: Fingerprint  # of no columns where none is kept
    serial: int | None = None  # that its codes spell; None for a recording without identifier
    registry_key: str | None = None  # the id of the key that encrypts its block
    public: bool = False  # whether that is the published key
    declared: Declared = NOTHING
    manifest: Manifest | None = None  # of C2PA, where the file was signed
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise RecordError(f"a record of version {self.version} cannot be read here")
        if self.created.tzinfo is None:
            raise RecordError("the time of a record has no time zone")
        object.__setattr__(self, "created", self.created.astimezone(UTC))
        codes.check_payload(self.payload, self.bits)
        if self.position is not None:
            keystream.check_position(self.position)
        for what, text in (("party", self.party), ("detector", self.detector)):
            check_text(what, text, TEXT_MAX)
        if len(self.nonce) > NONCE_MAX:
            raise RecordError(f"the nonce of a record has more than {NONCE_MAX} bytes")
        _check_hex("key", self.key, KEY_ID_BYTES)
        if self.sha256 is not None:
            _check_hex("file's hash", self.sha256, 32)
        if not (0 <= self.samples < 1 << 53 and 0 < self.rate < 1 << 31):
            raise RecordError("the length or the rate of a record is out of range")
        self._check_identifier()
        if self.manifest is not None:
            manifest.check(self.manifest)

    def _check_identifier(self) -> None:
        if self.registry_key is not None:
            _check_hex("registry's key", self.registry_key, KEY_ID_BYTES)
        if self.serial is None:
            if self.public or self.registry_key is not None:
                raise RecordError("a record without a serial names a key of identifiers")
            return
        if not 0 <= self.serial < 1 << SERIAL_BITS:
            raise RecordError(f"the serial of a record has more than {SERIAL_BITS} bits")
        if not self.public and self.registry_key is None:
            raise RecordError("a record with a serial names no key of its registry")

    def to_bytes(self) -> bytes:
        """Return the canonical JSON: of one record there is exactly one."""
        return canonical(self._members())

    def _members(self) -> dict[str, Any]:
        return {
            "bits": self.bits,
            "columns": self.fingerprint.columns,
            "created": _to_time(self.created),
            "detector": self.detector,
            "fingerprint": base64.b64encode(self.fingerprint.data).decode(),
            "key": self.key,
            "manifest": None if self.manifest is None else self.manifest.members(),
            "nonce": self.nonce.hex(),
            "party": self.party,
            "payload": f"{self.payload:0{(self.bits + 3) // 4}x}",
            "position": self.position,
            "public": self.public,
            "rate": self.rate,
            "registry_key": self.registry_key,
            "samples": self.samples,
            "serial": self.serial,
            "sha256": self.sha256,
            "version": self.version,
            **self.declared.members(),
        }


@dataclass(frozen=True)
class Stamped:
    """A record with the MAC of its party and, where it is signed, a signature with its public key.

    Nothing is checked yet by having one: `check` needs the party's key, `check_signature` the
    public key of the signer.
    """

    record: Record
    mac: bytes
    public: bytes = b""
    signature: bytes = b""

    def check(self, key: Key) -> None:
        """Raise `NotGenuineError` where this key did not stamp the record, or it was changed."""
        if not hmac.compare_digest(_mac(self.record, key), self.mac):
            raise NotGenuineError(
                "the record was changed, or stamped with another key",
                hint=f"it names key {self.record.key}",
            )
        if self.record.key != key.id:
            raise NotGenuineError(f"the record names key {self.record.key}, which did not stamp it")

    def sign(self, with_key: signing.SigningKey) -> "Stamped":
        """Add a signature, which can be checked without the party's key."""
        return replace(self, public=with_key.public, signature=with_key.sign(self._signed()))

    def check_signature(self, public: bytes) -> None:
        """Raise `NotGenuineError` where the holder of this public key did not sign the record.

        The public key must come from the signer, not from the record: anybody can sign with a key
        of their own.
        """
        if not self.signature:
            raise NotGenuineError("the record is not signed")
        if self.public != public:
            raise NotGenuineError(
                "the record is signed by somebody else", hint=f"by {self.public.hex()}"
            )
        signing.check(public, self._signed(), self.signature)

    def _signed(self) -> bytes:
        return SIGNED + self.mac + self.record.to_bytes()

    def to_bytes(self) -> bytes:
        """Return the contents of the file that the record is exported as."""
        whole = {"mac": self.mac.hex(), "record": self.record._members()}
        if self.signature:
            whole |= {"public": self.public.hex(), "signature": self.signature.hex()}
        return canonical(whole) + b"\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Export the record to a new file of mode 0600; one that exists is never replaced."""
        hint = "choose another name"
        with output.writing(path, mode=output.PRIVATE, kind=RecordError, exists_hint=hint) as part:
            part.write_bytes(self.to_bytes())


class Entry(NamedTuple):
    """A record with its number in a registry; None where it comes from a file."""

    number: int | None
    stamped: Stamped


def stamp(record: Record, key: Key) -> Stamped:
    """Authenticate a record with the key that it names."""
    if record.key != key.id:
        raise RecordError(f"the record names key {record.key}, not {key.id}")
    return Stamped(record, _mac(record, key))


def read(path: str | os.PathLike[str]) -> Stamped:
    """Read a record from a file that was exported."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_MAX + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RecordError(f"record {os.fspath(path)!r} cannot be read: {reason}") from error
    return parse(data)


def parse(data: bytes) -> Stamped:
    """Read a record from the contents of an exported file. Only the canonical form is accepted."""
    try:
        if len(data) > FILE_MAX:
            raise ValueError("too large")
        stamped = _stamped(json.loads(data.decode()))
        if stamped.to_bytes() != data:  # which also refuses unknown fields
            raise ValueError("not the canonical form")
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        KeyBoundError,
    ) as error:
        reason = error.message if isinstance(error, KeyBoundError) else None
        message = "this is not a record, or it is damaged"
        raise RecordError(
            f"{message}: {reason}" if reason else message, hint=DAMAGED_HINT
        ) from None
    return stamped


def _stamped(whole: dict[str, Any]) -> Stamped:
    fields = whole["record"]
    signature = bytes.fromhex(whole.get("signature", ""))
    public = bytes.fromhex(whole.get("public", ""))
    mac = bytes.fromhex(whole["mac"])
    signed = (len(public), len(signature)) == (signing.PUBLIC_BYTES, signing.SIGNATURE_BYTES)
    if len(mac) != MAC_BYTES or not (signed or not public + signature):
        raise ValueError("other lengths")
    numbers = [fields[name] for name in ("bits", "columns", "rate", "samples", "version")]
    # True is 1 to Python and another word in JSON, which would come back as it was.
    if any(type(number) is not int for number in numbers):
        raise TypeError("no number")
    if any(type(fields[name]) not in (int, type(None)) for name in ("position", "serial")):
        raise TypeError("no position")
    if type(fields["public"]) is not bool:
        raise TypeError("no truth value")
    return Stamped(_record(fields), mac, public, signature)


def _record(fields: dict[str, Any]) -> Record:
    try:
        data = base64.b64decode(fields["fingerprint"], validate=True)
    except binascii.Error as error:
        raise ValueError("no fingerprint") from error
    return Record(
        created=datetime.fromisoformat(fields["created"]),
        party=fields["party"],
        payload=int(fields["payload"], 16),
        bits=fields["bits"],
        nonce=bytes.fromhex(fields["nonce"]),
        position=fields["position"],
        key=fields["key"],
        detector=fields["detector"],
        samples=fields["samples"],
        rate=fields["rate"],
        sha256=fields["sha256"],
        fingerprint=Fingerprint(fields["columns"], data),
        serial=fields["serial"],
        registry_key=fields["registry_key"],
        public=fields["public"],
        declared=declared.parse(fields),
        manifest=manifest.parse(fields["manifest"]),
        version=fields["version"],
    )


def _mac(record: Record, key: Key) -> bytes:
    return hmac.digest(key.derive(MAC_LABEL, MAC_BYTES), record.to_bytes(), "sha256")


def _to_time(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")  # strftime cuts years


def _check_hex(what: str, text: str, length: int) -> None:
    if not re.fullmatch(rf"[0-9a-f]{{{2 * length}}}", text):
        raise RecordError(f"the {what} of a record is not {2 * length} hex digits")
