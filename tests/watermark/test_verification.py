"""One recording put to claims: masks that are reused, masks of their own, and a record."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keybound.audio import recordings
from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.provenance import fingerprint
from keybound.provenance.records import Entry
from keybound.types import Analysis
from keybound.watermark import files, verification
from keybound.watermark.claims import Claim, Options
from keybound.watermark.options import EmbedOptions
from keybound.watermark.reservation import Reservation
from keybound.watermark.verdict import Verdict
from keybound.watermark.watermarker import Watermarker

DATA = Path(__file__).parents[1] / "data"
RATE, BITS, PAYLOAD = 16000, 16, 0x5EED
KEY, FORGER = Key(bytes(range(32))), Key(bytes(32))
ALICE = Claim("alice", KEY, PAYLOAD, None)


def speech(name: str) -> Any:
    samples = recordings.read(DATA / f"{name}.flac").samples[:, 0].astype(np.float32)
    return np.tile(samples, 2)


def heard(marker: Watermarker, samples: Any) -> Analysis:
    return marker.analyse(samples, RATE)


def forged(marker: Watermarker, code: codes.Bits) -> Analysis:
    """Mark other speech with a code: the networks are public, and any key writes any code."""
    payload = codes.from_bits(code ^ codes.mask(FORGER, BITS))
    host = speech("espeak-ng-gb")
    return heard(marker, marker.embed(host, RATE, key=FORGER, payload=payload, check=False))


def judged(
    marker: Watermarker, found: Analysis, record: Entry | None = None, **how: Any
) -> Verdict:
    (own,) = verification.judge(marker.card, found, [ALICE], None, Options(**how), record=record)
    return own


def recorded(found: Analysis, position: int | None, nonce: bytes, key: Key = KEY) -> Entry:
    taken = fingerprint.take(found.levels[None])
    written = files.Written(7.0, 0.1, 0, position, 7 * RATE, RATE, "", taken)
    options = EmbedOptions(key, PAYLOAD, nonce)
    return Entry(1, Reservation("alice", options, None).stamped(Watermarker().card, written))


def test_one_known_payload_opens_the_fixed_mask(marker: Watermarker) -> None:
    """The paper's concession: what is read from one recording marks any other as the party's."""
    marked = marker.embed(speech("flite-rms"), RATE, key=KEY, payload=PAYLOAD, position=3)
    found = marker.detect(marked, RATE)  # no key is needed
    code = (found.code_logits > 0).astype(np.uint8)
    mask = code ^ codes.to_bits(PAYLOAD, BITS)  # and the payload is known
    assert np.array_equal(mask, codes.mask(KEY, BITS))
    verdict = judged(marker, forged(marker, mask ^ codes.to_bits(PAYLOAD, BITS)))
    assert (verdict.grade, verdict.distance) == ("attributed", 0)  # and never sealed


def test_a_record_says_which_mask(marker: Watermarker) -> None:
    how: Any = {"key": KEY, "payload": PAYLOAD, "position": 9, "nonce": b"\x01\x02"}
    marked = heard(marker, marker.embed(speech("flite-rms"), RATE, **how, check=False))
    assert judged(marker, marked).grade == "present"
    found = judged(marker, marked, recorded(marked, 9, b"\x01\x02"))
    assert (found.grade, found.distance, found.origin.match) == ("sealed", 0, "same")


def test_a_mask_is_taken_from_the_record_of_this_audio_alone(marker: Watermarker) -> None:
    """Whoever learned the mask of one recording cannot use it on another host."""
    how: Any = {"key": KEY, "payload": PAYLOAD, "nonce": b"\x07", "seal": False}
    marked = heard(marker, marker.embed(speech("flite-rms"), RATE, **how, check=False))
    kept = recorded(marked, None, b"\x07")
    own = judged(marker, marked, kept)
    assert (own.grade, own.distance, own.origin.match) == ("attributed", 0, "same")
    code = (marked.detection.code_logits > 0).astype(np.uint8)
    assert np.array_equal(code, codes.encode(PAYLOAD, KEY, BITS, b"\x07"))
    # Whoever names the record is told of the audio; whoever does not gets no mask from it.
    named = judged(marker, forged(marker, code), kept)
    assert (named.grade, named.origin.match) == ("attributed", "other")
    assert judged(marker, forged(marker, code)).grade == "present"


def test_the_place_that_a_record_names_is_tried_first(marker: Watermarker) -> None:
    """A piece from the middle whose seal is too weak among all places, and not at this one."""
    how: Any = {"key": KEY, "payload": PAYLOAD, "position": 200, "excerpt": 1.0}
    whole = marker.embed(speech("espeak-ng-gb"), RATE, **how, check=False)
    kept = recorded(heard(marker, whole), 200, b"")
    rng = np.random.default_rng(0)
    noise = rng.normal(scale=0.18 * float(np.std(whole)), size=len(whole)).astype(np.float32)
    piece = heard(marker, (whole + noise)[2 * RATE : int(4.6 * RATE)])
    among_all, named = judged(marker, piece), judged(marker, piece, kept)
    assert not among_all.seal.holds
    assert (named.grade, named.seal.position, named.seal.searched) == ("sealed", 200, "record")
    assert named.seal.start_s == pytest.approx(2.0, abs=0.03)
    # Layers, half of the chance for records; the start that the record names, or one step off.
    assert named.seal.tests in (2 * 2 * 2, 2 * 2 * 8)
    wrong = [Claim("alice", Key(bytes([n]) * 32), PAYLOAD, None) for n in range(1, 9)]
    for one in wrong:
        own = recorded(heard(marker, whole), 200, b"", key=one.key)
        verdict = verification.judge(marker.card, piece, [one], record=own)[0]
        assert verdict.seal.p > 1e-4


def test_the_audio_of_a_record_without_its_mark_is_no_more(marker: Watermarker) -> None:
    host = speech("flite-rms")[: int(1.1 * RATE)]
    how: Any = {"key": KEY, "payload": PAYLOAD, "position": 3}
    kept = recorded(heard(marker, marker.embed(host, RATE, **how, check=False)), 3, b"")
    found = judged(marker, heard(marker, host), kept)
    assert (found.seal.holds, found.origin.match, found.grade) == (False, "same", "none")
    assert found.seal.searched == "all"
    assert found.words.endswith("without this party's mark")
