"""Whose mark a recording gets, and what is reserved for it: a party of a registry, or a key.

A maker is plain values, which go to the processes that mark. Those alone read its key. Knows no
audio and no HTTP.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from keybound.crypto.keys import Key
from keybound.provenance import declared
from keybound.provenance.declared import Declared
from keybound.provenance.registry import Registry
from keybound.watermark.claims import Claim, party_claim
from keybound.watermark.options import EXCERPT_S, EmbedOptions
from keybound.watermark.reservation import FOUND_S, LEAST_S, Reservation, reserve


class Given(NamedTuple):
    """Whose mark a recording gets, and how it is marked; `known` keeps its record."""

    whose: Claim
    reserved: Reservation
    known: Registry | None

    @property
    def identifier(self) -> str | None:
        """Return the serial that the recording spells."""
        return None if self.reserved.issued is None else self.reserved.issued.name


@dataclass(frozen=True)
class Maker:
    """Whose mark it is: a party, or the key in a file and a payload, and how it is embedded.

    `says` is what is declared of the recording, as JSON. Without `records` the mark is the party's
    and the registry learns nothing of it: for a proof.
    """

    party: str | None = None
    key_file: str | None = None
    payload: int | None = None
    nonce: str = ""  # in hex
    seal: bool = True
    public: bool = False
    excerpt: float = EXCERPT_S
    says: dict[str, Any] | None = None
    fingerprint: bool = True
    records: bool = True

    def plain(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        return asdict(self)

    def without_records(self) -> "Maker":
        """Return the same maker for a mark of which there is no record."""
        return replace(self, records=False)

    def claim(self, known: Registry | None, bits: int) -> Claim:
        """Return key and payload."""
        if self.party is None:
            assert self.key_file is not None  # whoever makes one has seen to it
            assert self.payload is not None
            return Claim("", Key.read(self.key_file), self.payload, None)
        assert known is not None
        return party_claim(known.get(self.party), bits)

    def give(
        self, known: Registry | None, bits: int, length_s: float, *, short: bool = False
    ) -> Given:
        """Return what a recording of this length is marked with, reserved where it has a record."""
        whose, nonce = self.claim(known, bits), bytes.fromhex(self.nonce)
        if known is None or self.party is None or not self.records:
            own = EmbedOptions(
                whose.key, whose.payload, nonce, seal=self.seal, excerpt=self.excerpt
            )
            return Given(whose, Reservation(whose.name, own, None), None)
        reserved = reserve(
            known,
            whose,
            short=short or length_s < LEAST_S,
            found=length_s >= FOUND_S,
            nonce=nonce,
            seal=self.seal,
            public=self.public,
            excerpt=self.excerpt,
            declared=Declared() if self.says is None else declared.parse(self.says),
            fingerprint=self.fingerprint,
        )
        return Given(whose, reserved, known)
