"""The service answers what the command line prints, refuses in sentences, and keeps nothing."""

import dataclasses
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_service import LIMITS, Service, serving

from keybound.server.answers import Found
from keybound.server.app import describe
from keybound.server.state import State
from keybound.watermark.plain import as_plain


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.mp3", "a.ogg", "a.aiff", "a.m4a"])
@pytest.mark.parametrize("which", ["clip", "marked"])
def test_the_answer_is_that_of_the_command_line(
    service: Service, write: Any, run: Any, request: Any, name: str, which: str
) -> None:
    samples = request.getfixturevalue(which)
    path = write("a.wav" if name == "a.m4a" else name, samples)
    if name == "a.m4a":
        ffmpeg = shutil.which("ffmpeg") or pytest.skip("ffmpeg is not installed")
        path = path.with_suffix(".m4a")
        subprocess.run([ffmpeg, "-v", "error", "-i", path.with_suffix(".wav"), path], check=True)
    answer = service.detect(path)
    assert answer.status == 200
    printed = run("detect", "--json", path).json
    assert answer.json["present"] is printed["present"] is (which == "marked")
    ours, theirs = flat(answer.json), flat({k: v for k, v in printed.items() if k != "path"})
    assert list(ours) == list(theirs)
    assert ours == pytest.approx(theirs, abs=1e-3)


def flat(found: dict[str, Any]) -> dict[str, Any]:
    """Return a detection without a list in it."""
    spans = {f"{n} {k}": v for n, one in enumerate(found["spans"]) for k, v in one.items()}
    assert found["claimed"] == []
    return {k: v for k, v in found.items() if k not in ("spans", "claimed")} | spans


def test_the_description_has_every_field_of_a_detection(marker: Any, clip: Any) -> None:
    fields = [*as_plain(marker.detect(clip, 16_000), []), "track", "tracks"]
    assert list(Found.model_fields) == fields


def test_a_public_identifier_is_claimed(
    service: Service, run: Any, home: Path, key: Path, write: Any, clip: Any
) -> None:
    host = write("long.wav", np.tile(clip, 5))
    assert run("party", "add", "alice", "--key", key, "--payload", "0x5eed").code == 0
    assert run("registry", "issuer", "7").code == 0
    outcome = run("embed", host, home / "marked.wav", "--party", "alice", "--public")
    assert outcome.code == 0, outcome
    claimed = service.detect(home / "marked.wav").json["claimed"]
    assert claimed == run("detect", "--json", home / "marked.wav").json["claimed"]
    assert [one["issuer"] for one in claimed] == [7]


def test_fewer_false_alarms_can_be_asked_for(service: Service, write: Any, clip: Any) -> None:
    body = write("a.wav", clip).read_bytes()
    held = service.ask("POST", "/detect?false_alarms=1e-6", body).json
    usual = service.ask("POST", "/detect", body).json
    assert (held["false_alarms"], usual["false_alarms"]) == (1e-6, 1e-3)
    assert held["evidence_threshold_s"] > usual["evidence_threshold_s"]
    assert service.ask("POST", "/detect?false_alarms=1", body).status == 422


def test_a_recording_of_several_channels_is_read_in_each(
    service: Service, write: Any, clip: Any, marked: Any
) -> None:
    path = write("a.flac", np.stack([clip, marked], axis=1))
    found = service.detect(path).json
    assert found["present"]
    assert found["channel"] == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "there is no recording"),
        (b"garbage" * 1000, "the file is not a recording"),
        (b"RIFF\xff\xff\xff\xffWAVEfmt ", "the file"),
        (bytes(1000), "the file is not a recording"),
        (b"\x00\x00\x00\x18ftypM4A " + bytes(1000), "the file cannot be read"),
    ],
)
def test_what_is_no_recording_is_refused_in_a_sentence(
    service: Service, body: bytes, says: str
) -> None:
    if b"ftyp" in body and not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg is not installed")
    answer = service.ask("POST", "/detect", body)
    assert answer.status == 422
    assert answer.json["error"].startswith(says)
    assert "/tmp" not in answer.body.decode()
    assert str(service.state.spool.root) not in answer.body.decode()


@pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")
def test_a_flac_that_was_written_to_a_pipe_is_read(
    service: Service, write: Any, marked: Any
) -> None:
    path = write("a.wav", marked)
    command = ["ffmpeg", "-v", "error", "-i", path, "-f", "flac", "-"]
    data = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    assert data[22:26] == bytes(4)  # where the number of frames stands
    told = service.ask("POST", "/detect", data)
    assert (told.status, told.json) == (200, service.detect(path).json)
    cut = service.ask("POST", "/detect", data[:-2_000])
    assert (cut.status, "cut short" in cut.json["error"]) == (422, True)


def test_a_recording_that_is_too_short_or_cut_is_refused(
    service: Service, write: Any, clip: Any
) -> None:
    short = service.detect(write("a.wav", clip[:800]))
    assert (short.status, "short" in short.json["error"]) == (422, True)
    whole = write("b.wav", clip).read_bytes()
    cut = service.ask("POST", "/detect", whole[: len(whole) // 2])
    assert (cut.status, cut.json["error"]) == (422, "the file is cut short")


@pytest.mark.parametrize(
    "kind", ["", "audio/wav", "text/plain", "application/x-www-form-urlencoded"]
)
def test_the_kind_that_a_program_gives_a_file_does_not_matter(
    service: Service, write: Any, marked: Any, kind: str
) -> None:  # curl calls everything a form
    body = write("a.wav", marked).read_bytes()
    assert service.ask("POST", "/detect", body, kind).json["present"]


def test_forms_and_unknown_routes_are_refused(service: Service) -> None:
    form = service.ask("POST", "/detect", b"--x--", "multipart/form-data; boundary=x")
    assert form.status == 415
    assert service.ask("GET", "/detect").status == 405
    assert service.ask("GET", "/nothing").status == 404
    assert service.ask("GET", "/page/../app.py").status == 404
    assert service.ask("GET", "/page/%2e%2e/app.py").status == 404
    assert service.ask("GET", "/docs").status == 404


def test_every_answer_has_the_headers_of_a_safe_page(service: Service) -> None:
    for path in ("/", "/health", "/nothing", "/page/none.js"):
        headers = service.ask("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-inline" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_health_and_metrics_say_how_it_is(service: Service, write: Any, clip: Any) -> None:
    assert service.detect(write("a.wav", clip)).status == 200
    health = service.ask("GET", "/health")
    assert (health.status, health.json["status"]) == (200, "ok")
    lines = service.ask("GET", "/metrics").body.decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values["keybound_workers"]) == LIMITS.workers
    done = values['keybound_requests_total{method="POST",route="/detect",status="200"}']
    assert float(done) >= 1
    assert float(values["keybound_recording_bytes_total"]) > len(clip)


def test_nothing_is_kept_and_the_log_holds_nothing_of_a_recording(
    service: Service, write: Any, marked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "keybound.server")
    assert service.detect(write("secret-name.wav", marked)).status == 200
    service.ask("GET", "/secret-name.wav")
    service.fetch("http://10.0.0.1/secret-name.wav")
    wanted = ("POST /detect 200 ", "GET other 404 ", "POST /detect 422 ")
    end = time.monotonic() + 10  # a line comes after its answer
    while not all(one in caplog.text for one in wanted) and time.monotonic() < end:
        time.sleep(0.02)
    assert service.settles()
    for one in wanted:
        assert one in caplog.text
    assert "secret" not in caplog.text
    assert "127.0.0.1" not in caplog.text


def test_a_worker_that_dies_or_takes_too_long_is_replaced(write: Any, marked: Any) -> None:
    limits = dataclasses.replace(LIMITS, workers=1, work_s=2.0)
    path = write("a.wav", marked)
    with serving(State(limits)) as own:
        (worker,) = own.state.pool._all
        os.kill(worker.pid, signal.SIGSTOP)
        slow = own.detect(path)
        assert (slow.status, "takes longer" in slow.json["error"]) == (422, True)
        assert own.settles(30)
        assert own.detect(path).json["present"]
        (worker,) = own.state.pool._all
        os.kill(worker.pid, signal.SIGKILL)
        answers = [own.detect(path) for _ in range(2)]
        assert answers[-1].status == 200
        assert own.state.pool.replaced == 2


def test_serve_stops_on_a_signal_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "keybound", "serve", "--port", "0", "--workers", "1"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("keybound: serving on http://127.0.0.1:")
        end = time.monotonic() + 30
        while not list(tmp_path.iterdir()) and time.monotonic() < end:
            time.sleep(0.05)
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=30)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_serve_says_what_is_wrong(refused: Callable[..., Any], service: Service) -> None:
    taken = refused("serve", "--port", service.port)
    assert "cannot listen" in taken.err
    assert "card.json" in refused("serve", "--model", "nowhere").err


def test_the_description_is_valid_json(service: Service) -> None:
    described = service.ask("GET", "/openapi.json").json
    assert described == json.loads(json.dumps(describe(State(LIMITS)).openapi()))
    assert set(described["paths"]) == {"/detect", "/health", "/metrics"}
