"""Batches sign with C2PA: each output names its identifier, what cannot be signed is not there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from made_corpus import RATE, WHOSE, hidden, write_manifest

import made_certificates
from keybound.provenance import credentials
from keybound.provenance.registry import Registry
from made_certificates import Made

Run = Callable[..., Any]  # to the outcome of `run` in conftest
MARKING = (
    "batch",
    "embed",
    "corpus.csv",
    "--party",
    "alice",
    "--results",
    "r.jsonl",
    "--jobs",
    "1",
)


@pytest.fixture
def signer(run: Run, home: Path, speech: np.ndarray[Any, Any]) -> Made:
    """A signer. alice is registered, and two recordings of a corpus of four can be signed."""
    run("party", "add", "alice", "--key", "alice.key", "--payload", "0x5eed")
    sf.write("long.wav", np.resize(speech, 6 * RATE), RATE)
    sf.write("short.flac", speech, RATE)
    names = {"long.wav": "a.mp3", "short.flac": "b.flac"}
    table = [{"path": path, "out": f"out/{out}"} for path, out in names.items()]
    table += [{"path": "long.wav", "out": f"out/c.{kind}"} for kind in ("ogg", "mp4")]
    write_manifest(home / "corpus.csv", table)
    return made_certificates.make(home)


def test_every_output_is_signed_and_names_its_identifier(
    run: Run, home: Path, signer: Made
) -> None:
    run("registry", "issuer", "7")
    marking = (*MARKING, "--c2pa", *signer.pair, "--source-type", "digitalCapture", "--json")
    made = run(*marking)
    assert made.code == 2, made
    assert "signed without a soft binding: 1 files" in made.err
    assert (made.json["done"], made.json["signed"], made.json["unbound"]) == (2, 2, 1)
    long, short, ogg, video = map(json.loads, Path("r.jsonl").read_text().splitlines())
    for row in (long, short):
        found = credentials.read(home / row["output"], signer.authority)
        assert found is not None
        assert (found.state, found.id) == ("trusted", row["manifest"])
        assert found.source_type == "digitalCapture"
        named = () if row is short else ((7, int(row["identifier"], 16)),)
        assert found.named == named
        with Registry(home / "registry.sqlite") as known:
            kept = known.record(row["record"]).stamped.record.manifest
        assert kept is not None
        assert credentials.holds(home / row["output"], kept)
    assert short["identifier"] is None
    assert run("identify", long["output"], "--require", "sealed").code == 0
    assert "ogg cannot be signed with C2PA" in ogg["error"]
    assert "videos cannot be signed with C2PA" in video["error"]
    assert sorted(path.name for path in (home / "out").iterdir()) == ["a.mp3", "b.flac"]
    assert not hidden(home)
    again = run(*marking)
    assert "done before: 2 of 4" in again.err
    assert again.json["signed"] == 2
    rows = list(map(json.loads, Path("r.jsonl").read_text().splitlines()))
    assert [row["manifest"] for row in rows[:2]] == [long["manifest"], short["manifest"]]


def test_an_output_that_a_killed_run_signed_is_taken_as_it_is(run: Run, signer: Made) -> None:
    run("registry", "issuer", "7")
    marking = (*MARKING, "--c2pa", *signer.pair)
    run(*marking)
    before = json.loads(Path("r.jsonl").read_text().splitlines()[0])
    journal = Path("r.jsonl.journal")  # as a kill leaves it before the end of an input is noted
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in lines if '"done"' not in line))
    run(*marking)
    after = json.loads(Path("r.jsonl").read_text().splitlines()[0])
    assert (after["manifest"], after["record"]) == (before["manifest"], before["record"])


def test_a_public_identifier_is_read_by_everybody(run: Run, home: Path, signer: Made) -> None:
    del signer
    run("registry", "issuer", "7")
    run(*MARKING, "--public")
    row = json.loads(Path("r.jsonl").read_text().splitlines()[0])
    told = run("detect", home / row["output"], "--json").json
    assert told["claimed"] == [{"identifier": row["identifier"], "issuer": 7}]
    assert told["manifest"] is None


def test_what_cannot_be_signed_ends_before_the_work(
    run: Run, refused: Run, home: Path, signer: Made
) -> None:
    assert "public identifiers need an issuer" in refused(*MARKING, "--c2pa", *signer.pair).err
    run("registry", "issuer", "7")
    keyed = ("batch", "embed", "corpus.csv", *WHOSE, "--c2pa", *signer.pair)
    assert "needs --party" in refused(*keyed).err
    other = made_certificates.make(home, "other")
    asked = (*MARKING, "--c2pa", signer.certificate, other.key)
    assert "is not the key of the certificate" in refused(*asked).err
    with Registry(home / "registry.sqlite") as known:
        assert known.counts()["serials"] == 0
