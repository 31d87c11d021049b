"""A service that runs beside the tests, and files to send to it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile as sf

if TYPE_CHECKING:
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


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write samples to a file of some name."""

    def call(name: str, samples: Any, rate: int = RATE, **options: Any) -> Path:
        sf.write(tmp_path / name, samples, rate, **options)
        return tmp_path / name

    return call
