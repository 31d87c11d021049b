"""Reservations: what a registry gives to one embedding, and the record that comes of it.

Recordings of `LEAST_S` and more carry an identifier. Shorter ones cannot spell one: they have the
fixed code under a random nonce, and are found by their audio. Those under `FOUND_S` are not found
by it: they have no nonce.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from keybound.errors import RegistryError
from keybound.identity import identifier
from keybound.identity.identifier import Identifier
from keybound.identity.permutation import Permutation
from keybound.model.networks import Card
from keybound.provenance import records
from keybound.provenance.declared import NOTHING, Declared
from keybound.provenance.records import Record, Stamped
from keybound.provenance.registry import Registry
from keybound.watermark.claims import Claim
from keybound.watermark.files import NO_FINGERPRINT, Written
from keybound.watermark.options import EXCERPT_S, EmbedOptions

LEAST_S = 5.0  # of a recording that carries an identifier
FOUND_S = 1.0  # of a recording that is found by its audio
NONCE_BYTES = 8
ISSUER_HINT = "keybound registry issuer NUMBER sets it"


@dataclass(frozen=True)
class Issued:
    """An identifier of a registry: its serial, and the id of the key that encrypts it."""

    serial: int
    identifier: Identifier
    registry_key: str | None  # None: the published key

    @property
    def name(self) -> str:
        """Return the serial as it is written."""
        return identifier.written(self.serial)


@dataclass(frozen=True)
class Reservation:
    """How one recording is marked for a party, and what its record says beside that."""

    party: str
    options: EmbedOptions
    issued: Issued | None
    declared: Declared = NOTHING
    fingerprint: bool = True  # whether the record keeps one, by which its audio is found

    def stamped(self, card: Card, written: Written) -> Stamped:
        """Return the record of what was written, stamped with the key, with the present time."""
        options, issued = self.options, self.issued
        made = Record(
            created=datetime.now(UTC),
            party=self.party,
            payload=options.payload,
            bits=card.bits,
            nonce=options.nonce,
            position=written.position,
            key=options.key.id,
            detector=card.sha256["detector.onnx"],
            samples=written.samples,
            rate=written.rate,
            sha256=written.sha256 or None,
            fingerprint=written.fingerprint if self.fingerprint else NO_FINGERPRINT,
            serial=None if issued is None else issued.serial,
            registry_key=None if issued is None else issued.registry_key,
            public=issued is not None and issued.registry_key is None,
            declared=self.declared,
            manifest=written.manifest,
        )
        return records.stamp(made, options.key)


def issuing(known: Registry, *, public: bool = False) -> Callable[[int], Issued]:
    """Return what makes the identifier of a serial that the registry drew.

    Raise an error where the registry lacks what it takes, before any serial is drawn.
    """
    if public:
        number = issuer_of(known)
        return lambda serial: Issued(serial, identifier.public(serial, number), None)
    key = known.newest_key()
    under = Permutation(key)
    return lambda serial: Issued(serial, identifier.keyed(serial, under), key.id)


def issuer_of(known: Registry) -> int:
    """Return the number that public identifiers of a registry carry; raise an error without one."""
    number = known.issuer
    if number is None:
        what = "public identifiers need an issuer's number, and this registry has none"
        raise RegistryError(what, hint=ISSUER_HINT)
    return number


def reserve(
    known: Registry,
    whose: Claim,
    *,
    short: bool,
    nonce: bytes = b"",
    position: int | None = None,
    seal: bool = True,
    public: bool = False,
    excerpt: float = EXCERPT_S,
    declared: Declared = NOTHING,
    fingerprint: bool = True,
    found: bool = True,
) -> Reservation:
    """Reserve what one embedding needs: a position of the key, and a serial unless it is short.

    `found` is whether it is long enough to be found by its audio.
    """
    issue = None if short else issuing(known, public=public)
    if short and fingerprint and found:  # else nothing finds the record, and with it the nonce
        nonce = nonce or secrets.token_bytes(NONCE_BYTES)
    at = known.reserve(whose.key.id, position) if seal else None
    issued = None if issue is None else issue(known.draw_serial())
    options = EmbedOptions(
        whose.key,
        whose.payload,
        nonce,
        at,
        seal,
        None if issued is None else issued.identifier,
        excerpt,
    )
    told = declared.over(known.provider)
    return Reservation(whose.name, options, issued, told, fingerprint)
