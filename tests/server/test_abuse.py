"""What a hostile or broken client sends costs a bounded amount, and the service goes on."""

import json
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from made_service import LIMITS, Service, of_unknown_length, serving

from keybound.server.refusals import LINGER_BYTES
from keybound.server.state import State

HEAD = b"POST /detect HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"


# Bodies


def connected(service: Service, *lines: bytes) -> socket.socket:
    """Return a connection on which the head of a request was sent."""
    made = socket.create_connection(("127.0.0.1", service.port), timeout=30)
    made.sendall(HEAD + b"".join(line + b"\r\n" for line in lines) + b"\r\n")
    return made


def status_of(connection: socket.socket) -> int:
    """Return the status of the answer; 0 if the connection was closed without one."""
    try:
        head = connection.recv(1 << 16)
    except ConnectionError:
        return 0
    return int(head.split()[1]) if head else 0


def test_a_kill_in_the_middle_of_an_upload_leaves_nothing(service: Service) -> None:
    for _ in range(10):
        with connected(service, b"Content-Length: 4000000") as client:
            client.sendall(bytes(1 << 20))
    assert service.settles()
    assert service.ask("GET", "/health").status == 200


def test_a_client_that_leaves_while_it_waits_holds_no_worker(
    service: Service, write: Any, clip: Any
) -> None:
    body = write("a.wav", np.tile(clip, 40)).read_bytes()
    for _ in range(6):
        with connected(service, b"Content-Length: %d" % len(body)) as client:
            client.sendall(body)
    assert service.settles(30)


def test_a_body_larger_than_the_limit_is_refused_before_and_while_it_is_sent(
    service: Service,
) -> None:
    with connected(service, b"Content-Length: 10000000000") as client:
        assert status_of(client) == 413
    with connected(service, b"Transfer-Encoding: chunked") as client:
        piece, sent = b"100000\r\n" + bytes(1 << 20) + b"\r\n", 0
        try:
            while sent < 10_000:  # MiB
                client.sendall(piece)
                sent += 1
        except ConnectionError:
            pass
    assert sent <= (LIMITS.body_bytes + LINGER_BYTES >> 20) + 16  # what the kernel holds
    assert service.settles()


def test_a_client_that_still_sends_gets_its_refusal(service: Service) -> None:
    body = bytes(3 << 20)
    form = "multipart/form-data; boundary=x"
    assert service.ask("POST", "/detect", body, form).status == 415
    assert service.ask("POST", "/detect", body, "application/json").status == 422
    assert service.ask("POST", "/detect?false_alarms=1", body).status == 422
    assert service.ask("PUT", "/detect", body).status == 405


def test_a_body_of_one_byte_a_second_is_refused(service: Service) -> None:
    begun = time.monotonic()
    with connected(service, b"Content-Length: 1000") as client:
        client.settimeout(0.25)
        status = 0
        while time.monotonic() < begun + 20 and not status:
            client.sendall(b"x")
            try:
                status = status_of(client)
            except TimeoutError:
                continue
    assert status == 408
    assert time.monotonic() - begun < LIMITS.grace_s + 5


def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keybound.server.run.HEAD_S", 0.5)
    with serving(State(replace(LIMITS, workers=1))) as own:
        for begin in (b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET"):
            with socket.create_connection(("127.0.0.1", own.port), timeout=10) as client:
                client.sendall(begin)
                while client.recv(1 << 16):
                    pass
        with socket.create_connection(("127.0.0.1", own.port), timeout=10) as client:
            client.sendall(HEAD + b"Content-Length: 9\r\n\r\n")
            time.sleep(1.5)  # the body may still take its time
            client.sendall(b"no sound.")
            assert status_of(client) == 422


@pytest.fixture(scope="module")
def silence(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Twelve hours of silence as FLAC, which is small."""
    path = tmp_path_factory.mktemp("long") / "a.flac"
    block = np.zeros(8_000 * 600, np.int16)
    with sf.SoundFile(path, "w", 8_000, 1, "PCM_16", format="FLAC") as file:
        for _ in range(72):
            file.write(block)
    yield path
    path.unlink()


def test_twelve_hours_of_silence_are_refused_by_their_length(
    service: Service, silence: Path
) -> None:
    assert silence.stat().st_size < LIMITS.body_bytes
    answer = service.detect(silence)
    assert (answer.status, answer.json["error"]) == (422, "the file is longer than 600 s")


def test_twelve_hours_whose_header_does_not_say_so_are_refused_as_well(
    service: Service, silence: Path
) -> None:
    begun = time.monotonic()
    answer = service.ask("POST", "/detect", of_unknown_length(silence.read_bytes()))
    assert (answer.status, answer.json["error"]) == (422, "the file is longer than 600 s")
    assert time.monotonic() - begun < LIMITS.work_s


def test_twelve_hours_of_silence_take_no_longer_than_allowed(silence: Path) -> None:
    limits = replace(LIMITS, workers=1, longest_s=1e6, work_s=0.5)
    with serving(State(limits)) as own:
        answer = own.detect(silence)
        assert (answer.status, "takes longer than" in answer.json["error"]) == (422, True)
        assert own.settles(30)


@pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")
def test_what_ffmpeg_decodes_to_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "a.m4a"
    source = ("-f", "lavfi", "-i", "anullsrc=r=48000:cl=stereo", "-t", "120")
    subprocess.run(["ffmpeg", "-v", "error", *source, path], check=True)
    with serving(State(replace(LIMITS, workers=1, decoded_bytes=8 << 20))) as own:
        answer = own.detect(path)
        assert (answer.status, answer.json["error"]) == (422, "the file cannot be decoded")
        assert answer.json["hint"] == "ffmpeg: it decodes to more than may be written"
        assert own.settles()


def test_a_playlist_is_not_followed(service: Service, tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(b"RIFF")
    for text in (f"#EXTM3U\nfile://{secret}\n", f"ffconcat version 1.0\nfile {secret}\n"):
        assert service.ask("POST", "/detect", text.encode()).status == 422


# Many at once


def test_the_spool_and_the_queue_are_bounded(write: Any, clip: Any) -> None:
    limits = replace(LIMITS, workers=1, uploads=3, spool_bytes=3 << 20)
    with serving(State(limits)) as own:
        clients = [connected(own, b"Content-Length: 4000000") for _ in range(3)]
        for client in clients[:2]:
            client.sendall(bytes(1 << 20))
        body = write("a.wav", clip).read_bytes()
        full = own.ask("POST", "/detect", body)
        assert (full.status, full.headers["retry-after"]) == (503, "5")
        clients[2].sendall(bytes(2 << 20))
        assert status_of(clients[2]) in (503, 0)
        for client in clients:
            client.close()
        assert own.settles()
        assert own.ask("POST", "/detect", body).status == 200


def test_many_clients_at_once_get_right_answers_or_are_told_to_wait(
    service: Service, write: Any, clip: Any, marked: Any
) -> None:
    bodies = {False: write("a.wav", clip).read_bytes(), True: write("b.wav", marked).read_bytes()}
    seen: Counter[str] = Counter()
    end = time.monotonic() + 60  # for slow machines: it ends with the answers

    def client(number: int) -> None:
        own = bool(number % 2)
        while seen["right"] < 30 and time.monotonic() < end:
            answer = service.ask("POST", "/detect", bodies[own])
            right = answer.status == 200 and answer.json["present"] is own
            wait = answer.status in (429, 503) and "retry-after" in answer.headers
            seen["right" if right else "wait" if wait else f"{answer.status}"] += 1

    threads = [threading.Thread(target=client, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) <= {"right", "wait"}, seen
    assert seen["right"] >= 30
    assert service.settles()
    assert json.loads(service.ask("GET", "/health").body)["status"] == "ok"
