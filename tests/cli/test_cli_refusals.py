"""The command line refuses in one line: usage, outputs, bad recordings, bad keys."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

PAYLOAD = "0x5eed"

Run = Callable[..., Any]  # to the outcome of `run` in conftest

pytestmark = pytest.mark.usefixtures("home")


USAGE = {
    "": ("party", "missing command (see keybound party --help)"),
    "an unknown verb": ("verfy x", "no such command 'verfy' ("),
    "no argument": ("embed", "missing argument 'HOST' (see keybound embed --help)"),
    "too many": ("verify a b c", "unexpected extra arguments (b c) (see keybound verify --help)"),
    "an unknown option": ("detect a --jso", "(did you mean "),
    "no number": ("embed a b --payload x", "'x' is not a number such as 24301 or 0x5eed"),
    "no nonce": ("verify a --nonce xyz", "'xyz' is not hexadecimal"),
    "a negative seed": ("attack noise a b --seed -1", "-1 is not in the range"),
    "nobody": ("verify a", "whose mark? --party NAME, or --key FILE and --payload NUMBER"),
    "half a claim": ("verify a --payload 1", "whose mark?"),
    "two claims": ("verify a --party b --payload 1", "--party brings its own key and payload"),
    "any and one": ("verify a --any --party b", "--any tries every party; name none"),
    "frames for people": ("detect a --frames", "--frames needs --json"),
    "half an attack": ("attack noise a", "name an attack, a recording and an output, or --list"),
    "a party without key": ("party add bob --payload 1", "missing option '--key'"),
    "a key of a stream": ("party add bob --key - --payload 1", "needs a key file"),
    "a field twice": ("embed a b --party c --field d=1 --field d=2", "gives 'd' more than once"),
}


@pytest.mark.parametrize("name", USAGE)
def test_what_cannot_be_meant_is_refused_with_a_hint(refused: Run, name: str) -> None:
    arguments, message = USAGE[name]
    err = refused(*arguments.split()).err
    assert message in err
    assert err.endswith(")\n")  # the hint


READING = (
    "identify a.wav, verify a.wav --any, record list, record show 1, record export 1 a, party list,"
    " registry show, token list, batch identify *.wav"
)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("verb", READING.split(", "))
def test_a_registry_that_is_only_read_is_not_made(refused: Run, home: Path, verb: str) -> None:
    err = refused(*verb.split(), "--registry", "absent/registry.sqlite").err
    assert "registry 'absent/registry.sqlite' does not exist (is --registry right? " in err
    assert not (home / "absent").exists()


def test_an_address_of_another_database_is_refused(
    refused: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "'mysql://me@host/x' is no address of a registry (postgresql://user@host/database, or"
    assert said in refused("party", "list", "--registry", "mysql://me:secret@host/x").err
    monkeypatch.setenv("KEYBOUND_REGISTRY", "mysql://me:secret@host/x")
    assert said in refused("party", "list").err
    assert not list(home.iterdir())


def test_a_name_with_a_line_break_stays_in_one_line(refused: Run) -> None:
    assert "a?b.wav cannot be read" in refused("detect", "a\nb.wav").err


OUTPUTS = {
    "nowhere/out.wav": "nowhere is not a folder (make it first)",
    "alice.key/out.wav": "alice.key is not a folder (make it first)",
    "out.txt": "out.txt does not end in the name of a known format (wav, flac",
    "out": "out does not end in the name of a known format",
    ".": ". is a folder (name a file in it)",
    "a" * 300 + ".wav": "cannot be written",
}


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda name: name[:20])
def test_an_output_that_cannot_be_is_refused(
    refused: Run, key: Path, host: Path, output: str
) -> None:
    whose = ("--key", key, "--payload", PAYLOAD)
    assert OUTPUTS[output] in refused("embed", host, output, *whose).err
    assert OUTPUTS[output] in refused("attack", "polarity", host, output).err


# Bad recordings and bad keys


def bad_recordings(home: Path, host: Path) -> dict[str, str]:
    """Make files that are no recordings, and say what is to be said of each."""
    whole = host.read_bytes()
    samples, rate = sf.read(host, dtype="float32")
    (home / "empty.wav").write_bytes(b"")
    (home / "cut.wav").write_bytes(whole[: len(whole) // 2])
    (home / "head.wav").write_bytes(whole[:20])
    (home / "text.wav").write_text("dear diary\n" * 100)
    (home / "folder.wav").mkdir()
    sf.write(home / "nan.wav", np.where(np.arange(len(samples)) == 99, np.nan, samples), rate,
             subtype="FLOAT")  # fmt: skip
    sf.write(home / "zero.wav", samples[:0], rate)
    sf.write(home / "short.wav", samples[: rate // 100], rate)
    sf.write(home / "slow.wav", samples, 4_000)
    sf.write(home / "speech.nist", samples, rate, format="NIST", subtype="PCM_16")
    return {
        "empty.wav": "empty.wav is empty (",
        "cut.wav": "cut.wav is cut short",
        "head.wav": "head.wav is damaged, cut short or of an unknown codec (",
        "text.wav": "text.wav is not a recording that can be read (wav, flac, ogg,",
        "folder.wav": "folder.wav is not a file (",
        "nan.wav": "nan.wav holds samples that are not finite numbers (",
        "zero.wav": "zero.wav holds no samples (",
        "short.wav": "10 ms is too short for a mark (at least 0.1 s, better a second or more)",
        "slow.wav": "a sample rate of 4000 Hz is not supported (",
        "speech.nist": "nist is not supported (wav, flac, ogg, opus, mp3, m4a, aac, aiff,",
        "missing.wav": "missing.wav cannot be read: no such file or directory (check the name)",
    }


@pytest.mark.parametrize("verb", ["embed", "detect", "verify", "attack"])
def test_a_bad_recording_is_refused_in_one_line(
    refused: Run, key: Path, host: Path, home: Path, verb: str, hidden: Callable[[Path], list[Path]]
) -> None:
    whose = ("--key", key, "--payload", PAYLOAD)
    for name, message in bad_recordings(home, host).items():
        if (verb, name) in (("attack", "short.wav"), ("detect", "folder.wav")):
            continue  # an attack needs no second, and detect takes folders
        arguments = {
            "embed": ("embed", name, "out.wav", *whose),
            "detect": ("detect", name),
            "verify": ("verify", name, *whose),
            "attack": ("attack", "noise", name, "out.wav"),
        }[verb]
        assert message in refused(*arguments).err
    assert not (home / "out.wav").exists()
    assert hidden(home) == []


def bad_keys(home: Path, key: Path) -> dict[str, str]:
    """Make files that are no keys, and say what is to be said of each."""
    text = key.read_text()
    (home / "typo.key").write_text(text.replace("000102", "000103"))
    (home / "newer.key").write_text(text.replace("keybound-key-1:", "keybound-key-2:"))
    (home / "empty.key").write_text("")
    (home / "ssh.key").write_text("ssh-ed25519 AAAA me\n")
    (home / "two.key").write_text(text + text)
    return {
        "host.wav": "is not a key: it looks like a WAV recording (keybound keygen",
        "typo.key": "its checksum does not match (",
        "newer.key": "has version 2",
        "empty.key": "(keybound keygen makes a key file)",
        "ssh.key": "looks like an SSH public key",
        "two.key": "holds 2 keys (",
        ".": "is a folder (",
        "missing.key": "does not exist (keybound keygen makes a key file)",
    }


def test_a_bad_key_is_refused_in_one_line(refused: Run, key: Path, host: Path, home: Path) -> None:
    for name, message in bad_keys(home, key).items():
        whose = ("--key", name, "--payload", PAYLOAD)
        assert message in refused("embed", host, "out.wav", *whose).err
        assert message in refused("verify", host, *whose).err
        assert message in refused("party", "add", "alice", *whose).err
    err = refused("verify", host, "--key", "-", "--payload", "1", stdin=b"hello").err
    assert "the key on standard input is not a key (" in err


@pytest.mark.parametrize("payload", ["0x10000", "65536", "-1"])
def test_a_payload_too_large_is_refused_before_any_work(
    refused: Run, key: Path, host: Path, payload: str
) -> None:
    whose = ("--key", key, "--payload", payload)
    message = "does not fit in 16 bits (a payload of 16 bits lies between 0 and 0xffff)"
    assert message in refused("embed", host, "out.wav", *whose).err
    assert message in refused("verify", "missing.wav", *whose).err


def test_a_folder_without_weights_is_refused(refused: Run, key: Path, host: Path) -> None:
    for verb in (["detect", host], ["verify", host, "--key", key, "--payload", "1"]):
        assert "no card.json in nowhere (a folder of weights" in (
            refused(*verb, "--model", "nowhere").err
        )
