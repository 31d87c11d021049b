"""The service signs what it marks with C2PA, where that is asked for."""

import dataclasses
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_registry import ISSUER, RATE, Kept, encoded, post
from made_service import LIMITS, Service, serving

import made_certificates
from keybound.provenance import certificates, credentials
from keybound.provenance.credentials import FORMATS, SOURCE_TYPES, Signing
from keybound.provenance.declared import NOTHING
from keybound.server.state import State
from keybound.watermark.signing import Credentials
from made_certificates import Made

ROUTE = "/embed?party=alice&system=Voice&c2pa=true"


@pytest.fixture(scope="module")
def signer(kept: Kept) -> Made:
    return made_certificates.make(kept.folder)


@pytest.fixture(scope="module")
def signing(kept: Kept, signer: Made) -> Iterator[Service]:
    limits = dataclasses.replace(LIMITS, workers=1, fixed_s=0.1)
    signs = Credentials(*signer.pair, "algorithmicMedia")
    own = State(limits, place=str(kept.place), signs=signs, trusted=signer.authority)
    with serving(own) as running:
        yield running


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.mp3"])
def test_a_marked_recording_is_signed_and_names_its_identifier(
    signing: Service, kept: Kept, signer: Made, all_of_it: str, clip: Any, tmp_path: Path, name: str
) -> None:
    body = encoded(np.resize(clip, 6 * RATE), tmp_path, name)
    answer = post(signing, ROUTE, body, all_of_it)
    assert answer.status == 200, answer
    (tmp_path / name).write_bytes(answer.body)
    found = credentials.read(tmp_path / name, signer.authority)
    assert found is not None
    assert (found.state, found.source_type) == ("trusted", "algorithmicMedia")
    assert found.id == answer.headers["keybound-manifest"]
    assert found.named == ((ISSUER, int(answer.headers["keybound-identifier"], 16)),)
    with kept.open() as known:
        record = known.record(int(answer.headers["keybound-record"])).stamped.record
    assert record.manifest is not None
    assert record.public
    assert credentials.holds(tmp_path / name, record.manifest)
    store = signing.ask("GET", f"/manifests/{found.id}")
    assert store.body == record.manifest.data


def test_a_short_recording_is_signed_without_a_soft_binding(
    signing: Service, signer: Made, all_of_it: str, clip: Any, tmp_path: Path
) -> None:
    answer = post(signing, ROUTE, encoded(clip[: 3 * RATE], tmp_path), all_of_it)
    assert answer.status == 200, answer
    assert "keybound-identifier" not in answer.headers
    (tmp_path / "a.wav").write_bytes(answer.body)
    found = credentials.read(tmp_path / "a.wav", signer.authority)
    assert found is not None
    assert (found.state, found.named) == ("trusted", ())


def test_signers_are_trusted_that_the_service_trusts(
    signing: Service, all_of_it: str, speech: bytes, tmp_path: Path
) -> None:
    body = post(signing, ROUTE, speech, all_of_it).body
    for route in ("/detect", "/identify"):
        told = post(signing, route, body, all_of_it).json["manifest"]
        assert (told["state"], told["agreement"]) == ("trusted", "agrees")
        assert "signed by signer, Example Ltd, whose certificate is trusted" in told["words"]
    stranger = certificates.read(*made_certificates.make(tmp_path, "stranger").pair)
    (tmp_path / "a.wav").write_bytes(speech)
    Signing(stranger, FORMATS["WAV"], SOURCE_TYPES[0], NOTHING, None)(tmp_path / "a.wav")
    told = signing.detect(tmp_path / "a.wav").json["manifest"]
    assert (told["state"], told["signer"]) == ("valid", "stranger, Example Ltd")


def test_who_does_not_ask_gets_no_signature(
    signing: Service, all_of_it: str, speech: bytes
) -> None:
    answer = post(signing, "/embed?party=alice", speech, all_of_it)
    assert "keybound-manifest" not in answer.headers
    assert b"C2PA" not in answer.body


def test_what_cannot_be_signed_is_refused_and_leaves_nothing(
    signing: Service,
    kept: Kept,
    all_of_it: str,
    speech: bytes,
    clip: Any,
    tmp_path: Path,
    film: Callable[..., Path],
) -> None:
    with kept.open() as known:
        before = known.counts()

    def refusal(body: bytes, more: str = "") -> str:
        refused = post(signing, ROUTE + more, body, all_of_it)
        assert refused.status == 422, refused
        return str(refused.json["error"])

    assert refusal(encoded(clip, tmp_path, "a.ogg")) == "ogg cannot be signed with C2PA"
    assert "is a video" in refusal(film("two.mkv", "flac", "flac").read_bytes())
    assert refusal(speech, "&stream=true") == "a stream cannot be signed with C2PA"
    with kept.open() as known:
        assert known.counts() == before
    chunk = b"C2PA" + struct.pack("<I", 80) + bytes(80)  # a manifest that is none
    damaged = speech[:4] + struct.pack("<I", len(speech) + 80) + speech[8:] + chunk
    assert refusal(damaged) == "the C2PA manifest of the file cannot be read"
    with kept.open() as known:
        assert known.counts()["records"] == before["records"]
        assert known.unfinished() == ()
    assert signing.settles()
