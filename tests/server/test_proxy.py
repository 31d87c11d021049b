"""The proxy: what an upstream says comes out marked, in its own format, or not at all."""

import contextlib
import http.client
import json
import logging
import shutil
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from made_proxy import (
    HZ,
    USUAL,
    decoded,
    deltas,
    encoded,
    is_refused,
    lenient,
    say,
    settles,
    state_of,
)
from made_registry import KEY, Kept, made
from made_service import Service, serving
from made_upstream import KINDS, RAW_BYTES, Upstream, speaking

import keybound
from keybound.audio import recordings
from keybound.identity import identifier
from keybound.provenance.declared import Declared
from keybound.server.makers import Maker
from keybound.server.proxy import upstream as upstreams
from keybound.server.proxy.app import ROUTE, make

PAYLOAD = 0x5EED
NEEDS_FFMPEG = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")
FORMATS = [
    *("wav", "pcm", "flac", "mp3", "opus"),
    pytest.param("aac", marks=NEEDS_FFMPEG),
]
STREAMED = ("wav", "pcm", "flac")


@pytest.fixture(scope="module")
def spoken(clip: Any) -> Any:
    """Eight seconds of speech at the rate of raw samples: enough to read a public identifier."""
    return recordings.resample(np.resize(clip, 8 * 16_000), 16_000, HZ)


@pytest.fixture(scope="module")
def upstream(spoken: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    folder = tmp_path_factory.mktemp("upstream")
    speech, short = encoded(folder / "a", spoken), encoded(folder / "b", spoken[HZ : HZ * 3 // 2])
    with speaking(Upstream(speech, short)) as running:
        yield running


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("key") / "maker.key"
    KEY.write(path)
    return str(path)


@pytest.fixture(scope="module")
def proxy(upstream: Upstream, key_file: str) -> Iterator[Service]:
    maker = Maker(key_file=key_file, payload=PAYLOAD)
    with serving(state_of(upstream, maker), make) as running:
        yield running


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_marked(proxy: Service, spoken: Any, form: str) -> None:
    answer = say(proxy, "clip", form)
    assert (answer.status, answer.headers["content-type"]) == (200, KINDS[form])
    mark = "streaming" if form in STREAMED else "present"
    assert answer.headers["keybound-mark"] == mark
    samples, rate = decoded(form, answer.body)
    assert rate == HZ
    assert abs(len(samples) - len(spoken)) <= (3000 if form == "aac" else 0)
    assert keybound.detect(samples, rate).present
    verdict = keybound.verify(samples, rate, key=KEY, payload=PAYLOAD)
    assert verdict.grade == "sealed"


@pytest.mark.parametrize("form", ["wav", "pcm", "mp3"])
def test_events_are_marked(proxy: Service, form: str) -> None:
    answer = say(proxy, "clip", form, stream_format="sse")
    assert answer.headers["content-type"].startswith("text/event-stream")
    audio, last = deltas(answer.body)
    usage = {"total_tokens": 9}
    assert last == {"type": "speech.audio.done", "usage": usage, "keybound_mark": "present"}
    samples, rate = decoded(form, audio)
    assert keybound.detect(samples, rate).present


def test_speech_comes_while_the_upstream_still_speaks(proxy: Service, upstream: Upstream) -> None:
    upstream.go_on.clear()
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    with contextlib.closing(connection):
        body = {"voice": "waits", "response_format": "pcm"}
        connection.request("POST", ROUTE, json.dumps(body))
        response = connection.getresponse()
        early = response.read(HZ * 2)
        assert len(early) == HZ * 2
        upstream.go_on.set()
        whole = early + response.read()
    assert len(whole) == len(upstream.speech["pcm"])


def test_headers_and_the_request_go_on_as_they_are(
    proxy: Service, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        say(proxy, "error", "mp3", {"Authorization": "Bearer secret-1", "OpenAI-Project": "p"})
        end = time.monotonic() + 10
        while f"POST {ROUTE} 429" not in caplog.text and time.monotonic() < end:
            time.sleep(0.02)  # the line comes after the answer
    path, headers, body = upstream.asked[-1]
    assert (path, body["input"]) == (ROUTE, "hello")
    assert (headers["authorization"], headers["openai-project"]) == ("Bearer secret-1", "p")
    assert f"POST {ROUTE} 429" in caplog.text
    assert "secret-1" not in caplog.text
    assert "hello" not in caplog.text


def test_an_error_of_the_upstream_passes(proxy: Service) -> None:
    answer = say(proxy, "error", "mp3")
    assert (answer.status, answer.json) == (429, {"error": {"code": "slow"}})
    assert answer.headers["retry-after"] == "7"
    assert is_refused(say(proxy, "audio error", "mp3"), 500, "answered with status 500")
    assert is_refused(say(proxy, "redirect", "mp3"), 502, "answered with status 302")


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_too_short_is_refused(proxy: Service, upstream: Upstream, form: str) -> None:
    answer = say(proxy, "short", form)
    assert is_refused(answer, 502, "too little to be sure of its mark", "not_marked")
    with lenient(proxy):
        passed = say(proxy, "short", form)
        events = say(proxy, "short", form, stream_format="sse")
    assert (passed.status, passed.headers["keybound-mark"]) == (200, "none")
    assert passed.body == upstream.short[form]
    audio, last = deltas(events.body)
    assert (audio, last["keybound_mark"]) == (upstream.short[form], "none")


def test_what_cannot_be_opened_is_refused(proxy: Service) -> None:
    for form in ("mp3", "wav", "opus"):
        assert is_refused(say(proxy, "garbage", form), 502, "cannot be marked", "not_marked")
    assert is_refused(say(proxy, "mute", "wav"), 502, "said nothing", "not_marked")
    with lenient(proxy):
        passed = say(proxy, "garbage", "mp3")
    assert (passed.headers["keybound-mark"], passed.body[:8]) == ("none", b"\x07garbage")
    assert settles(proxy)


def test_a_mark_that_cannot_be_read_back_cuts_the_answer_off(proxy: Service) -> None:
    with pytest.raises(http.client.IncompleteRead):
        say(proxy, "silence", "pcm")
    with lenient(proxy):
        passed = say(proxy, "silence", "pcm")
        events = say(proxy, "silence", "pcm", stream_format="sse")
    assert passed.headers["keybound-mark"] == "streaming"
    audio, last = deltas(events.body)
    assert len(passed.body) == len(audio) == RAW_BYTES
    assert last["keybound_mark"] == "none"


@pytest.mark.parametrize("allowed", [contextlib.nullcontext, lenient])
def test_an_upstream_that_breaks_off_ends_the_answer(proxy: Service, allowed: Any) -> None:
    with allowed(proxy):
        assert is_refused(say(proxy, "breaks", "mp3"), 502, "broke off")
        cut_off(proxy, "wav")
        events = cut_off(proxy, "wav", stream_format="sse")
    if events:
        _, last = deltas(events)
        assert (last["type"], last["error"]["code"]) == ("error", "not_marked")
    assert settles(proxy)


def cut_off(proxy: Service, form: str, **asked: str) -> bytes:
    """Return what came of an answer that is cut off; none if it is refused before it begins."""
    try:
        answer = say(proxy, "breaks", form, **asked)
    except http.client.IncompleteRead as error:
        return error.partial
    assert is_refused(answer, 502, "broke off")
    return b""


def test_an_upstream_that_hangs_is_given_up(proxy: Service, upstream: Upstream) -> None:
    upstream.go_on.clear()
    assert is_refused(say(proxy, "late", "wav"), 504, "does not answer")
    assert is_refused(say(proxy, "waits", "mp3"), 504, "stopped speaking")
    with pytest.raises(http.client.IncompleteRead):
        say(proxy, "waits", "wav")
    upstream.go_on.set()
    assert settles(proxy)


@pytest.mark.parametrize("form", ["wav", "mp3"])
def test_a_client_that_leaves_ends_it_all(proxy: Service, upstream: Upstream, form: str) -> None:
    upstream.go_on.clear()
    upstream.left.clear()  # the upstream may see it before it is told to go on
    body = json.dumps({"voice": "waits", "response_format": form}).encode()
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client:
        client.sendall(head.encode() + body)
        if form == "wav":
            assert client.recv(12) == b"HTTP/1.1 200"
        else:
            time.sleep(0.3)
    begun = time.monotonic()
    assert settles(proxy)
    assert time.monotonic() - begun < USUAL.grace_s  # not because the upstream was too slow
    upstream.go_on.set()
    assert form == "mp3" or upstream.left.wait(20)


def test_there_is_one_route(proxy: Service) -> None:
    for method, path in (
        ("GET", "/"),
        ("GET", "/v1/models"),
        ("POST", "/v1/audio/transcriptions"),
        ("POST", f"{ROUTE}/"),
        ("GET", "/openapi.json"),
        ("GET", "/metrics"),
    ):
        assert proxy.ask(method, path).status == 404
    assert proxy.ask("GET", ROUTE).status == 405
    for body in (b"", b"{", b"[]", b"\xff"):
        assert proxy.ask("POST", ROUTE, body).status == 400
    assert proxy.ask("POST", ROUTE, b'"' + b" " * (1 << 20) + b'"').status == 422


def test_so_many_streams_at_once_and_no_more(proxy: Service, upstream: Upstream) -> None:
    upstream.go_on.clear()
    with contextlib.ExitStack() as stack:
        for _ in range(USUAL.streams):
            connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
            stack.callback(connection.close)
            body = json.dumps({"voice": "waits", "response_format": "wav"})
            connection.request("POST", ROUTE, body)
            assert connection.getresponse().status == 200
        full = say(proxy, "clip", "wav")
        assert is_refused(full, 503, "too many requests at once")
        assert "retry-after" in full.headers
    upstream.go_on.set()
    assert settles(proxy)


def test_nobody_speaks(proxy: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        nowhere = upstreams.Upstream.at(f"http://127.0.0.1:{nobody.getsockname()[1]}")
    monkeypatch.setattr(proxy.state, "upstream", nowhere)
    assert is_refused(say(proxy, "clip", "wav"), 502, "cannot be reached")


# With a registry


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return made(tmp_path_factory.mktemp("kept"))


def test_a_party_gets_records_and_the_proof_none(kept: Kept, upstream: Upstream) -> None:
    maker = Maker("alice", public=True, says=Declared(system="Voice").members())
    with serving(state_of(upstream, maker, place=str(kept.place)), make) as proxy:
        with kept.open() as known:
            assert known.counts()["records"] == 0
        for voice, form in (("clip", "pcm"), ("clip", "mp3"), ("phrase", "pcm")):
            answer = say(proxy, voice, form)
            samples, rate = decoded(form, answer.body)
            named = answer.headers["keybound-identifier"]
            with keybound.Registry(kept.place) as registry:
                (mark,) = registry.identify(samples, rate)
                assert (mark.party, mark.grade) == ("alice", "sealed")
                # Three seconds are too short to spell it, and found by their audio.
                assert mark.identifier == (None if voice == "phrase" else named)
                record = registry.record(mark.record).stamped.record
                assert identifier.written(record.serial) == named
                assert (record.declared.system, record.public) == ("Voice", True)
        cut_off(proxy, "wav")
        assert settles(proxy)
    with kept.open() as known:
        assert (known.counts()["records"], known.unfinished()) == (3, ())
