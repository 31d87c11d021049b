"""Which of a party's records a recording is."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from keybound.audio import recordings
from keybound.crypto.keys import Key
from keybound.errors import RecordError
from keybound.provenance import fingerprint, origin, records
from keybound.provenance.fingerprint import Fingerprint
from keybound.provenance.origin import Origin
from keybound.provenance.records import Entry
from keybound.seal.search import Sealed
from keybound.types import Levels
from keybound.watermark import channels
from keybound.watermark.verdict import Verdict

KEY = Key(bytes(range(32)))
DATA = Path(__file__).parents[1] / "data"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SEALED = Sealed(p=1e-20, z=12.0, position=7, start_s=0.0, speed=1.0, tests=1)


def heard(name: str, seconds: float = 3.5) -> Levels:
    samples = recordings.read(DATA / f"{name}.flac").samples[: int(seconds * 16000), 0]
    return channels.levels_of(samples.astype(np.float32))


def entry(number: int | None, of: Fingerprint, position: int | None = 7) -> Entry:
    record = records.Record(
        created=NOON,
        party="alice",
        payload=0x5EED,
        bits=16,
        nonce=b"",
        position=position,
        key=KEY.id,
        detector="some",
        samples=1,
        rate=1,
        sha256=None,
        fingerprint=of,
    )
    return Entry(number, records.stamp(record, KEY))


RMS, GB = (fingerprint.take(heard(name)) for name in ("flite-rms", "espeak-ng-gb"))
BLANK = Fingerprint(0, b"")


def compared(levels: Levels, entries: list[Entry], key: Key = KEY, tries: int = 1) -> Origin:
    return origin.compare(levels, entries, key=key, tries=tries).origin


def test_the_nearest_of_several_records_is_named() -> None:
    found = compared(heard("flite-rms"), [entry(1, GB), entry(2, RMS), entry(3, BLANK)])
    assert (found.match, found.record, found.compared) == ("same", 2, 3)
    assert found.created == "2026-03-01T12:00:00Z"
    found = compared(heard("flite-rms"), [entry(1, GB)])
    assert (found.match, found.record, found.compared) == ("other", 1, 1)
    assert compared(heard("flite-rms"), []) == Origin()


def test_what_cannot_be_told_is_unclear(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(heard("flite-rms"), [entry(1, BLANK)]).match == "unclear"
    assert compared(heard("flite-rms", 0.6), [entry(1, GB)]).match == "unclear"
    # Among very many, a copy at another speed is not looked for: then nothing is called other.
    monkeypatch.setattr(origin, "MOST_AT_SPEEDS", 1)
    two = [entry(1, GB), entry(2, GB)]
    assert compared(heard("flite-rms"), two).match == "unclear"
    assert compared(heard("espeak-ng-gb"), two).match == "same"


def test_chance_is_shared_by_records_and_parties() -> None:
    one = compared(heard("flite-rms"), [entry(1, GB)])
    both = compared(heard("flite-rms"), [entry(1, GB)] * 2, tries=3)
    assert both.p == pytest.approx(min(1.0, 6 * one.p))


def test_a_record_of_another_key_is_refused() -> None:
    with pytest.raises(RecordError, match="record 1: the record was changed"):
        compared(heard("flite-rms"), [entry(1, RMS)], Key(bytes(32)))
    with pytest.raises(RecordError, match=r"^the record was changed"):
        compared(heard("flite-rms"), [entry(None, RMS)], Key(bytes(32)))


@pytest.mark.parametrize("match", ["same", "other", "unclear", "none"])
@pytest.mark.parametrize("verified", [True, False])
def test_a_seal_on_other_audio_counts_for_nothing(match: str, verified: bool) -> None:
    verdict = Verdict(verified, True, 0.9, 0.5, 1.0, 0.5, 1e-3, 0, 16, 2, 0.002, 1, 1, (), SEALED)
    assert verdict.grade == "sealed"
    found = replace(verdict, origin=Origin(match, 3, "today", compared=1))
    fallen = "attributed" if verified else "present"
    assert found.grade == (fallen if match == "other" else "sealed")
    expected = {
        "same": "; the audio is that of record 3 of today",
        "other": "; sealed by this party, but on other audio than record 3 of today",
        "unclear": "; whether the audio is that of a record is unclear",
        "none": "",
    }
    assert found.words == verdict.words + expected[match]
