"""Which recording it is, and whose: by its identifier, by its audio, copied, cut and joined."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import keybound
from keybound.audio import recordings
from keybound.crypto.keys import Key
from keybound.errors import KeyFileError, RegistryError, SearchWarning
from keybound.identity.identifier import public
from keybound.provenance import origin
from keybound.watermark import candidates, verification
from keybound.watermark.candidates import Known
from keybound.watermark.claims import Options, party_claim
from keybound.watermark.options import EmbedOptions
from keybound.watermark.registered import Registry
from keybound.watermark.verdict import Verdict
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]
RATE, ISSUER = 16_000, 7


def interrupted(samples: Samples) -> Samples:
    """Leave 30 ms out of every second: the pattern no longer lies where it was."""
    kept = int(0.97 * RATE)
    return np.concatenate([samples[n : n + kept] for n in range(0, len(samples), RATE)])


def replayed(marker: Watermarker, marked: Samples, onto: Samples) -> Samples:
    """Read the codes with the public networks and write them on other audio."""
    logits = marker.detect(marked, RATE).frame_logits
    seconds = [logits[50 * s : 50 * s + 50].mean(axis=0) > 0 for s in range(len(marked) // RATE)]
    read = np.stack(seconds).astype(np.uint8)
    carrier = marker.networks.carrier(onto, lambda b: read[np.clip(b // 50, 0, len(read) - 1)])
    return np.asarray(onto + carrier, np.float32)


def verified(known: Registry, samples: Samples, name: str, marker: Watermarker) -> Verdict:
    claim = party_claim(known.get(name), 16)
    found = marker.analyse(samples, RATE)
    return verification.judge(marker.card, found, [claim], Known(known))[0]


def test_a_recording_is_read_not_searched(
    known: Registry, marker: Watermarker, host: Samples, voice: Samples
) -> None:
    made = known.embed(host, RATE, party="alice")
    other = known.embed(voice, RATE, party="bob")
    assert (made.record, other.record) == (1, 2)
    for samples, who, mark in ((made.samples, "alice", made), (other.samples, "bob", other)):
        (found,) = keybound.identify(samples, RATE, registry=known)
        assert (found.party, found.record, found.identifier) == (who, mark.record, mark.identifier)
        assert (found.grade, found.claimed, found.issuer) == ("sealed", False, None)
        assert found.bound < 1e-9
        assert found.start_s == pytest.approx(0, abs=0.11)
        (span,) = found.spans
        assert span.end_s - span.start_s > 9
        assert f"spells the identifier {mark.identifier}" in found.words
        assert verified(known, samples, who, marker).grade == "sealed"
    elsewhere = verified(known, made.samples, "bob", marker)
    assert (elsewhere.grade, elsewhere.spelled) == ("present", None)
    assert known.identify(host, RATE) == []


def test_an_identifier_seals_the_audio_of_its_record_where_the_pattern_is_gone(
    known: Registry, marker: Watermarker, host: Samples
) -> None:
    made = known.embed(host, RATE, party="alice", excerpt=1.0)
    heard = interrupted(made.samples)
    (found,) = known.identify(heard, RATE)
    assert found.verdict is not None
    assert not found.verdict.seal.holds
    assert (found.grade, found.record, found.verdict.origin.match) == ("sealed", 1, "same")
    assert verified(known, heard, "alice", marker).grade == "sealed"


@pytest.mark.parametrize("seconds", [3, 10])
@pytest.mark.parametrize("faster", [0.9, 1.1])
def test_a_recording_that_is_played_faster_or_slower_is_that_of_its_record(
    known: Registry, marker: Watermarker, host: Samples, seconds: int, faster: float
) -> None:
    made = known.embed(host[: seconds * RATE], RATE, party="alice")
    played = recordings.resample(made.samples, round(faster * RATE), RATE)
    found = marker.analyse(played, RATE, speed=0.1)
    claim = party_claim(known.get("alice"), 16)
    own = verification.judge(marker.card, found, [claim], Known(known), Options(speed=0.1))[0]
    assert own.reaches("attributed")
    assert (own.origin.match, own.origin.record, own.copied) == ("same", 1, False)


@pytest.mark.parametrize("seconds", [0.5, 0.9, 0.99, 1.2])
def test_less_than_a_second_is_verified_though_its_audio_is_not_found(
    known: Registry, marker: Watermarker, host: Samples, seconds: float
) -> None:
    made = known.embed(host[RATE : RATE + round(seconds * RATE)], RATE, party="alice")
    own = verified(known, made.samples, "alice", marker)
    assert own.reaches("attributed")
    assert not verified(known, made.samples, "bob", marker).reaches("attributed")


def test_an_identifier_on_other_audio_is_copied(
    known: Registry, marker: Watermarker, host: Samples, voice: Samples
) -> None:
    made = known.embed(host, RATE, party="alice", excerpt=1.0)
    copied = replayed(marker, made.samples, voice)
    (found,) = known.identify(copied, RATE)
    assert (found.identifier, found.record) == (made.identifier, made.record)
    assert (found.grade, found.claimed) == ("present", True)
    assert found.words.endswith("anyone can copy an identifier")
    own = verified(known, copied, "alice", marker)
    assert (own.grade, own.marks, own.copied) == ("present", 0, True)


def test_excerpts_too_short_to_spell_it_are_found_by_their_audio(
    known: Registry, marker: Watermarker, host: Samples
) -> None:
    made = known.embed(host, RATE, party="alice", excerpt=1.0)
    piece = made.samples[int(2.4 * RATE) : int(4.4 * RATE)]
    (found,) = known.identify(piece, RATE)
    assert (found.record, found.identifier) == (1, None)
    assert found.verdict is not None
    assert found.verdict.rule_holds  # the codes of these seconds agree
    assert found.reaches("attributed")
    assert verified(known, piece, "alice", marker).rule_holds
    bare = known.identify(host[: 2 * RATE], RATE)
    assert bare == []


@pytest.mark.parametrize("most", [100, 1])
def test_many_records_are_scanned_and_too_many_are_not(
    known: Registry, host: Samples, marker: Watermarker, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(origin, "MOST_AT_SPEEDS", 1)
    monkeypatch.setattr(candidates, "MOST_BY_AUDIO", most)
    marked = [known.embed(host[:stop], RATE, party="alice", excerpt=1.0) for stop in (None, -99)]
    short = marker.analyse(marked[0].samples[int(2.4 * RATE) : int(4.4 * RATE)], RATE)
    if most == 1:
        with pytest.warns(SearchWarning, match="among 2 records: 1 at most"):
            assert known.identify_analysis(short) == []
    else:
        found = known.identify_analysis(short)  # both have this audio, one this mark
        assert [one.record for one in found if one.reaches("attributed")] == [1]


def test_short_recordings_have_a_mask_of_their_own(known: Registry, host: Samples) -> None:
    made = known.embed(host[: 3 * RATE], RATE, party="alice")
    assert made.identifier is None
    record = known.record(1).stamped.record
    assert (record.serial, len(record.nonce)) == (None, 8)
    (found,) = known.identify(made.samples, RATE)
    assert (found.grade, found.record, found.identifier) == ("sealed", 1, None)
    again = known.embed(host[: 3 * RATE], RATE, party="alice")
    assert known.record(again.record or 0).stamped.record.nonce != record.nonce


def test_recordings_that_were_joined_get_an_answer_each(
    known: Registry, host: Samples, voice: Samples
) -> None:
    made = [known.embed(one, RATE, party=who) for one, who in ((host, "alice"), (voice, "bob"))]
    found = known.identify(np.concatenate([one.samples for one in made]), RATE)
    assert {one.identifier for one in found} == {one.identifier for one in made}
    assert {(one.party, one.record) for one in found} == {("alice", 1), ("bob", 2)}
    assert {one.grade for one in found} == {"sealed"}


def test_a_recording_within_a_longer_one_is_placed(known: Registry, host: Samples) -> None:
    made = known.embed(host, RATE, party="alice")
    late = np.concatenate([host[: 40 * RATE // 10][::-1], np.tile(host, 4)[::-1], made.samples])
    (found,) = known.identify(late, RATE)
    assert (found.grade, found.record) == ("sealed", 1)
    assert found.start_s == pytest.approx(-44.0, abs=0.05)  # of the seal: no longer up to 32 s
    assert found.spans[-1].start_s == pytest.approx(44.0, abs=2.0)


def test_other_keys_of_a_registry_and_of_a_party_are_kept(
    known: Registry, tmp_path: Path, host: Samples
) -> None:
    made = known.embed(host, RATE, party="alice")
    known.rotate_key(tmp_path / "second.key")
    Key(bytes([9]) * 32).write(tmp_path / "alice-2.key")
    known.rotate("alice", tmp_path / "alice-2.key")
    assert known.identify(made.samples, RATE)[0].grade == "sealed"
    claim = party_claim(known.get("alice"), 16)
    found = known._marker.analyse(made.samples, RATE)
    own = verification.judge(known._marker.card, found, [claim], Known(known))[0]
    assert (own.grade, own.origin.record) == ("sealed", 1)
    short = known._marker.analyse(made.samples[: 3 * RATE], RATE)
    own = verification.judge(known._marker.card, short, [claim], Known(known))[0]
    assert (own.grade, own.origin.match) == ("sealed", "same")


def test_a_public_identifier_is_claimed_and_never_seals(
    known: Registry, marker: Watermarker, host: Samples, voice: Samples
) -> None:
    with pytest.raises(RegistryError, match="need an issuer's number"):
        known.embed(host, RATE, party="alice", public=True)
    known.set_issuer(ISSUER)
    made = known.embed(host, RATE, party="alice", public=True, excerpt=1.0)
    (found,) = known.identify(made.samples, RATE)
    assert (found.identifier, found.issuer) == (made.identifier, ISSUER)
    assert (found.grade, found.claimed, found.record) == ("sealed", False, 1)  # by its seal
    (lost,) = known.identify(interrupted(made.samples), RATE)
    assert lost.verdict is not None
    assert not lost.verdict.seal.holds
    assert (lost.grade, lost.claimed) == ("attributed", False)  # by its audio
    (copied,) = known.identify(replayed(marker, made.samples, voice), RATE)
    assert (copied.grade, copied.claimed, copied.record) == ("present", True, 1)
    assert "claims the public identifier" in copied.words
    options = EmbedOptions(Key(bytes(32)), 1, identifier=public(5, ISSUER + 1), excerpt=1.0)
    foreign = marker._embed(host, RATE, options, check=False).samples
    (elsewhere,) = known.identify(foreign, RATE)
    assert (elsewhere.issuer, elsewhere.party, elsewhere.record) == (ISSUER + 1, None, None)
    assert (elsewhere.grade, elsewhere.claimed) == ("present", True)


def test_what_a_registry_lacks_is_told_before_anything_is_reserved(
    known: Registry, tmp_path: Path, host: Samples
) -> None:
    with pytest.raises(RegistryError, match="need an issuer's number"):
        known.embed(host, RATE, party="alice", public=True)
    (tmp_path / "registry.key").unlink()
    with pytest.raises(KeyFileError, match="does not exist"):
        known.embed(host, RATE, party="alice")
    assert (known.counts()["serials"], known.get("alice").next_position) == (0, 0)


@pytest.mark.parametrize("short", [False, True])
def test_a_stream_equals_the_file_under_the_same_declaration(
    known: Registry, host: Samples, short: bool
) -> None:
    own = host[: (4 if short else 9) * RATE]
    stream = known.embedder(RATE, party="alice", short=short)
    sizes = np.random.default_rng(1).integers(1, RATE, size=60)
    cuts = np.cumsum(sizes)[np.cumsum(sizes) < len(own)]
    *blocks, last = np.split(own, cuts)
    marked = np.concatenate([*map(stream.push, blocks), stream.flush(last)])
    whole = known._marker._embed(own, RATE, stream._reserved.options, check=False).samples
    np.testing.assert_allclose(marked, whole, atol=1e-6)
    assert (stream.identifier is None) == short
    (found,) = known.identify(marked, RATE)
    assert (found.record, found.identifier) == (stream.record, stream.identifier)
    assert found.grade == "sealed"


def test_a_stream_that_is_not_ended_leaves_no_record(known: Registry, host: Samples) -> None:
    stream = known.embedder(RATE, party="alice")
    stream.push(host)
    assert (stream.record, known.records()) == (None, ())
    assert stream.latency_s <= 0.2


def test_a_stream_without_samples_leaves_no_record(known: Registry, host: Samples) -> None:
    told = keybound.Declared("Example Ltd")
    empty, stream = (known.embedder(RATE, party="alice", declared=told) for _ in range(2))
    assert (len(empty.flush()), empty.record, known.records()) == (0, None, ())
    stream.flush(host)
    assert stream.record == 1
    assert known.record(1).stamped.record.declared == told


def test_what_cannot_be_verified_is_still_named(
    known: Registry, tmp_path: Path, host: Samples
) -> None:
    made = known.embed(host, RATE, party="alice")
    known.remove("alice")
    (found,) = known.identify(made.samples, RATE)
    assert (found.party, found.record, found.identifier) == ("alice", 1, made.identifier)
    assert (found.grade, found.claimed, found.verdict) == ("present", True, None)
    assert "cannot be verified: no party is named 'alice'" in found.words
    (tmp_path / "registry.key").unlink()
    with pytest.warns(keybound.KeyFileWarning, match="not tried"):
        assert known.identify(made.samples, RATE) == []
