"""With a token: mark, identify, verify."""

import contextlib
import dataclasses
import io
import os
import signal
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from made_registry import ALL, KEY, RATE, Kept, encoded, made, post
from made_service import LIMITS, Service, of_unknown_length, serving

from keybound.audio import formats
from keybound.crypto.signing import SigningKey
from keybound.provenance import signed_verdicts
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry
from keybound.provenance.tokens import Token
from keybound.server.answers import KINDS
from keybound.server.state import State

USUAL = dataclasses.replace(LIMITS, workers=1, fixed_s=0.1)


# Who may do what


def test_without_a_token_that_holds_nothing_is_answered(
    desk: Service, kept: Kept, speech: bytes
) -> None:
    other = made(kept.folder / "sub") if (kept.folder / "sub").mkdir() is None else kept
    for token in (None, "kb_nothing", "", other.token("all", *ALL)):
        for path in ("/embed?party=alice", "/identify", "/verify?party=alice"):
            refused = post(desk, path, speech, token)
            assert refused.status == 401
            assert refused.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("scope", ["embed", "identify", "verify", "ask"])
def test_a_token_allows_its_scope_alone(
    desk: Service, kept: Kept, marked_by_desk: bytes, scope: str
) -> None:
    token = kept.token(f"only-{scope}", scope)
    routes = {"embed": "/embed?party=alice", "identify": "/identify", "verify": "/verify?party=bob"}
    allowed = {scope} if scope != "ask" else {"identify", "verify"}
    told = {name: post(desk, path, marked_by_desk, token) for name, path in routes.items()}
    assert {name for name, one in told.items() if one.status == 200} == allowed
    assert {one.status for name, one in told.items() if name not in allowed} <= {403}


def test_a_token_of_one_party_is_for_that_party(
    desk: Service, kept: Kept, marked_by_desk: bytes
) -> None:
    token = kept.token("of-bob", "embed", "verify", "ask", party="bob")
    assert post(desk, "/verify", marked_by_desk, token).json["party"] == "bob"
    for path in ("/verify?party=alice", "/embed?party=alice", "/identify"):
        assert post(desk, path, marked_by_desk, token).status == 403
    everyone = kept.token("everyone", "verify")
    assert post(desk, "/verify?party=nobody", marked_by_desk, everyone).status == 422
    assert post(desk, "/verify", marked_by_desk, everyone).status == 422


def test_tokens_are_rotated_and_revoked_without_a_restart(
    desk: Service, kept: Kept, marked_by_desk: bytes
) -> None:
    def status(token: str) -> int:
        return post(desk, "/verify?party=alice", marked_by_desk, token).status

    first = kept.token("turning", "verify")
    assert status(first) == 200
    with kept.open() as known:
        second = known.tokens.rotate("turning", datetime.now(UTC) + timedelta(hours=1))
        assert [status(first), status(second)] == [200, 200]
        third = known.tokens.rotate("turning", datetime.now(UTC))
        assert [status(first), status(second), status(third)] == [401, 401, 200]
        known.tokens.revoke("turning")
    assert status(third) == 401


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no /proc")
def test_nobody_sees_the_place_of_the_registry_among_processes(desk: Service, kept: Kept) -> None:
    for worker in desk.state.pool._all:  # a PostgreSQL address may hold a password
        told = Path(f"/proc/{worker.pid}/cmdline").read_bytes()
        assert b"keybound.server.worker" in told
        assert kept.place.name.encode() not in told


# Marking


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.mp3", "a.ogg", "a.aiff"])
def test_what_comes_back_is_marked_recorded_and_of_the_same_form(
    desk: Service, kept: Kept, all_of_it: str, clip: Any, tmp_path: Path, name: str
) -> None:
    body = encoded(np.resize(clip, 6 * RATE), tmp_path, name)
    answer = post(desk, "/embed?party=bob&system=Voice&system_version=4", body, all_of_it)
    assert answer.status == 200, answer
    before, after = sf.info(io.BytesIO(body)), sf.info(io.BytesIO(answer.body))
    assert (before.format, before.subtype) == (after.format, after.subtype)
    (mark,) = post(desk, "/identify", answer.body, all_of_it).json["marks"]
    assert (mark["party"], mark["grade"]) == ("bob", "sealed")
    assert str(mark["record"]) == answer.headers["keybound-record"]
    assert mark["identifier"] == answer.headers["keybound-identifier"]
    with kept.open() as known:
        told = known.record(mark["record"]).stamped.record.declared
    assert (told.provider, told.system, told.system_version) == ("Example Ltd", "Voice", "4")


def test_a_service_without_a_certificate_does_not_sign(
    desk: Service, all_of_it: str, speech: bytes
) -> None:
    refused = post(desk, "/embed?party=alice&c2pa=true", speech, all_of_it)
    assert (refused.status, refused.json["hint"]) == (422, "leave c2pa out")


def test_a_flac_of_unknown_length_is_marked(
    desk: Service, all_of_it: str, clip: Any, tmp_path: Path
) -> None:
    for seconds in (6, 3):
        body = encoded(np.resize(clip, seconds * RATE), tmp_path, "a.flac")
        answer = post(desk, "/embed?party=bob", of_unknown_length(body), all_of_it)
        assert answer.status == 200, answer
        assert sf.info(io.BytesIO(answer.body)).frames == seconds * RATE
        assert ("keybound-identifier" in answer.headers) == (seconds == 6)


def test_every_format_that_is_marked_has_a_content_type() -> None:
    written = {formats.suffix_of(kind, "") for kind in (*formats.READABLE, "M4A", "ADTS")} | {
        ".opus"
    }
    assert written == set(KINDS)


def test_a_short_recording_has_no_identifier_and_is_found_by_its_audio(
    desk: Service, all_of_it: str, clips: Any, tmp_path: Path
) -> None:
    other = next(voice for name, voice in clips.items() if name != "flite-rms")
    answer = post(desk, "/embed?party=bob", encoded(other[: 3 * RATE], tmp_path), all_of_it)
    assert "keybound-identifier" not in answer.headers
    verdict = post(desk, "/verify?party=bob", answer.body, all_of_it).json
    assert (verdict["grade"], verdict["origin"]["match"]) == ("sealed", "same")


def test_what_cannot_be_marked_is_refused_and_leaves_no_record(
    desk: Service, kept: Kept, all_of_it: str, speech: bytes, tmp_path: Path
) -> None:
    with kept.open() as known:
        before = known.counts()["records"]
    silence = encoded(np.zeros(6 * RATE), tmp_path)
    for path, body in (
        ("/embed?party=alice", silence),
        ("/embed?party=alice", b"garbage" * 100),
        ("/embed?party=alice&excerpt=0", speech),
        ("/embed?party=alice&system=%20", speech),
        ("/embed", speech),
    ):
        refused = post(desk, path, body, all_of_it)
        assert refused.status == 422, (path, refused)
        assert str(desk.state.spool.root) not in refused.body.decode()
    with kept.open() as known:
        assert known.counts()["records"] == before
        assert known.unfinished() == ()
    assert desk.settles()


def test_a_kill_in_the_middle_of_an_upload_leaves_no_record_and_no_reservation(
    desk: Service, kept: Kept, all_of_it: str, speech: bytes
) -> None:
    with kept.open() as known:
        before = known.counts()
    for _ in range(5):
        with contextlib.closing(socket.create_connection(("127.0.0.1", desk.port))) as client:
            head = f"Authorization: Bearer {all_of_it}\r\nContent-Length: {len(speech)}\r\n\r\n"
            line = "POST /embed?party=alice HTTP/1.1\r\nHost: test\r\n"
            client.sendall((line + head).encode() + speech[: len(speech) // 2])
    assert desk.settles()
    with kept.open() as known:
        assert (known.counts(), known.unfinished()) == (before, ())


def test_a_worker_that_is_killed_while_it_marks_leaves_no_record(
    kept: Kept, all_of_it: str, clip: Any, tmp_path: Path
) -> None:
    body = encoded(np.resize(clip, 240 * RATE), tmp_path)
    told: list[int] = []
    with serving(State(USUAL, place=str(kept.place))) as own, kept.open() as known:
        before = known.counts()

        def ask() -> None:
            told.append(post(own, "/embed?party=alice", body, all_of_it).status)

        asking = threading.Thread(target=ask)
        asking.start()
        while known.counts()["serials"] == before["serials"]:
            time.sleep(0.01)
        (worker,) = own.state.pool._all
        os.kill(worker.pid, signal.SIGKILL)
        asking.join()
        assert own.settles(30)
    assert told == [422]
    with kept.open() as known:
        assert known.counts()["records"] == before["records"]
        assert known.unfinished() == ()


def test_a_registry_on_a_server_is_used_alike(
    address: str, kept: Kept, speech: bytes, tmp_path: Path
) -> None:
    with Registry(address) as known:
        known.rotate_key(tmp_path / "registry.key")
        known.add(Party("alice", 1, 16, 2, kept.folder / "alice.key", KEY.id, datetime.now(UTC)))
        made_on = datetime.now(UTC)
        token = known.tokens.add(Token("all", ALL, made_on))
        asking = known.tokens.add(Token("asking", ("ask",), made_on, daily=1))
    limits = dataclasses.replace(USUAL, fixed_s=0.1)
    with serving(State(limits, place=address)) as own:
        marked = post(own, "/embed?party=alice", speech, token)
        assert marked.status == 200, marked
        (mark,) = post(own, "/identify", marked.body, token).json["marks"]
        assert mark["identifier"] == marked.headers["keybound-identifier"]
        route = "/verify?party=alice"
        told = [post(own, route, marked.body, asking) for _ in range(2)]
        assert (told[0].json, told[1].status) == ({"grade": "sealed"}, 429)


# Verdicts


def test_a_verdict_is_that_of_the_command_line(
    desk: Service, kept: Kept, all_of_it: str, marked_by_desk: bytes, run: Any, tmp_path: Path
) -> None:
    path = tmp_path / "marked.wav"
    path.write_bytes(marked_by_desk)
    told = post(desk, "/verify?party=alice", marked_by_desk, all_of_it).json
    said = run("verify", path, "--party", "alice", "--json", "--registry", kept.place).json
    assert told.keys() == said.keys()
    assert (told["grade"], told["words"]) == (said["grade"], said["words"])
    answer = post(desk, "/identify", marked_by_desk, all_of_it).json
    beside = {"path": str(path), "manifest": answer["manifest"]}
    said = run("identify", path, "--json", "--registry", kept.place).json
    assert [beside | one for one in answer["marks"]] == [said]


def test_verdicts_are_signed_and_hold_no_evidence(
    desk: Service, kept: Kept, all_of_it: str, marked_by_desk: bytes, run: Any, tmp_path: Path
) -> None:
    path = tmp_path / "verdict.json"
    public = SigningKey.read(kept.signer).public.hex()
    for route, record in (("/verify?party=alice&signed=true", 1), ("/identify?signed=true", 1)):
        path.write_bytes(post(desk, route, marked_by_desk, all_of_it).body)
        (found,) = signed_verdicts.parse(path.read_bytes()).verdict.found
        assert (found.grade, found.party, found.bound) == ("sealed", "alice", 1e-6)
        assert (found.record or 0) >= record
        assert run("record", "check", path, "--public", public).code == 0
    asking = kept.token("asks-for-signed", "ask")
    path.write_bytes(post(desk, "/verify?party=alice&signed=true", marked_by_desk, asking).body)
    (found,) = signed_verdicts.parse(path.read_bytes()).verdict.found
    assert (found.grade, found.record, found.identifier) == ("sealed", None, None)


def test_a_service_without_a_signing_key_signs_nothing(
    kept: Kept, all_of_it: str, speech: bytes
) -> None:
    with serving(State(USUAL, place=str(kept.place))) as own:
        assert post(own, "/verify?party=alice&signed=true", speech, all_of_it).status == 422
