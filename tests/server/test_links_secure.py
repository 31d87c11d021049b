"""Links over https: the name is kept for TLS and checked, though an address is connected to."""

import datetime
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import soundfile as sf
from made_service import LIMITS, Service, serving

from keybound.server.state import State

x509 = pytest.importorskip("cryptography.x509", reason="cryptography is not installed")
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402

NAME = "secure.test"


def certificate(folder: Path) -> Path:
    """Write a certificate for NAME, signed by itself, together with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    path = folder / "certificate.pem"
    path.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, form, plain))
    return path


@pytest.fixture
def secure(tmp_path: Path, marked: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A service, and the port of a server with TLS that it may reach and whose names it heard."""
    sf.write(tmp_path / "a.wav", marked, 16_000)
    path, names = certificate(tmp_path), list[str | None]()
    monkeypatch.setenv("SSL_CERT_FILE", str(path))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=tmp_path)

        def log_message(self, *_: object) -> None: ...

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    port = server.server_address[1]
    real = socket.getaddrinfo

    def resolve(host: Any, *rest: Any, **more: Any) -> Any:
        here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        return here if str(host).endswith(".test") else real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    state = State(replace(LIMITS, workers=1), allowed=frozenset({("127.0.0.1", port)}))
    with serving(state) as running:
        yield running, port, names
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_name_of_a_host_is_kept_and_checked(secure: tuple[Service, int, list[str]]) -> None:
    service, port, names = secure
    assert service.fetch(f"https://{NAME}:{port}/a.wav").json["present"]
    assert names == [NAME]
    other = service.fetch(f"https://other.test:{port}/a.wav")
    assert (other.status, other.json["error"]) == (422, "the link cannot be fetched")
    assert names == [NAME, "other.test"]
