"""The service answers for every audio track of a video, as the command line does."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from made_registry import Kept, post
from made_service import LIMITS, Service

from keybound.server.answers import Found
from made_film import of_tracks

USUAL = dataclasses.replace(LIMITS, workers=1, fixed_s=0.1)

Run = Callable[..., Any]  # to the outcome of `run` in conftest

pytestmark = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")


@pytest.fixture(scope="module")
def film(
    desk: Service, all_of_it: str, speech: bytes, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A video whose second track carries a public identifier of alice."""
    marked = post(desk, "/embed?party=alice&public=true", speech, all_of_it).body
    return of_tracks(tmp_path_factory.mktemp("film"), speech, marked)


def test_every_track_is_detected_and_the_most_evident_comes_first(
    desk: Service, film: Path, run: Run
) -> None:
    told = post(desk, "/detect", film.read_bytes())
    assert told.status == 200, told
    Found.model_validate(told.json)
    first, second = told.json["tracks"]
    assert {name: told.json[name] for name in second} == second
    (claimed,) = second["claimed"]
    assert claimed.pop("record")["claimed"] is False
    printed = [json.loads(one) for one in run("detect", film, "--json").out.splitlines()]
    assert [one["present"] for one in printed] == [False, True]
    for one, line in zip((first, second), printed, strict=True):
        assert ["path", *one] == list(line)
        for name in ("track", "present", "claimed"):
            assert one[name] == line[name]
        assert one["evidence_s"] == pytest.approx(line["evidence_s"], abs=1e-3)
        assert len(one["spans"]) == len(line["spans"])


def test_every_track_is_identified_and_verified(
    desk: Service, kept: Kept, all_of_it: str, film: Path
) -> None:
    data = film.read_bytes()
    named = post(desk, "/identify", data, all_of_it).json
    (mark,) = named["marks"]
    assert (named["grade"], mark["track"], mark["party"]) == ("sealed", 2, "alice")
    verdict = post(desk, "/verify?party=alice", data, all_of_it).json
    assert (verdict["grade"], verdict["track"]) == ("sealed", 2)
    token = kept.token("asks-for-tracks", "ask")
    for route in ("/identify", "/verify?party=alice"):
        assert post(desk, route, data, token).json == {"grade": "sealed"}
    refused = post(desk, "/identify?signed=true", data, all_of_it)
    assert (refused.status, "several tracks" in refused.json["error"]) == (422, True)


def test_a_track_that_is_too_long_is_refused(desk: Service, speech: bytes, tmp_path: Path) -> None:
    sf.write(tmp_path / "long.flac", np.zeros(8_000 * 700, np.int16), 8_000)
    film = of_tracks(tmp_path, speech, (tmp_path / "long.flac").read_bytes())
    refused = post(desk, "/detect", film.read_bytes())
    assert (refused.status, refused.json["error"]) == (422, "the file is longer than 600 s")
