"""One recording put to claims: masks that are reused, and masks of their own."""

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


def judged(marker: Watermarker, found: Analysis, *entries: Entry, **how: Any) -> Verdict:
    return verification.judge(marker.card, found, [ALICE], {"alice": entries}, Options(**how))[0]


def entry(found: Analysis, position: int) -> Entry:
    taken = fingerprint.take(found.levels[None])
    written = files.Written(7.0, 0.1, 0, position, 7 * RATE, RATE, "", taken)
    options = EmbedOptions(KEY, PAYLOAD, codes.position_nonce(position))
    return Entry(1, files.record(Watermarker(), written, options, party="alice"))


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
    marked = marker.embed(speech("flite-rms"), RATE, key=KEY, payload=PAYLOAD, position=3)
    found = marker.detect(marked, RATE)  # no key is needed
    code = (found.code_logits > 0).astype(np.uint8)
    mask = code ^ codes.to_bits(PAYLOAD, BITS)  # and the payload is known
    assert np.array_equal(mask, codes.mask(KEY, BITS))
    verdict = judged(marker, forged(marker, mask ^ codes.to_bits(PAYLOAD, BITS)))
    assert (verdict.grade, verdict.distance) == ("attributed", 0)  # and never sealed


def test_a_mask_of_its_own_opens_nothing_else(marker: Watermarker) -> None:
    how: Any = {"key": KEY, "payload": PAYLOAD, "position": 3, "nonce": codes.position_nonce(3)}
    marked = heard(marker, marker.embed(speech("flite-rms"), RATE, **how, check=False))
    code = (marked.detection.code_logits > 0).astype(np.uint8)
    assert np.array_equal(code, codes.encode(PAYLOAD, KEY, BITS, codes.position_nonce(3)))
    for entries in ((), (entry(marked, 3),)):
        own = judged(marker, marked, *entries, own_mask=True)
        assert (own.grade, own.distance, own.seal.position) == ("sealed", 0, 3)
        copied = judged(marker, forged(marker, code), *entries, own_mask=True)
        assert (copied.grade, copied.mask_known) == ("present", False)
        assert "no seal and no record gives its mask" in copied.words
    # A verifier who names the position is taken in by the payload alone, and told of the audio.
    named = judged(marker, forged(marker, code), entry(marked, 3), own_mask=True, position=3)
    assert (named.grade, named.origin.match) == ("attributed", "other")


def test_the_record_says_which_mask_where_the_seal_is_gone(marker: Watermarker) -> None:
    how: Any = {"key": KEY, "payload": PAYLOAD, "nonce": codes.position_nonce(900)}
    unsealed = marker.embed(speech("flite-rms"), RATE, seal=False, **how, check=False)
    found = heard(marker, unsealed)
    lost = judged(marker, found, own_mask=True)
    assert (lost.rule_holds, lost.mask_known) == (False, False)
    known = judged(marker, found, entry(found, 900), own_mask=True)
    assert (known.grade, known.distance, known.origin.match) == ("attributed", 0, "same")
    assert judged(marker, found, own_mask=True, position=900).grade == "attributed"
    short = heard(marker, unsealed[RATE : 3 * RATE])
    assert judged(marker, short, entry(found, 900), own_mask=True).grade == "attributed"


# What the records know


def recorded(
    found: Analysis, position: int | None, nonce: bytes, number: int = 1, key: Key = KEY
) -> Entry:
    taken = fingerprint.take(found.levels[None])
    written = files.Written(7.0, 0.1, 0, position, 7 * RATE, RATE, "", taken)
    options = EmbedOptions(key, PAYLOAD, nonce)
    return Entry(number, files.record(Watermarker(), written, options, party="alice"))


def test_the_record_of_a_position_says_which_mask(marker: Watermarker) -> None:
    """Neither the nonce nor the mode is told: records of other recordings say them too."""
    how: Any = {"key": KEY, "payload": PAYLOAD, "position": 9}
    for nonce in (b"\x01\x02", codes.position_nonce(9)):
        marked = heard(
            marker, marker.embed(speech("flite-rms"), RATE, **how, nonce=nonce, check=False)
        )
        assert judged(marker, marked).grade == "present"
        found = judged(marker, marked, recorded(marked, 9, nonce))
        assert (found.grade, found.distance, found.origin.match) == ("sealed", 0, "same")
        # Two recordings at one position have two records, and both masks are searched for.
        both = (recorded(marked, 9, b"other"), recorded(marked, 9, nonce, 2))
        found = judged(marker, marked, *both)
        assert (found.grade, found.distance) == ("sealed", 0)


def test_a_mask_is_taken_from_the_record_of_this_audio_alone(marker: Watermarker) -> None:
    """Whoever learned the mask of one recording cannot use it on another host."""
    how: Any = {"key": KEY, "payload": PAYLOAD, "nonce": b"\x07", "seal": False}
    marked = heard(marker, marker.embed(speech("flite-rms"), RATE, **how, check=False))
    kept = recorded(marked, None, b"\x07")
    own = judged(marker, marked, kept)
    assert (own.grade, own.distance, own.origin.match) == ("attributed", 0, "same")
    code = (marked.detection.code_logits > 0).astype(np.uint8)
    assert np.array_equal(code, codes.encode(PAYLOAD, KEY, BITS, b"\x07"))
    copied = judged(marker, forged(marker, code), kept)
    assert (copied.grade, copied.origin.match) == ("present", "other")
    assert copied.distance > 2


def test_a_rolling_piece_is_read_where_its_record_says(marker: Watermarker) -> None:
    """Too short for a rolling code to be proved, but the audio is known, and so is its place."""
    how: Any = {"key": KEY, "payload": PAYLOAD, "position": 3, "rolling": True, "excerpt": 1.0}
    whole = marker.embed(speech("flite-rms"), RATE, **how, check=False)
    kept = recorded(heard(marker, whole), 3, b"")
    piece = heard(marker, whole[int(2.5 * RATE) : 4 * RATE])
    assert not judged(marker, piece).rule_holds
    found = judged(marker, piece, kept)
    assert (found.rule_holds, found.distance, found.origin.match) == (True, 0, "same")
    assert found.marks == 2  # one reading more, which the bound counts
    assert found.bound == pytest.approx(2 * codes.bound(BITS, 2))


def test_the_place_that_a_record_names_is_tried_first(marker: Watermarker) -> None:
    """A piece from the middle whose seal is too weak among all places, and not at this one."""
    how: Any = {"key": KEY, "payload": PAYLOAD, "position": 200, "excerpt": 1.0}
    whole = marker.embed(speech("espeak-ng-gb"), RATE, **how, check=False)
    kept = recorded(heard(marker, whole), 200, b"")
    rng = np.random.default_rng(0)
    noise = rng.normal(scale=0.1 * float(np.std(whole)), size=len(whole)).astype(np.float32)
    piece = heard(marker, (whole + noise)[int(1.3 * RATE) : int(3.6 * RATE)])
    among_all, named = judged(marker, piece), judged(marker, piece, kept)
    assert not among_all.seal.holds
    assert (named.grade, named.seal.position, named.seal.searched) == ("sealed", 200, "record")
    assert named.seal.start_s == pytest.approx(1.3, abs=0.03)
    # Parties, layers, half of the chance for records; views and starts at the one place.
    assert named.seal.tests == 2 * 2 * 2 * 41
    wrong = [Claim("alice", Key(bytes([n]) * 32), PAYLOAD, None) for n in range(1, 9)]
    for one in wrong:
        own = recorded(heard(marker, whole), 200, b"", key=one.key)
        verdict = verification.judge(marker.card, piece, [one], {"alice": (own,)})[0]
        assert verdict.seal.p > 1e-4


def test_a_record_that_does_not_help_hides_nothing(marker: Watermarker) -> None:
    """The audio of a record without its mark, too short to be searched everywhere."""
    host = speech("flite-rms")[: int(1.1 * RATE)]
    how: Any = {"key": KEY, "payload": PAYLOAD, "position": 3}
    kept = recorded(heard(marker, marker.embed(host, RATE, **how, check=False)), 3, b"")
    found = judged(marker, heard(marker, host), kept)
    assert (found.seal.holds, found.origin.match) == (False, "same")
    assert found.seal.searched == "start"
    assert "too short to find the seal if it was cut" in found.words


# Many parties


def test_all_of_many_parties_are_searched(marker: Watermarker) -> None:
    """Beyond twenty too: a rolling recording that was cut agrees with no payload by itself."""
    how: Any = {"key": KEY, "payload": PAYLOAD, "position": 77, "rolling": True}
    cut = marker.embed(speech("flite-rms"), RATE, **how, check=False)[int(1.7 * RATE) :]
    claims = [Claim(f"{n}", Key(bytes([n]) * 32), n, None) for n in range(24)]
    steps: list[tuple[int, int]] = []
    verdicts = verification.judge(
        marker.card,
        heard(marker, cut),
        [*claims, ALICE],
        {},
        progress=lambda done, of: steps.append((done, of)),
    )
    assert [one.grade for one in verdicts] == ["present"] * 24 + ["sealed"]
    assert {one.seal.searched for one in verdicts} == {"all"}
    assert all("not by this key" in one.words for one in verdicts[:-1])
    whole = 25 * (256 + verification.WEIGHING)
    assert {of for _, of in steps} == {whole}
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert (len(steps) > 100, steps[-1]) == (True, (whole, whole))
    # The chance of a false answer is shared by all.
    alone = verification.judge(marker.card, heard(marker, cut), [ALICE], {})[0]
    assert verdicts[-1].seal.tests == 25 * alone.seal.tests
