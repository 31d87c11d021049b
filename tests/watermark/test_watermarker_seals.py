"""Verdicts with sealed evidence: grades, positions, and forgers who lack the key."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keybound.audio.streaming import Sum
from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.errors import CodeError, KeyBoundError
from keybound.provenance.origin import Origin
from keybound.seal import pattern
from keybound.seal.search import NOTHING, Sealed, SealSearch
from keybound.watermark.verdict import GRADES, Spelled, Verdict
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]

KEY = Key(bytes(range(32)))
PAYLOAD = 0x5EED
RATE = 16_000


# Grades, positions, sentences


SURE = Sealed(0.0, 40.0, 0, 0.0, 1.0, 10)


def test_grades_are_ordered() -> None:
    none = Verdict(
        rule_holds=False, present=False, presence=0.1, threshold=0.47, evidence_s=0.1,
        evidence_threshold_s=1.3, false_alarms=1e-3, distance=8, bits=16, rho=2,
        bound=0.00209, tries=1, marks=1, spans=(),
    )  # fmt: skip
    present = replace(none, present=True)
    attributed = replace(present, rule_holds=True)
    verdicts = [none, present, attributed, replace(attributed, seal=SURE)]
    assert tuple(verdict.grade for verdict in verdicts) == GRADES
    for low, high in itertools.combinations(range(4), 2):
        assert verdicts[high].reaches(GRADES[low])
        assert not verdicts[low].reaches(GRADES[high])
    assert replace(none, seal=SURE).grade == "sealed"  # the mark is gone, the seal is not


def test_a_mark_is_sealed_where_it_is_wanted(marker: Watermarker, clip: Samples) -> None:
    whose = {"key": KEY, "payload": PAYLOAD}
    marked = marker.embed(clip, RATE, **whose, seal=False)
    assert marker.verify(marked, RATE, **whose).grade == "attributed"
    marked = marker.embed(clip, RATE, **whose, position=7)
    for where, grade in (
        (SealSearch(), "sealed"),
        (SealSearch((7,)), "sealed"),
        (SealSearch((8,)), "attributed"),
        (SealSearch(()), "attributed"),
    ):
        assert marker.verify(marked, RATE, **whose, search=where).grade == grade
    for other in ({"payload": PAYLOAD ^ 1}, {"nonce": b"n"}, {"key": Key(bytes(32))}):
        verdict = marker.verify(marked, RATE, **whose | other, search=SealSearch((7,)))
        assert not verdict.seal.holds  # the seal is bound to key, payload and nonce


def test_each_recording_gets_a_position_that_is_told(marker: Watermarker, clip: Samples) -> None:
    whose = {"key": KEY, "payload": PAYLOAD}
    made = [marker.embed_with_position(clip[:RATE], RATE, **whose, check=False) for _ in range(12)]
    assert len({one.position for one in made}) > 1  # all alike once in 10^26
    for one in made[:2]:
        again = marker.embed(clip[:RATE], RATE, **whose, position=one.position)
        np.testing.assert_array_equal(one.samples, again)
    assert marker.embed_with_position(clip, RATE, **whose, seal=False, check=False).position is None
    with pytest.raises(CodeError, match="without a seal"):
        marker.embed(clip, RATE, **whose, position=3, seal=False)


def test_levels_are_heard_only_where_they_are_asked_for(
    marker: Watermarker, clip: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    whose = {"key": KEY, "payload": PAYLOAD}
    heard = marker.analyse(clip, RATE)
    assert len(heard.levels[None]) == pytest.approx(100 * len(clip) / RATE, abs=2)
    monkeypatch.setattr(pattern, "level_feeder", lambda: pytest.fail("nobody asked"))
    marker.attribute(marker.detect(clip, RATE), **whose)
    stream = marker.detector(RATE)
    stream.push(clip)
    stream.detection()
    with pytest.raises(KeyBoundError, match="keeps no levels"):
        stream.analysis()


def test_a_verdict_reads_as_a_sentence() -> None:
    good = Verdict(
        rule_holds=True, present=True, presence=0.9, threshold=0.47, evidence_s=2.1,
        evidence_threshold_s=1.3, false_alarms=1e-3, distance=1, bits=16, rho=2,
        bound=0.00209, tries=1, marks=1, spans=(),
    )  # fmt: skip
    missed = replace(good, seal=replace(NOTHING, searched="all"))
    named = Spelled(0x5EED, public=False, bound=1e-9, start_s=0.0, spans=(), fit=1.0)
    same, other = (Origin(match, 3, "2026", compared=1) for match in ("same", "other"))
    start = replace(missed, rule_holds=False, distance=7, seal=replace(NOTHING, searched="start"))
    unread = replace(missed, rule_holds=False, distance=16, bound=0.0, marks=0)
    sentences = {
        good: "marked, code agrees in 15 of 16 bits; a wrong key passes with probability 0.0021",
        replace(good, tries=3, bound=0.00626): (
            "marked, code agrees in 15 of 16 bits; "
            "one of 3 wrong keys passes with probability 0.0063"
        ),
        replace(good, seal=Sealed(3e-13, 9.0, 0, 0.0, 1.0, 10)): (
            "marked, code agrees in 15 of 16 bits, sealed evidence p < 1e-12"
        ),
        replace(missed, rule_holds=False, present=False, presence=0.1, seal=SURE): (
            "sealed evidence p < 1e-300, though no mark is left (presence 0.100)"
        ),
        replace(missed, rule_holds=False, distance=7): (
            "marked, but not by this key and payload: code agrees in 9 of 16 bits, 14 needed"
        ),
        replace(missed, rule_holds=False, present=False, evidence_s=0.1): (
            "no mark found (evidence 0.10 s of 1.30 s)"
        ),
        replace(good, spelled=named, origin=same): (
            "spells the identifier 0000005eed; the audio is that of record 3 of 2026"
        ),
        replace(good, spelled=named, origin=other): (
            "spells the identifier 0000005eed; it is that of this party's record 3 of 2026, but "
            "the audio is not, and anyone can copy an identifier"
        ),
        replace(good, spelled=replace(named, public=True), origin=other): (
            "claims the public identifier 0000005eed; it is that of this party's record 3 of 2026, "
            "but the audio is not, and anyone can copy an identifier"
        ),
        replace(good, spelled=named, origin=other, seal=SURE): (
            "spells the identifier 0000005eed, sealed evidence p < 1e-300; sealed by this party, "
            "but on other audio than record 3 of 2026, and anyone can copy an identifier"
        ),
        replace(good, origin=other): (
            "marked, code agrees in 15 of 16 bits; a wrong key passes with probability 0.0021; "
            "marked by this party, but on other audio than record 3 of 2026"
        ),
        replace(unread, seal=SURE): "marked, sealed evidence p < 1e-300",
        unread: "marked, but without a seal of this key; the code was not compared",
        replace(unread, seal=NOTHING): (
            "marked, the code was not compared; no seal was searched for"
        ),
        start: (
            "marked, code agrees in 9 of 16 bits, 14 needed; "
            "too short to find the seal if it was cut"
        ),
        replace(start, seal=replace(NOTHING, searched="some")): (
            "marked, code agrees in 9 of 16 bits, 14 needed; "
            "the seal was not searched for everywhere in so long a recording (--position)"
        ),
        replace(start, seal=NOTHING): (
            "marked, code agrees in 9 of 16 bits, 14 needed; no seal was searched for"
        ),
    }
    for verdict, words in sentences.items():
        assert verdict.words == words


# Sealed evidence against those who have the networks but not the key


def test_a_forger_with_the_networks_and_a_payload_is_attributed_but_never_sealed(
    marker: Watermarker, clip: Samples
) -> None:
    """Knowing one payload gives the reused mask, and with it V_A on any host; not the seal."""
    code = codes.encode(PAYLOAD, KEY, 16)  # what a marked recording shows to anybody
    host = clip[::-1].copy()
    for theirs in range(3):
        own = Key(bytes([theirs]) * 32)
        carrier = Sum([marker.networks.embedder(code), pattern.embedder(own, code, 0)])
        made = np.concatenate([carrier.push(host), carrier.flush()])[: len(host)]
        verdict = marker.verify(host + made, RATE, key=KEY, payload=PAYLOAD)
        assert verdict.grade == "attributed"


def test_a_residual_on_another_host_is_not_sealed(
    marker: Watermarker, clip: Samples, marked: Samples
) -> None:
    verdict = marker.verify(clip[::-1] + marked - clip, RATE, key=KEY, payload=PAYLOAD)
    assert not verdict.seal.holds


def test_a_mean_of_recordings_keeps_the_seals_of_all(marker: Watermarker, clip: Samples) -> None:
    """Patterns differ by position, so averaging marked copies cancels none of them wholly."""
    whose = {"key": KEY, "payload": PAYLOAD}
    long = np.concatenate([clip, clip[::-1]])
    copies = [marker.embed(long, RATE, **whose, position=p, check=False) for p in range(2)]
    found = marker.analyse(np.mean(copies, axis=0), RATE)
    for position in range(2):
        assert marker.judge(found, **whose, search=SealSearch((position,))).seal.holds
