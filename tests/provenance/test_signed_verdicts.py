"""Signed verdicts: canonical, unchanged or refused, and signed by whom they say."""

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from keybound.crypto.signing import SigningKey
from keybound.errors import NotGenuineError, RecordError
from keybound.provenance import signed_verdicts
from keybound.provenance.signed_verdicts import Finding, Findings

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec.md"
SIGNER = SigningKey(bytes(range(0x20, 0x40)))
VERDICT = Findings(
    created=datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC),
    file="ab" * 32,
    detector="cd" * 32,
    embedder="ef" * 32,
    threshold=0.48,
    evidence_threshold_s=1.5,
    false_alarms=0.001,
    found=(Finding("sealed", "alice", 12, "5eed5eed5e", 1e-6), Finding("none")),
)


def test_the_vector_of_the_specification() -> None:
    made = signed_verdicts.sign(VERDICT, SIGNER)
    assert made.to_bytes().decode() in SPEC.read_text()


def test_a_signed_verdict_comes_back_and_holds() -> None:
    made = signed_verdicts.sign(VERDICT, SIGNER)
    read = signed_verdicts.parse(made.to_bytes())
    assert read == made
    read.check(SIGNER.public)
    assert signed_verdicts.is_one(made.to_bytes())


def test_another_signer_and_any_change_are_seen() -> None:
    made = signed_verdicts.sign(VERDICT, SIGNER)
    with pytest.raises(NotGenuineError, match="somebody else"):
        made.check(SigningKey(bytes(32)).public)
    better = dataclasses.replace(VERDICT, found=(Finding("sealed", "mallory"),))
    for changed in (better, dataclasses.replace(VERDICT, file="00" * 32)):
        with pytest.raises(NotGenuineError, match="does not hold"):
            dataclasses.replace(made, verdict=changed).check(SIGNER.public)


def test_the_signature_of_a_record_is_none_of_a_verdict() -> None:
    made = signed_verdicts.sign(VERDICT, SIGNER)
    plain = made.to_bytes().partition(b'"verdict":')[2][:-2]
    other = dataclasses.replace(
        made, signature=SIGNER.sign(b"keybound-1/record-signature\0" + plain)
    )
    with pytest.raises(NotGenuineError):
        other.check(SIGNER.public)


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole | {"more": 1},
        lambda whole: whole | {"public": "00"},
        lambda whole: whole | {"verdict": None},
        lambda whole: whole | {"verdict": whole["verdict"] | {"version": True}},
        lambda whole: whole | {"verdict": whole["verdict"] | {"version": 2}},
        lambda whole: whole | {"verdict": whole["verdict"] | {"file": "AB" * 32}},
        lambda whole: whole | {"verdict": whole["verdict"] | {"threshold": 0.48}},
        lambda whole: whole | {"verdict": whole["verdict"] | {"threshold": "0.480"}},
        lambda whole: whole | {"verdict": whole["verdict"] | {"found": [{"grade": "best"}]}},
        lambda whole: whole | {"verdict": whole["verdict"] | {"created": "yesterday"}},
    ],
)
def test_only_the_canonical_form_is_read(change: Any) -> None:
    whole = json.loads(signed_verdicts.sign(VERDICT, SIGNER).to_bytes())
    text = json.dumps(change(whole), separators=(",", ":"), sort_keys=True) + "\n"
    with pytest.raises(RecordError, match="not a signed verdict, or it is damaged"):
        signed_verdicts.parse(text.encode())


def test_other_spaces_are_refused() -> None:
    data = signed_verdicts.sign(VERDICT, SIGNER).to_bytes()
    for changed in (data + b"\n", data.replace(b":", b": ", 1), data[:-1], b"{}", b"\xff"):
        with pytest.raises(RecordError):
            signed_verdicts.parse(changed)
