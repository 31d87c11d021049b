"""Several marks in one recording: each is identified and placed, spelled or found by its audio."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keybound.crypto.keys import Key
from keybound.errors import SearchWarning
from keybound.types import Span
from keybound.watermark import candidates, identification, stretches
from keybound.watermark.registered import Registry
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]
RATE = 16_000


def test_what_is_left_is_marked_and_not_taken() -> None:
    spans = [Span(0.0, 9.5, 1.0), Span(11.0, 14.0, 1.0), Span(30.0, 33.0, 1.0), Span(50, 51, 1.0)]
    assert stretches.left(spans, []) == [(0.0, 14.0), (30.0, 33.0)]
    assert stretches.left(spans, [(-5.0, 10.0)]) == [(10.0, 14.0), (30.0, 33.0)]
    assert stretches.left(spans, [(0.0, 4.0), (3.0, 13.0), (31.0, 40.0)]) == []
    assert stretches.marked(spans, [(9.0, 12.0)]) == (Span(9.0, 9.5, 1.0), Span(11.0, 12.0, 1.0))
    assert stretches.together([Span(2.05, 9, 0.5), Span(0, 2, 1.0)]) == (Span(0, 9, 0.5),)


@pytest.mark.parametrize("what", ["a short recording", "an excerpt"])
@pytest.mark.parametrize("first", [True, False])
def test_marks_that_spell_nothing_are_found_beside_one_that_does(
    known: Registry, host: Samples, voice: Samples, what: str, first: bool
) -> None:
    bob = known.embed(host, RATE, party="bob").samples
    short = what == "a short recording"
    own = known.embed(voice[: int(4.9 * RATE)] if short else voice, RATE, party="alice").samples
    piece = own if short else own[int(1.4 * RATE) : int(4.4 * RATE)]
    heard = np.concatenate([bob, piece] if first else [piece, bob])
    found = {one.party: one for one in known.identify(heard, RATE)}
    assert {(name, one.record) for name, one in found.items()} == {("bob", 1), ("alice", 2)}
    assert {one.grade for one in found.values()} == {"sealed"}
    assert found["alice"].identifier is None
    seam = 10.0 if first else len(piece) / RATE
    places = [(0.0, seam), (seam, len(heard) / RATE)]
    for one, place in zip(
        (found["bob"], found["alice"]), places[:: 1 if first else -1], strict=True
    ):
        assert (one.spans[0].start_s, one.spans[-1].end_s) == pytest.approx(place, abs=0.5)
        assert one.verdict is not None
        assert one.verdict.distance == 0
    begins = 0.0 if short else 1.4
    assert found["alice"].start_s == pytest.approx(begins - (10.0 if first else 0.0), abs=0.05)


def test_a_mark_in_a_longer_recording_is_placed_by_its_audio(
    known: Registry, host: Samples, voice: Samples
) -> None:
    made = known.embed(voice[: 3 * RATE], RATE, party="alice").samples
    (found,) = known.identify(np.concatenate([host, made, host]), RATE)
    assert (found.record, found.grade, found.identifier) == (1, "sealed", None)
    (span,) = found.spans
    assert (span.start_s, span.end_s) == pytest.approx((10.0, 13.0), abs=0.3)
    assert found.start_s == pytest.approx(-10.0, abs=0.05)


def test_what_identifiers_explain_is_not_searched(
    known: Registry, host: Samples, voice: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [known.embed(one, RATE, party="alice").samples for one in (host, voice)]
    monkeypatch.setattr(candidates, "to_search", lambda *_: pytest.fail("searched"))
    assert len(known.identify(made[0], RATE)) == 1
    assert len(known.identify(made[0][2 * RATE :], RATE)) == 1
    assert len(known.identify(np.concatenate(made), RATE)) == 2
    assert known.identify(host, RATE) == []


def test_more_stretches_than_are_looked_for_are_told(
    known: Registry,
    marker: Watermarker,
    host: Samples,
    voice: Samples,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known.embed(host, RATE, party="alice")
    foreign = marker.embed(voice[: 3 * RATE], RATE, key=Key(bytes(32)), payload=1)
    monkeypatch.setattr(identification, "MOST_STRETCHES", 2)
    with pytest.warns(SearchWarning, match="not looked for by their audio: 1 stretches, beyond 2"):
        assert known.identify(np.concatenate([voice, foreign] * 2), RATE) == []
