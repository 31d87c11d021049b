"""A server that speaks as OpenAI's does, in a thread; the voice that is asked says how."""

import base64
import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

PIECE_BYTES = 4001  # odd: samples are cut in the middle
WAIT_S = 30.0
RAW_BYTES = 3 * 2 * 24_000  # three seconds of raw samples
KINDS = {
    "mp3": "audio/mpeg", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac",
    "wav": "audio/wav", "pcm": "audio/pcm",
}  # fmt: skip


@dataclass
class Upstream:
    """What an upstream says, by format, and what it was sent."""

    speech: dict[str, bytes]
    short: dict[str, bytes]
    port: int = 0
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)  # voices that wait
    left: threading.Event = field(default_factory=threading.Event)  # its client has

    def audio(self, voice: str, form: str) -> bytes:
        """Return what a voice says."""
        said = {
            "short": self.short[form],
            "phrase": self.speech[form][:RAW_BYTES],
            "silence": bytes(RAW_BYTES),
            "garbage": b"\x07garbage" * 20_000,
            "mute": b"",
        }
        return said.get(voice, self.speech[form])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    own: Upstream

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.own.asked.append((self.path, dict(self.headers), body))
        voice, form = body.get("voice", ""), body.get("response_format", "mp3")
        if voice == "late":
            self.own.go_on.wait(WAIT_S)
        elif voice in ("error", "audio error", "redirect"):
            self._fail(voice)
        else:
            self._speak(voice, form, sse=body.get("stream_format") == "sse")

    def _fail(self, voice: str) -> None:
        kind = "audio/wav" if voice == "audio error" else "application/json"
        body = self.own.speech["wav"] if voice == "audio error" else b'{"error": {"code": "slow"}}'
        self.send_response({"error": 429, "redirect": 302}.get(voice, 500))
        for name, value in (("Content-Type", kind), ("Retry-After", "7"), ("Location", "/x")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _speak(self, voice: str, form: str, *, sse: bool) -> None:
        audio = self.own.audio(voice, form)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if sse else KINDS[form])
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        stops = len(audio) // 2 if voice in ("breaks", "waits") else len(audio)
        try:
            self._send(audio[:stops], sse=sse)
            if voice == "waits":
                self.own.go_on.wait(WAIT_S)
                self._send(audio[stops:], sse=sse)
            if voice == "breaks":
                self.close_connection = True
                return
            if sse:
                usage = {"type": "speech.audio.done", "usage": {"total_tokens": 9}}
                self._chunk(b"event: x\r\ndata: " + json.dumps(usage).encode() + b"\r\n\r\n")
            self._chunk(b"")
        except OSError:
            self.own.left.set()
            self.close_connection = True

    def _send(self, audio: bytes, *, sse: bool) -> None:
        for start in range(0, len(audio), PIECE_BYTES):
            piece = audio[start : start + PIECE_BYTES]
            if sse:
                delta = {"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()}
                piece = b"data: " + json.dumps(delta).encode() + b"\n\n"
            self._chunk(piece)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextlib.contextmanager
def speaking(own: Upstream) -> Iterator[Upstream]:
    """Run an upstream in a thread."""
    handler = type("Own", (Handler,), {"own": own})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    own.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield own
    finally:
        own.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
