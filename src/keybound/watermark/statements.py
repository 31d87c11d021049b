"""What a verifier signs of a verdict: the conclusion, its bound, and what it was reached with."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from keybound.crypto.signing import SigningKey
from keybound.model.networks import Card
from keybound.provenance import signed_verdicts
from keybound.provenance.signed_verdicts import Finding, Findings, SignedVerdict
from keybound.seal.search import SEALED_P
from keybound.types import Detection
from keybound.watermark.identification import Identified
from keybound.watermark.verdict import Verdict


def of_verdict(party: str | None, verdict: Verdict) -> Finding:
    """Return the conclusion of a verdict on one party."""
    same = verdict.reaches("attributed") and verdict.origin.match == "same"
    record = verdict.origin.record if same else None
    spelled = verdict.spelled
    identifier = None if spelled is None or not verdict.reaches("attributed") else spelled.name
    bound = _bound(verdict.grade, verdict.bound, verdict.false_alarms)
    return Finding(verdict.grade, party or None, record, identifier, bound)


def of_identified(one: Identified, found: Detection) -> Finding:
    """Return the conclusion of what was identified."""
    attributed = one.bound if one.verdict is None else one.verdict.bound
    bound = _bound(one.grade, attributed, found.false_alarms)
    return Finding(one.grade, one.party, one.record, one.identifier, bound)


def of_nobody(found: Detection) -> Finding:
    """Return the conclusion where nothing was identified."""
    grade = "present" if found.present else "none"
    return Finding(grade, bound=_bound(grade, 1.0, found.false_alarms))


def signed(
    card: Card, path: str | Path, found: Detection, said: Sequence[Finding], key: SigningKey
) -> SignedVerdict:
    """Return conclusions on a file, signed with the present time."""
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    made = Findings(
        created=datetime.now(UTC),
        file=digest,
        detector=card.sha256["detector.onnx"],
        embedder=card.sha256["embedder.onnx"],
        threshold=float(found.threshold),
        evidence_threshold_s=float(found.evidence_threshold_s),
        false_alarms=float(found.false_alarms),
        found=tuple(said),
    )
    return signed_verdicts.sign(made, key)


def _bound(grade: str, attributed: float, false_alarms: float) -> float | None:
    """Return how often a recording that is not theirs has this grade, at most.

    That is the bound of the rule; the p-value that was measured would help a forger.
    """
    own = {"none": None, "present": false_alarms, "attributed": attributed, "sealed": SEALED_P}
    bound = own[grade]
    return None if bound is None else float(bound)
