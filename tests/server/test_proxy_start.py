"""What a proxy needs to start: an upstream, and a mark that is read back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from fastapi import FastAPI
from made_proxy import HZ, state_of
from made_registry import KEY
from made_upstream import Upstream

from keybound.errors import KeyBoundError
from keybound.server import run
from keybound.server.makers import Maker
from keybound.server.proxy import upstream as upstreams


@pytest.mark.parametrize("host", ["silence", "garbage"])
def test_a_proxy_whose_mark_is_not_read_back_does_not_start(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KEY.write(tmp_path / "maker.key")
    state = state_of(Upstream({}, {}, 1), Maker(key_file=str(tmp_path / "maker.key"), payload=1))
    monkeypatch.setattr(state, "speech", tmp_path / "speech.flac")
    sf.write(state.speech, np.zeros(3 * HZ), HZ)
    if host == "garbage":
        state.speech.write_bytes(b"garbage" * 100)

    async def start() -> Any:
        async with state.open():
            raise AssertionError

    with pytest.raises(KeyBoundError, match="marked at the start is not read back"):
        asyncio.run(start())
    assert state.pool.alive == 0


def test_why_a_service_does_not_start_is_raised_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @contextlib.asynccontextmanager
    async def refuse(_: object) -> AsyncIterator[None]:
        raise KeyBoundError("no mark is found")
        yield

    with run.listen("127.0.0.1", 0) as socket, pytest.raises(KeyBoundError, match="no mark is"):
        run.run(FastAPI(lifespan=refuse), socket)
    assert not caplog.records


@pytest.mark.parametrize("url", ["", "ftp://a/v1", "http://", "http://a:x/v1", "http://a/?b=1"])
def test_what_is_no_upstream(url: str) -> None:
    with pytest.raises(KeyBoundError, match="not the address"):
        upstreams.Upstream.at(url)


def test_an_address_without_a_path_means_v1() -> None:
    for url in ("http://a", "http://a/", "http://a/v1", "http://a/v1/"):
        assert upstreams.Upstream.at(url).target(b"") == b"/v1/audio/speech"
    assert upstreams.Upstream.at("http://a/b").target(b"c=1") == b"/b/audio/speech?c=1"
