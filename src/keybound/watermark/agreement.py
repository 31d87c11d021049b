"""Whether the C2PA manifest in a file and the mark in its audio say the same.

Knows what was read of both: no keys, no networks.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keybound.identity.identifier import written
from keybound.identity.reading import Reading, read_public
from keybound.provenance import credentials
from keybound.provenance.credentials import Found, Named
from keybound.provenance.records import Entry
from keybound.provenance.registry import Registry
from keybound.types import Detection
from keybound.watermark.identification import Identified

UNREAD_HINT = "pip install 'keybound[c2pa]'"
STATES = {
    "trusted": "signed by {}, whose certificate is trusted",
    "valid": "signed by one that calls itself {}",
    "expired": "signed by one that calls itself {}, with a certificate that has expired",
    "changed": "that does not fit: the file was changed after {} signed it",
    "broken": "that does not hold: it was changed after it was signed",
    "unreadable": "that cannot be read",
    "unread": f"that is not read here ({UNREAD_HINT})",
}

HOLDS = ("trusted", "valid", "expired")  # the file is the one that was signed


@dataclass(frozen=True)
class Compared:
    """A manifest beside the mark: `agreement` is agrees, disagrees or open.

    It is open where the manifest names no identifier, or is not as it was signed and the mark
    spells none. `record` is the number of the record that keeps this very manifest, where a
    registry was asked.
    """

    manifest: Found
    agreement: str
    told: str
    record: int | None = None

    @property
    def words(self) -> str:
        """Return all of it as a sentence."""
        who = self.manifest.signer or "somebody without a name"
        kept = "" if self.record is None else f", the one that record {self.record} keeps"
        return f"C2PA manifest {STATES[self.manifest.state].format(who)}{kept}: {self.told}"

    def as_plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        one = self.manifest
        named = [{"identifier": written(serial), "issuer": issuer} for issuer, serial in one.named]
        return {
            "id": one.id,
            "state": one.state,
            "signer": one.signer,
            "source_type": one.source_type,
            "identifiers": named,
            "agreement": self.agreement,
            "words": self.words,
        }


def of_file(
    path: str | os.PathLike[str],
    found: Detection,
    claims: Sequence[Reading],
    entries: Sequence[Entry] = (),
    trusted: str | None = None,
) -> Compared | None:
    """Return the manifest in a file beside its mark; None where there is no manifest.

    `claims` are the public identifiers that it spells, `entries` records that it may be,
    `trusted` certificates as PEM under which a signer is trusted.
    """
    place = Path(path)
    manifest = credentials.read(place, trusted)
    if manifest is None:
        return None
    spelled = [(one.issuer, one.serial) for one in claims if one.issuer is not None]
    record = None
    for entry in entries:
        kept = entry.stamped.record.manifest
        if kept is not None and kept.id == manifest.id and credentials.holds(place, kept):
            record = entry.number
    return Compared(manifest, *compare(manifest, found.present, spelled), record)


def of_marks(
    path: str | os.PathLike[str],
    found: Detection,
    marks: Sequence[Identified],
    known: Registry,
    trusted: str | None = None,
) -> Compared | None:
    """Return the manifest in a file beside marks that were identified in a registry."""
    claims = read_public(found) if found.present else []
    entries = [known.record(one.record) for one in marks if one.record is not None]
    return of_file(path, found, claims, entries, trusted)


def compare(manifest: Found, present: bool, spelled: Sequence[Named]) -> tuple[str, str]:
    """Return whether a manifest and a mark agree, and what each says."""
    named = set(manifest.named)
    if not named:
        return "open", "it names no mark" + (", and there is one" if present else "")
    says = f"it names the identifier {_list(manifest.named)}"
    if set(spelled) == named:
        return "agrees", f"{says}, as the mark does"
    if spelled:
        return "disagrees", f"{says}, and the mark spells {_list(spelled)}: they disagree"
    if manifest.state not in (
        "trusted",
        "valid",
        "expired",
    ):  # the mark may have gone with the change
        return "open", f"{says}, and " + ("the mark spells none" if present else "no mark is found")
    if present:
        return "disagrees", f"{says}, which the mark does not spell: they disagree"
    return "disagrees", f"{says}, and no mark is found: they disagree"


def _list(named: Sequence[Named]) -> str:
    return " and ".join(f"{written(serial)} of issuer {issuer}" for issuer, serial in named)
