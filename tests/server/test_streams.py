"""Streams: marked while they come, recorded when they end, and never recorded when they do not."""

import contextlib
import dataclasses
import http.client
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from made_registry import RATE, Kept, encoded, post
from made_service import LIMITS, Service

USUAL = dataclasses.replace(LIMITS, workers=1, grace_s=4.0, streams=3, longest_s=60.0)
ROUTE = "/embed?party=alice&stream=true"


class Client:
    """A client that sends and reads at once."""

    def __init__(self, service: Service, token: str, route: str = ROUTE) -> None:
        self.socket = socket.create_connection(("127.0.0.1", service.port), timeout=20)
        head = f"Authorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.socket.sendall(f"POST {route} HTTP/1.1\r\nHost: test\r\n{head}".encode())

    def send(self, data: bytes) -> None:
        self.socket.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def begin(self) -> http.client.HTTPResponse:
        """Return the response, of which the head has come."""
        response = http.client.HTTPResponse(self.socket)
        response.begin()
        return response

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def settles(desk: Service) -> bool:
    end = time.monotonic() + 10
    while desk.state.streams.count and time.monotonic() < end:
        time.sleep(0.02)
    return desk.state.streams.count == 0 and desk.settles()


def test_marked_audio_comes_while_the_stream_still_comes_in(
    desk: Service, kept: Kept, all_of_it: str, speech: bytes
) -> None:
    half = len(speech) // 2
    with Client(desk, all_of_it, f"{ROUTE}&public=true&system=Live") as client:
        client.send(speech[:half])
        response = client.begin()
        early = response.read(half // 2)
        assert len(early) == half // 2
        client.send(speech[half:])
        client.send(b"")
        marked = early + response.read()
    assert len(marked) == len(speech)
    assert response.headers["content-type"] == "audio/wav"
    (mark,) = post(desk, "/identify", marked, all_of_it).json["marks"]
    assert (mark["grade"], mark["claimed"]) == ("sealed", False)
    assert mark["identifier"] == response.headers["KeyBound-Identifier"]
    with kept.open() as known:
        assert known.record(mark["record"]).stamped.record.declared.system == "Live"
    assert settles(desk)


def test_a_client_that_reads_last_gets_all_of_it(
    desk: Service, all_of_it: str, clip: Any, tmp_path: Path
) -> None:
    body = encoded(np.resize(clip, 55 * RATE), tmp_path)
    answer = post(desk, ROUTE, body, all_of_it)
    assert (answer.status, len(answer.body)) == (200, len(body))
    assert post(desk, "/verify?party=alice", answer.body, all_of_it).json["grade"] == "sealed"


def test_a_short_stream_is_declared_or_known_by_its_header(
    desk: Service, all_of_it: str, clip: Any, tmp_path: Path
) -> None:
    body = encoded(clip[: 3 * RATE], tmp_path)
    endless = body[:40] + b"\xff\xff\xff\xff" + body[44:]  # as ffmpeg writes to a pipe
    for route, sent, named in (
        (ROUTE, body, False),
        (ROUTE, endless, True),
        (f"{ROUTE}&short=true", endless, False),
    ):
        answer = post(desk, route, sent, all_of_it)
        assert answer.status == 200
        assert ("keybound-identifier" in answer.headers) is named


def test_a_stream_that_is_killed_has_no_record_and_no_reservation(
    desk: Service, kept: Kept, all_of_it: str, speech: bytes
) -> None:
    with kept.open() as known:
        before = known.counts()["records"]
    for part in (len(speech) // 2, 100, 20):
        with Client(desk, all_of_it) as client:
            client.send(speech[:part])
            if part > 100:
                client.begin()
    assert settles(desk)
    with kept.open() as known:
        assert (known.counts()["records"], known.unfinished()) == (before, ())


@pytest.mark.parametrize("end", ["late", "early"])
def test_a_stream_that_stops_or_ends_too_soon_is_cut_off(
    desk: Service, kept: Kept, all_of_it: str, speech: bytes, end: str
) -> None:
    with kept.open() as known:
        before = known.counts()["records"]
    with Client(desk, all_of_it) as client:
        client.send(speech[: len(speech) // 2])
        response = client.begin()
        if end == "early":
            client.send(b"")
        with pytest.raises(http.client.IncompleteRead):
            response.read()
    assert settles(desk)
    with kept.open() as known:
        assert (known.counts()["records"], known.unfinished()) == (before, ())


def test_what_is_no_stream_is_refused(
    desk: Service, all_of_it: str, speech: bytes, tmp_path: Path
) -> None:
    for body in (b"", b"garbage" * 100, speech[:20], encoded(np.zeros(RATE), tmp_path, "a.ogg")):
        assert post(desk, ROUTE, body, all_of_it).status == 422
    long = tmp_path / "long.flac"
    sf.write(long, np.zeros(61 * RATE), RATE)
    refused = post(desk, ROUTE, long.read_bytes(), all_of_it)
    assert (refused.status, refused.json["error"]) == (422, "the stream is longer than 60 s")
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    assert post(desk, ROUTE, speech, all_of_it, form).status == 415
    assert post(desk, ROUTE, speech).status == 401
    assert settles(desk)


def test_so_many_streams_at_once_and_no_more(desk: Service, all_of_it: str, speech: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(USUAL.streams):
            client = stack.enter_context(Client(desk, all_of_it))
            client.send(speech[: len(speech) // 2])
            assert client.begin().status == 200
        full = post(desk, ROUTE, speech, all_of_it)
        assert (full.status, "retry-after" in full.headers) == (503, True)
    assert settles(desk)
    assert post(desk, ROUTE, speech, all_of_it).status == 200


def test_the_process_that_marks_is_started_again(
    desk: Service, kept: Kept, all_of_it: str, speech: bytes
) -> None:
    assert post(desk, ROUTE, speech, all_of_it).status == 200
    with kept.open() as known:
        before = known.counts()["records"]
    with Client(desk, all_of_it) as client:
        client.send(speech[: len(speech) // 2])
        response = client.begin()
        process = desk.state.streams._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(http.client.IncompleteRead):
            response.read()
    assert settles(desk)
    with kept.open() as known:
        assert known.counts()["records"] == before
    assert post(desk, ROUTE, speech, all_of_it).status == 200
