"""C2PA manifests in files: what is damaged is called so, and nothing is let out."""

import random
from pathlib import Path
from typing import Any

import pytest
import soundfile as sf

import made_certificates
from keybound.audio.metadata import c2pa as places
from keybound.errors import AudioError
from keybound.provenance import certificates, credentials
from keybound.provenance.credentials import FORMATS, SOURCE_TYPES, Signing
from keybound.provenance.declared import NOTHING

RATE = 16_000
STATES = {"valid", "changed", "broken", "unreadable", None}  # None: it is not found any more
SIZES = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\1", b"\x7f\xff\xff\xff")


def signed(folder: Path, kind: str, clip: Any) -> Path:
    """Write and sign a second of speech."""
    path = folder / f"one.{kind.lower()}"
    sf.write(path, clip[:RATE], RATE, format=kind)
    signer = certificates.read(*made_certificates.make(folder).pair)
    Signing(signer, FORMATS[kind], SOURCE_TYPES[0], NOTHING, (7, 1))(path)
    return path


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "MP3"])
def test_damaged_manifests_are_called_what_they_are(tmp_path: Path, clip: Any, kind: str) -> None:
    path = signed(tmp_path, kind, clip)
    whole, rng = path.read_bytes(), random.Random(kind)
    found = credentials.read(path)
    assert found is not None
    assert (found.state, found.named) == ("valid", ((7, 1),))
    first = max(0, whole.find(b"jumb") - 40)
    seen = set()
    for _ in range(80):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 3, 10])):
            at = rng.randrange(first, min(len(data), first + 3500))
            if rng.random() < 0.5:
                data[at] ^= 1 << rng.randrange(8)
            elif rng.random() < 0.5:
                data[at : at + 4] = rng.choice(SIZES)
            else:
                del data[at : at + rng.randrange(1, 50)]
        path.write_bytes(data)
        damaged = credentials.read(path)
        seen.add(None if damaged is None else damaged.state)
    assert seen <= STATES
    assert {"broken", "unreadable"} <= seen


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "MP3"])
def test_a_file_that_is_cut_anywhere_is_read_or_not(tmp_path: Path, clip: Any, kind: str) -> None:
    path = signed(tmp_path, kind, clip)
    whole = path.read_bytes()
    for size in (*range(64), *range(64, len(whole), len(whole) // 40)):
        path.write_bytes(whole[:size])
        credentials.read(path)


@pytest.mark.parametrize("data", [b"", b"RIFF", b"ID3", b"\0\0\0\x08ftyp", b"RIFF\0\0\0\0WAVEC2PA"])
def test_what_holds_no_manifest(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    assert places.media_type(tmp_path / "file") is None
    assert credentials.read(tmp_path / "file") is None
    assert credentials.read(tmp_path) is None
    assert credentials.read(tmp_path / "none") is None


def test_a_manifest_elsewhere_is_not_fetched(
    tmp_path: Path, clip: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads a file must not ask the address that it names."""
    import http.server
    import threading

    import c2pa

    asked = []

    class Trap(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Trap) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(c2pa.Builder, "sign", _pointing(c2pa, server.server_port))
        path = signed(tmp_path, "WAV", clip)
        kept = path.read_bytes()
        assert f"127.0.0.1:{server.server_port}".encode() in kept
        credentials.read(path)
        # Without the manifest in it, the address alone is left.
        path.write_bytes(kept.replace(b"C2PA", b"JUNK"))
        assert credentials.read(path) is None
        server.shutdown()
        thread.join()
    assert asked == []


def _pointing(c2pa: Any, port: int) -> Any:
    """Return a `sign` that also names an address of the manifest in the file."""
    usual = c2pa.Builder.sign

    def sign(builder: Any, *arguments: Any) -> Any:
        builder.set_remote_url(f"http://127.0.0.1:{port}/manifest.c2pa")
        return usual(builder, *arguments)

    return sign


def test_a_manifest_that_is_too_long_for_a_record_is_refused(
    tmp_path: Path, clip: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "DATA_MAX", 1000)
    with pytest.raises(AudioError, match="has more than 1000 bytes"):
        signed(tmp_path, "WAV", clip)
