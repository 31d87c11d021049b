"""Records as a user meets them: made by embed, looked at, exported, checked, compared by verify."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound.crypto.keys import Key
from keybound.provenance import fingerprint, records
from keybound.watermark import channels, files

DATA = Path(__file__).parents[1] / "data"
KEY = Key(bytes(range(32)))


Run = Callable[..., Any]  # to the outcome of `run` in conftest


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a host, and other speech."""
    folder = tmp_path_factory.mktemp("made")
    host, rate = sf.read(DATA / "flite-rms.flac", dtype="float32")
    other, _ = sf.read(DATA / "espeak-ng-gb.flac", dtype="float32")
    sf.write(folder / "host.wav", np.tile(host, 3), rate)
    sf.write(folder / "other.wav", np.tile(other, 3), rate)
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEYBOUND_REGISTRY", str(tmp_path / "registry.sqlite"))
    for file in made.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    KEY.write(tmp_path / "alice.key")
    return tmp_path


@pytest.fixture
def run(run: Run) -> Run:
    """Run the entry point; alice is registered."""
    assert run("party", "add", "alice", "--key", "alice.key", "--payload", "0x5eed").code == 0
    return run


def refused(outcome: Any, words: str) -> None:
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert re.fullmatch(r"keybound: [^A-Z\n][^\n]*[^.\n]\n", outcome.err), outcome.err
    assert words in outcome.err


def denied(outcome: Any, words: str) -> None:
    assert (outcome.code, outcome.err) == (1, ""), outcome
    assert re.fullmatch(r"[^A-Z\n][^\n]*[^.\n]\n", outcome.out), outcome.out
    assert words in outcome.out


def copy_attack(host: Path, marked: Path, other: Path, output: Path) -> None:
    """Lay the gains that the mark made in time and frequency on another host."""
    (clean, rate), (with_mark, _), (onto, _) = (sf.read(p) for p in (host, marked, other))
    size = min(map(len, (clean, with_mark, onto)))
    window = np.sqrt(np.hanning(641)[:-1])
    total = np.zeros(size)
    for start in range(0, size - 640, 320):
        part = slice(start, start + 640)
        one, two, three = (np.fft.rfft(x[part] * window) for x in (clean, with_mark, onto))
        gains = np.clip((np.abs(two) + 1e-4) / (np.abs(one) + 1e-4), 0.25, 4)
        total[part] += np.fft.irfft(three * gains) * window
    sf.write(output, total, rate)


def test_embedding_for_a_party_leaves_a_record(run: Run, home: Path) -> None:
    first = run("embed", "host.wav", "marked.wav", "--party", "alice", "--json")
    assert (first.code, first.json["record"], first.json["position"]) == (0, 1, 0)
    made, *said = first.err.splitlines()
    assert made.startswith("keybound: made the registry's key")
    named = f"keybound: record 1, identifier {first.json['identifier']}"
    assert said == ["keybound: sealed at position 0", named]
    again = run("embed", "host.wav", "bare.wav", "--party", "alice", "--no-seal", "--no-check")
    assert again.code == 0
    alone = run("embed", "host.wav", "k.wav", "--key", "alice.key", "--payload", "1", "--json")
    assert "record" not in alone.json  # no registry, no record

    listed = [json.loads(line) for line in run("record", "list", "--json").out.splitlines()]
    assert [(row["number"], row["party"], row["position"]) for row in listed] == [
        (1, "alice", 0),
        (2, "alice", None),
    ]
    assert run("record", "list", "--party", "alice").out.count("alice") == 2
    shown = run("record", "show", "1", "--json").json
    marked = home / "marked.wav"
    assert (
        shown["record"]["sha256"]
        == files.described(  # of the file that was written
            files.Written(0, 0, 0, 0, 0, 0), marked, channels.levels_of(np.zeros(0))
        ).sha256
    )
    assert shown["record"]["payload"] == "5eed"
    assert shown["record"]["samples"] == sf.info(marked).frames
    assert "5eed" in run("record", "show", "2").out


def test_the_fingerprint_is_that_of_the_file(run: Run, home: Path) -> None:
    for name, more in (("a", ()), ("b", ("--no-check",))):
        known = ("--registry", f"{name}.sqlite")  # each gives position 0
        run("party", "add", "alice", "--key", "alice.key", "--payload", "0x5eed", *known)
        run("embed", "host.wav", f"{name}.wav", "--party", "alice", *known, *more)
        run("record", "export", 1, f"{name}.kbr", *known)
        kept = records.read(home / f"{name}.kbr").record.fingerprint
        assert kept == fingerprint.take(files.levels_of(home / f"{name}.wav"))
        assert kept.columns == -(-sf.info(home / f"{name}.wav").frames // 640)


def test_a_record_is_exported_signed_and_checked(run: Run) -> None:
    run("embed", "host.wav", "marked.wav", "--party", "alice")
    public = run("record", "keygen", "sign.key").out.strip()
    assert re.fullmatch(r"[0-9a-f]{64}", public)
    assert run("record", "export", "1", "plain.kbr").code == 0
    assert run("record", "export", "1", "signed.kbr", "--sign", "sign.key").code == 0

    for options in (("--party", "alice"), ("--key", "alice.key")):
        assert run("record", "check", "plain.kbr", *options).out.startswith("mac holds: payload")
    held = run("record", "check", "signed.kbr", "--public", public, "--json")
    assert (held.json["holds"], held.json["by"], held.json["party"]) == (True, "signature", "alice")

    denied(run("record", "check", "plain.kbr", "--public", public), "not signed")
    denied(run("record", "check", "signed.kbr", "--public", "00" * 32), "somebody else")
    refused(run("record", "check", "signed.kbr", "--public", "00"), "64 hex digits")
    refused(run("record", "check", "signed.kbr"), "one of --party, --key and --public")
    Key(bytes(32)).write("bob.key")
    denied(run("record", "check", "plain.kbr", "--key", "bob.key"), "another key")
    text = Path("signed.kbr").read_text()
    Path("changed.kbr").write_text(text.replace('"position":0', '"position":1'))
    denied(run("record", "check", "changed.kbr", "--key", "alice.key"), "was changed")
    denied(run("record", "check", "changed.kbr", "--public", public), "does not hold")
    changed = run("record", "check", "changed.kbr", "--key", "alice.key", "--json")
    assert (changed.code, changed.json["holds"], changed.json["by"]) == (1, False, "mac")
    assert "was changed" in changed.json["error"]
    refused(run("record", "check", "absent.kbr", "--key", "alice.key"), "cannot be read")
    refused(run("record", "check", "host.wav", "--key", "alice.key"), "not a record")
    refused(run("record", "export", "1", "plain.kbr"), "exists")
    refused(run("record", "export", "7", "7.kbr"), "no record 7")
    refused(run("record", "export", "1", "x.kbr", "--sign", "alice.key"), "not a signing key")
    refused(run("record", "keygen", "sign.key"), "sign.key exists (key files are never")


def test_verify_names_the_record(run: Run) -> None:
    run("embed", "host.wav", "marked.wav", "--party", "alice")
    run("embed", "other.wav", "second.wav", "--party", "alice")
    found = run("verify", "second.wav", "--party", "alice", "--require", "sealed", "--json")
    assert found.code == 0
    origin = found.json["origin"]
    assert (origin["match"], origin["record"], origin["compared"]) == ("same", 2, 1)
    assert origin["p"] < 1e-6
    assert re.search("audio is that of record 1 of 2", run("verify", "marked.wav", "--any").out)
    # The host itself: the words are known, and the mark is not there.
    bare = run("verify", "host.wav", "--party", "alice", "--json")
    assert bare.code == 1
    assert (bare.json["origin"]["match"], bare.json["origin"]["record"]) == ("same", 1)
    assert bare.json["words"].endswith("without this party's mark")


def test_a_seal_that_was_copied_is_named(run: Run, home: Path) -> None:
    run("embed", "host.wav", "marked.wav", "--party", "alice")
    copy_attack(home / "host.wav", home / "marked.wav", home / "other.wav", home / "moved.wav")
    as_key = run("verify", "moved.wav", "--key", "alice.key", "--payload", "0x5eed", "--json")
    assert as_key.json["seal"]["p"] < 1e-6  # the key alone is deceived
    assert as_key.json["grade"] == "sealed"
    found = run("verify", "moved.wav", "--party", "alice", "--json")
    assert (found.json["origin"]["match"], found.json["origin"]["record"]) == ("other", 1)
    assert found.json["grade"] in ("none", "present")
    assert run("verify", "moved.wav", "--party", "alice", "--require", "sealed").code == 1
    only = run("verify", "moved.wav", "--party", "alice", "--grade-only")
    assert only.out == f"{found.json['grade']}\n"


def test_a_record_in_a_file_serves_without_a_registry(run: Run, home: Path) -> None:
    run(
        "embed", "host.wav", "marked.wav", "--party", "alice", "--position", "4000", "--nonce", "07"
    )
    run("record", "export", "1", "one.kbr")
    (home / "registry.sqlite").unlink()
    copy_attack(home / "host.wav", home / "marked.wav", home / "other.wav", home / "moved.wav")
    held = ("--key", "alice.key", "--record", "one.kbr", "--json")
    found = run("verify", "marked.wav", *held, "--require", "sealed")  # position, nonce, payload
    assert (found.code, found.json["origin"]["match"]) == (0, "same")
    assert found.json["origin"]["record"] is None
    assert "the audio is that of the record of 2" in found.json["words"]
    copied = run("verify", "moved.wav", *held, "--require", "sealed")
    assert (copied.code, copied.json["origin"]["match"]) == (1, "other")
    refused(run("verify", "marked.wav", *held, "--payload", "3"), "another payload")
    refused(run("verify", "marked.wav", *held, "--position", "3"), "another position")
    Key(bytes(32)).write("bob.key")
    refused(run("verify", "marked.wav", "--key", "bob.key", "--record", "one.kbr"), "another key")
    refused(run("verify", "marked.wav", "--any", "--record", "one.kbr"), "name none")


def test_a_record_that_was_changed_in_the_registry_is_refused(
    run: Run, change_records: Callable[[bytes, bytes], None]
) -> None:
    run("embed", "host.wav", "marked.wav", "--party", "alice")
    change_records(b"alice", b"alicf")
    refused(run("verify", "marked.wav", "--party", "alice"), "record 1: the record was changed")


def test_the_grade_alone(run: Run) -> None:
    run("embed", "host.wav", "marked.wav", "--party", "alice")
    only = run("verify", "marked.wav", "--party", "alice", "--grade-only")
    assert (only.code, only.out, only.err) == (0, "sealed\n", "")
    bare = run("verify", "host.wav", "--any", "--grade-only", "--json")
    assert (bare.code, bare.json, bare.err) == (1, {"grade": "none"}, "")


def test_the_nonce_of_a_record_is_used(run: Run) -> None:
    run("embed", "host.wav", "marked.wav", "--party", "alice", "--nonce", "0102")
    found = run("verify", "marked.wav", "--party", "alice", "--require", "sealed", "--json")
    assert (found.code, found.json["distance"], found.json["origin"]["match"]) == (0, 0, "same")
    # Of a short one without a seal the record of this audio says which mask it is.
    samples, rate = sf.read("other.wav", dtype="float32")
    sf.write("short.wav", samples[: 3 * rate], rate)
    run("embed", "short.wav", "bare.wav", "--party", "alice", "--nonce", "07", "--no-seal")
    found = run("verify", "bare.wav", "--party", "alice", "--json")
    assert (found.code, found.json["grade"], found.json["distance"]) == (0, "attributed", 0)


def test_what_embed_calls_sealed_verify_does(run: Run) -> None:
    """A short MP3, whose record is found by its audio and tells its mask and position."""
    samples, rate = sf.read("other.wav", dtype="float32")
    sf.write("x.wav", samples[: int(2.5 * rate)], rate)
    how = ("--party", "alice", "--nonce", "07", "--position", "4000", "--json")
    made = run("embed", "x.wav", "y.mp3", *how)
    assert made.json["grade"] == "sealed"
    alone = run("verify", "y.mp3", "--key", "alice.key", "--payload", "0x5eed", "--json").json
    assert alone["grade"] == "present"  # without the record its mask is not known
    found = run("verify", "y.mp3", "--party", "alice", "--require", "sealed", "--json")
    assert (found.code, found.json["grade"]) == (0, "sealed")
    assert found.json["seal"]["position"] == 4000
    assert found.json["seal"]["z"] == pytest.approx(made.json["seal"]["z"])
