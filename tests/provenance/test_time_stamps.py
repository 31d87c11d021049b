"""Signatures of C2PA with a time stamp, of an authority that openssl makes here."""

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import soundfile as sf

import made_certificates
from keybound.provenance import certificates, credentials
from keybound.provenance.credentials import FORMATS, SOURCE_TYPES, Signing
from keybound.provenance.declared import NOTHING
from keybound.provenance.registry import Registry

RATE = 16_000
LASTS_S = 6  # a certificate that expires while its test runs
CONFIGURATION = """[tsa]
default_tsa = one
[one]
serial = serial
default_policy = 1.2.3.4
digests = sha256, sha384, sha512
signer_digest = sha256
ess_cert_id_alg = sha256
"""

Run = Callable[..., Any]  # to the outcome of `run` in conftest


class Authority(NamedTuple):
    """A time stamping authority that runs."""

    url: str
    certificate: str  # that of its own authority, as PEM
    stamped: list[bytes]  # what it was asked


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    program = shutil.which("openssl") or pytest.skip("openssl is not installed")
    folder, asked = tmp_path_factory.mktemp("authority"), list[bytes]()
    made = made_certificates.make(
        folder, "stamper", usage=made_certificates.ExtendedKeyUsageOID.TIME_STAMPING
    )
    (folder / "serial").write_text("01\n")
    (folder / "a.cnf").write_text(CONFIGURATION)
    command = [program, "ts", "-reply", "-config", "a.cnf", "-queryfile", "query", "-out", "reply"]
    signer, key = made.pair
    command += ["-signer", signer, "-inkey", key, "-chain", signer]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            (folder / "query").write_bytes(asked[-1])
            subprocess.run(command, cwd=folder, check=True, stderr=subprocess.DEVNULL)
            reply = (folder / "reply").read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Authority(f"http://127.0.0.1:{server.server_port}/", made.authority, asked)
        server.shutdown()
        thread.join()


def test_a_stamped_signature_outlives_its_certificate(
    authority: Authority, tmp_path: Path, clip: Any
) -> None:
    paths = {url: tmp_path / f"{bool(url)}.wav" for url in (None, authority.url)}
    for path in paths.values():
        sf.write(path, clip[:RATE], RATE)
    own = made_certificates.make(tmp_path, lasts=timedelta(seconds=LASTS_S))
    end = time.monotonic() + LASTS_S + 1
    for url, path in paths.items():
        signer = certificates.read(*own.pair, url)
        Signing(signer, FORMATS["WAV"], SOURCE_TYPES[0], NOTHING, (7, 1))(path)
    time.sleep(end - time.monotonic())

    def state(url: str | None, trusted: str | None) -> str:
        found = credentials.read(paths[url], trusted)
        assert found is not None
        return found.state

    assert state(None, own.authority + authority.certificate) == "expired"
    assert state(authority.url, own.authority) == "expired"  # who stamped it is not trusted
    assert state(authority.url, own.authority + authority.certificate) == "trusted"


def test_embed_asks_for_a_stamp_and_leaves_nothing_without_one(
    authority: Authority, run: Run, refused: Run, home: Path, key: Path, clip: Any
) -> None:
    sf.write("host.wav", np.resize(clip, 6 * RATE), RATE)
    run("party", "add", "alice", "--key", key, "--payload", "0x5eed")
    run("registry", "issuer", "7")
    own, before = made_certificates.make(home), len(authority.stamped)
    asked = ("embed", "host.wav", "a.wav", "--party", "alice")
    assert "needs --c2pa" in refused(*asked, "--timestamp", authority.url).err
    signing = (*asked, "--c2pa", *own.pair, "--timestamp")
    assert "is not an address" in refused(*signing, "tsa.example.org").err
    assert "time stamps of http://127.0.0.1:9" in refused(*signing, "http://127.0.0.1:9").err
    with Registry(home / "registry.sqlite") as known:
        assert known.counts()["serials"] == 0
    outcome = run(*signing, authority.url)
    assert outcome.code == 0, outcome
    assert len(authority.stamped) == before + 2  # of a trial before the work, and of the file
    found = credentials.read(Path("a.wav"), own.authority + authority.certificate)
    assert found is not None
    assert found.state == "trusted"
