"""What tests of the proxy share: speech in every format, requests for it, what comes back."""

import base64
import contextlib
import dataclasses
import http.client
import io
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile as sf
from made_service import LIMITS, Answer, Service
from made_upstream import Upstream

from keybound.audio import pipes, recordings
from keybound.demo import SPEECH
from keybound.server.makers import Maker
from keybound.server.proxy import upstream as upstreams
from keybound.server.proxy.app import ROUTE
from keybound.server.proxy.state import State

USUAL = dataclasses.replace(LIMITS, workers=1, streams=3, longest_s=60.0, upstream_s=3.0)
HZ = 24_000


def encoded(folder: Path, samples: Any) -> dict[str, bytes]:
    """Return speech in each format of a response, a WAV as one of unknown length."""
    folder.mkdir()
    made = {}
    for form in ("wav", "flac", "mp3", "opus"):
        how = {"format": "OGG", "subtype": "OPUS"} if form == "opus" else {}
        sf.write(folder / f"a.{form}", samples, HZ, **how)
        made[form] = (folder / f"a.{form}").read_bytes()
    made["pcm"] = made["wav"][44:]
    made["wav"] = made["wav"][:40] + b"\xff\xff\xff\xff" + made["pcm"]
    made["aac"] = b""
    if ffmpeg := shutil.which("ffmpeg"):
        command = [ffmpeg, "-v", "error", "-i", folder / "a.flac", "-f", "adts", folder / "a.aac"]
        subprocess.run(command, check=True)
        made["aac"] = (folder / "a.aac").read_bytes()
    return made


def state_of(upstream: Upstream, maker: Maker, **more: Any) -> State:
    where = upstreams.Upstream.at(f"http://127.0.0.1:{upstream.port}/v1")
    return State(USUAL, where, maker, SPEECH, **more)


@contextlib.contextmanager
def lenient(proxy: Service) -> Iterator[Service]:
    """Let what cannot be marked pass."""
    proxy.state.unmarked_ok = True
    try:
        yield proxy
    finally:
        proxy.state.unmarked_ok = False


def say(
    service: Service, voice: str, form: str, headers: Mapping[str, str] | None = None, **more: Any
) -> Answer:
    """Ask for speech and return the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    body = {"model": "tts", "input": "hello", "voice": voice, "response_format": form, **more}
    with contextlib.closing(connection):
        connection.request("POST", ROUTE, json.dumps(body), dict(headers or {}))
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, named, response.read())


def decoded(form: str, data: bytes) -> tuple[Any, int]:
    if form == "pcm":
        return np.frombuffer(data, "<i2") / 32768, HZ
    with pipes.spooled(io.BytesIO(data)) as path:  # a stream does not say how long it is
        read = recordings.read(path)
    return read.samples[:, 0], read.sample_rate


def settles(proxy: Service) -> bool:
    end = time.monotonic() + 10
    while proxy.state.streams.count and time.monotonic() < end:
        time.sleep(0.02)
    return proxy.state.streams.count == 0 and proxy.settles()


def is_refused(answer: Answer, status: int, words: str, code: str | None = None) -> bool:
    error = answer.json["error"]
    kind = "server_error" if status >= 500 else "invalid_request_error"
    said = (answer.status, error["type"], error["param"], error["code"])
    mark = answer.headers["keybound-mark"]
    return said == (status, kind, None, code) and words in error["message"] and mark == "none"


def deltas(body: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the audio of events, and the last of them."""
    said = [json.loads(one.removeprefix(b"data: ")) for one in body.split(b"\n\n") if one]
    audio = [one["audio"] for one in said if one["type"] == "speech.audio.delta"]
    return b"".join(map(base64.b64decode, audio)), said[-1]
