"""The command line marks recordings: whose mark, seals, formats, and outputs that are there."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound.audio import recordings
from keybound.crypto.keys import Key

DATA = Path(__file__).parents[1] / "data"
PAYLOAD = "0x5eed"
RATE = 16_000

Run = Callable[..., Any]  # to the outcome of `run` in conftest

pytestmark = pytest.mark.usefixtures("home")


# Whose mark, and its seal


def test_the_path_of_a_party(
    run: Run, key: Path, host: Path, home: Path, hidden: Callable[[Path], list[Path]]
) -> None:
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    made = run("embed", host, "out.wav", "--party", "alice")
    assert made.code == 0
    assert made.err == "keybound: sealed at position 0\nkeybound: record 1\n"
    again = run("embed", host, "again.wav", "--party", "alice")
    assert again.err == "keybound: sealed at position 1\nkeybound: record 2\n"
    said = r"marked, code agrees in 1\d of 16 bits, sealed evidence p < 1e-\d+"
    assert re.fullmatch(f"{said}\n", made.out)
    verified = run("verify", "out.wav", "--party", "alice")
    assert verified.code == 0
    assert re.fullmatch(f"alice: {said}; the audio is that of record 1 of .*\n", verified.out)
    unmarked = run("verify", host, "--party", "alice")
    assert unmarked.code == 1
    assert unmarked.out.startswith("alice: no mark found (evidence 0.")
    assert hidden(home) == []


def test_a_key_from_standard_input(run: Run, key: Path, host: Path) -> None:
    text = key.read_bytes()
    key.unlink()
    made = run("embed", host, "out.wav", "--key", "-", "--payload", PAYLOAD, stdin=text)
    assert made.code == 0
    whose = ("--key", "-", "--payload", "24301")
    assert run("verify", "out.wav", *whose, stdin=text).code == 0
    other = Key(bytes(32)).to_text().encode()
    wrong = run("verify", "out.wav", *whose, stdin=other)
    assert wrong.code == 1
    assert wrong.out.startswith("marked, but not by this key and payload: code agrees in ")


def test_a_file_may_be_marked_without_reading_it_back(run: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", PAYLOAD, "--position", "9")
    made = run("embed", host, "out.wav", *whose, "--no-check", "--json")
    assert made.code == 0
    facts = {"output": "out.wav", "clipped": 0, "position": 9, "position_recurs": False}
    assert made.json == facts | {"not_carried": [], "identifier": None, "manifest": None}
    assert run("embed", host, "both.wav", *whose).code == 0
    assert Path("out.wav").read_bytes() == Path("both.wav").read_bytes()


def test_a_nonce_is_part_of_the_mark(run: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", PAYLOAD)
    assert run("embed", host, "out.wav", *whose, "--nonce", "c11b01").code == 0
    assert run("verify", "out.wav", *whose, "--nonce", "C11B01").code == 0
    assert run("verify", "out.wav", *whose).code == 1


def test_a_seal_can_be_placed_required_and_left_out(
    run: Run, refused: Run, key: Path, host: Path
) -> None:
    whose = ("--key", key, "--payload", PAYLOAD)
    placed = run("embed", host, "out.wav", *whose, "--position", "70000", "--json")
    assert placed.json["position"] == 70000
    for extra, code in (((), 1), (("--position", "70000"), 0), (("--position", "3"), 1)):
        assert run("verify", "out.wav", *whose, *extra, "--require", "sealed").code == code
        assert run("verify", "out.wav", *whose, *extra).code == 0  # attributed in any case
    bare = run("embed", host, "bare.wav", *whose, "--no-seal", "--json")
    assert (bare.json["position"], bare.json["grade"], bare.err) == (None, "attributed", "")
    assert run("verify", "bare.wav", *whose).code == 0
    assert run("verify", "bare.wav", *whose, "--require", "sealed").code == 1
    both = ("--no-seal", "--position", "1")
    assert "--no-seal excludes" in refused("embed", host, "no.wav", *whose, *both).err


def test_a_seal_is_found_at_another_speed(run: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", PAYLOAD)
    run("embed", host, "out.wav", *whose, "--position", "5")
    assert run("attack", "speed", "out.wav", "fast.wav", "--strength", "1.02").code == 0
    sealed = (*whose, "--position", "5", "--require", "sealed")
    assert run("verify", "fast.wav", *sealed).code == 1
    assert run("verify", "fast.wav", *sealed, "--speed", "3").code == 0


# Recordings and outputs


FORMATS = [
    ("wav", "WAV", "PCM_16", 16_000, 1),
    ("wav", "WAV", "PCM_24", 44_100, 2),
    ("wav", "WAV", "FLOAT", 8_000, 1),
    ("flac", "FLAC", "PCM_24", 48_000, 1),
    ("ogg", "OGG", "VORBIS", 22_050, 2),
    ("opus", "OGG", "OPUS", 48_000, 1),
    ("mp3", "MP3", "MPEG_LAYER_III", 44_100, 2),
    ("aiff", "AIFF", "PCM_24", 48_000, 2),
    ("aifc", "AIFF", "ULAW", 16_000, 1),
    ("caf", "CAF", "ALAC_16", 44_100, 2),
    ("caf", "CAF", "FLOAT", 192_000, 1),
    ("w64", "W64", "PCM_16", 96_000, 3),
    ("au", "AU", "PCM_16", 8_000, 1),
]


@pytest.mark.parametrize(("suffix", "kind", "subtype", "rate", "channels"), FORMATS)
def test_a_format_stays_what_it_was(
    run: Run, key: Path, suffix: str, kind: str, subtype: str, rate: int, channels: int
) -> None:
    samples, made = sf.read(DATA / "flite-rms.flac", dtype="float32")
    wide = recordings.resample(samples, made, rate)
    sf.write(f"in.{suffix}", np.stack([wide] * channels, 1), rate, format=kind, subtype=subtype)
    whose = ("--key", key, "--payload", PAYLOAD)
    outcome = run("embed", f"in.{suffix}", f"out.{suffix}", *whose)
    assert outcome.code == 0, outcome.err
    before, after = sf.info(f"in.{suffix}"), sf.info(f"out.{suffix}")
    assert (after.format, after.subtype) == (kind, subtype)
    assert (after.samplerate, after.channels) == (rate, channels)
    assert abs(after.frames - before.frames) <= 1_152  # an MP3 ends with a whole frame
    assert run("verify", f"out.{suffix}", *whose).code == 0


def test_clipped_samples_are_reported(run: Run, key: Path, host: Path) -> None:
    samples, rate = sf.read(host)
    sf.write("loud.wav", np.clip(6 * samples, -1, 0.9999), rate)
    outcome = run("embed", "loud.wav", "out.wav", "--key", key, "--payload", PAYLOAD)
    assert outcome.code == 0
    first, _ = outcome.err.splitlines()
    assert re.fullmatch(r"keybound: samples limited to full scale: [1-9]\d*", first)


def test_silence_leaves_nothing_behind(
    refused: Run, key: Path, home: Path, hidden: Callable[[Path], list[Path]]
) -> None:
    sf.write("silence.wav", np.zeros(2 * RATE), RATE)
    outcome = refused("embed", "silence.wav", "out.wav", "--key", key, "--payload", PAYLOAD)
    assert outcome.err == (
        "keybound: silence.wav does not hold a mark: the recording is silent "
        "(nothing was written)\n"
    )
    assert hidden(home) == []


def test_silence_does_not_replace_what_is_there(refused: Run, key: Path, home: Path) -> None:
    sf.write("silence.wav", np.zeros(2 * RATE), RATE)
    (home / "out.wav").write_bytes(b"precious")
    whose = ("--key", key, "--payload", PAYLOAD)
    refused("embed", "silence.wav", "out.wav", "--force", *whose)


def test_an_output_that_exists_is_replaced_only_by_force(
    run: Run, refused: Run, key: Path, host: Path, home: Path
) -> None:
    (home / "out.wav").write_bytes(b"precious")
    whose = ("--key", key, "--payload", PAYLOAD)
    assert "out.wav exists (--force replaces it)" in refused("embed", host, "out.wav", *whose).err
    assert "out.wav exists (--force" in refused("attack", "noise", host, "out.wav").err
    assert run("embed", host, "out.wav", "--force", *whose).code == 0
    assert run("verify", "out.wav", *whose).code == 0
    assert run("attack", "polarity", host, "out.wav", "--force").code == 0
    np.testing.assert_array_equal(sf.read("out.wav")[0], -sf.read(host)[0])


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("output", ["host.wav", "./host.wav", "link.wav"])
def test_a_recording_is_never_written_over_itself(
    refused: Run, key: Path, host: Path, home: Path, output: str, force: tuple[str, ...]
) -> None:
    (home / "link.wav").symlink_to(host)
    whose = ("--key", key, "--payload", PAYLOAD)
    message = "is the recording itself (name another output)"
    assert message in refused("embed", "host.wav", output, *whose, *force).err
    assert message in refused("attack", "noise", "host.wav", output, *force).err


# How loud


def test_a_mark_for_longer_excerpts_is_quieter(run: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", PAYLOAD, "--position", "0")
    before = recordings.read(host).samples
    powers = []
    for seconds in ("1", "3", "60"):
        made = run("embed", host, f"{seconds}.wav", *whose, "--excerpt", seconds)
        assert made.code == 0
        powers.append(np.mean(np.square(recordings.read(f"{seconds}.wav").samples - before)))
    assert powers[0] > powers[1] > powers[2]
    assert run("embed", host, "usual.wav", *whose).code == 0
    assert Path("usual.wav").read_bytes() == Path("3.wav").read_bytes()
    assert run("embed", host, "none.wav", *whose, "--excerpt", "0").code == 2


def test_the_record_says_what_the_provider_declares(
    run: Run, key: Path, host: Path, refused: Run
) -> None:
    run("party", "add", "alice", "--key", key, "--payload", "0x5eed")
    run("registry", "provider", "--provider", "Example Ltd", "--system", "Voice", "--field", "a=1")
    more = ("--system-version", "3.1", "--system", "Choir", "--field", "b=x=y", "--no-fingerprint")
    whose = ("--party", "alice", "--no-check")
    assert run("embed", host, "a.wav", *whose, *more).code == 0
    found = run("verify", "a.wav", "--party", "alice", "--json").json
    assert (found["origin"]["match"], found["grade"]) == ("unclear", "sealed")
    assert run("embed", host, "b.wav", *whose).code == 0
    one, two = (run("record", "show", number, "--json").json["record"] for number in (1, 2))
    assert (one["provider"], one["system"], one["system_version"]) == (
        "Example Ltd",
        "Choir",
        "3.1",
    )
    assert (one["fields"], one["columns"], one["fingerprint"]) == ({"a": "1", "b": "x=y"}, 0, "")
    assert (two["system"], two["system_version"], two["fields"]) == ("Voice", None, {"a": "1"})
    assert two["columns"] > 0
    lone = ("--key", key, "--payload", "1", "--provider", "Example Ltd")
    assert "only with --party" in refused("embed", host, "c.wav", *lone).err
