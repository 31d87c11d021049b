"""Links lead to public addresses alone: as names, as numbers, after redirects and in between."""

import http.server
import ipaddress
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from made_service import LIMITS, Service, serving

from keybound.server import addresses
from keybound.server.state import State

NOT_PUBLIC = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.8.8.8",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1", "233.252.0.1",
    "240.0.0.1", "255.255.255.255", "168.63.129.16",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1",
    "64:ff9b:1::1", "100::1", "2001::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "3fff::1",
    "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.215.14", "2606:4700::1111", "2a00:1450:4001::200e"]
FORBIDDEN = "the link does not lead to a public address"


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_each_forbidden_address_is_refused(service: Service, address: str) -> None:
    assert not addresses.is_public(ipaddress.ip_address(address))
    name = f"[{address}]" if ":" in address else address
    for scheme in ("http", "https"):
        answer = service.fetch(f"{scheme}://{name}/a.wav")
        assert (answer.status, answer.json["error"]) == (422, FORBIDDEN)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert addresses.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host",
    ["localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0", "LOCALHOST", "１２７.0.0.1"],
)
def test_other_spellings_of_an_address_are_refused(service: Service, host: str) -> None:
    assert service.fetch(f"http://{host}/").status == 422
    assert service.fetch(f"http://{host}:80/").status == 422


@pytest.mark.parametrize(
    "link",
    [
        "", "x", "/a.wav", "file:///etc/passwd", "ftp://example.com/a", "gopher://127.0.0.1/",
        "http://", "http:///a", "http://[::1", "http://user:word@example.com/", "data:audio/wav,",
        "http://example.com:22/", "http://example.com:8080/", "http://example.com:99999/",
        "http://exa mple.com/", "http://example.com/\r\nX: y", "http://" + "a" * 300 + "/",
        "http://a..b/", "https://[fe80::1%25eth0]/", "jar:http://example.com!/", "http://\u2028/",
    ],
)  # fmt: skip
def test_what_is_no_plain_link_is_refused(service: Service, link: str) -> None:
    answer = service.fetch(link)
    assert answer.status == 422
    assert answer.json["error"]


# A server that tests may reach


class Pages(http.server.BaseHTTPRequestHandler):
    """Answers by the path of a request; `recording` is what /a.wav holds."""

    recording = b""
    seen: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers["Host"]))
        kind, _, rest = self.path[1:].partition("/")
        if kind == "to":
            self._answer(302, {"Location": rest})
        elif kind == "status":
            self._answer(int(rest))
        elif kind == "gzip":
            self._answer(200, {"Content-Encoding": "gzip"}, b"x")
        elif kind == "large":
            self._answer(200, {"Content-Length": str(10 << 30)})
        elif kind == "endless":
            self._stream(bytes(1 << 16), 0.0)
        elif kind == "slow":
            self._stream(b"x", 0.2)
        elif kind == "garbage":
            self.wfile.write(b"nothing of http\r\n\r\n")
        else:
            size = {"Content-Length": str(len(self.recording))}
            self._answer(200, size, self.recording)

    def _answer(self, status: int, headers: Any = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, piece: bytes, pause_s: float) -> None:
        self._answer(200)
        try:
            while True:
                self.wfile.write(piece)
                time.sleep(pause_s)
        except OSError:
            pass

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def pages(marked: Any, tmp_path_factory: Any) -> Iterator[type[Pages]]:
    import soundfile as sf

    path = tmp_path_factory.mktemp("pages") / "a.wav"
    sf.write(path, marked, 16_000)
    made = type("Own", (Pages,), {"recording": path.read_bytes(), "seen": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), made)
    made.port = server.server_address[1]  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def fetching(pages: Any) -> Iterator[Service]:
    """A service that may reach the pages, and no other address that is not public."""
    limits = replace(LIMITS, link_s=3.0, workers=1, body_bytes=4 << 20)
    with serving(State(limits, allowed=frozenset({("127.0.0.1", pages.port)}))) as running:
        yield running


@pytest.fixture
def at(pages: Any) -> str:
    return f"http://127.0.0.1:{pages.port}"


def test_a_link_is_answered_as_the_file_is(fetching: Service, at: str, pages: Any) -> None:
    fetched = fetching.fetch(f"{at}/a.wav")
    assert fetched.json == fetching.ask("POST", "/detect", pages.recording).json
    assert fetched.json["present"]
    assert pages.seen[-1] == ("/a.wav", f"127.0.0.1:{pages.port}")


def test_redirects_are_followed_and_counted(fetching: Service, at: str) -> None:
    assert fetching.fetch(f"{at}/to//a.wav").json["present"]
    assert fetching.fetch(f"{at}/to/" * 5 + "/a.wav").json["present"]
    many = fetching.fetch(f"{at}/to/" * 7 + "/a.wav")
    assert (many.status, "redirects more than" in many.json["error"]) == (422, True)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_a_redirect_to_each_forbidden_address_is_refused(
    fetching: Service, at: str, address: str
) -> None:
    name = f"[{address}]" if ":" in address else address
    answer = fetching.fetch(f"{at}/to/http://{name}/a.wav")
    assert (answer.status, answer.json["error"]) == (422, FORBIDDEN)


def test_a_redirect_to_another_scheme_or_port_is_refused(fetching: Service, at: str) -> None:
    for link in ("file:///etc/passwd", "ftp://8.8.8.8/", "http://8.8.8.8:22/"):
        assert fetching.fetch(f"{at}/to/{link}").status == 422


def test_a_name_is_resolved_once_and_every_address_checked(
    fetching: Service, pages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    public, own = ("93.184.215.14", 80), ("127.0.0.1", pages.port)
    answers = {
        "both.test": [[public, ("10.0.0.1", 80)]],
        # The second answer would lead elsewhere: it is never asked for.
        "turns.test": [[own], [("10.0.0.1", pages.port)]],
    }
    real = socket.getaddrinfo

    def resolve(host: Any, *rest: Any, **more: Any) -> Any:
        if host not in answers:
            return real(host, *rest, **more)
        asked.append(host)
        turn = answers[host].pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one) for one in turn]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    both = fetching.fetch("http://both.test/a.wav")
    assert (both.status, both.json["error"]) == (422, FORBIDDEN)
    assert fetching.fetch(f"http://turns.test:{pages.port}/a.wav").json["present"]
    assert asked == ["both.test", "turns.test"]
    assert pages.seen[-1] == ("/a.wav", f"turns.test:{pages.port}")


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/status/404", 422, "status 404"),
        ("/status/204", 422, "status 204"),
        ("/gzip", 422, "compressed"),
        ("/large", 413, "more than 4 MiB"),
        ("/endless", 413, "more than 4 MiB"),
        ("/slow", 422, "within 3 s"),
        ("/garbage", 422, "cannot be fetched"),
    ],
)
def test_what_cannot_be_fetched_ends_in_a_sentence(
    fetching: Service, at: str, path: str, status: int, says: str
) -> None:
    answer = fetching.fetch(at + path)
    assert (answer.status, says in answer.json["error"]) == (status, True), answer.body
    assert fetching.settles()


def test_a_port_on_which_nothing_listens_ends_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    state = State(replace(LIMITS, workers=1), allowed=frozenset({("127.0.0.1", port)}))
    with serving(state) as own:
        assert "cannot be fetched" in own.fetch(f"http://127.0.0.1:{port}/").json["error"]


def test_links_can_be_turned_off() -> None:
    with serving(State(replace(LIMITS, workers=1), fetches=False)) as own:
        answer = own.fetch("https://example.com/a.wav")
        assert (answer.status, "no links" in answer.json["error"]) == (422, True)
        assert own.ask("GET", "/page/site.json").json["links"] is False


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"url": 1}', b'{"url": "x", "b": 1}'])
def test_json_without_a_link_is_refused(service: Service, body: bytes) -> None:
    answer = service.ask("POST", "/detect", body, "application/json")
    assert (answer.status, answer.json["error"]) == (422, "the JSON holds no link")
    long = service.ask("POST", "/detect", b" " * 20_000, "application/json")
    assert (long.status, long.json["error"]) == (422, "the JSON is too long")
