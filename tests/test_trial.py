"""One recording put to claims: masks that are reused, and masks of their own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keybound import audio, codes, files, fingerprint, trial
from keybound.evidence import Detection
from keybound.keys import Key
from keybound.parties import Claim
from keybound.records import Entry
from keybound.verdict import Verdict
from keybound.watermark import Watermarker

DATA = Path(__file__).parent / "data"
RATE, BITS, PAYLOAD = 16000, 16, 0x5EED
KEY, FORGER = Key(bytes(range(32))), Key(bytes(32))
ALICE = Claim("alice", KEY, PAYLOAD, None)


def speech(name: str) -> Any:
    samples = audio.read(DATA / f"{name}.flac").samples[:, 0].astype(np.float32)
    return np.tile(samples, 2)


def heard(marker: Watermarker, samples: Any) -> Detection:
    return marker.detect(samples, RATE, levels=True)


def forged(marker: Watermarker, code: codes.Bits) -> Detection:
    """Mark other speech with a code: the networks are public, and any key writes any code."""
    payload = codes.from_bits(code ^ codes.mask(FORGER, BITS))
    host = speech("espeak-ng-gb")
    return heard(marker, marker.mark(host, RATE, key=FORGER, payload=payload).samples)


def judged(marker: Watermarker, found: Detection, *entries: Entry, **how: Any) -> Verdict:
    return trial.judge(marker, found, [ALICE], {"alice": entries}, **how)[0]


def entry(found: Detection, position: int) -> Entry:
    assert found.levels is not None
    taken = fingerprint.take(found.levels)
    written = files.Written(7.0, 0.1, 0, position, 7 * RATE, RATE, "", taken)
    of: Any = {"party": "alice", "key": KEY, "payload": PAYLOAD}
    made = files.record(Watermarker(), written, nonce=codes.position_nonce(position), **of)
    return Entry(1, made)


def test_the_nonce_of_a_position() -> None:
    assert codes.position_nonce(7) == b"position\x00\x00\x00\x07"
    own = codes.mask(KEY, BITS, codes.position_nonce(7))
    assert codes.from_bits(own) == 0x6761  # docs/spec.md
    assert not np.array_equal(own, codes.mask(KEY, BITS))
    for wrong in (-1, 1 << 32):
        with pytest.raises(codes.CodeError, match="does not exist"):
            codes.position_nonce(wrong)


def test_one_known_payload_opens_the_fixed_mask(marker: Watermarker) -> None:
    """The paper's concession: what is read from one recording marks any other as the party's."""
    marked = marker.mark(speech("flite-rms"), RATE, key=KEY, payload=PAYLOAD, position=3)
    code = (heard(marker, marked.samples).code_logits > 0).astype(np.uint8)  # no key is needed
    mask = code ^ codes.to_bits(PAYLOAD, BITS)  # and the payload is known
    assert np.array_equal(mask, codes.mask(KEY, BITS))
    verdict = judged(marker, forged(marker, mask ^ codes.to_bits(PAYLOAD, BITS)))
    assert (verdict.grade, verdict.distance) == ("attributed", 0)  # and never sealed


def test_a_mask_of_its_own_opens_nothing_else(marker: Watermarker) -> None:
    how: Any = {"key": KEY, "payload": PAYLOAD, "position": 3, "nonce": codes.position_nonce(3)}
    marked = heard(marker, marker.mark(speech("flite-rms"), RATE, **how).samples)
    code = (marked.code_logits > 0).astype(np.uint8)
    assert np.array_equal(code, codes.encode(PAYLOAD, KEY, BITS, codes.position_nonce(3)))
    for entries in ((), (entry(marked, 3),)):
        own = judged(marker, marked, *entries, own_mask=True)
        assert (own.grade, own.distance, own.seal.position) == ("sealed", 0, 3)
        copied = judged(marker, forged(marker, code), *entries, own_mask=True)
        assert (copied.grade, copied.mask_known) == ("present", False)
        assert "no seal and no record says with which mask" in copied.words
    # A verifier who names the position is taken in by the payload alone, and told of the audio.
    named = judged(marker, forged(marker, code), entry(marked, 3), own_mask=True, position=3)
    assert (named.grade, named.origin.match) == ("attributed", "other")


def test_the_record_says_which_mask_where_the_seal_is_gone(marker: Watermarker) -> None:
    how: Any = {"key": KEY, "payload": PAYLOAD, "nonce": codes.position_nonce(900)}
    unsealed = marker.mark(speech("flite-rms"), RATE, seal=False, **how).samples
    found = heard(marker, unsealed)
    lost = judged(marker, found, own_mask=True)
    assert (lost.verified, lost.mask_known) == (False, False)
    known = judged(marker, found, entry(found, 900), own_mask=True)
    assert (known.grade, known.distance, known.origin.match) == ("attributed", 0, "same")
    assert judged(marker, found, own_mask=True, position=900).grade == "attributed"
    short = heard(marker, unsealed[RATE : 3 * RATE])
    assert judged(marker, short, entry(found, 900), own_mask=True).grade == "attributed"
