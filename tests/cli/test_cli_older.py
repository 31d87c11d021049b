"""Recordings of before: under a key that a party had, and with a record that was forgotten."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound.audio import recordings
from keybound.crypto.keys import Key

DATA = Path(__file__).parents[1] / "data"
PAYLOAD, RATE = "0x5eed", 16_000

Run = Callable[..., Any]  # to the outcome of `run` in conftest


@pytest.fixture
def speech(run: Run, key: Path) -> None:
    """Ten and three seconds as files; alice is registered."""
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    samples = recordings.read(DATA / "flite-rms.flac").samples[:, 0]
    for seconds in (10, 3):
        sf.write(f"host{seconds}.wav", np.resize(samples, seconds * RATE), RATE)


@pytest.fixture
def rotated(run: Run, home: Path, speech: None) -> Path:
    """Recordings under the first key of alice, one under the second; the file of that."""
    del speech
    for seconds in (10, 3):
        run("embed", f"host{seconds}.wav", f"old{seconds}.wav", "--party", "alice")
    newer = home / "newer.key"
    Key(bytes(32)).write(newer)
    run("party", "rotate", "alice", "--key", newer)
    run("embed", "host3.wav", "new3.wav", "--party", "alice", "--excerpt", "1")
    return newer


@pytest.mark.usefixtures("rotated")
def test_an_exported_record_is_verified_with_the_key_that_it_names(run: Run) -> None:
    run("record", "export", "1", "old.kbr")
    found = run("verify", "old10.wav", "--record", "old.kbr", "--party", "alice", "--json")
    assert (found.code, found.json["grade"], found.json["origin"]["match"]) == (0, "sealed", "same")


def test_keys_that_can_be_read_verify_and_the_others_are_named(
    run: Run, refused: Run, rotated: Path, key: Path
) -> None:
    whose = ("--party", "alice")
    rotated.unlink()
    for path in ("old10.wav", "old3.wav"):
        found = run("verify", path, *whose, "--json")
        assert (found.code, found.json["grade"]) == (0, "sealed")
        assert found.err == (
            f"keybound: not tried: party 'alice': key file '{rotated}' does not exist\n"
        )
        assert run("verify", path, "--any").code == 0
    lost = run("verify", "new3.wav", *whose)  # whose key is needed: no is no answer
    assert (lost.code, lost.out) == (2, "")
    key.unlink()
    assert f"'{rotated}' does not exist" in refused("verify", "old10.wav", *whose).err


@pytest.mark.usefixtures("speech")
def test_a_recording_whose_record_was_forgotten_is_known_by_its_seal(run: Run, home: Path) -> None:
    Key(bytes(32)).write(home / "bob.key")
    run("party", "add", "bob", "--key", "bob.key", "--payload", "7")
    for seconds in (10, 3):
        run("embed", f"host{seconds}.wav", f"old{seconds}.wav", "--party", "alice")
    run("record", "forget", "--before", "2999-01-01")
    found = run("verify", "old10.wav", "--party", "alice", "--json")
    assert (found.code, found.json["grade"], found.json["seal"]["position"]) == (0, "sealed", 0)
    assert run("verify", "old10.wav", "--party", "bob").code == 1
    assert run("verify", "old10.wav", "--any").out.startswith("alice: marked, ")
    lost = run("verify", "old3.wav", "--party", "alice", "--json")  # its nonce went too
    assert (lost.code, lost.json["grade"]) == (1, "present")
