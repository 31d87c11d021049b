"""The command line verifies and detects: verdicts for people and machines, parties, spans."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound.audio import recordings
from keybound.crypto import codes
from keybound.crypto.keys import Key
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry, default_place
from keybound.seal.tiles import Tiles
from keybound.watermark.watermarker import Watermarker

DATA = Path(__file__).parents[1] / "data"
PAYLOAD = "0x5eed"
RATE = 16_000

Run = Callable[..., Any]  # to the outcome of `run` in conftest

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="session")
def marked_once(tmp_path_factory: pytest.TempPathFactory, marker: Watermarker) -> Path:
    samples, rate = sf.read(DATA / "flite-rms.flac", dtype="float32")
    path = tmp_path_factory.mktemp("marked") / "marked.wav"
    key = Key(bytes(range(32)))
    sf.write(path, marker.embed(samples, rate, key=key, payload=0x5EED), rate)
    return path


@pytest.fixture
def marked(home: Path, marked_once: Path) -> Path:
    """The host with a mark of alice.key and the payload."""
    (home / "marked.wav").write_bytes(marked_once.read_bytes())
    return home / "marked.wav"


# verify


def test_verdicts_for_machines(run: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", PAYLOAD, "--json")
    made = run("embed", host, "out.wav", *whose).json
    assert made["rule_holds"] is True
    assert (made["output"], made["clipped"]) == ("out.wav", 0)
    right = run("verify", "out.wav", *whose)
    assert right.code == 0
    verdict = right.json
    searched = ("seal", "words", "marks", "bound")
    alike = {k: v for k, v in verdict.items() if k not in searched}
    assert alike == {k: made[k] for k in alike}
    assert made["position"] == made["seal"]["position"] == verdict["seal"]["position"]
    assert made["seal"]["p"] < verdict["seal"]["p"] < 1e-12
    assert made["grade"] == verdict["grade"] == "sealed"
    assert set(verdict) == {
        "rule_holds", "present", "presence", "threshold", "evidence_s", "evidence_threshold_s",
        "false_alarms", "distance", "bits", "rho", "bound", "tries",
        "marks", "spans", "seal", "origin", "spelled", "grade", "words",
    }  # fmt: skip
    assert verdict["spans"][0].keys() == {"start_s", "end_s", "score"}
    wrong = run("verify", "out.wav", "--key", key, "--payload", "0xa112", "--json")
    assert wrong.code == 1
    assert wrong.json["grade"] == "present"


def test_any_tries_every_party_and_corrects_the_bound(
    run: Run, key: Path, marked: Path, home: Path
) -> None:
    for number, name in enumerate(("bob", "carol", "dave")):
        Key(bytes([number]) * 32).write(home / f"{name}.key")
        run("party", "add", name, "--key", f"{name}.key", "--payload", "1", "--rho", "1")
    nobody = run("verify", marked, "--any")
    assert (nobody.code, nobody.out) == (1, "marked, but not by 3 parties\n")
    run("party", "add", "zoe", "--key", key, "--payload", PAYLOAD)
    found = run("verify", marked, "--any", "--json")
    assert found.code == 0
    verdicts = {row["party"]: row for row in map(json.loads, found.out.splitlines())}
    assert [name for name, row in verdicts.items() if row["rule_holds"]] == ["zoe"]
    # Rho differs between the parties: the largest bound covers all of them.
    corrected = 1 - (1 - codes.bound(16, 2)) ** 4
    assert [row["bound"] for row in verdicts.values()] == pytest.approx([corrected] * 4)
    assert all(row["tries"] == 4 for row in verdicts.values())
    assert next(iter(verdicts)) == "zoe"  # what matched comes first
    said = run("verify", marked, "--any").out.splitlines()
    assert len(said) == 2
    assert said[0].startswith("zoe: marked, code agrees in 16 of 16 bits, sealed evidence")
    assert said[1] == "not by 3 others"
    alone = run("verify", marked, "--party", "zoe", "--json").json
    assert alone["bound"] == pytest.approx(codes.bound(16, 2))
    assert verdicts["zoe"]["grade"] == "sealed"
    assert verdicts["zoe"]["seal"]["p"] == pytest.approx(4 * alone["seal"]["p"])


def test_any_of_nobody_is_refused(refused: Run, marked: Path) -> None:
    assert "no party is registered (keybound party add)" in refused("verify", marked, "--any").err


def test_an_identifier_tells_whose_it_is_among_many(run: Run, key: Path, home: Path) -> None:
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    samples, rate = sf.read(DATA / "flite-rms.flac", dtype="float32")
    sf.write("speech.wav", np.tile(samples, 2), rate)
    run("embed", "speech.wav", "marked.wav", "--party", "alice")
    for number in range(24):
        Key(bytes([number]) * 32).write(home / f"{number}.key")
        run("party", "add", f"party {number}", "--key", f"{number}.key", "--payload", number)
    found = run("verify", "marked.wav", "--any", "--require", "sealed")
    assert found.code == 0
    assert re.match(r"alice: spells the identifier [0-9a-f]{10}, sealed evidence", found.out)
    assert found.out.splitlines()[1:] == ["not by 24 others"]


def test_the_grade_decides_and_the_status_follows_it(run: Run, key: Path, home: Path) -> None:
    """Marked again by another party, whose mark may be the one that is read: sealed by both."""
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    Key(bytes(32)).write(home / "bob.key")
    run("party", "add", "bob", "--key", "bob.key", "--payload", "0xb0b")
    samples, rate = sf.read(DATA / "flite-rms.flac", dtype="float32")
    sf.write("speech.wav", np.tile(samples, 3), rate)
    run("embed", "speech.wav", "first.wav", "--party", "alice")
    run("embed", "first.wav", "again.wav", "--party", "bob")
    found = run("verify", "again.wav", "--party", "alice", "--json")
    assert (found.code, found.json["grade"]) == (0, "sealed")
    assert "verified" not in found.json  # beside the grade, another word would be another answer
    both = run("verify", "again.wav", "--any", "--json").out.splitlines()
    assert [json.loads(line)["grade"] for line in both] == ["sealed", "sealed"]
    assert run("verify", "again.wav", "--party", "alice", "--require", "sealed").code == 0


def test_a_second_is_not_searched_for_cuts(
    run: Run, key: Path, marked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tiles, "anywhere", lambda *_: pytest.fail("this was hopeless"))
    sf.write("second.wav", sf.read(marked)[0][:RATE], RATE)
    wrong = ("--key", key, "--payload", "0xa112")
    found = run("verify", "second.wav", *wrong, "--json")
    assert found.code == 1
    assert found.json["seal"]["searched"] == "start"
    words = "14 needed; too short to find the seal if it was cut"
    assert found.json["words"].endswith(words)
    assert "not by this key" not in found.json["words"]
    monkeypatch.undo()
    whole = run("verify", marked, *wrong, "--json").json
    assert whole["seal"]["searched"] == "all"
    assert "not by this key and payload" in whole["words"]


def register(name: str, key: Path, bits: int = 16) -> None:
    """Register a party as it was for whatever model."""
    created = datetime(2026, 3, 1, tzinfo=UTC)
    made = Party(name, 0x5E, bits, 1, key, Key.read(key).id, created)
    with Registry(default_place()) as known:
        known.add(made)


def test_a_party_of_another_model_is_refused(refused: Run, key: Path, marked: Path) -> None:
    register("alice", key, bits=8)
    message = "party 'alice' has a payload of 8 bits, and this model carries 16 (--model names"
    for who in ("--party alice", "--any"):  # where none can be tried, there is no answer
        assert message in refused("verify", marked, *who.split()).err
    assert message in refused("embed", marked, "out.wav", "--party", "alice").err


@pytest.mark.parametrize("who", ["--party alice", "--any"])
def test_a_party_without_its_key_is_named(
    run: Run, refused: Run, key: Path, marked: Path, who: str
) -> None:
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    key.unlink()
    message = f"party 'alice': key file '{key}' does not exist (restore the key file, or remove"
    assert message in refused("verify", marked, *who.split()).err
    Key(bytes(range(32))).write(key)
    key.chmod(0o644)
    assert f"is open to everybody (chmod 600 {key})" in refused("verify", marked, *who.split()).err
    key.unlink()
    Key(bytes(32)).write(key)
    assert "is registered with key" in refused("verify", marked, *who.split()).err


def test_parties_that_cannot_be_tried_do_not_keep_others_from_it(
    run: Run, key: Path, marked: Path, home: Path
) -> None:
    """A key file that is gone, and bits of another model, concern their own parties alone."""
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    for name in ("bob", "carol"):
        Key(name.encode().ljust(32)).write(home / f"{name}.key")
    run("party", "add", "bob", "--key", "bob.key", "--payload", "1")
    (home / "bob.key").unlink()
    register("carol", home / "carol.key", bits=8)
    found = run("verify", marked, "--any")
    assert found.code == 0
    first, last = found.out.splitlines()
    assert first.startswith("alice: marked, code agrees in 16 of 16 bits, sealed evidence")
    assert last == "2 parties could not be tried: bob, carol"
    assert [line.split(":")[1] for line in found.err.splitlines()] == [" not tried"] * 2
    assert "bob.key' does not exist" in found.err
    assert "party 'carol' has a payload of 8 bits" in found.err
    lines = run("verify", marked, "--any", "--json").out.splitlines()
    told = {row["party"]: row for row in map(json.loads, lines)}
    assert (told["alice"]["grade"], told["alice"]["tries"]) == ("sealed", 1)
    assert "does not exist" in told["bob"]["error"]
    assert told["carol"].keys() == {"party", "error"}
    # Nothing matches, and that is not a clear no: the words say so.
    run("party", "remove", "alice")
    run("party", "add", "dave", "--key", key, "--payload", "1")
    none = run("verify", marked, "--any")
    assert none.code == 1
    rest = "marked, but not by 1 party; 2 parties could not be tried: bob, carol\n"
    assert none.out == rest


def test_a_party_whose_record_was_changed_is_named_and_others_are_tried(
    run: Run, key: Path, marked: Path, home: Path, change_records: Callable[[bytes, bytes], None]
) -> None:
    Key(bytes(32)).write(home / "bob.key")
    run("party", "add", "bob", "--key", "bob.key", "--payload", "1")
    run("embed", marked, "bobs.wav", "--party", "bob")
    change_records(b'"rate":16000', b'"rate":16001')
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    found = run("verify", marked, "--any")
    assert (found.code, found.out.splitlines()[1]) == (0, "1 party could not be tried: bob")
    assert "not tried: record 1: the record was changed" in found.err


def test_the_largest_wrong_bits_of_a_party_are_its_own(run: Run, key: Path, marked: Path) -> None:
    run("party", "add", "strict", "--key", key, "--payload", "0x5eec", "--rho", "0")
    run("party", "add", "lax", "--key", key, "--payload", "0x5eec", "--rho", "4")
    assert run("verify", marked, "--party", "strict").code == 1
    assert run("verify", marked, "--party", "lax").code == 0


# detect


def test_detect_for_people(run: Run, host: Path, marked: Path) -> None:
    found = run("detect", marked)
    assert (found.code, found.err) == (0, "")
    first, *spans = found.out.splitlines()
    assert re.fullmatch(r"marked \(presence [01]\.\d{3}\)", first)
    assert spans
    assert all(re.fullmatch(r" +\d+\.\d\d s to +\d+\.\d\d s  [01]\.\d{3}", s) for s in spans)
    nothing = run("detect", host)
    assert nothing.code == 1
    assert re.fullmatch(r"no mark found \(presence 0\.\d{3}\)\n", nothing.out)


def test_a_mark_in_a_small_part_is_found_and_verified(
    run: Run, host: Path, marked: Path, key: Path
) -> None:
    unmarked = sf.read(host)[0]
    sf.write("long.wav", np.concatenate([*[unmarked] * 4, sf.read(marked)[0]]), RATE)
    found = run("detect", "long.wav")
    assert found.code == 0
    first, span = found.out.splitlines()
    assert first.startswith("marked (presence 0.")
    start_s, end_s = (float(word) for word in re.findall(r"(\d+\.\d+) s", span))
    seconds = len(unmarked) / RATE
    assert (start_s, end_s) == (
        pytest.approx(4 * seconds, abs=0.25),
        pytest.approx(5 * seconds, abs=0.25),
    )
    verdict = run("verify", "long.wav", "--key", key, "--payload", PAYLOAD)
    assert verdict.code == 0
    assert verdict.out.startswith("marked, code agrees in 16 of 16 bits")


def test_detect_for_machines(run: Run, marked: Path, marker: Watermarker) -> None:
    plain = run("detect", marked, "--json").json
    assert set(plain) == {
        "path", "present", "presence", "threshold", "evidence_s", "evidence_threshold_s", "spans",
        "channel", "channels_tried", "false_alarms", "speed", "speeds_tried", "claimed",
        "manifest",
    }  # fmt: skip
    assert plain["present"] is True
    found = marker.detect(recordings.read(marked).samples, RATE)
    assert plain["presence"] == pytest.approx(found.presence)
    whole = run("detect", marked, "--json", "--frames").json
    assert whole["frame_s"] == 0.02
    np.testing.assert_allclose(whole["frame_presence"], found.frame_presence, atol=1e-6)
    np.testing.assert_allclose(whole["frame_logits"], found.frame_logits, atol=1e-4)
