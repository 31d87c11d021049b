"""detect and identify read the C2PA manifest of a file, and say when it and the mark disagree."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

import made_certificates
from keybound.audio import recordings
from keybound.provenance import certificates, credentials
from keybound.provenance.credentials import FORMATS, SOURCE_TYPES, Signing
from keybound.provenance.declared import NOTHING

DATA = Path(__file__).parents[1] / "data"
RATE = 16_000

Run = Callable[..., Any]  # to the outcome of `run` in conftest


@pytest.fixture
def signed(run: Run, key: Path, home: Path) -> str:
    """Sign eight seconds of alice as one.wav and return their identifier."""
    signer = made_certificates.make(home)
    run("party", "add", "alice", "--key", key, "--payload", "0x5eed")
    run("registry", "issuer", "7")
    samples = recordings.read(DATA / "flite-rms.flac").samples[:, 0]
    sf.write("host.wav", np.resize(samples, 8 * RATE), RATE)
    made = run("embed", "host.wav", "one.wav", "--party", "alice", "--c2pa", *signer.pair, "--json")
    assert made.code == 0, made.err
    return str(made.json["identifier"])


def sign(path: str, named: tuple[int, int] | None) -> None:
    """Sign a file with the signer of the test, as any other program could."""
    signer = certificates.read("signer.pem", "signer-key.pem")
    how = (signer, FORMATS["WAV"], SOURCE_TYPES[0], NOTHING, named)
    Signing(*how)(Path(path))


def test_manifest_and_mark_agree(run: Run, signed: str) -> None:
    found = run("detect", "one.wav", "--json").json["manifest"]
    assert (found["state"], found["agreement"]) == ("valid", "agrees")
    assert found["identifiers"] == [{"identifier": signed, "issuer": 7}]
    assert found["source_type"] == "trainedAlgorithmicMedia"
    said = run("detect", "one.wav").out
    words = "C2PA manifest signed by one that calls itself signer, Example Ltd: it names the"
    assert f"  {words} identifier {signed} of issuer 7, as the mark does\n" in said
    assert run("detect", "host.wav", "--json").json["manifest"] is None
    lines = run("identify", "one.wav").out.splitlines()
    assert len(lines) == 2
    assert "Example Ltd, the one that record 1 keeps: it names the identifier" in lines[1]
    assert run("identify", "one.wav", "--json").json["manifest"]["agreement"] == "agrees"


@pytest.mark.usefixtures("signed")
def test_a_signer_can_be_trusted(run: Run, refused: Run, home: Path) -> None:
    other = made_certificates.make(home, "other")
    Path("other-list.pem").write_text(other.authority)
    chain = Path("signer.pem").read_text()
    Path("list.pem").write_text(other.authority + chain[chain.rindex("-----BEGIN") :])
    said = run("detect", "one.wav", "--trust", "list.pem")
    assert "manifest signed by signer, Example Ltd, whose certificate is trusted" in said.out
    asked = ("identify", "one.wav", "--json", "--trust")
    assert run(*asked, "list.pem").json["manifest"]["state"] == "trusted"
    assert run(*asked, "other-list.pem").json["manifest"]["state"] == "valid"
    assert "holds no certificate" in refused("detect", "one.wav", "--trust", "host.wav").err


def test_a_manifest_comes_through_a_pipe(run: Run, signed: str) -> None:
    data = Path("one.wav").read_bytes()
    found = run("detect", "-", "--json", stdin=data).json["manifest"]
    assert found["identifiers"] == [{"identifier": signed, "issuer": 7}]
    assert found["agreement"] == "agrees"
    assert run("identify", "-", "--json", stdin=data).json["manifest"] == found | {
        "words": found["words"].replace(": it", ", the one that record 1 keeps: it")
    }


def test_a_manifest_that_names_another_identifier_disagrees(run: Run, signed: str) -> None:
    sign("one.wav", (7, 0x5EED5EED5E))
    found = run("detect", "one.wav", "--json").json
    assert found["claimed"] == [{"identifier": signed, "issuer": 7}]
    assert (found["manifest"]["state"], found["manifest"]["agreement"]) == ("valid", "disagrees")
    said = run("identify", "one.wav").out
    assert f"and the mark spells {signed} of issuer 7: they disagree" in said
    assert "keeps" not in said  # it is not the manifest of the record


@pytest.mark.usefixtures("signed")
def test_a_manifest_on_audio_without_its_mark_disagrees(run: Run) -> None:
    sign("host.wav", (7, 0x5EED5EED5E))
    outcome = run("detect", "host.wav")
    assert outcome.code == 1
    assert "and no mark is found: they disagree" in outcome.out
    assert run("identify", "host.wav", "--json").json["manifest"]["agreement"] == "disagrees"


def test_a_manifest_that_hides_the_mark_is_told(run: Run, signed: str) -> None:
    sign("one.wav", None)
    found = run("detect", "one.wav", "--json").json["manifest"]
    assert (found["agreement"], found["identifiers"]) == ("open", [])
    assert found["words"].endswith("it names no mark, and there is one")
    assert signed  # which the mark still spells


def test_a_file_that_was_changed_is_told(run: Run, signed: str) -> None:
    data = bytearray(Path("one.wav").read_bytes())
    data[4000] ^= 1  # a sample
    Path("one.wav").write_bytes(data)
    found = run("detect", "one.wav", "--json").json["manifest"]
    assert (found["state"], found["agreement"]) == ("changed", "agrees")
    at = data.find(signed.encode())  # in the manifest
    data[at] = ord("0") if data[at] != ord("0") else ord("1")
    Path("one.wav").write_bytes(data)
    broken = run("identify", "one.wav", "--json").json["manifest"]
    assert (broken["state"], broken["agreement"]) == ("broken", "disagrees")
    data[data.find(b"jumb")] ^= 1
    Path("one.wav").write_bytes(data)
    outcome = run("detect", "one.wav", "--json")
    assert (outcome.code, outcome.json["manifest"]["state"]) == (0, "unreadable")


@pytest.mark.usefixtures("signed")
def test_without_the_extra_a_manifest_is_named_and_not_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "c2pa", None)
    found = run("detect", "one.wav", "--json")
    assert (found.code, found.json["manifest"]["state"]) == (0, "unread")
    assert "pip install 'keybound[c2pa]'" in run("detect", "one.wav").out
    assert credentials.read(Path("host.wav")) is None
