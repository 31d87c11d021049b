"""The command line signs with C2PA: what a manifest says, where it is kept, what is refused."""

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

import made_certificates
from keybound.audio import recordings
from keybound.provenance import credentials
from keybound.provenance.registry import Registry
from made_certificates import Made

DATA = Path(__file__).parents[1] / "data"
RATE = 16_000

Run = Callable[..., Any]  # to the outcome of `run` in conftest

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def signer(home: Path) -> Made:
    return made_certificates.make(home)


@pytest.fixture
def embed(run: Run, key: Path, signer: Made) -> Run:
    """Mark eight seconds for alice, issuer 7, signed; return the outcome."""
    run("party", "add", "alice", "--key", key, "--payload", "0x5eed")
    run("registry", "issuer", "7")
    samples = recordings.read(DATA / "flite-rms.flac").samples[:, 0]
    sf.write("host.wav", np.resize(samples, 8 * RATE), RATE)

    def call(output: str, *more: str, host: str = "host.wav") -> Any:
        asked = ("embed", host, output, "--party", "alice", "--c2pa", *signer.pair, "--json")
        return run(*asked, *more)

    return call


def said(path: str) -> dict[str, Any]:
    """Return the active manifest of a file as c2pa-python reads it."""
    import c2pa

    kind = {"wav": "audio/wav", "flac": "audio/flac", "mp3": "audio/mpeg", "m4a": "audio/mp4"}
    with Path(path).open("rb") as file, c2pa.Reader(kind[path[-4:].strip(".")], file) as reader:
        found: dict[str, Any] = reader.get_active_manifest()
    return found


@pytest.mark.parametrize("name", ["one.wav", "one.flac", "one.mp3", "one.m4a"])
def test_a_signed_recording_names_its_identifier(
    run: Run, embed: Run, signer: Made, home: Path, name: str
) -> None:
    if name.endswith("m4a"):
        _ = shutil.which("ffmpeg") or pytest.skip("ffmpeg is not installed")
    outcome = embed(name, "--system", "Example Voice", "--system-version", "3.1")
    assert outcome.code == 0, outcome.err
    made = outcome.json
    assert f"signed, manifest {made['manifest']}" in outcome.err
    found = credentials.read(home / name, signer.authority)
    assert found is not None
    assert (found.state, found.id) == ("trusted", made["manifest"])
    assert found.named == ((7, int(made["identifier"], 16)),)
    told = {one["label"]: one["data"] for one in said(name)["assertions"]}
    actions, binding = told["c2pa.actions.v2"], told["c2pa.soft-binding"]
    assert [one["action"] for one in actions["actions"]] == [
        "c2pa.created",
        "c2pa.watermarked.bound",
    ]
    created = actions["actions"][0]
    assert created["digitalSourceType"].endswith("/digitalsourcetype/trainedAlgorithmicMedia")
    assert created["softwareAgent"] == {"name": "Example Voice", "version": "3.1"}
    assert binding == {
        "alg": credentials.ALGORITHM,
        "blocks": [{"scope": {}, "value": f"7.{made['identifier']}"}],
    }
    with Registry(home / "registry.sqlite") as known:
        entry = known.of_manifest(made["manifest"])
    assert entry is not None
    kept = entry.stamped.record
    assert kept.manifest is not None
    assert credentials.holds(home / name, kept.manifest)
    assert kept.public
    assert run("record", "show", "1", "--json").json["record"]["sha256"] == kept.sha256
    assert run("identify", name, "--require", "sealed").code == 0


def test_signing_changes_no_sample(embed: Run, run: Run) -> None:
    assert embed("one.wav").code == 0
    record = run("record", "show", "1", "--json").json["record"]
    chunks = sf.read("one.wav", dtype="int16")[0]
    assert len(chunks) == record["samples"]
    Path("plain.wav").write_bytes(Path("one.wav").read_bytes().partition(b"C2PA")[0])
    assert np.array_equal(sf.read("plain.wav", dtype="int16")[0], chunks)


def test_a_short_recording_is_signed_without_a_soft_binding(embed: Run, signer: Made) -> None:
    sf.write("short.wav", sf.read("host.wav")[0][: 4 * RATE], RATE)
    outcome = embed("out.wav", host="short.wav")
    assert outcome.code == 0, outcome.err
    assert "too short for an identifier: signed without a soft binding" in outcome.err
    assert outcome.json["identifier"] is None
    found = credentials.read(Path("out.wav"), signer.authority)
    assert found is not None
    assert (found.state, found.named) == ("trusted", ())
    (actions,) = said("out.wav")["assertions"]
    assert [one["action"] for one in actions["data"]["actions"]][1] == "c2pa.watermarked.unbound"


def test_a_recording_from_a_pipe_is_signed_and_one_to_a_pipe_is_not(
    embed: Run, run: Run, refused: Run, signer: Made
) -> None:
    data = Path("host.wav").read_bytes()
    asked = ("--party", "alice", "--c2pa", *signer.pair)
    assert "signs a whole file" in refused("embed", "host.wav", "-", *asked).err
    assert (
        "videos cannot be signed with C2PA" in refused("embed", "host.wav", "out.mp4", *asked).err
    )
    outcome = run("embed", "-", "one.flac", *asked, "--json", stdin=data)
    assert outcome.code == 0, outcome.err
    found = credentials.read(Path("one.flac"), signer.authority)
    assert found is not None
    assert (found.state, found.id) == ("trusted", outcome.json["manifest"])
    assert embed("two.wav").json["manifest"] != found.id


def test_the_source_type_can_be_told(embed: Run) -> None:
    assert embed("one.wav", "--source-type", "digitalCapture").code == 0
    found = credentials.read(Path("one.wav"))
    assert found is not None
    assert found.source_type == "digitalCapture"


def test_the_manifest_of_the_host_becomes_the_parent(embed: Run, signer: Made) -> None:
    first = embed("one.wav").json["manifest"]
    outcome = embed("two.flac", host="one.wav")
    assert outcome.code == 0, outcome.err
    assert "C2PA manifest" in outcome.json["not_carried"]  # as it was; it is in the new one
    told = said("two.flac")
    assert [one["active_manifest"] for one in told["ingredients"]] == [first]
    opened = told["assertions"][0]["data"]["actions"][0]
    assert opened["action"] == "c2pa.opened"
    found = credentials.read(Path("two.flac"), signer.authority)
    assert found is not None
    assert found.state == "trusted"


@pytest.mark.parametrize("name", ["a.wav", "a.mp3"])
def test_a_manifest_of_the_host_is_not_carried_where_it_does_not_fit(
    embed: Run, run: Run, key: Path, name: str
) -> None:
    assert embed(name).code == 0
    made = run("embed", name, f"b{name}", "--key", key, "--payload", "1", "--json")
    assert made.code == 0, made.err
    assert made.json["not_carried"] == ["C2PA manifest"]
    assert credentials.read(Path(f"b{name}")) is None


# Refusals


@pytest.mark.usefixtures("embed")
@pytest.mark.parametrize("name", ["a.ogg", "a.opus", "a.aiff", "a.caf", "a.w64", "a.au"])
def test_formats_that_cannot_be_signed_are_refused(refused: Run, signer: Made, name: str) -> None:
    asked = ("embed", "host.wav", name, "--party", "alice", "--c2pa", *signer.pair)
    assert "cannot be signed with C2PA" in refused(*asked).err


@pytest.mark.usefixtures("embed")
def test_long_headers_of_wav_are_refused(refused: Run, signer: Made) -> None:
    sf.write("long.wav", *sf.read("host.wav"), format="RF64")
    asked = ("embed", "long.wav", "a.wav", "--party", "alice", "--c2pa", *signer.pair)
    assert "rf64 cannot be signed" in refused(*asked).err


@pytest.mark.usefixtures("embed")
def test_certificates_that_cannot_sign_are_refused(refused: Run, home: Path) -> None:
    def refusal(certificate: object, key: object) -> str:
        asked = ("embed", "host.wav", "a.wav", "--party", "alice", "--c2pa", certificate, key)
        return str(refused(*asked).err)

    good, other = made_certificates.make(home, "good"), made_certificates.make(home, "other")
    assert "is not the key of the certificate" in refusal(good.certificate, other.key)
    assert "holds no certificate" in refusal(good.key, good.key)
    assert "holds no private key" in refusal(good.certificate, good.certificate)
    assert "cannot be read: no such file" in refusal("none.pem", good.key)
    old = made_certificates.make(home, "old", lasts=timedelta(days=-1))
    assert "is not valid after" in refusal(*old.pair)
    locked = made_certificates.make(home, "locked", password=b"secret")
    assert "is encrypted" in refusal(*locked.pair)
    web = made_certificates.x509.oid.ExtendedKeyUsageOID.SERVER_AUTH
    wrong = made_certificates.make(home, "web", usage=web)
    assert "c2pa does not sign with this certificate" in refusal(*wrong.pair)
    good.key.chmod(0o644)
    assert "open to everybody" in refusal(*good.pair)
    with Registry(home / "registry.sqlite") as known:
        assert known.counts()["serials"] == 0  # nothing was reserved


def test_signing_needs_a_party_and_an_issuer(
    run: Run, refused: Run, host: Path, key: Path, home: Path
) -> None:
    pair = made_certificates.make(home).pair
    alone = ("embed", host, "a.wav", "--key", key, "--payload", "1", "--c2pa", *pair)
    assert "needs --party" in refused(*alone).err
    run("party", "add", "alice", "--key", key, "--payload", "0x5eed")
    sf.write("long.wav", np.resize(sf.read(host)[0], 8 * RATE), RATE)
    asked = ("embed", "long.wav", "a.wav", "--party", "alice", "--c2pa", *pair)
    assert "issuer" in refused(*asked).err


@pytest.mark.usefixtures("embed")
def test_a_certificate_of_the_c2pa_list_signs(run: Run, home: Path) -> None:
    usage = made_certificates.x509.ObjectIdentifier("1.3.6.1.4.1.62558.2.1")
    own = made_certificates.make(home, "listed", usage=usage)
    asked = ("embed", "host.wav", "a.wav", "--party", "alice", "--c2pa", *own.pair, "--json")
    outcome = run(*asked)
    assert outcome.code == 0, outcome.err
    found = credentials.read(Path("a.wav"), own.authority)
    assert found is not None
    assert found.state == "trusted"
    assert json.loads(outcome.out)["manifest"] == found.id
