"""Verdicts that verify and identify sign, and record check checks; tokens on the command line."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound.provenance import signed_verdicts
from keybound.provenance.registry import Registry

RATE = 16_000


@pytest.fixture
def marked_file(run: Any, home: Path, key: Path, clip: Any) -> Path:
    """Ten seconds that alice marked."""
    sf.write(home / "host.wav", np.resize(clip, 10 * RATE), RATE)
    assert run("party", "add", "alice", "--key", key, "--payload", "0x5eed").code == 0
    assert run("embed", "host.wav", "marked.wav", "--party", "alice").code == 0
    return home / "marked.wav"


@pytest.fixture
def public(run: Any, home: Path) -> str:
    """The public key of a new signing key in sign.key."""
    return str(run("record", "keygen", home / "sign.key").out.strip())


@pytest.mark.parametrize("verb", [["verify", "--party", "alice"], ["identify"]])
def test_a_verdict_is_signed_and_checked(
    run: Any, marked_file: Path, public: str, verb: list[str]
) -> None:
    outcome = run(verb[0], marked_file, *verb[1:], "--sign", "sign.key", "verdict.json")
    assert outcome.code == 0, outcome
    assert public in outcome.err
    checked = run("record", "check", "verdict.json", "--public", public)
    assert checked.code == 0, checked
    digest = hashlib.sha256(marked_file.read_bytes()).hexdigest()
    assert checked.out.startswith("signature holds: sealed for alice, record 1 (bound 1e-06); file")
    assert digest in checked.out
    assert public in checked.out
    told = run("record", "check", "verdict.json", "--public", public, "--json").json
    assert (told["holds"], told["file"], told["signer"]) == (True, digest, public)


@pytest.mark.usefixtures("marked_file")
def test_a_no_is_signed_too(run: Any, public: str) -> None:
    verb = ("identify", "host.wav", "--sign", "sign.key", "verdict.json")
    assert run(*verb).code == 1
    (found,) = signed_verdicts.parse(Path("verdict.json").read_bytes()).verdict.found
    assert (found.grade, found.bound) == ("none", None)
    assert run("record", "check", "verdict.json", "--public", public).code == 0


@pytest.mark.usefixtures("marked_file")
def test_a_change_and_another_signer_are_seen(run: Any, public: str) -> None:
    run("verify", "host.wav", "--party", "alice", "--sign", "sign.key", "verdict.json")
    data = Path("verdict.json").read_bytes()
    Path("changed.json").write_bytes(data.replace(b'"none"', b'"sealed"'))
    changed = run("record", "check", "changed.json", "--public", public)
    assert (changed.code, "does not hold" in changed.out) == (1, True)
    other = run("record", "check", "verdict.json", "--public", "00" * 32)
    assert (other.code, "somebody else" in other.out) == (1, True)


@pytest.mark.usefixtures("public")
def test_what_cannot_be_signed_is_refused_before_the_work(
    refused: Any, run: Any, marked_file: Path
) -> None:
    Path("there.json").write_text("")
    sign = ("--sign", "sign.key", "verdict.json")
    assert "one claim" in refused("verify", marked_file, "--any", *sign).err
    assert "one recording" in refused("identify", marked_file, marked_file, *sign).err
    there = refused("identify", marked_file, "--sign", "sign.key", "there.json")
    assert "exists" in there.err
    assert "signing key" in refused("identify", marked_file, "--sign", "no.key", "v.json").err
    run("identify", marked_file, *sign)
    assert "--public" in refused("record", "check", "verdict.json", "--party", "alice").err


def test_tokens_are_added_listed_rotated_and_revoked(run: Any, home: Path, key: Path) -> None:
    run("party", "add", "alice", "--key", key, "--payload", "0x5eed")
    made = run("token", "add", "desk", "--scope", "verify", "--scope", "embed", "--party", "alice")
    assert (made.code, made.out.startswith("kb_")) == (0, True), made
    secret = made.out.strip()
    assert secret not in made.err
    (line,) = run("token", "list").out.splitlines()
    assert line.split("\t")[:4] == ["desk", "embed verify", "alice", "100"]
    assert secret not in line
    with Registry(home / "registry.sqlite") as known:
        assert known.tokens.of_secret(secret) is not None
        turned = run("token", "rotate", "desk", "--hours", "2").out.strip()
        assert len(run("token", "list", "--json").out.splitlines()) == 2
        assert [known.tokens.of_secret(one) is not None for one in (secret, turned)] == [True, True]
        assert run("token", "revoke", "desk").code == 0
        assert known.tokens.of_secret(turned) is None
    assert "no tokens" in run("token", "list").err


def test_tokens_that_make_no_sense_are_refused(refused: Any) -> None:
    assert "no party" in refused("token", "add", "x", "--scope", "ask", "--party", "bob").err
    assert "scope" in refused("token", "add", "x").err
    assert "no token" in refused("token", "revoke", "x").err
    assert "no token" in refused("token", "rotate", "x").err
    assert "--registry" in refused("serve", "--sign", "sign.key").err
    assert "--registry" in refused("serve", "--c2pa", "cert.pem", "key.pem").err
    assert "'none.pem' cannot be read" in refused("serve", "--trust", "none.pem").err
    assert "is not an address" in refused("serve", "--proxy", "nowhere").err
