"""Verdicts that are signed: what was found in which file, by which weights, when.

A signed verdict is canonical JSON with an Ed25519 signature (`signing`), for others than the holder
of the key. It says what was concluded and holds no figures of the evidence, which would help a
forger. Knows bytes: no audio, no networks, no registry. The format is specified in docs/spec.md.
"""

import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from keybound.crypto import signing
from keybound.errors import KeyBoundError, NotGenuineError, RecordError
from keybound.provenance.declared import canonical, check_text
from keybound.types import GRADES

VERSION = 1
SIGNED = b"keybound-1/verdict-signature\0"  # the purpose of a signature, before what it signs
TEXT_MAX = 100  # characters of a name
FILE_MAX = 1 << 20
DAMAGED_HINT = "take the file as it was written, byte by byte"


@dataclass(frozen=True)
class Finding:
    """One conclusion: a grade, for whom, and which recording it is where that was found.

    `bound` is the probability of this grade for a recording that is not theirs, at most; None for
    the grade none.
    """

    grade: str
    party: str | None = None
    record: int | None = None
    identifier: str | None = None
    bound: float | None = None

    def __post_init__(self) -> None:
        if self.grade not in GRADES:
            raise RecordError("a verdict has no such grade")
        if self.party is not None:
            check_text("party", self.party, TEXT_MAX)
        if self.identifier is not None and not re.fullmatch("[0-9a-f]{10}", self.identifier):
            raise RecordError("the identifier of a verdict is not ten hex digits")
        if self.record is not None and not (type(self.record) is int and 0 < self.record < 1 << 53):
            raise RecordError("the record of a verdict is not a number")


@dataclass(frozen=True)
class Findings:
    """What was found in a file. Hashes are SHA-256, in hex."""

    created: datetime
    file: str
    detector: str  # hashes of the weights
    embedder: str
    threshold: float  # of presence, under 3 s
    evidence_threshold_s: float
    false_alarms: float
    found: tuple[Finding, ...]
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise RecordError(f"a verdict of version {self.version} cannot be read here")
        object.__setattr__(self, "created", self.created.astimezone(UTC))
        for what in ("file", "detector", "embedder"):
            if not re.fullmatch("[0-9a-f]{64}", getattr(self, what)):
                raise RecordError(f"the hash of the {what} of a verdict is not 64 hex digits")

    def members(self) -> dict[str, Any]:
        """Return the members of the JSON object; fractions are text, since all numbers are whole.

        Text is the shortest that gives the same number.
        """
        made = asdict(self) | {"created": _time(self.created)}
        for what in ("threshold", "evidence_threshold_s", "false_alarms"):
            made[what] = repr(made[what])
        made["found"] = [
            one | {"bound": None if one["bound"] is None else repr(one["bound"])}
            for one in made["found"]
        ]
        return made


@dataclass(frozen=True)
class SignedVerdict:
    """What was found, with the public key of the signer and the signature.

    Nothing is checked yet by having one.
    """

    verdict: Findings
    public: bytes
    signature: bytes

    def check(self, public: bytes) -> None:
        """Raise `NotGenuineError` where the holder of this public key did not sign the verdict.

        The public key must come from the signer: anybody can sign with a key of their own.
        """
        if self.public != public:
            hint = f"by {self.public.hex()}"
            raise NotGenuineError("the verdict is signed by somebody else", hint=hint)
        signing.check(public, _signed(self.verdict), self.signature)

    def to_bytes(self) -> bytes:
        """Return the contents of the file that a signed verdict is."""
        names = {"public": self.public.hex(), "signature": self.signature.hex()}
        return canonical({**names, "verdict": self.verdict.members()}) + b"\n"


def sign(verdict: Findings, with_key: signing.SigningKey) -> SignedVerdict:
    """Return a verdict with a signature."""
    return SignedVerdict(verdict, with_key.public, with_key.sign(_signed(verdict)))


def is_one(data: bytes) -> bool:
    """Return whether the contents of a file are meant to be a signed verdict."""
    return data.startswith(b'{"public":') and b'"verdict":' in data and b'"mac":' not in data


def parse(data: bytes) -> SignedVerdict:
    """Read a signed verdict from the contents of a file. Only the canonical form is accepted."""
    try:
        if len(data) > FILE_MAX:
            raise ValueError("too large")
        whole = json.loads(data.decode())
        public, signature = (bytes.fromhex(whole[name]) for name in ("public", "signature"))
        if (len(public), len(signature)) != (signing.PUBLIC_BYTES, signing.SIGNATURE_BYTES):
            raise ValueError("other lengths")
        made = SignedVerdict(_findings(whole["verdict"]), public, signature)
        if made.to_bytes() != data:  # which also refuses unknown members
            raise ValueError("not the canonical form")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = "this is not a signed verdict, or it is damaged"
        raise RecordError(what, hint=DAMAGED_HINT) from error
    except KeyBoundError as error:
        what = f"this is not a signed verdict, or it is damaged: {error.message}"
        raise RecordError(what, hint=DAMAGED_HINT) from None
    return made


def _findings(members: dict[str, Any]) -> Findings:
    found = [
        Finding(**(one | {"bound": None if one["bound"] is None else float(one["bound"])}))
        for one in members["found"]
    ]
    own = members | {"created": datetime.fromisoformat(members["created"]), "found": tuple(found)}
    for what in ("threshold", "evidence_threshold_s", "false_alarms"):
        own[what] = float(members[what])
    if type(members["version"]) is not int:
        raise TypeError("no number")
    return Findings(**own)


def _signed(verdict: Findings) -> bytes:
    return SIGNED + canonical(verdict.members())


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
