"""The command line identifies: which recording it is and whose, copied, public, unknown."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound.audio import recordings

DATA = Path(__file__).parents[1] / "data"
PAYLOAD = "0x5eed"
RATE = 16_000

Run = Callable[..., Any]  # to the outcome of `run` in conftest

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def speech(run: Run, key: Path) -> dict[str, Any]:
    """Ten seconds of two voices as files; alice is registered."""
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    made = {}
    for name in ("flite-rms", "espeak-ng-gb"):
        samples = recordings.read(DATA / f"{name}.flac").samples[:, 0]
        made[name] = np.resize(samples, 10 * RATE)
        sf.write(f"{name}.wav", made[name], RATE)
    return made


@pytest.mark.usefixtures("speech")
def test_recordings_are_identified_one_by_one(run: Run) -> None:
    made = run("embed", "flite-rms.wav", "one.wav", "--party", "alice", "--json")
    assert "made the registry's key" in made.err
    named = made.json["identifier"]
    assert re.fullmatch("[0-9a-f]{10}", named)
    found = run("identify", "one.wav")
    assert found.code == 0
    words = rf"one.wav: sealed: record 1, alice: spells the identifier {named}, sealed evidence"
    assert re.match(words, found.out)
    assert found.out.endswith("s)\n")
    assert run("identify", "one.wav", "--require", "sealed").code == 0
    both = run("identify", "one.wav", "espeak-ng-gb.wav", "--json")
    assert both.code == 1  # one of them is not
    first, second = map(json.loads, both.out.splitlines())
    assert (first["identifier"], first["party"], first["record"]) == (named, "alice", 1)
    assert (first["grade"], first["claimed"], first["issuer"]) == ("sealed", False, None)
    assert second["path"] == "espeak-ng-gb.wav"
    assert (second["grade"], second["record"]) == ("none", None)
    assert run("verify", "one.wav", "--party", "alice", "--json").json["spelled"]["public"] is False


def test_each_mark_of_a_file_gets_a_line(run: Run, speech: dict[str, Any]) -> None:
    sf.write("short.wav", speech["espeak-ng-gb"][: int(4.9 * RATE)], RATE)
    for name in ("flite-rms", "short"):
        run("embed", f"{name}.wav", f"{name}-marked.wav", "--party", "alice")
    parts = [sf.read(f"{name}-marked.wav")[0] for name in ("flite-rms", "short")]
    sf.write("joined.wav", np.concatenate(parts), RATE)
    found = run("identify", "joined.wav")
    first, second = found.out.splitlines()
    assert first.startswith("joined.wav: sealed: record 1, alice: spells the identifier")
    assert second.startswith("joined.wav: sealed: record 2, alice: marked, code agrees in 16")
    assert re.search(r"\(0\.0 to (9\.\d|10\.\d) s\)$", first)
    assert re.search(r"\((9\.\d|10\.\d) to 14\.9 s\)$", second)


@pytest.mark.usefixtures("speech")
def test_a_public_identifier_is_read_by_anyone(run: Run, refused: Run) -> None:
    assert "needs --party" in refused("embed", "flite-rms.wav", "no.wav", "--public").err
    asked = ("embed", "flite-rms.wav", "one.wav", "--party", "alice", "--public")
    assert "issuer" in refused(*asked).err
    assert run("registry", "issuer", "7").code == 0
    made = run(*asked, "--excerpt", "1", "--json").json
    found = run("detect", "one.wav", "--json").json
    assert found["claimed"] == [{"identifier": made["identifier"], "issuer": 7}]
    said = run("detect", "one.wav").out
    assert f"claims identifier {made['identifier']} of issuer 7: 0.0 to 10.0 s" in said
    assert run("detect", "flite-rms.wav", "--json").json["claimed"] == []
    own = run("identify", "one.wav", "--json").json
    assert (own["grade"], own["issuer"], own["claimed"]) == ("sealed", 7, False)
    sf.write("five.wav", sf.read("flite-rms.wav")[0][: 5 * RATE], RATE)
    asked = ("embed", "five.wav", "six.wav", "--party", "alice", "--public")
    assert "under 6 s a public identifier is hardly read" in run(*asked).err


@pytest.mark.usefixtures("speech")
def test_the_mark_of_nobody_here_is_present(run: Run, key: Path) -> None:
    run("embed", "flite-rms.wav", "one.wav", "--key", key, "--payload", "1")
    found = run("identify", "one.wav")
    assert (found.code, found.out) == (
        1,
        "one.wav: marked, but not by a recording of this registry\n",
    )


@pytest.mark.usefixtures("speech")
def test_keys_that_were_not_tried_are_in_the_answer(run: Run, home: Path, key: Path) -> None:
    run("registry", "rotate", "--key", home / "registry.key")
    run("embed", "flite-rms.wav", "one.wav", "--party", "alice", "--no-fingerprint")
    (home / "registry.key").unlink()
    found = run("identify", "one.wav", "--json")
    words = "marked, but nothing found of a recording of this registry"
    assert (found.code, found.json["words"]) == (1, f"{words}; 1 key was not tried")
    assert "registry.key' does not exist" in found.err
    key.unlink()
    assert run("identify", "one.wav").out == f"one.wav: {words}; 2 keys were not tried\n"


@pytest.mark.usefixtures("speech")
def test_a_record_without_a_fingerprint_is_known_by_its_seal(run: Run, speech: Any) -> None:
    run("embed", "flite-rms.wav", "one.wav", "--party", "alice", "--no-fingerprint")
    found = run("identify", "one.wav", "--json").json
    assert (found["grade"], found["record"], found["claimed"]) == ("sealed", 1, False)
    loud = sf.read("one.wav")[0]
    noise = np.random.default_rng(0).normal(size=len(loud)) * np.std(speech["flite-rms"]) * 0.5
    sf.write("noisy.wav", loud + noise, RATE)
    lost = run("identify", "noisy.wav", "--json").json
    assert lost["grade"] == "present"
