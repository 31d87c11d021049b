"""The command line reads marks: verdicts for people and machines, parties, and where a mark is."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound import audio, codes
from keybound.keys import Key
from keybound.watermark import Watermarker

DATA = Path(__file__).parent / "data"
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
    assert made["verified"] is True
    assert (made["output"], made["clipped"]) == ("out.wav", 0)
    right = run("verify", "out.wav", *whose)
    assert right.code == 0
    verdict = right.json
    searched = ("output", "clipped", "position", "seal", "roll", "words", "marks", "bound")
    alike = {k: v for k, v in made.items() if k not in searched}
    assert alike == {k: v for k, v in verdict.items() if k not in searched}
    assert made["position"] == made["seal"]["position"] == verdict["seal"]["position"]
    assert made["seal"]["p"] < verdict["seal"]["p"] < 1e-12
    assert made["grade"] == verdict["grade"] == "sealed"
    assert set(verdict) == {
        "verified", "present", "presence", "threshold", "distance", "bits", "rho", "bound",
        "tries", "marks", "spans", "seal", "roll", "origin", "mask_known", "grade", "words",
    }  # fmt: skip
    assert verdict["spans"][0].keys() == {"start_s", "end_s", "score"}
    wrong = run("verify", "out.wav", "--key", key, "--payload", "0xa112", "--json")
    assert wrong.code == 1
    assert wrong.json["verified"] is False


def test_any_tries_every_party_and_corrects_the_bound(
    run: Run, key: Path, marked: Path, home: Path
) -> None:
    for number, name in enumerate(("bob", "carol", "dave")):
        Key(bytes([number]) * 32).write(home / f"{name}.key")
        run("party", "add", name, "--key", f"{name}.key", "--payload", "1", "--rho", "1")
    nobody = run("verify", marked, "--any")
    assert nobody.code == 1
    assert [line.split(":")[0] for line in nobody.out.splitlines()] == ["bob", "carol", "dave"]
    run("party", "add", "zoe", "--key", key, "--payload", PAYLOAD)
    found = run("verify", marked, "--any", "--json")
    assert found.code == 0
    verdicts = {row["party"]: row for row in map(json.loads, found.out.splitlines())}
    assert [name for name, row in verdicts.items() if row["verified"]] == ["zoe"]
    # Rho differs between the parties: the largest bound covers all of them.
    corrected = 1 - (1 - codes.bound(16, 2)) ** 4
    assert [row["bound"] for row in verdicts.values()] == pytest.approx([corrected] * 4)
    assert all(row["tries"] == 4 for row in verdicts.values())
    alone = run("verify", marked, "--party", "zoe", "--json").json
    assert alone["bound"] == pytest.approx(codes.bound(16, 2))
    assert verdicts["zoe"]["grade"] == "sealed"
    assert verdicts["zoe"]["seal"]["p"] == pytest.approx(4 * alone["seal"]["p"])


def test_any_of_nobody_is_refused(refused: Run, marked: Path) -> None:
    assert "no party is registered (keybound party add)" in refused("verify", marked, "--any").err


@pytest.mark.parametrize("who", ["--party alice", "--any"])
def test_a_party_of_another_model_is_refused(
    run: Run, refused: Run, key: Path, marked: Path, who: str
) -> None:
    run("party", "add", "alice", "--key", key, "--payload", "0xed", "--bits", "8", "--rho", "1")
    message = "party 'alice' has a payload of 8 bits, and this model carries 16 (--model names"
    assert message in refused("verify", marked, *who.split()).err
    if who != "--any":
        assert message in refused("embed", marked, "out.wav", *who.split()).err


@pytest.mark.parametrize("who", ["--party alice", "--any"])
def test_a_party_without_its_key_is_named(
    run: Run, refused: Run, key: Path, marked: Path, who: str
) -> None:
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    key.unlink()
    message = f"party 'alice': key file '{key}' does not exist (restore the key file, or remove"
    assert message in refused("verify", marked, *who.split()).err
    Key(bytes(32)).write(key)
    assert "is registered with key" in refused("verify", marked, *who.split()).err


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
    assert verdict.out.startswith("marked, payload agrees in 16 of 16 bits")


def test_detect_for_machines(run: Run, marked: Path, marker: Watermarker) -> None:
    plain = run("detect", marked, "--json").json
    assert set(plain) == {
        "present", "presence", "threshold", "evidence_s", "evidence_threshold_s", "spans",
        "channel", "channels_tried",
    }  # fmt: skip
    assert plain["present"] is True
    heard = audio.read(marked)
    found = marker.detect(heard.samples, heard.sample_rate)
    assert plain["presence"] == pytest.approx(found.presence)
    whole = run("detect", marked, "--json", "--frames").json
    assert whole["frame_s"] == 0.02
    np.testing.assert_allclose(whole["frame_presence"], found.frame_presence, atol=1e-6)
    np.testing.assert_allclose(whole["frame_logits"], found.frame_logits, atol=1e-4)


def test_detect_draws_where_the_mark_is(run: Run, refused: Run, host: Path, marked: Path) -> None:
    for name in ("spans.svg", "spans.png"):
        assert run("detect", marked, "--plot", name).code == 0
        assert Path(name).stat().st_size > 2_000
    assert "marked in 1 span" in Path("spans.svg").read_text()
    assert run("detect", host, "--plot", "none.svg").code == 1
    assert "does not end in the name of a picture" in refused("detect", marked, "--plot", "a.x").err
