"""From a mark to its manifest: the C2PA soft binding resolution API."""

import base64
import io
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import soundfile as sf
from made_service import LIMITS, Answer, Service, serving

import made_certificates
from keybound.crypto.keys import Key
from keybound.identity import identifier
from keybound.provenance import manifest
from keybound.provenance.credentials import ALGORITHM
from keybound.server.state import State
from keybound.watermark import files
from keybound.watermark.options import EmbedOptions
from keybound.watermark.watermarker import Watermarker
from made_certificates import Made

RATE = 16_000
Run = Callable[..., Any]  # to the outcome of `run` in conftest
HARD_BINDING = "assertion.dataHash.mismatch"


@pytest.fixture
def signer(home: Path) -> Made:
    return made_certificates.make(home)


@pytest.fixture
def signed(run: Run, key: Path, signer: Made, clip: Any) -> dict[str, Any]:
    """Mark and sign ten seconds for alice, issuer 7; return what the command printed."""
    sf.write("host.wav", np.resize(clip, 10 * RATE), RATE)
    assert run("party", "add", "alice", "--key", key, "--payload", "0x5eed").code == 0
    assert run("registry", "issuer", "7").code == 0
    said = ("--provider", "Example Ltd", "--system", "Example Voice", "--system-version", "3.1")
    said += ("--link", "https://example.org/ask", "--field", "customer=secret")
    asked = ("embed", "host.wav", "one.wav", "--party", "alice", "--c2pa", *signer.pair)
    made = run(*asked, *said, "--json")
    assert made.code == 0, made.err
    printed: dict[str, Any] = made.json
    return printed


@pytest.fixture
def service(home: Path, signed: dict[str, Any]) -> Iterator[Service]:
    """A service with the registry in which the recording was signed."""
    assert signed
    limits = replace(LIMITS, workers=1, fixed_s=0.01)
    with serving(State(limits, place=str(home / "registry.sqlite"))) as running:
        yield running


def by_binding(service: Service, value: str, alg: str = ALGORITHM, more: str = "") -> Answer:
    asked = quote(base64.b64encode(value.encode()).decode(), safe="")
    return service.ask("GET", f"/matches/byBinding?alg={quote(alg)}&value={asked}{more}")


def validated(kind: str, asset: bytes, data: bytes, signer: Made) -> tuple[str, set[str], set[str]]:
    """Return the state of a manifest on a file, what holds and what does not, by c2pa-python."""
    import c2pa

    trusted = {"verify": {"verify_trust": True}, "trust": {"trust_anchors": signer.authority}}
    with (
        c2pa.Settings.from_dict(trusted) as settings,
        c2pa.Context(settings) as context,
        c2pa.Reader(kind, io.BytesIO(asset), manifest_data=data, context=context) as reader,
    ):
        results = reader.get_validation_results()["activeManifest"]
        codes = ({one["code"] for one in results[name]} for name in ("success", "failure"))
        return (str(reader.get_validation_state()), *codes)


def test_a_stripped_recording_gets_its_manifest_back(
    run: Run, service: Service, signed: dict[str, Any], signer: Made, home: Path
) -> None:
    ffmpeg = shutil.which("ffmpeg") or pytest.skip("ffmpeg is not installed")
    strip = ("-map_metadata", "-1", "-b:a", "32k", "-ar", str(RATE))
    command = [ffmpeg, "-v", "error", "-i", "one.wav", *strip, "stripped.mp3"]
    subprocess.run(command, check=True)
    found = run("detect", "stripped.mp3", "--json").json
    assert found["manifest"] is None  # it is gone
    (claimed,) = found["claimed"]
    answer = by_binding(service, f"{claimed['issuer']}.{claimed['identifier']}")
    assert answer.status == 200
    (match,) = answer.json["matches"]
    assert match["manifestId"] == signed["manifest"]
    answer = service.ask("GET", f"/manifests/{match['manifestId']}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/c2pa")
    # On the file that was signed all of it holds, under the authority of the test.
    original = (home / "one.wav").read_bytes()
    assert original.find(answer.body) > 0
    state, holds, fails = validated("audio/wav", original, answer.body, signer)
    assert (state, fails) == ("Trusted", set())
    assert {"signingCredential.trusted", "claimSignature.validated"} <= holds
    # On the other file all but the hash of its bytes holds: the mark is what binds it.
    stripped = (home / "stripped.mp3").read_bytes()
    _, holds, fails = validated("audio/mpeg", stripped, answer.body, signer)
    assert fails == {HARD_BINDING}
    assert {"signingCredential.trusted", "claimSignature.validated"} <= holds
    assert f"7.{claimed['identifier']}".encode() in answer.body
    # By its content the answer is the same, and the audio speaks for it.
    answer = service.ask("POST", "/matches/byContent", stripped, "audio/mpeg")
    assert [one["manifestId"] for one in answer.json["matches"]] == [signed["manifest"]]
    assert answer.json["matches"][0]["record"]["claimed"] is False


def test_public_answers_say_what_records_say_to_everybody(
    service: Service, signed: dict[str, Any]
) -> None:
    answer = by_binding(service, f"7.{signed['identifier']}")
    (match,) = answer.json["matches"]
    created = match["record"].pop("created")
    assert created.startswith("20")
    assert match["record"] == {
        "provider": "Example Ltd",
        "system": "Example Voice",
        "system_version": "3.1",
        "link": "https://example.org/ask",
        "claimed": True,  # an identifier alone proves nothing
    }
    assert b"secret" not in answer.body
    body = json.dumps({"alg": ALGORITHM, "value": base64.b64encode(b"7.0000000000").decode()})
    posted = service.ask("POST", "/matches/byBinding", body, "application/json")
    assert (posted.status, posted.json) == (200, {"matches": []})
    assert by_binding(service, f"8.{signed['identifier']}").json == {"matches": []}


def test_a_copied_identifier_is_claimed(
    service: Service, signed: dict[str, Any], clips: Any, marker: Watermarker, home: Path
) -> None:
    """Anyone can write a public identifier on other audio: the manifest found is then a claim."""
    sf.write("other.wav", np.resize(clips["espeak-ng-gb"], 10 * RATE), RATE)
    copied = identifier.public(int(signed["identifier"], 16), 7)
    options = EmbedOptions(Key.generate(), 1, b"", None, False, copied, 1.0)
    files.embed(marker, "other.wav", "copied.wav", options, check=False)
    answer = service.ask("POST", "/matches/byContent", (home / "copied.wav").read_bytes())
    (match,) = answer.json["matches"]
    assert match["manifestId"] == signed["manifest"]
    assert match["record"]["claimed"] is True


def test_what_is_not_public_is_not_found(run: Run, service: Service, signer: Made) -> None:
    sf.write("short.wav", sf.read("host.wav")[0][: 4 * RATE], RATE)
    made = run(
        "embed", "short.wav", "two.wav", "--party", "alice", "--c2pa", *signer.pair, "--json"
    )
    assert made.code == 0, made.err
    assert service.ask("GET", f"/manifests/{made.json['manifest']}").status == 404
    keyed = run("embed", "host.wav", "three.wav", "--party", "alice", "--json").json["identifier"]
    assert by_binding(service, f"7.{keyed}").json == {"matches": []}
    body = Path("three.wav").read_bytes()
    assert service.ask("POST", "/matches/byContent", body).json == {"matches": []}
    public = run("embed", "host.wav", "four.wav", "--party", "alice", "--public", "--json").json
    assert by_binding(service, f"7.{public['identifier']}").json == {"matches": []}  # not signed


def test_refusals(service: Service, signed: dict[str, Any]) -> None:
    assert by_binding(service, f"7.{signed['identifier']}", "com.example.other.1").status == 400
    for value in ("", "7", "07.0123456789", "nothing", "7.0123456789\n"):
        assert by_binding(service, value).status == 400
    plain = f"/matches/byBinding?alg={ALGORITHM}&value=7.0123456789"
    assert service.ask("GET", plain).status == 400  # not base64
    assert by_binding(service, f"7.{signed['identifier']}", more="&maxResults=0").status == 422
    assert service.ask("GET", "/matches/byBinding").status == 422
    assert service.ask("POST", "/matches/byBinding", b"{}", "application/json").status == 400
    assert service.ask("POST", "/matches/byBinding", bytes(9000), "application/json").status == 422
    assert service.ask("POST", "/matches/byContent", b"GIF89a", "image/gif").status == 415
    assert service.ask("POST", "/matches/byContent", b"not audio", "audio/wav").status == 422
    assert service.ask("POST", "/matches/byContent?alg=other", b"RIFF").status == 400
    assert service.ask("GET", "/manifests/7").status == 400
    assert service.ask("GET", "/manifests/urn:c2pa:none").status == 404
    listed = service.ask("GET", "/services/supportedAlgorithms")
    assert listed.json == {"watermarks": [{"alg": ALGORITHM}]}


def test_answers_are_counted(home: Path, signed: dict[str, Any]) -> None:
    limits = replace(LIMITS, workers=1, fixed_s=0.01, public_by_address=2)
    with serving(State(limits, place=str(home / "registry.sqlite"))) as service:
        assert by_binding(service, f"7.{signed['identifier']}").status == 200
        assert service.ask("GET", f"/manifests/{signed['manifest']}").status == 200
        spent = service.ask("GET", f"/manifests/{signed['manifest']}")
        assert (spent.status, "retry-after" in spent.headers) == (429, True)
        assert by_binding(service, f"7.{signed['identifier']}").status == 429
        host = (home / "host.wav").read_bytes()  # uses no record
        assert service.ask("POST", "/matches/byContent", host).json == {"matches": []}


def test_the_active_manifest_alone(run: Run, service: Service, signer: Made) -> None:
    asked = ("embed", "one.wav", "child.flac", "--party", "alice", "--c2pa", *signer.pair, "--json")
    made = run(*asked)
    assert made.code == 0, made.err
    path = f"/manifests/{made.json['manifest']}"
    whole, alone = service.ask("GET", path), service.ask("GET", f"{path}?returnActiveManifest=true")
    assert len(alone.body) < len(whole.body)
    assert made.json["manifest"].encode() in alone.body
    assert manifest.active_only(alone.body) == alone.body
    for wrong in (b"", b"jumb", whole.body[:100]):
        with pytest.raises(ValueError, match="no manifest store"):
            manifest.active_only(wrong)


def test_without_a_registry_nothing_is_resolved() -> None:
    from keybound.server.app import describe

    assert "/matches/byBinding" not in describe(State(LIMITS)).openapi()["paths"]
