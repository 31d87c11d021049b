"""The page in a browser, and a web server for a folder of files."""

import contextlib
import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Page:
    """The page in a browser, and the results on it."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.requests, self.problems = page, list[Any](), list[str]()
        page.on("request", lambda one: self.requests.append(one))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._hear)
        page.goto(url)
        page.wait_for_selector("html[data-ready]")

    def _hear(self, message: Any) -> None:
        if message.type == "error" and "the server responded" not in message.text:
            self.problems.append(message.text)

    def choose(self, mode: str) -> None:
        self.page.check(f"#{mode}")

    def check(self, *paths: Path) -> list[Any]:
        """Choose files and return their cards, when all are checked."""
        before = self.page.locator(".card").count()
        self.page.set_input_files("#files", [str(one) for one in paths])
        return self.cards(before + len(paths))[: len(paths)][::-1]

    def cards(self, count: int) -> list[Any]:
        """Return all cards, the newest first, when there are so many and all are done."""
        done = self.page.locator('.card[aria-busy="false"]')
        done.nth(count - 1).wait_for(timeout=60_000 + 10_000 * count)
        return list(done.all())

    def found(self, *paths: Path) -> list[dict[str, Any]]:
        return [found_on(card) for card in self.check(*paths)]


def found_on(card: Any) -> dict[str, Any]:
    said = card.get_attribute("data-found")
    assert said, card.inner_text()
    found: dict[str, Any] = json.loads(said)
    return found


@contextlib.contextmanager
def static(folder: Path) -> Iterator[str]:
    """Serve a folder as any web server would."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
