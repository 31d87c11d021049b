"""A service that runs beside the tests, files to send to it, and a browser for its page."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile as sf

if TYPE_CHECKING:
    from made_page import Page
    from made_registry import Kept
    from made_service import Service

RATE = 16_000


@pytest.fixture(scope="session")
def service() -> "Iterator[Service]":
    from made_service import LIMITS, serving  # absent packages skip tests, not this file

    from keybound.server.state import State

    with serving(State(LIMITS)) as running:
        yield running


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> "Kept":
    """A registry with two parties."""
    from made_registry import made

    return made(tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="module")
def all_of_it(kept: "Kept") -> str:
    """A token that allows everything."""
    from made_registry import ALL

    return kept.token("all", *ALL)


@pytest.fixture(scope="module")
def speech(clip: Any, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Ten seconds of speech as a WAV."""
    from made_registry import encoded

    return encoded(np.resize(clip, 10 * RATE), tmp_path_factory.mktemp("host"))


@pytest.fixture(scope="module")
def desk(kept: "Kept", request: pytest.FixtureRequest) -> "Iterator[Service]":
    """A service on the registry, with the limits that the tests call USUAL."""
    from made_service import serving

    from keybound.server.state import State

    own = State(request.module.USUAL, place=str(kept.place), signer=str(kept.signer))
    with serving(own) as running:
        yield running


@pytest.fixture(scope="module")
def marked_by_desk(desk: "Service", all_of_it: str, speech: bytes) -> bytes:
    """The speech, marked for alice."""
    from made_registry import post

    return post(desk, "/embed?party=alice", speech, all_of_it).body


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write samples to a file of some name."""

    def call(name: str, samples: Any, rate: int = RATE, **options: Any) -> Path:
        sf.write(tmp_path / name, samples, rate, **options)
        return tmp_path / name

    return call


# The page


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory, marked: Any) -> Iterator[Any]:
    """A browser whose microphone hears marked speech."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if program is None:
        pytest.skip("Chromium is not installed (apt install chromium)")
    heard = tmp_path_factory.mktemp("microphone") / "heard.wav"
    sf.write(heard, np.tile(marked, 8), RATE)
    arguments = [
        "--no-sandbox",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={heard}",
    ]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served() -> "Iterator[Service]":
    from made_service import LIMITS, serving

    from keybound.server.state import State

    with serving(State(LIMITS)) as running:
        yield running


@pytest.fixture
def page(chromium: Any, served: "Service") -> "Iterator[Page]":
    from made_page import Page

    with chromium.new_context(permissions=["microphone"]) as context:
        made = Page(context.new_page(), served.url)
        yield made
        assert not made.problems
